"""Denoising: an encoder-decoder learns from running text by writing down the spans that were dropped from it (T5)."""

from collections.abc import Iterator, Mapping, Sequence
from functools import cached_property, partial
from itertools import islice
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from transformers import PreTrainedConfig, PreTrainedModel, PreTrainedTokenizerFast

from ...configuration.configuration_seq2seq import PaperformerSeq2SeqConfig
from ...modeling.families import FAMILIES
from ...modeling.modeling_seq2seq import PaperformerForConditionalGeneration
from ..console.progress import ProgressBar
from ..data.batches.span_corruption import CorruptedBlocks, collate_corrupted, count_sentinels, lengths_for
from ..data.batches.text_batches import StreamedTextBatches, TextBatches
from ..data.batches.token_budget import Batch
from ..data.splits import SplitFacts, Splits, text_splits
from ..data.tokenizers import TokenizerNeeds, Tokenizers, padded_size, sentinel_ids
from ..evaluation.decoding import generate
from ..evaluation.evaluation_file import Evaluation
from ..evaluation.metrics import EXACT_SPANS, Score
from ..evaluation.perplexity import loss_per_token
from ..recipe.data import CorruptedTextData
from ..recipe.recipe import Recipe
from .base_model import initial_model, set_generation
from .objective import CardWords, Objective
from .protocols import Task
from .running_text import held_out_facts, held_out_tokens, text_batches, windows

SAMPLE_TOKENS = 40
"""Length of a sample before it is corrupted, in tokens."""


def denoising_task(recipe: Recipe[CorruptedTextData], splits: Splits, tokenizers: Tokenizers) -> Task:
    """Training, validation and test of an encoder-decoder on running text.

    Args:
        recipe: the run's options.
        splits: the text.
        tokenizers: the vocabulary's tokenizer, which has sentinels and ends every text with `</s>`.

    Raises:
        InputError: if the training text is shorter than one context.
    """
    tokenizer = tokenizers.source
    return Task(
        build_model=partial(build_denoising_model, recipe, tokenizer),
        batches=denoising_batches(recipe, splits, tokenizer),
        scoring=DenoisingScoring(recipe, splits, tokenizer),
    )


def corrupted_lengths(data: CorruptedTextData) -> tuple[int, int]:
    """Tokens of text whose corrupted source just fills `context_length`, and tokens of its target."""
    return lengths_for(data.context_length, data.noise_density, data.mean_span_length)


def build_denoising_model(
    recipe: Recipe[CorruptedTextData], tokenizer: PreTrainedTokenizerFast
) -> PaperformerForConditionalGeneration:
    """An encoder-decoder for the vocabulary."""

    def fresh_config() -> PaperformerSeq2SeqConfig:
        return PaperformerSeq2SeqConfig(
            **recipe.model,
            vocab_size=padded_size(tokenizer, recipe.tokenizer.pad_vocab_to_multiple_of),
            pad_token_id=tokenizer.pad_token_id,
            bos_token_id=tokenizer.bos_token_id,
            eos_token_id=tokenizer.eos_token_id,
            decoder_start_token_id=tokenizer.bos_token_id,
        )

    model: PaperformerForConditionalGeneration = initial_model(recipe, FAMILIES["seq2seq"], fresh_config)
    set_generation(model, recipe, max_new_tokens=most_new_tokens(recipe.data, model.config))
    return model


def most_new_tokens(data: CorruptedTextData, config: PreTrainedConfig) -> int:
    """How many tokens the model may write: twice as many as the target of a full context has."""
    return min(2 * corrupted_lengths(data)[1], config.max_position_embeddings - 1)


def denoising_batches(
    recipe: Recipe[CorruptedTextData], splits: Splits, tokenizer: PreTrainedTokenizerFast
) -> TextBatches | StreamedTextBatches:
    """Batches of full contexts of the training text, corrupted anew in each epoch.

    Raises:
        InputError: if there is less than one context.
    """
    data = recipe.data
    collate = CorruptedBlocks(
        sentinel_ids=np.array(sentinel_ids(tokenizer)),
        eos_token_id=tokenizer.eos_token_id,
        pad_token_id=tokenizer.pad_token_id,
        noise_density=data.noise_density,
        mean_span_length=data.mean_span_length,
    )
    length, _ = corrupted_lengths(data)
    return text_batches(recipe, splits, tokenizer, collate, block_length=length, has_placeholders=True)


