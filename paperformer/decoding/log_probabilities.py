"""How likely given texts are to a model, one by one: sentence pairs, or texts under a language model."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor

from ..training.data.batches.token_budget import pad, token_budget_batches
from ..training.evaluation.decoding import longest_sequence
from ..translation.cutting import Notes
from ..translation.likelihood import log_probabilities
from .translator import Translator

LOGITS_PER_BATCH = 2**25
"""128 MB in float32."""


@dataclass(frozen=True)
class TextScore:
    """How likely a text is."""

    log_probability: float
    """The sum over its tokens, the end mark included where the model's texts have one, in nats."""

    tokens: int

    @property
    def mean(self) -> float:
        """In nats a token; 0 of no tokens."""
        return self.log_probability / max(1, self.tokens)


@torch.no_grad()
def score_pairs(
    translator: Translator, sources: Sequence[str], translations: Sequence[str], note: Notes, prefix: str = ""
) -> list[TextScore]:
    """How likely each translation is as one of its source, by teacher forcing.

    Args:
        note: told of a source or a translation that is longer than the model takes, by its place from 0; of that the
            beginning counts.
        prefix: put before every source.
    """
    model, longest = translator.model.eval(), translator.longest
    read = translator.tokenizer([prefix + text for text in sources], verbose=False).input_ids
    written = translator.writer(text_target=list(translations), verbose=False).input_ids
    read, written = _cut(read, longest, "the source", note), _cut(written, longest, "the translation", note)
    scores: list[Any] = [None] * len(sources)
    for rows in _batches([(len(a), len(b)) for a, b in zip(read, written, strict=True)], model):
        labels = pad([written[row] for row in rows], -100).to(model.device)  # (B, T)
        logits = model(
            input_ids=pad([read[row] for row in rows], translator.tokenizer.pad_token_id).to(model.device),
            attention_mask=pad([[1] * len(read[row]) for row in rows], 0).to(model.device),
            labels=labels,
        ).logits  # (B, T, V)
        for row, score in zip(rows, _scores(logits, labels), strict=True):
            scores[row] = score
    return scores


@torch.no_grad()
def score_texts(translator: Translator, texts: Sequence[str], note: Notes) -> list[TextScore]:
    """How likely each text is to a language model, as a document of its own.

    It stands between the marks that the tokenizer has, `<s>` and `</s>` for ours; all but the first are predicted.

    Args:
        note: told of a text that is longer than the model takes, by its place from 0; its beginning counts.
    """
    model, tokenizer = translator.model.eval(), translator.tokenizer
    begin, end = tokenizer.bos_token_id, tokenizer.eos_token_id
    begin = end if begin is None else begin
    before, behind = ([] if mark is None else [mark] for mark in (begin, end))
    encoded = tokenizer(list(texts), add_special_tokens=False, verbose=False).input_ids
    ids = _cut([[*before, *own, *behind] for own in encoded], longest_sequence(model), "the text", note)
    scores: list[Any] = [TextScore(0.0, 0)] * len(texts)
    long = [place for place, own in enumerate(ids) if len(own) > 1]
    for places in _batches([(len(ids[place]), 1) for place in long], model):
        rows = [long[place] for place in places]
        labels = pad([ids[row] for row in rows], -100).to(model.device)[:, 1:]  # (B, T - 1)
        logits = model(
            input_ids=pad([ids[row] for row in rows], 0).to(model.device),
            attention_mask=pad([[1] * len(ids[row]) for row in rows], 0).to(model.device),
        ).logits[:, :-1]
        for row, score in zip(rows, _scores(logits, labels), strict=True):
            scores[row] = score
    return scores


def _cut(ids: Sequence[list[int]], longest: int, what: str, note: Notes) -> list[list[int]]:
    for place, own in enumerate(ids):
        if len(own) > longest:
            note(place, f"{what} has {len(own):,} tokens, and the model takes {longest:,}: the beginning was scored")
    return [own[:longest] for own in ids]


def _batches(lengths: Sequence[tuple[int, int]], model: Any) -> Iterable[list[int]]:
    budget = max(1, LOGITS_PER_BATCH // int(model.config.get_text_config().vocab_size))
    batches = token_budget_batches(np.array(lengths, dtype=np.int64), budget, np.random.default_rng(0))
    return (batch.tolist() for batch in batches)


def _scores(logits: Tensor, labels: Tensor) -> list[TextScore]:
    """Of each row: (B, T, V) and (B, T), with -100 where nothing counts."""
    counts = labels != -100
    sums = (log_probabilities(logits, labels.clamp(min=0)).double() * counts).sum(-1)
    return [TextScore(total, count) for total, count in zip(sums.tolist(), counts.sum(-1).tolist(), strict=True)]
