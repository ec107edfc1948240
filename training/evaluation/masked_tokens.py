"""How well a model fills in tokens that were masked: loss, accuracy, pseudo-perplexity; always of the same tokens."""

import hashlib
import json
from collections.abc import Iterator, Sequence
from dataclasses import KW_ONLY, dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from transformers import PreTrainedModel, PreTrainedTokenizerBase

from ..console.progress import ProgressBar
from ..data.batches.masked_language_modeling import find_ordinary_tokens, mask_tokens
from ..data.batches.token_budget import Batch, TokenIds, pad, token_budget_batches
from .metrics import LOSS, MASKED_ACCURACY, PSEUDO_PERPLEXITY, Score
from .passages import PassageLosses
from .perplexity import LOGITS_AT_ONCE, loss_per_token, losses_of_labels, perplexity, vocabulary_size

TOKENS_PER_BATCH = 4096


@dataclass(frozen=True)
class TextToFillIn:
    """A text in pieces, each of which a model sees at once.

    Args:
        pieces: token ids of each, with the marks that the model expects; their order decides what is masked.
        tokenizer: theirs, which has a mask token.
        context_length: tokens of the longest piece that there may be.
        mask_probability: share of the tokens that are to be predicted.
    """

    pieces: Sequence[NDArray[np.integer[Any]]]
    tokenizer: PreTrainedTokenizerBase
    _: KW_ONLY
    context_length: int
    mask_probability: float

    @property
    def signature(self) -> str:
        """By what figures differ, besides the text."""
        return f"context:{self.context_length}|mask:{self.mask_probability:g}"

    def masked_at_once(self, tokens_per_batch: int) -> Iterator[Batch]:
        """Batches of all pieces, each masked as in training; how they are batched changes no mask."""
        for _, batch in self.batches_of(self.masked_pieces(), tokens_per_batch, "score"):
            yield batch

    def masked_pieces(self) -> list[tuple[TokenIds, TokenIds]]:
        """(ids, labels) of each piece, masked as in training and always in the same places."""
        is_ordinary, rng = find_ordinary_tokens(self.tokenizer), np.random.default_rng(0)
        mask_id = self.tokenizer.mask_token_id
        masked = [mask_tokens(ids[None], is_ordinary, mask_id, rng, self.mask_probability) for ids in self.pieces]
        return [(ids[0], labels[0]) for ids, labels in masked]

    def sha256(self) -> str:
        """Hash of what is asked: the pieces, as tokens since ids mean something else in another vocabulary, and the
        places that are masked."""
        digest = hashlib.sha256()
        for ids, (_, labels) in zip(self.pieces, self.masked_pieces(), strict=True):
            places = np.flatnonzero(np.asarray(labels) != -100).tolist()
            digest.update(json.dumps([self.tokenizer.convert_ids_to_tokens(ids.tolist()), places]).encode())
        return digest.hexdigest()

    def masked_one_by_one(self, count: int, tokens_per_batch: int) -> Iterator[Batch]:
        """Batches of pieces in which a single token is masked: of that many tokens that stand for text, or of all."""
        is_ordinary = find_ordinary_tokens(self.tokenizer)
        places = [(piece, place) for piece in self.pieces for place in np.flatnonzero(is_ordinary[piece])]
        chosen = np.random.default_rng(0).choice(len(places), min(count, len(places)), replace=False)
        rows = []
        for piece, place in (places[index] for index in chosen):
            ids, labels = piece.astype(np.int64), np.full(len(piece), -100)
            ids[place], labels[place] = self.tokenizer.mask_token_id, piece[place]
            rows.append((ids, labels))
        for _, batch in self.batches_of(rows, tokens_per_batch, "pseudo-perplexity"):
            yield batch

    def batches_of(
        self, rows: Sequence[tuple[TokenIds, TokenIds]], tokens_per_batch: int, what: str
    ) -> Iterator[tuple[NDArray[np.int64], Batch]]:
        """Rows of (ids, labels), padded, in batches of similar length; each with which of the rows are in it."""
        lengths = np.array([len(ids) for ids, _ in rows], dtype=np.int64)
        with ProgressBar(total=len(rows), desc=what, unit=" windows") as bar:
            for batch in token_budget_batches(lengths, tokens_per_batch, np.random.default_rng(0)):
                ids, labels = zip(*(rows[index] for index in batch), strict=True)
                yield (
                    batch,
                    {
                        "input_ids": pad(ids, self.tokenizer.pad_token_id or 0),
                        "attention_mask": pad([[1] * len(row) for row in ids], 0),
                        "labels": pad(labels, -100),
                    },
                )
                bar.update(len(batch))