class DenoisingScoring:
    """Scores of a denoising model on whole documents, always corrupted in the same places.

    Args:
        recipe, splits: as for `denoising_task`.
        tokenizer: the vocabulary's.
    """

    def __init__(self, recipe: Recipe[CorruptedTextData], splits: Splits, tokenizer: PreTrainedTokenizerFast):
        self.recipe, self.tokenizer = recipe, tokenizer
        self.sentinels = np.array(sentinel_ids(tokenizer))
        self.held_out = held_out_tokens(recipe, splits, tokenizer, has_placeholders=True)
        """Token ids of the splits that are scored, a row for each document."""

    def validate(self, model: PreTrainedModel) -> list[Score]:
        """Loss on the validation split."""
        return [self._loss(model, "validation")]

    def evaluate(self, model: PreTrainedModel, split: str) -> Evaluation:
        """Loss and exact spans of a whole split, and of the test split some samples restored."""
        options = self.recipe.evaluation
        decoding = {"num_beams": options.num_beams, "length_penalty": options.length_penalty}
        scores = [self._exact_spans(model, split), self._loss(model, split)]
        outputs = [self._decode(ids) for ids in self._restore_samples(model, "test")] if split == "test" else []
        return Evaluation(scores=scores, outputs=outputs, decoding=decoding)

    def validation_samples(self, model: PreTrainedModel) -> list[list[str]]:
        """(corrupted, dropped spans, output) of the first words of the validation text."""
        samples = self.sample_texts["validation"]
        outputs = self._restore_samples(model, "validation")
        return [[*texts, self._decode(output)] for texts, output in zip(samples, outputs, strict=True)]

    def samples(self, outputs: Sequence[str]) -> list[tuple[str, ...]]:
        """(corrupted, dropped spans, output)."""
        return [(*texts, output) for texts, output in zip(self.sample_texts["test"], outputs, strict=False)]

    def facts(self) -> list[SplitFacts]:
        """Sizes of the splits that are scored."""
        return held_out_facts(self.held_out)

    def _loss(self, model: PreTrainedModel, split: str) -> Score:
        return loss_per_token(model, self._corrupted_windows(split))

    def _exact_spans(self, model: PreTrainedModel, split: str) -> Score:
        """How many of the dropped spans the model writes down as they were, of all windows of a split."""
        exact = spans = 0
        for batch in self._corrupted_windows(split):
            outputs = self._restore(model, batch)
            for labels, output in zip(batch["labels"].tolist(), outputs, strict=True):
                wanted, written = self._spans(labels), self._spans(output)
                exact += sum(written.get(sentinel) == span for sentinel, span in wanted.items())
                spans += len(wanted)
        return Score(metric=EXACT_SPANS, value=100 * exact / max(1, spans), count=spans)

    def _corrupted_windows(self, split: str) -> Iterator[Batch]:
        """Batches of a split, corrupted in the same places at every call."""
        length, _ = corrupted_lengths(self.recipe.data)
        pieces = sorted(windows(self.held_out[split], length), key=len, reverse=True)
        rng = np.random.default_rng(0)
        size = max(1, self.recipe.optimization.tokens_per_batch // self.recipe.data.context_length)
        with ProgressBar(total=len(pieces), desc="score", unit=" windows") as bar:
            for first in range(0, len(pieces), size):
                part = pieces[first : first + size]
                yield self._corrupt(part, rng)
                bar.update(len(part))

    def _corrupt(self, rows: Sequence[NDArray[np.integer[Any]]], rng: np.random.Generator) -> Batch:
        data, tokenizer = self.recipe.data, self.tokenizer
        return collate_corrupted(
            rows,
            self.sentinels,
            tokenizer.eos_token_id,
            tokenizer.pad_token_id,
            rng,
            data.noise_density,
            data.mean_span_length,
        )

    @torch.inference_mode()
    def _restore(self, model: PreTrainedModel, batch: Batch) -> list[list[int]]:
        """What the model writes for corrupted texts: token ids, without the first."""
        model.eval()
        options = self.recipe.evaluation
        outputs = generate(
            model,
            input_ids=batch["input_ids"].to(model.device),
            attention_mask=batch["attention_mask"].to(model.device),
            num_beams=options.num_beams,
            length_penalty=options.length_penalty,
            do_sample=False,
            max_new_tokens=most_new_tokens(self.recipe.data, model.config),
        )
        return outputs[:, 1:].tolist()

    def _spans(self, ids: Sequence[int]) -> dict[int, tuple[int, ...]]:
        """Sentinel -> the tokens behind it, up to the next one; the last one only says that no span follows."""
        ends = [self.tokenizer.eos_token_id, self.tokenizer.pad_token_id, -100]
        sentinels, spans = set(self.sentinels.tolist()), {}
        current: list[int] = []
        sentinel = None
        for token in ids:
            if token in sentinels or token in ends:
                if sentinel is not None:
                    spans[sentinel] = tuple(current)
                current, sentinel = [], token
                if token in ends:
                    break
            else:
                current.append(token)
        return {sentinel: span for sentinel, span in spans.items() if span}

    @cached_property
    def sample_batches(self) -> dict[str, list[Batch]]:
        """The first words of each split, corrupted, one sample a batch."""
        counts = {
            "validation": self.recipe.evaluation.validation_samples,
            "test": self.recipe.evaluation.samples,
        }
        batches: dict[str, list[Batch]] = {}
        for split, count in counts.items():
            rng = np.random.default_rng(0)
            longest = min(SAMPLE_TOKENS, corrupted_lengths(self.recipe.data)[0])
            rows = islice(windows(self.held_out[split], longest), count)
            batches[split] = [self._corrupt([row], rng) for row in rows]
        return batches

    @property
    def sample_texts(self) -> dict[str, list[tuple[str, str]]]:
        """(corrupted, dropped spans) of the samples of each split."""
        return {
            split: [(self._decode(b["input_ids"][0].tolist()), self._decode(b["labels"][0].tolist())) for b in batches]
            for split, batches in self.sample_batches.items()
        }

    def _restore_samples(self, model: PreTrainedModel, split: str) -> list[list[int]]:
        return [output for batch in self.sample_batches[split] for output in self._restore(model, batch)]

    def _decode(self, ids: Sequence[int]) -> str:
        """The text without what ends it; sentinels stay."""
        ends = (self.tokenizer.eos_token_id, self.tokenizer.pad_token_id)
        return str(self.tokenizer.decode([token for token in ids if token not in ends])).strip()


def _describe(config: Mapping[str, Any], languages: Sequence[str]) -> tuple[str, str]:
    layers = f"{config['encoder_layers']} + {config['decoder_layers']}"
    language = f" ({languages[0]})" if languages else ""
    return (
        f"An encoder-decoder Transformer of {layers} layers",
        f"It writes what was left out of a text{language}, and is meant to be trained further.",
    )


def _limits(longest: int) -> list[str]:
    return [
        "It writes the spans that stand where the text has <extra_id_0>, <extra_id_1> and so on, and nothing else. "
        f"It is made for at most {longest:,} tokens."
    ]


def _needs(recipe: Recipe[CorruptedTextData]) -> TokenizerNeeds:
    data = recipe.data
    sentinels = count_sentinels(corrupted_lengths(data)[0], data.noise_density, data.mean_span_length)
    return TokenizerNeeds(append_eos=True, max_length=data.context_length, sentinels=sentinels)


DENOISING = Objective(
    name="denoising",
    summary="Train an encoder-decoder by denoising",
    hub_task="text2text-generation",
    family=FAMILIES["seq2seq"],
    data=CorruptedTextData,
    open_splits=text_splits,
    make_task=denoising_task,
    tokenizer_needs=_needs,
    selects_by_outputs=False,
    card=CardWords(
        title="Text-to-text generation",
        unit="documents",
        describe=_describe,
        call="""outputs = model.generate(**tokenizer({example}, return_tensors="pt"))
print(tokenizer.decode(outputs[0]))""",
        about_scores="Loss and exact spans are over spans dropped as in training, always the same ones. They compare "
        "only between models of the same vocabulary.",
        sample_columns=("Source", "Dropped", "Output"),
        limits=_limits,
    ),
)
