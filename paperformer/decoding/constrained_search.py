"""Beam search for translations that have to have some terms: dynamic beam allocation (Post and Vilar 2018, 1804.06609).

A hypothesis belongs to the bank of those with as many tokens of the terms. The beam is shared out between the banks, so
that hypotheses which have begun with a term, and are less probable for now, do not have to compete with those that have
not. Only a hypothesis with all terms may end.

Hypotheses are ranked by the log-probability of their other tokens over their number to the power of the length penalty,
plus the same of the tokens of the terms. All tokens in one mean, as Post and Vilar have them, let a long translation
dilute what an improbable term costs: it is then put behind the end of a sentence, and more is written around it.

Shapes: B sentences, k beams each, T length so far, V vocabulary.
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from itertools import zip_longest
from typing import Any

import torch
from torch import Tensor
from transformers.generation import GenerationConfig

from ..modeling.decoding.beam_search import NEVER, Beams

Ids = tuple[int, ...]


@dataclass(frozen=True)
class Progress:
    """How far a hypothesis is with its terms."""

    missing: tuple[Ids, ...]
    """The terms that it does not have yet."""

    begun: Ids = ()
    """What it has of one of them: its newest tokens."""

    begun_score: float = 0.0
    """Their log-probability."""

    met_tokens: int = 0
    """How many tokens the terms that it has have together."""

    met_score: float = 0.0
    """Their log-probability."""

    is_behind_term: bool = False
    """Whether its newest token is the last of a term, so that the next must not go on with the word."""

    @property
    def tokens_left(self) -> int:
        """How many tokens of the terms it still needs."""
        return sum(map(len, self.missing)) - len(self.begun)

    def wanted(self) -> set[int]:
        """Tokens that bring it further."""
        place = len(self.begun)
        return {term[place] for term in self.missing if term[:place] == self.begun}

    def after(self, token: int, log_prob: float) -> "Progress":
        """How far it is with one more token: a term that is left off has to be begun again."""
        for begun, begun_score in (((*self.begun, token), self.begun_score + log_prob), ((token,), log_prob)):
            if begun in self.missing:
                rest = list(self.missing)
                rest.remove(begun)
                tokens, met_score = self.met_tokens + len(begun), self.met_score + begun_score
                return Progress(tuple(rest), met_tokens=tokens, met_score=met_score, is_behind_term=True)
            if any(term[: len(begun)] == begun for term in self.missing):
                return replace(self, begun=begun, begun_score=begun_score, is_behind_term=False)
        return replace(self, begun=(), begun_score=0.0, is_behind_term=False)

    def score(self, log_prob: float, length: int, penalty: float) -> float:
        """What a hypothesis is ranked by: its free tokens' part and its terms' part.

        Args:
            log_prob: of all its tokens.
            length: how many.
            penalty: exponent of the numbers of tokens.
        """
        free = (log_prob - self.met_score) / max(1, length - self.met_tokens) ** penalty
        return free + self.met_score / max(1, self.met_tokens) ** penalty


def rank(ids: Sequence[int], log_probs: Sequence[float], terms: tuple[Ids, ...], penalty: float) -> float:
    """What a finished hypothesis is ranked by, from the log-probability of each of its tokens."""
    progress = Progress(terms)
    for token, log_prob in zip(ids, log_probs, strict=True):
        progress = progress.after(token, log_prob)
    return progress.score(sum(log_probs), len(ids), penalty)


@dataclass(order=True)
class Candidate:
    """A hypothesis with one more token."""

    score: float
    """Its log-probability."""
    parent: int = field(compare=False)
    """Which of the sentence's beams it comes from."""
    token: int = field(compare=False)
    progress: Progress = field(compare=False)


def constrained_beam_search(
    model: Any,
    input_ids: Tensor,
    logits_processor: Callable[..., Tensor],
    stopping_criteria: object,
    generation_config: GenerationConfig,
    *,
    terms: Sequence[tuple[Ids, ...]],
    continues_word: Tensor,
    **model_kwargs: Any,
) -> Tensor:
    """A search for `generate(custom_generate=...)`, with the terms given by `functools.partial`.

    Args:
        input_ids: what begins each target, (B k, 1).
        logits_processor: changes log-probabilities, so that only some tokens are possible.
        terms: of each sentence, the ids of each of its terms.
        continues_word: which tokens go on with the word before them, (V,), of bool: not behind a term.

    Returns:
        (B num_return_sequences, up to max_length), a sentence's best first. Where none has all its terms when there are
        `max_length` tokens, those with more of them come first.
    """
    k, max_length = generation_config.num_beams, generation_config.max_length
    settings: Any = generation_config
    ends, pad = set(settings._eos_token_tensor.tolist()), int(settings._pad_token_tensor)
    beams = Beams(model, input_ids, k, model_kwargs)
    sentences = [Sentence(own, k, generation_config.length_penalty, ends, max_length) for own in terms]
    running, scores = input_ids, torch.full((len(terms), k), NEVER, device=input_ids.device)
    scores[:, 0] = 0.0
    while True:
        log_probs = logits_processor(running, beams.lm_head(beams.hidden_states()).float().log_softmax(-1))
        behind = [each.is_behind_term for own in sentences for each in own.progress]
        ruled_out = torch.tensor(behind, device=running.device)[:, None] & continues_word
        log_probs = log_probs.masked_fill(ruled_out, -torch.inf)
        totals = (scores.flatten()[:, None] + log_probs).view(len(sentences), k, -1)  # (B, k, V)
        chosen = [
            own.choose(*rows)
            for own, *rows in zip(sentences, totals, scores.tolist(), running.view(len(sentences), k, -1), strict=True)
        ]
        if all(own.is_done for own in sentences):
            break
        # A sentence that is done stays in the batch, and what is made of it no longer counts.
        idle = [Candidate(NEVER, 0, pad, Progress(()))] * k
        flat = [(row * k, each) for row, own in enumerate(chosen) for each in [*own, *idle][:k]]
        rows = running.new_tensor([first + each.parent for first, each in flat])
        tokens = running.new_tensor([[each.token] for _, each in flat])
        scores = scores.new_tensor([each.score for _, each in flat]).view(-1, k)
        for row, own in enumerate(sentences):
            own.progress = [each.progress for _, each in flat[row * k : row * k + k]]
        running = torch.cat((running[rows], tokens), -1)
        beams.follow(rows, tokens, None)
    best = [own.best(generation_config.num_return_sequences) for own in sentences]
    longest = max(len(ids) for own in best for ids in own)
    filled = [[*ids, *[pad] * (longest - len(ids))] for own in best for ids in own]
    return torch.cat((input_ids[:1].expand(len(filled), -1), input_ids.new_tensor(filled)), -1)


