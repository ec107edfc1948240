"""What a model writes: `generate`, and translations in batches."""

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from transformers import PreTrainedModel, PreTrainedTokenizerBase

from ..console.progress import ProgressBar, is_first_process
from ..data.batches.token_budget import pad, token_budget_batches

LENGTH_STEP = 8
"""Tokens: sources between two multiples of it have translations of the same greatest length."""


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

    How long a translation may be depends on its source alone, and so does the translation, but for rounding: texts are
    put into one batch only where they may become as long.

    Args:
        tokenizer: of the sources, and of the translations where there is no other.
        sources: raw texts; longer ones than `max_length` tokens are truncated.
        target_tokenizer: of the translations, for a model with two vocabularies.
        num_beams: beam size.
        length_penalty: a hypothesis' log-probability is divided by its length to this power.
        max_length: longest source; a target may be twice as long as its source, rounded up to a multiple of
            `LENGTH_STEP`, plus 20 tokens.
        tokens_per_batch: budget of a batch, counting every beam.
        show_progress: whether work of more than a second shows how far it is.
    """
    model.eval()
    if not sources:
        return []
    decoding_tokenizer = tokenizer if target_tokenizer is None else target_tokenizer
    ids = tokenizer(list(sources), truncation=True, max_length=max_length).input_ids
    lengths = np.array([len(sequence) for sequence in ids])
    classes = np.array([length_class(len(sequence)) for sequence in ids])
    translations = [""] * len(ids)
    is_shown = show_progress and is_first_process()
    with ProgressBar(total=len(ids), desc=f"translate, beam {num_beams}", unit=" sent", disable=not is_shown) as bar:
        for longest in sorted(set(classes.tolist()), reverse=True):  # a batch too large for memory fails first
            alike = np.flatnonzero(classes == longest)
            for batch in token_budget_batches(
                lengths[alike], max(1, tokens_per_batch // num_beams), np.random.default_rng(0)
            ):
                rows = alike[batch]
                input_ids = pad([ids[i] for i in rows], tokenizer.pad_token_id).to(model.device)
                outputs = generate(
                    model,
                    input_ids=input_ids,
                    attention_mask=(input_ids != tokenizer.pad_token_id).long(),
                    num_beams=num_beams,
                    length_penalty=length_penalty,
                    do_sample=False,
                    max_new_tokens=longest_translation(longest, longest_sequence(model)),
                )
                texts = decoding_tokenizer.batch_decode(outputs, skip_special_tokens=True)
                for i, text in zip(rows, texts, strict=True):
                    translations[i] = text
                bar.update(len(rows))
    return translations
