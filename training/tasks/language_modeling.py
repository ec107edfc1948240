"""Language modelling: running text, packed into contexts of equal length, and its scores."""

from collections.abc import Mapping, Sequence
from functools import cached_property, partial
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from transformers import PreTrainedModel, PreTrainedTokenizerFast

from ...configuration.configuration_lm import PaperformerLMConfig
from ...modeling.families import FAMILIES
from ...modeling.modeling_lm import PaperformerForCausalLM
from ..data.batches.packing import CausalBlocks
from ..data.batches.text_batches import StreamedTextBatches, TextBatches
from ..data.batches.token_budget import TokenIds
from ..data.splits import SplitFacts, Splits, domains_of_rows, text_splits
from ..data.tokenizers import TokenizerNeeds, Tokenizers, padded_size
from ..evaluation.decoding import generate
from ..evaluation.domains import gather_others
from ..evaluation.evaluation_file import Evaluation
from ..evaluation.metrics import BITS_PER_BYTE, LOSS, Score
from ..evaluation.passages import losses_by_passage, name_passages
from ..evaluation.perplexity import language_model_scores, losses_of_tokens
from ..recipe.data import TextData
from ..recipe.recipe import Recipe
from .base_model import initial_model, set_generation
from .objective import CardWords, Objective
from .protocols import Task
from .running_text import first_lines, held_out_facts, held_out_tokens, row_bytes, text_batches


def language_modeling_task(recipe: Recipe[TextData], splits: Splits, tokenizers: Tokenizers) -> Task:
    """Training, validation and test of a decoder-only model on running text.

    Args:
        recipe: the run's options.
        splits: the text.
        tokenizers: the vocabulary's tokenizer, which appends nothing.

    Raises:
        InputError: if the training text is shorter than one context.
    """
    tokenizer = tokenizers.source
    return Task(
        build_model=partial(build_language_model, recipe, tokenizer),
        batches=language_modeling_batches(recipe, splits, tokenizer),
        scoring=LanguageModelScoring(recipe, splits, tokenizer),
    )


