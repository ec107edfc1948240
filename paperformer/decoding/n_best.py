"""Several translations of a text, best first, with their scores; and how files have them."""

import json
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, replace
from itertools import product

from ..translation.line_source import UNWANTED


@dataclass(frozen=True, kw_only=True)
class Hypothesis:
    """A translation that a search has found."""

    text: str

    log_probability: float
    """The sum over its tokens, the end mark included, in nats; under the model or the ensemble that has written it."""

    tokens: int
    """How many it has, the end mark included."""

    score: float
    """What the hypotheses of a text are ranked by: the log-probability over the number of tokens to the power of the
    length penalty; where terms were forced, that of the other tokens plus that of the terms'; of minimum-Bayes-risk
    decoding the mean chrF with the samples, from 0 to 100."""

    alignment: tuple[tuple[int, int], ...] | None = None
    """Places of a word of the source and of one of the translation that belong together, from 0; None: not wanted."""

    missing_terms: tuple[str, ...] = ()
    """What it should have had, by the glossary, and has not."""


NOTHING = Hypothesis(text="", log_probability=0.0, tokens=0, score=0.0)
"""Of a text without characters."""


def join_pieces(
    pieces: Sequence[Sequence[Hypothesis]], first_words: Sequence[int], count: int, score: Callable[[Hypothesis], float]
) -> list[Hypothesis]:
    """Translations of a text of those of its pieces, put together with blanks.

    After each piece the `count` best of what there is are kept; where translations are ranked by their log-probability
    alone, these are the best of all.

    Args:
        pieces: the hypotheses of each, the best first.
        first_words: the place of each piece's first word among the words of the text.
        count: how many there are to be.
        score: of a hypothesis that was put together.
    """
    joined = [_moved(hypothesis, first_words[0], 0) for hypothesis in pieces[0][:count]]
    for own, first_word in zip(pieces[1:], first_words[1:], strict=True):
        together = [_put_together(one, other, first_word) for one, other in product(joined, own)]
        together = [replace(hypothesis, score=score(hypothesis)) for hypothesis in together]
        joined = sorted(together, key=lambda hypothesis: -hypothesis.score)[:count]
    return joined


def _moved(hypothesis: Hypothesis, source_words: int, target_words: int) -> Hypothesis:
    """With an alignment that counts words of the text before the piece."""
    if hypothesis.alignment is None:
        return hypothesis
    moved = tuple((source + source_words, target + target_words) for source, target in hypothesis.alignment)
    return replace(hypothesis, alignment=moved)


def _put_together(one: Hypothesis, other: Hypothesis, first_word: int) -> Hypothesis:
    other = _moved(other, first_word, len(one.text.split()))
    return Hypothesis(
        text=f"{one.text} {other.text}",
        log_probability=one.log_probability + other.log_probability,
        tokens=one.tokens + other.tokens,
        # Of minimum-Bayes-risk decoding: for every piece the mean over as many tokens as it has.
        score=(one.score * one.tokens + other.score * other.tokens) / max(1, one.tokens + other.tokens),
        alignment=None if one.alignment is None else one.alignment + (other.alignment or ()),
        missing_terms=one.missing_terms + other.missing_terms,
    )


def as_line(number: int, hypotheses: Sequence[Hypothesis]) -> str:
    """The best translation, and behind `|||` its alignment where it has one, as Marian writes it."""
    best = hypotheses[0]
    return " ||| ".join([UNWANTED.sub(" ", best.text), *_pharaoh(best)])


def as_n_best(number: int, hypotheses: Sequence[Hypothesis]) -> str:
    """A line for each, `line ||| translation ||| score`, in the manner of Moses, where lines count from 0.

    Args:
        number: of the source's line, from 1.
    """
    return "\n".join(
        " ||| ".join([str(number - 1), UNWANTED.sub(" ", each.text), f"{each.score:.6f}", *_pharaoh(each)])
        for each in hypotheses
    )


def as_json(number: int, hypotheses: Sequence[Hypothesis]) -> str:
    """All that is known of them, on one line: `index` of the source's line, from 0, and `hypotheses`."""
    wanted = [{name: value for name, value in asdict(each).items() if value not in (None, ())} for each in hypotheses]
    for fields, each in zip(wanted, hypotheses, strict=True):
        if each.alignment is not None:  # empty as well
            fields["alignment"] = each.alignment
    return json.dumps({"index": number - 1, "hypotheses": wanted}, ensure_ascii=False)


def line_of_n_best(line: bytes) -> bytes:
    """Which source's line a line of an n-best list belongs to."""
    return line.partition(b" ||| ")[0]


def _pharaoh(hypothesis: Hypothesis) -> list[str]:
    """The alignment in Pharaoh's format, `0-0 1-2`, if there is one."""
    if hypothesis.alignment is None:
        return []
    return [" ".join(f"{source}-{target}" for source, target in hypothesis.alignment)]
