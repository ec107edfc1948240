"""How well a model fills in tokens that were masked: loss, accuracy, pseudo-perplexity; always of the same tokens."""

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
from .perplexity import LOGITS_AT_ONCE, loss_per_token, perplexity, sum_of_losses, vocabulary_size

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
        is_ordinary, rng = find_ordinary_tokens(self.tokenizer), np.random.default_rng(0)
        mask_id = self.tokenizer.mask_token_id
        masked = [mask_tokens(ids[None], is_ordinary, mask_id, rng, self.mask_probability) for ids in self.pieces]
        yield from self._batches([(ids[0], labels[0]) for ids, labels in masked], tokens_per_batch, "score")

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
        yield from self._batches(rows, tokens_per_batch, "pseudo-perplexity")

    def _batches(self, rows: Sequence[tuple[TokenIds, TokenIds]], tokens_per_batch: int, what: str) -> Iterator[Batch]:
        """(ids, labels), padded, in batches of similar length."""
        lengths = np.array([len(ids) for ids, _ in rows], dtype=np.int64)
        with ProgressBar(total=len(rows), desc=what, unit=" windows") as bar:
            for batch in token_budget_batches(lengths, tokens_per_batch, np.random.default_rng(0)):
                ids, labels = zip(*(rows[index] for index in batch), strict=True)
                yield {
                    "input_ids": pad(ids, self.tokenizer.pad_token_id or 0),
                    "attention_mask": pad([[1] * len(row) for row in ids], 0),
                    "labels": pad(labels, -100),
                }
                bar.update(len(batch))


@torch.no_grad()  # not inference_mode: sharded weights that are gathered in it could not be trained
def masked_scores(model: PreTrainedModel, text: TextToFillIn) -> list[Score]:
    """Loss and accuracy over the tokens that are masked of all pieces."""
    model.eval()
    loss, correct, tokens = 0.0, 0, 0
    for batch in text.masked_at_once(_tokens_per_batch(model)):
        labels = batch["labels"].to(model.device)
        inputs = {name: batch[name].to(model.device) for name in ("input_ids", "attention_mask")}
        logits, is_masked = model(**inputs).logits, labels != -100  # (B, T, V), (B, T)
        loss += sum_of_losses(logits, labels)
        correct += int((logits.argmax(-1) == labels)[is_masked].sum())
        tokens += int(is_masked.sum())
    return [
        Score(metric=LOSS, value=loss / max(1, tokens), count=tokens, signature=text.signature),
        Score(metric=MASKED_ACCURACY, value=100 * correct / max(1, tokens), count=tokens, signature=text.signature),
    ]


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