def build_language_model(recipe: Recipe[TextData], tokenizer: PreTrainedTokenizerFast) -> PaperformerForCausalLM:
    """A decoder-only model for the vocabulary."""

    def fresh_config() -> PaperformerLMConfig:
        return PaperformerLMConfig(
            **recipe.model,
            vocab_size=padded_size(tokenizer, recipe.tokenizer.pad_vocab_to_multiple_of),
            pad_token_id=tokenizer.pad_token_id,
            bos_token_id=tokenizer.bos_token_id,
            eos_token_id=tokenizer.eos_token_id,
        )

    model: PaperformerForCausalLM = initial_model(recipe, FAMILIES["lm"], fresh_config)
    longest = min(200, recipe.data.context_length // 2)
    set_generation(model, recipe, do_sample=True, top_p=0.95, temperature=0.9, max_new_tokens=longest)
    return model


def language_modeling_batches(
    recipe: Recipe[TextData], splits: Splits, tokenizer: PreTrainedTokenizerFast
) -> TextBatches | StreamedTextBatches:
    """Batches of the training text, each of full contexts.

    Raises:
        InputError: if there is less than one.
    """
    separate = recipe.data.separate_documents
    collate = CausalBlocks(pad_token_id=tokenizer.pad_token_id, separate_documents=separate)
    return text_batches(recipe, splits, tokenizer, collate, is_causal=True)


class LanguageModelScoring:
    """Scores of a language model on whole documents, and continuations of their beginnings.

    Args:
        recipe, splits: as for `language_modeling_task`.
        tokenizer: the vocabulary's.
    """

    def __init__(self, recipe: Recipe[TextData], splits: Splits, tokenizer: PreTrainedTokenizerFast):
        self.recipe, self.splits, self.tokenizer = recipe, splits, tokenizer
        self.held_out = held_out_tokens(recipe, splits, tokenizer)
        """Token ids of the splits that are scored, a row for each document."""

    def validate(self, model: PreTrainedModel) -> list[Score]:
        """Loss and bits a byte of the validation split."""
        return [score for score in self._scores(model, "validation") if score.metric in (LOSS, BITS_PER_BYTE)]

    def evaluate(self, model: PreTrainedModel, split: str) -> Evaluation:
        """Scores of a whole split, and of the test split sampled continuations of its beginning."""
        if split != "test":
            return Evaluation(scores=self._scores(model, split), outputs=[])
        losses = losses_of_tokens(model, self._documents(split), self.recipe.data.context_length)
        domains = domains_of_rows(self.recipe.data, self.splits.test)
        passages = losses_by_passage(losses, self.splits.test.chunks(), self.tokenizer)
        return Evaluation(
            scores=self._scores(model, split, losses),
            outputs=self._continue(model, self.prompts),
            passages=passages,
            domains=gather_others(name_passages(passages, row_bytes(self.splits.test), domains)),
        )

    def _documents(self, split: str) -> list[TokenIds]:
        store = self.held_out[split]
        return [store.row(index)[0] for index in range(len(store))]

    def _scores(
        self, model: PreTrainedModel, split: str, token_losses: Sequence[NDArray[np.float64]] | None = None
    ) -> list[Score]:
        return language_model_scores(
            model,
            self._documents(split),
            getattr(self.splits, split).texts("text"),
            self.recipe.data.context_length,
            token_losses=token_losses,
        )

    def validation_samples(self, model: PreTrainedModel) -> list[list[str]]:
        """(prompt, continuation) of the first lines of the validation text."""
        prompts = self._prompts("validation", self.recipe.evaluation.validation_samples)
        outputs = self._continue(model, prompts)
        return [[prompt, output] for prompt, output in zip(prompts, outputs, strict=True)]

    def samples(self, outputs: Sequence[str]) -> list[tuple[str, ...]]:
        """(prompt, continuation)."""
        return list(zip(self.prompts, outputs, strict=False))

    def facts(self) -> list[SplitFacts]:
        """Sizes of the splits that are scored."""
        return held_out_facts(self.held_out)

    @cached_property
    def prompts(self) -> list[str]:
        """What is continued for the card."""
        return self._prompts("test", min(3, self.recipe.evaluation.samples))

    def _prompts(self, split: str, count: int) -> list[str]:
        """The first lines of a split that are not blank; of a long one, as much as fills half a context."""
        prompts = []
        for line in first_lines(getattr(self.splits, split), count):
            ids = self.tokenizer(line).input_ids
            most = max(1, self.recipe.data.context_length // 2 - 1)  # and `<s>`
            # A cut inside a character leaves the sign for undecodable bytes at the end.
            prompts.append(line if len(ids) <= most else self.tokenizer.batch_decode([ids[:most]])[0].rstrip("\ufffd"))
        return prompts

    def _continue(self, model: PreTrainedModel, prompts: list[str]) -> list[str]:
        model.eval()
        torch.manual_seed(self.recipe.run.seed)
        outputs: list[str] = []
        for prompt in prompts:
            ids = torch.tensor([[self.tokenizer.bos_token_id, *self.tokenizer(prompt).input_ids]], device=model.device)
            output = generate(model, input_ids=ids, attention_mask=torch.ones_like(ids))
            outputs += self.tokenizer.batch_decode(output[:, ids.shape[1] :], skip_special_tokens=True)
        return outputs


def _describe(config: Mapping[str, Any], languages: Sequence[str]) -> tuple[str, str]:
    language = f" ({languages[0]})" if languages else ""
    return f"A decoder-only Transformer of {config['num_hidden_layers']} layers", f"It continues text{language}."


def _limits(longest: int) -> list[str]:
    return [
        "It continues text and does nothing else: it follows no instructions and knows no facts. "
        f"It is made for at most {longest:,} tokens."
    ]


LANGUAGE_MODELING = Objective(
    name="lm",
    summary="Train a language model",
    hub_task="text-generation",
    family=FAMILIES["lm"],
    data=TextData,
    open_splits=text_splits,
    make_task=language_modeling_task,
    tokenizer_needs=lambda recipe: TokenizerNeeds(append_eos=False),
    selects_by_outputs=False,
    card=CardWords(
        title="Text generation",
        unit="documents",
        describe=_describe,
        use="""generate = pipeline("text-generation", model=model_id, trust_remote_code=True)
print(generate({example}, max_new_tokens=100)[0]["generated_text"])""",
        generation=", max_new_tokens=100",
        own_use="print(paperformer.generate(model_id, {example}))",
        own_command='paperformer generate "$model_id" {example}',
        about_scores="Perplexities compare only where they are counted over the same units; bits a byte do not depend "
        "on the vocabulary.",
        limits=_limits,
    ),
)
