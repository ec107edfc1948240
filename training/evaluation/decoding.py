"""What a model writes: `generate`, and translations in batches."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from transformers import PreTrainedModel, PreTrainedTokenizerBase

from ..console.progress import ProgressBar, is_first_process
from ..data.batches.token_budget import pad, token_budget_batches

LENGTH_STEP = 8
"""Tokens: sources between two multiples of it have translations of the same greatest length."""

HYPOTHESES_FOR_ONE = 4
"""So many hypotheses of a source count as one in the budget of a batch. They share what is computed of their source,
and every batch ends in steps for a few sentences: counting each of 5 beams takes 1.2 to 1.3 times as long, on one
thread, in batches of a quarter of the sentences."""


def generate(model: PreTrainedModel, **arguments: Any) -> torch.Tensor:
    """`model.generate`: every model has it that can generate, and transformers' type hints say so of none."""
    untyped: Any = model
    return untyped.generate(**arguments)


def longest_sequence(model: PreTrainedModel) -> int:
    """How many tokens a model is made for, by its configuration; 512 where that does not say, as of T5."""
    return int(getattr(model.config, "max_position_embeddings", None) or 512)


def length_class(source_length: int) -> int:
    """The multiple of `LENGTH_STEP` that a source's tokens are rounded up to."""
    return -(-source_length // LENGTH_STEP) * LENGTH_STEP


def longest_translation(source_length: int, longest: int) -> int:
    """How many tokens the translation of a source of so many may have, of a model that takes at most `longest`."""
    return min(2 * length_class(source_length) + 20, longest - 1)


@dataclass(frozen=True)
class SourceBatch:
    """Sources that are decoded together: they may all become as long."""

    rows: NDArray[np.int64]
    """Which of the sources they are, (B,)."""
    input_ids: torch.Tensor
    """(B, S)."""
    attention_mask: torch.Tensor
    """(B, S)."""
    max_new_tokens: int


def source_batches(
    model: PreTrainedModel,
    tokenizer: PreTrainedTokenizerBase,
    sources: Sequence[str],
    *,
    max_length: int,
    hypotheses: int,
    tokens_per_batch: int = 4096,
) -> Iterator[SourceBatch]:
    """Raw sources as batches for `generate`, each source in one of them.

    How long a translation may be depends on its source alone (see `longest_translation`), and only sources of which
    that is the same lie in one batch.

    Args:
        max_length: longer sources are truncated to so many tokens.
        hypotheses: how many are searched for at a time of each source, such as the beams.
        tokens_per_batch: budget of a batch in tokens of its sources, of which those with more than
            `HYPOTHESES_FOR_ONE` hypotheses count more.
    """
    budget = min(tokens_per_batch, HYPOTHESES_FOR_ONE * tokens_per_batch // hypotheses)
    ids = tokenizer(list(sources), truncation=True, max_length=max_length).input_ids if sources else []
    lengths = np.array([len(sequence) for sequence in ids], dtype=np.int64)
    classes = np.array([length_class(len(sequence)) for sequence in ids], dtype=np.int64)
    for length in sorted(set(classes.tolist()), reverse=True):  # a batch too large for memory fails first
        alike = np.flatnonzero(classes == length)
        for batch in token_budget_batches(lengths[alike], max(1, budget), np.random.default_rng(0)):
            rows = alike[batch]
            input_ids = pad([ids[i] for i in rows], tokenizer.pad_token_id).to(model.device)
            mask = (input_ids != tokenizer.pad_token_id).long()
            yield SourceBatch(rows, input_ids, mask, longest_translation(length, longest_sequence(model)))


@torch.no_grad()  # not inference_mode: sharded weights that are gathered in it could not be trained
def translate(
    model: PreTrainedModel,
    tokenizer: PreTrainedTokenizerBase,
    sources: Sequence[str],
    *,
    target_tokenizer: PreTrainedTokenizerBase | None = None,
    num_beams: int = 5,
    length_penalty: float = 1.0,
    max_length: int = 128,
    tokens_per_batch: int = 4096,
    show_progress: bool = True,
) -> list[str]:
    """Translates texts by beam search (greedily with one beam), in the order given.

    A translation depends on its source alone, but for rounding: `source_batches` says how.

    Args:
        tokenizer: of the sources, and of the translations where there is no other.
        sources: raw texts; longer ones than `max_length` tokens are truncated.
        target_tokenizer: of the translations, for a model with two vocabularies.
        num_beams: beam size.
        length_penalty: a hypothesis' log-probability is divided by its length to this power.
        max_length, tokens_per_batch: as `source_batches` takes them.
        show_progress: whether work of more than a second shows how far it is.
    """
    model.eval()
    if not sources:
        return []
    decoding_tokenizer = tokenizer if target_tokenizer is None else target_tokenizer
    translations = [""] * len(sources)
    batches = source_batches(
        model, tokenizer, sources, max_length=max_length, hypotheses=num_beams, tokens_per_batch=tokens_per_batch
    )
    described, is_shown = f"translate, beam {num_beams}", show_progress and is_first_process()
    with ProgressBar(total=len(sources), desc=described, unit=" sent", disable=not is_shown) as bar:
        for batch in batches:
            outputs = generate(
                model,
                input_ids=batch.input_ids,
                attention_mask=batch.attention_mask,
                num_beams=num_beams,
                length_penalty=length_penalty,
                do_sample=False,
                max_new_tokens=batch.max_new_tokens,
            )
            texts = decoding_tokenizer.batch_decode(outputs, skip_special_tokens=True)
            for i, text in zip(batch.rows, texts, strict=True):
                translations[i] = text
            bar.update(len(batch.rows))
    return translations