@dataclass(frozen=True, kw_only=True)
class MaskedPieces:
    """What a model predicts of the tokens that are masked of N pieces."""

    text: TextToFillIn
    nats: NDArray[np.float64]
    """Summed losses, (N,)."""

    tokens: NDArray[np.int64]
    """Masked ones, (N,)."""

    correct: int
    """Of all of them."""

    def scores(self) -> list[Score]:
        """Loss and accuracy over all of them."""
        count, signature = int(self.tokens.sum()), self.text.signature
        return [
            Score(metric=LOSS, value=float(self.nats.sum()) / max(1, count), count=count, signature=signature),
            Score(metric=MASKED_ACCURACY, value=100 * self.correct / max(1, count), count=count, signature=signature),
        ]

    def by_passage(self) -> PassageLosses:
        """The losses of each piece, which compare with those of a model that was asked the same."""
        texts = self.text.tokenizer.batch_decode([ids.tolist() for ids in self.text.pieces], skip_special_tokens=True)
        return PassageLosses(
            nats=self.nats, tokens=self.tokens, bytes=None, sha256=self.text.sha256(), texts=list(texts)
        )


@torch.no_grad()  # not inference_mode: sharded weights that are gathered in it could not be trained
def predict_masked(model: PreTrainedModel, text: TextToFillIn) -> MaskedPieces:
    """Predicts the tokens that are masked of all pieces."""
    model.eval()
    nats, tokens, correct = np.zeros(len(text.pieces)), np.zeros(len(text.pieces), dtype=np.int64), 0
    for rows, batch in text.batches_of(text.masked_pieces(), _tokens_per_batch(model), "score"):
        labels = batch["labels"].to(model.device)
        inputs = {name: batch[name].to(model.device) for name in ("input_ids", "attention_mask")}
        logits, is_masked = model(**inputs).logits, labels != -100  # (B, T, V), (B, T)
        tokens[rows] = is_masked.sum(1).cpu().numpy()
        owners = np.repeat(np.arange(len(rows)), tokens[rows])
        nats[rows] = np.bincount(owners, weights=losses_of_labels(logits, labels).numpy(), minlength=len(rows))
        correct += int((logits.argmax(-1) == labels)[is_masked].sum())
    return MaskedPieces(text=text, nats=nats, tokens=tokens, correct=correct)


def pseudo_perplexity(model: PreTrainedModel, text: TextToFillIn, count: int) -> Score:
    """exp of the mean loss of tokens that are masked one at a time.

    Salazar et al. 2020, arXiv 1910.14659, equations 2 and 3; estimated from `count` tokens at random places, the same
    ones at every call, without those that do not stand for text.
    """
    loss = loss_per_token(model, text.masked_one_by_one(count, _tokens_per_batch(model)))
    return Score(metric=PSEUDO_PERPLEXITY, value=perplexity(loss.value), count=loss.count, signature=text.signature)


def _tokens_per_batch(model: PreTrainedModel) -> int:
    """Positions whose logits are held at once; a whole piece at least."""
    return min(TOKENS_PER_BATCH, LOGITS_AT_ONCE // vocabulary_size(model))
