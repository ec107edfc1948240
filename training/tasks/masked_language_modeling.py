"""Masked language modelling: an encoder learns from running text by filling in tokens that were hidden from it."""

from collections.abc import Mapping, Sequence
from functools import cached_property, partial
from itertools import islice
from typing import Any

import numpy as np
import torch
from transformers import PreTrainedModel, PreTrainedTokenizerFast

from ...configuration.configuration_encoder import PaperformerEncoderConfig
from ...modeling.families import FAMILIES
from ...modeling.modeling_encoder import PaperformerForMaskedLM
from ..data.batches.masked_language_modeling import MaskedBlocks, find_ordinary_tokens, mask_tokens
from ..data.batches.text_batches import StreamedTextBatches, TextBatches
from ..data.splits import SplitFacts, Splits, text_splits
from ..data.tokenizers import TokenizerNeeds, Tokenizers, padded_size
from ..evaluation.evaluation_file import Evaluation
from ..evaluation.masked_tokens import TextToFillIn, predict_masked, pseudo_perplexity
from ..evaluation.metrics import Score
from ..recipe.data import MaskedTextData
from ..recipe.recipe import Recipe
from .base_model import initial_model
from .objective import CardWords, Objective
from .protocols import Task
from .running_text import held_out_facts, held_out_tokens, text_batches, windows

SAMPLE_TOKENS = 40
"""Length of a sample, in tokens."""


def masked_language_modeling_task(recipe: Recipe[MaskedTextData], splits: Splits, tokenizers: Tokenizers) -> Task:
    """Training, validation and test of an encoder on running text.

    Args:
        recipe: the run's options.
        splits: the text.
        tokenizers: the vocabulary's tokenizer, which has a mask token and appends nothing.

    Raises:
        InputError: if the training text is shorter than one context.
    """
    tokenizer = tokenizers.source
    return Task(
        build_model=partial(build_encoder, recipe, tokenizer),
        batches=masked_batches(recipe, splits, tokenizer),
        scoring=MaskedScoring(recipe, splits, tokenizer),
    )


def build_encoder(recipe: Recipe[MaskedTextData], tokenizer: PreTrainedTokenizerFast) -> PaperformerForMaskedLM:
    """An encoder with the head of masked prediction for the vocabulary."""

    def fresh_config() -> PaperformerEncoderConfig:
        return PaperformerEncoderConfig(
            **recipe.model,
            vocab_size=padded_size(tokenizer, recipe.tokenizer.pad_vocab_to_multiple_of),
            pad_token_id=tokenizer.pad_token_id,
            bos_token_id=tokenizer.bos_token_id,
            eos_token_id=tokenizer.eos_token_id,
        )

    model: PaperformerForMaskedLM = initial_model(recipe, FAMILIES["encoder"], fresh_config)
    return model


def masked_batches(
    recipe: Recipe[MaskedTextData], splits: Splits, tokenizer: PreTrainedTokenizerFast
) -> TextBatches | StreamedTextBatches:
    """Batches of full contexts of the training text, masked anew in each epoch.

    Raises:
        InputError: if there is less than one context.
    """
    collate = MaskedBlocks(
        is_ordinary=find_ordinary_tokens(tokenizer),
        mask_token_id=tokenizer.mask_token_id,
        pad_token_id=tokenizer.pad_token_id,
        probability=recipe.data.mask_probability,
    )
    return text_batches(recipe, splits, tokenizer, collate, has_placeholders=True)


