"""The task of language modelling: running text, packed into contexts of equal length, and its scores."""

from functools import cached_property, partial
from itertools import islice
from typing import Any

import torch
from transformers import GenerationConfig, PreTrainedModel

from ..configuration.configuration_lm import PaperformerLMConfig
from ..modeling.modeling_lm import PaperformerForCausalLM
from .card import SplitFacts
from .corpora import Splits, cache_folder
from .data.corpus import TextStream
from .data.text_batches import BlockOptions, StreamedTextBatches, TextBatches
from .data.tokenizing import batch_encoder, encoded_documents, tokenized_documents
from .evaluation import generate, language_model_scores
from .input_error import InputError
from .options.data import TextData
from .recipe import Recipe
from .run_tokenizers import Tokenizers, padded_size


class LanguageModelingTask:
    """Training, validation and test of a decoder-only model on running text.

    Args:
        recipe: the run's options.
        splits: the text.
        tokenizers: the vocabulary's tokenizer, which appends nothing.

    Raises:
        InputError: if the training text is shorter than one context.
    """

    def __init__(self, recipe: Recipe[TextData], splits: Splits, tokenizers: Tokenizers):
        self.recipe, self.corpora, self.tokenizer = recipe, splits, tokenizers.source
        self.batches = self._training_batches()
        self.pools, self.collate = self.batches.pools, self.batches.collate
        self.longest_batch = self.batches.longest_batch
        cache = cache_folder(recipe)
        self.held_out = {
            "validation": tokenized_documents(cache, splits.validation, self.tokenizer),
            "test": tokenized_documents(cache, splits.test, self.tokenizer),
        }
        """Token ids of the splits that are scored, a row for each document."""

    def _training_batches(self) -> TextBatches | StreamedTextBatches:
        data, train, tokenizer = self.recipe.data, self.corpora.train, self.tokenizer
        options = BlockOptions(
            context_length=data.context_length,
            blocks_per_batch=max(1, self.recipe.optimization.tokens_per_batch // data.context_length),
            seed=self.recipe.run.seed,
            pad_token_id=tokenizer.pad_token_id,
            separate_documents=data.separate_documents,
        )
        if isinstance(train, TextStream):
            encode = partial(
                encoded_documents,
                encode=batch_encoder(tokenizer, add_special_tokens=False),
                begin=tokenizer.bos_token_id,
                end=tokenizer.eos_token_id,
            )
            return StreamedTextBatches(train.chunks, encode, options, data.shuffle_buffer)
        store = tokenized_documents(cache_folder(self.recipe), train, tokenizer)
        if len(store.ids) < data.context_length:
            raise InputError(
                f"data.train has {len(store.ids):,} tokens; it needs at least data.context_length "
                f"({data.context_length:,})"
            )
        return TextBatches(train, store, options, weights=self.corpora.weights, temperature=data.temperature)

    def build_model(self) -> PaperformerForCausalLM:
        tokenizer = self.tokenizer
        config = PaperformerLMConfig(
            **self.recipe.model,
            vocab_size=padded_size(tokenizer, self.recipe.tokenizer.pad_vocab_to_multiple_of),
            pad_token_id=tokenizer.pad_token_id,
            bos_token_id=tokenizer.bos_token_id,
            eos_token_id=tokenizer.eos_token_id,
        )
        model = PaperformerForCausalLM(config)
        model.generation_config = GenerationConfig(
            pad_token_id=tokenizer.pad_token_id,
            bos_token_id=tokenizer.bos_token_id,
            eos_token_id=tokenizer.eos_token_id,
            do_sample=True,
            top_p=0.95,
            temperature=0.9,
            max_new_tokens=min(200, self.recipe.data.context_length // 2),
        )
        return model

    def validate(self, model: PreTrainedModel) -> dict[str, float]:
        scores, _ = self.evaluate(model, "validation")
        return {"loss": scores["loss"]["nats_per_token"], "bits_per_byte": scores["bits_per_byte"]}

    def evaluate(self, model: PreTrainedModel, split: str) -> tuple[dict[str, Any], list[str]]:
        """Scores of a whole split, and sampled continuations of its beginning."""
        store = self.held_out[split]
        documents = (store.row(index)[0] for index in range(len(store)))
        texts = getattr(self.corpora, split).texts("text")
        scores = {"task": "text-generation", "split": split}
        scores |= language_model_scores(model, documents, texts, self.recipe.data.context_length)
        return scores, (self._continue(model, self.prompts) if split == "test" else [])

    def validation_samples(self, model: PreTrainedModel) -> list[list[str]]:
        """(prompt, continuation) of the first lines of the validation text."""
        prompts = self._prompts("validation", self.recipe.evaluation.validation_samples)
        outputs = self._continue(model, prompts)
        return [[prompt, output] for prompt, output in zip(prompts, outputs, strict=True)]

    @cached_property
    def prompts(self) -> list[str]:
        """What is continued for the card."""
        return self._prompts("test", min(3, self.recipe.evaluation.samples))

    def _prompts(self, split: str, count: int) -> list[str]:
        """The first lines of a split that are not blank; of a long one, as much as fills half a context."""
        pieces = getattr(self.corpora, split).texts("text")
        lines = (line + "\n" for piece in pieces for line in piece.split("\n") if line.strip())
        prompts = []
        for line in islice(lines, count):
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

    def describe_batches(self) -> str:
        """How many batches an epoch has."""
        options = self.batches.options
        shape = f"{options.blocks_per_batch} x {options.context_length} tokens"
        if not isinstance(self.batches, TextBatches):
            return f"batches of {shape}, made while training"
        return f"an epoch: {sum(map(len, self.batches.pools(0, 0))):,} batches of {shape}"

    def samples(self, outputs: list[str]) -> list[tuple[str, str]]:
        """(prompt, continuation)."""
        return list(zip(self.prompts, outputs, strict=False))

    def splits(self) -> list[SplitFacts]:
        """Sizes of the splits, for the card; those of a stream are not known."""
        facts = [SplitFacts(name="train", examples=None)]
        if isinstance(self.batches, TextBatches):
            store = self.batches.store
            facts = [SplitFacts(name="train", examples=len(store), tokens=len(store.ids))]
        return facts + [
            SplitFacts(name=split, examples=len(store), tokens=len(store.ids)) for split, store in self.held_out.items()
        ]