class Sentence:
    """The search for one sentence.

    Args:
        terms: the ids of each of its terms.
        k: its beams.
        penalty: exponent of the length by which log-probabilities are divided.
        ends: ids that end a sequence.
        max_length: tokens of the longest.
    """

    def __init__(self, terms: tuple[Ids, ...], k: int, penalty: float, ends: set[int], max_length: int):
        self.k, self.penalty, self.ends, self.max_length = k, penalty, ends, max_length
        self.progress = [Progress(terms)] * k
        self.term_tokens, self.best_of_terms = sum(map(len, terms)), -math.inf
        self.finished: list[tuple[int, float, list[int]]] = []
        """Tokens of terms that are missing (negative), score, and ids without the one that begins it; best first."""
        self.is_done = False

    def choose(self, totals: Tensor, scores: Sequence[float], running: Tensor) -> list[Candidate]:
        """The hypotheses to go on with, at most k; those that end are put aside.

        Args:
            totals: log-probabilities of each hypothesis with each token, (k, V).
            scores: of the hypotheses themselves.
            running: the hypotheses, (k, T).
        """
        if self.is_done:
            return []
        written, going_on = running.shape[1], []
        for candidate in self._candidates(totals, scores):
            left = candidate.progress.tokens_left
            is_end = candidate.token in self.ends
            if (is_end and left == 0) or (not is_end and written + 1 == self.max_length):
                score = candidate.progress.score(candidate.score, written, self.penalty)
                if left == 0:
                    self.best_of_terms = max(self.best_of_terms, candidate.progress.met_score)
                self.finished.append((-left, score, [*running[candidate.parent, 1:].tolist(), candidate.token]))
            elif not is_end:
                going_on.append(candidate)
        self.finished = sorted(self.finished, reverse=True)[: self.k]
        chosen = self._share_out(going_on)
        is_enough = len(self.finished) == self.k and self.finished[-1][0] == 0
        if not chosen or written + 1 >= self.max_length:
            self.is_done = True
        elif is_enough:
            self.is_done = max(self._hope(each, written) for each in chosen) <= self.finished[-1][1]
        return chosen

    def _hope(self, candidate: Candidate, written: int) -> float:
        """What a hypothesis has for a score if nothing more costs anything, but its terms what they did elsewhere."""
        progress = candidate.progress
        if not progress.missing:
            return progress.score(candidate.score, written, self.penalty)
        free = (candidate.score - progress.met_score) / max(1, written - progress.met_tokens) ** self.penalty
        return free + self.best_of_terms / self.term_tokens**self.penalty

    def best(self, count: int) -> list[list[int]]:
        """The ids of the best that have been found, `count` of them: with nothing in those that there are not."""
        found = [ids for *_, ids in self.finished[:count]]
        return found + [[]] * (count - len(found))

    def _candidates(self, totals: Tensor, scores: Sequence[float]) -> list[Candidate]:
        """The likeliest of all, the likeliest of each hypothesis, and those that bring a term further."""
        size = totals.shape[1]
        # Twice as many as are needed: the end of a sequence may be among them, where it must not be.
        likeliest = totals.flatten().topk(min(2 * self.k, totals.numel())).indices.tolist()
        of_each = (totals.topk(2).indices + size * torch.arange(self.k, device=totals.device)[:, None]).flatten()
        wanted = [row * size + token for row, own in enumerate(self.progress) for token in own.wanted()]
        places = sorted({*likeliest, *of_each.tolist(), *wanted})
        candidates = []
        for place, score in zip(places, totals.flatten()[places].tolist(), strict=True):
            parent, token = divmod(place, size)
            if score > NEVER:
                progress = self.progress[parent].after(token, score - scores[parent])
                candidates.append(Candidate(score, parent, token, progress))
        return candidates

    def _share_out(self, candidates: Sequence[Candidate]) -> list[Candidate]:
        """The best of each bank in turn, the bank with the most tokens of the terms first, until there are k."""
        banks: dict[int, list[Candidate]] = {}
        for candidate in sorted(candidates, reverse=True):
            banks.setdefault(candidate.progress.tokens_left, []).append(candidate)
        rounds = zip_longest(*(banks[left] for left in sorted(banks)))
        return [candidate for each in rounds for candidate in each if candidate is not None][: self.k]