class MaskedScoring:
    """Scores of an encoder on whole documents: how well it fills in masked tokens, always the same ones of a split.

    Args:
        recipe, splits: as for `masked_language_modeling_task`.
        tokenizer: the vocabulary's.
    """

    def __init__(self, recipe: Recipe[MaskedTextData], splits: Splits, tokenizer: PreTrainedTokenizerFast):
        self.recipe, self.tokenizer = recipe, tokenizer
        self.is_ordinary = find_ordinary_tokens(tokenizer)
        self.held_out = held_out_tokens(recipe, splits, tokenizer, has_placeholders=True)
        """Token ids of the splits that are scored, a row for each document."""

    def validate(self, model: PreTrainedModel) -> list[Score]:
        """Loss and accuracy on the validation split."""
        return predict_masked(model, self._text("validation")).scores()

    def evaluate(self, model: PreTrainedModel, split: str) -> Evaluation:
        """Scores of a whole split, and of the test split some samples filled in."""
        text = self._text(split)
        predicted = predict_masked(model, text)
        scores = predicted.scores()
        if self.recipe.data.pseudo_perplexity_tokens > 0:
            scores.append(pseudo_perplexity(model, text, self.recipe.data.pseudo_perplexity_tokens))
        if split != "test":
            return Evaluation(scores=scores, outputs=[])
        filled = self._fill(model, self.samples_of_test)
        return Evaluation(scores=scores, outputs=filled, passages=predicted.by_passage())

    def validation_samples(self, model: PreTrainedModel) -> list[list[str]]:
        """(masked, original, filled in) of the first words of the validation text."""
        samples = self._samples("validation", self.recipe.evaluation.validation_samples)
        return [
            [self._decode(masked), self._decode(original), output]
            for (masked, original), output in zip(samples, self._fill(model, samples), strict=True)
        ]

    def samples(self, outputs: Sequence[str]) -> list[tuple[str, ...]]:
        """(masked, original, filled in)."""
        return [
            (self._decode(masked), self._decode(original), output)
            for (masked, original), output in zip(self.samples_of_test, outputs, strict=False)
        ]

    def facts(self) -> list[SplitFacts]:
        """Sizes of the splits that are scored."""
        return held_out_facts(self.held_out)

    def _text(self, split: str) -> TextToFillIn:
        data = self.recipe.data
        return TextToFillIn(
            list(windows(self.held_out[split], data.context_length)),
            self.tokenizer,
            context_length=data.context_length,
            mask_probability=data.mask_probability,
        )

    @cached_property
    def samples_of_test(self) -> list[tuple[list[int], list[int]]]:
        """What is filled in for the card."""
        return self._samples("test", self.recipe.evaluation.samples)

    def _samples(self, split: str, count: int) -> list[tuple[list[int], list[int]]]:
        """(masked, original) ids of the first words of a split."""
        rng = np.random.default_rng(0)
        mask_id, probability = self.tokenizer.mask_token_id, self.recipe.data.mask_probability
        samples = []
        for ids in islice(windows(self.held_out[split], SAMPLE_TOKENS), count):
            _, labels = mask_tokens(ids[None], self.is_ordinary, mask_id, rng, probability)  # (1, T)
            samples.append((np.where(labels[0] == -100, ids, mask_id).tolist(), ids.tolist()))
        return samples

    @torch.inference_mode()
    def _fill(self, model: PreTrainedModel, samples: Sequence[tuple[list[int], list[int]]]) -> list[str]:
        """The likeliest token for each mask, all filled in at once."""
        model.eval()
        outputs = []
        for masked, _ in samples:
            ids = torch.tensor([masked], device=model.device)
            best = model(input_ids=ids, attention_mask=torch.ones_like(ids)).logits.argmax(-1)
            outputs.append(self._decode(torch.where(ids == self.tokenizer.mask_token_id, best, ids)[0].tolist()))
        return outputs

    def _decode(self, ids: Sequence[int]) -> str:
        return str(self.tokenizer.decode(list(ids))).strip()


def _describe(config: Mapping[str, Any], languages: Sequence[str]) -> tuple[str, str]:
    language = f" ({languages[0]})" if languages else ""
    return (
        f"An encoder-only Transformer of {config['num_hidden_layers']} layers",
        f"It fills in masked words of a text{language}, and makes vectors of texts.",
    )


def _limits(longest: int) -> list[str]:
    return [
        "It fills in tokens and gives vectors; it cannot generate text. A word of several tokens needs several masks. "
        f"It is made for at most {longest:,} tokens."
    ]


MASKED_LANGUAGE_MODELING = Objective(
    name="encoder",
    summary="Train an encoder by masked language modelling",
    hub_task="fill-mask",
    family=FAMILIES["encoder"],
    data=MaskedTextData,
    open_splits=text_splits,
    make_task=masked_language_modeling_task,
    tokenizer_needs=lambda recipe: TokenizerNeeds(append_eos=None, mask_token=True),
    selects_by_outputs=False,
    card=CardWords(
        title="Fill-mask",
        unit="documents",
        describe=_describe,
        use="""fill = pipeline("fill-mask", model=model_id, trust_remote_code=True)
print(fill({example}))""",
        call="""inputs = tokenizer({example}, return_tensors="pt")
best = model(**inputs).logits.argmax(-1)
filled = inputs.input_ids.where(inputs.input_ids != tokenizer.mask_token_id, best)
print(tokenizer.decode(filled[0]))""",
        own_use="print(paperformer.evaluate_text(model_id, {example}))  # how well it fills in this text",
        own_command='paperformer evaluate "$model_id" text.txt',
        about_scores="Loss and masked accuracy are over tokens masked as in training, always the same ones; "
        "pseudo-perplexity is over tokens masked one at a time, at random places (Salazar et al. 2020). All three "
        "compare only between models of the same vocabulary.",
        sample_columns=("Masked", "Original", "Filled in"),
        limits=_limits,
    ),
)
