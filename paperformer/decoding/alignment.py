"""Which words of a source and of its translation belong together, by the decoder's attention to the encoder.

Shapes: B pairs, H heads, S source tokens, T target tokens.
"""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor
from transformers import PreTrainedModel, PreTrainedTokenizerBase

from ..training.console.input_error import InputError
from ..training.data.batches.token_budget import pad
from .ensemble import Ensemble

Alignment = tuple[tuple[int, int], ...]
"""Places of a word of the source and of one of the target, from 0; words are what white space separates."""

PAIRS_AT_A_TIME = 16


@torch.no_grad()
def align_words(
    model: PreTrainedModel,
    tokenizer: PreTrainedTokenizerBase,
    target_tokenizer: PreTrainedTokenizerBase | None,
    sources: Sequence[str],
    translations: Sequence[str],
    *,
    longest: int,
    prefix: str = "",
    layer: int | None = None,
) -> list[Alignment]:
    """The alignment of each pair of texts, as the model attends when it is made to write the translation.

    The weights are the mean over the heads of one layer, at the step that writes a token (Garg et al. 2019, arXiv
    1909.02074). A token of the translation belongs to the token of the source with the highest weight, or
    to none where that is the mark of the source's end; a word belongs to those to which its tokens do.

    Args:
        longest: tokens of the longest text; of a longer one the beginning is aligned.
        prefix: what stands before each source; its words are not counted, and nothing belongs to them.
        layer: of the decoder, from 0; by default the last but one, which they found to do best. Of an ensemble,
            that of each model, and the mean over the models.

    Raises:
        InputError: if there is no such layer; if attention is linear, or a tokenizer cannot say where its tokens are.
    """
    writer = tokenizer if target_tokenizer is None else target_tokenizer
    for one in (tokenizer, writer):
        if not one.is_fast:
            raise InputError("alignments need a fast tokenizer (tokenizer.json), which says where its tokens are")
    members: Sequence[PreTrainedModel] = model.members if isinstance(model, Ensemble) else [model]
    alignments: list[Alignment] = []
    for start in range(0, len(sources), PAIRS_AT_A_TIME):
        texts = [prefix + source for source in sources[start : start + PAIRS_AT_A_TIME]]
        targets = list(translations[start : start + PAIRS_AT_A_TIME])
        options: dict[str, Any] = {"truncation": True, "max_length": longest, "return_offsets_mapping": True}
        read, written = tokenizer(texts, **options), writer(text_target=targets, **options)
        weights = [cross_attention(one, read.input_ids, written.input_ids, layer).cpu() for one in members]
        best = torch.stack(weights).mean(0).argmax(-1).tolist()  # (B, T)
        for row, (text, target) in enumerate(zip(texts, targets, strict=True)):
            of_source = _words(text, read.offset_mapping[row], skip=len(prefix))
            of_target = _words(target, written.offset_mapping[row])
            pairs = {(of_source[place], word) for place, word in zip(best[row], of_target, strict=False)
                     if place < len(of_source)}  # fmt: skip
            alignments.append(tuple(sorted((a, b) for a, b in pairs if a is not None and b is not None)))
    return alignments


def cross_attention(
    model: PreTrainedModel, sources: Sequence[Sequence[int]], targets: Sequence[Sequence[int]], layer: int | None
) -> Tensor:
    """What the decoder attends to as it writes each token: the mean over a layer's heads, (B, T, S).

    Args:
        sources, targets: ids of texts, their end marks included.

    Raises:
        InputError: if there is no such layer, or the attention never computes weights.
    """
    attentions = cross_attentions(model, sources, targets)
    chosen = max(0, len(attentions) - 2) if layer is None else layer
    if not 0 <= chosen < len(attentions):
        raise InputError(f"alignment_layer is {layer}; the decoder has layers from 0 to {len(attentions) - 1}")
    return attentions[chosen].float().mean(1)


def cross_attentions(
    model: PreTrainedModel, sources: Sequence[Sequence[int]], targets: Sequence[Sequence[int]]
) -> tuple[Tensor, ...]:
    """The same of each layer and head: for every layer (B, H, T, S).

    Raises:
        InputError: if the attention never computes weights.
    """
    if getattr(model.config, "linear_attention", False):
        raise InputError("the model has linear attention, which never computes weights; nothing can be aligned")
    ids = pad(sources, 0).to(model.device)
    with _eager_attention(model):
        attentions: tuple[Tensor, ...] = model(
            input_ids=ids,
            attention_mask=pad([[1] * len(row) for row in sources], 0).to(model.device),
            labels=pad(targets, -100).to(model.device),
            output_attentions=True,
        ).cross_attentions
    return attentions


@contextmanager
def _eager_attention(model: PreTrainedModel) -> Iterator[None]:
    """Lets the model compute attention so that it has the weights."""
    usual = model.config._attn_implementation
    model.set_attn_implementation("eager")
    try:
        yield
    finally:
        model.set_attn_implementation(usual)


def _words(text: str, spans: Sequence[tuple[int, int]], skip: int = 0) -> list[int | None]:
    """The word that each token is of, from 0; None of marks, and of what lies before the place `skip`."""
    words: list[int | None] = []
    for start, end in spans:
        first = start + len(text[start:end]) - len(text[start:end].lstrip())  # a token may begin with a blank
        is_of_none = first >= end or first < skip
        words.append(None if is_of_none else len(text[skip : first + 1].split()) - 1)
    return words
