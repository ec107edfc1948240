"""evaluation.json: the scores of a model, in its run's folder and in its own.

{"test": {"task": "translation", "split": "test", "decoding": {"num_beams": 5},
          "bleu": {"score": 39.87, "signature": "...",
                   "confidence": {"mean": 39.86, "half_width": 1.1, "resamples": 1000}},
          "exact_match": 4.2, "sentences": 1000,
          "loss": {"nats_per_token": 1.6, "tokens": 14000}, "seconds": 12.3,
          "pairs_sha256": "...", "weights_sha256": "..."}, ...}

Of the test split, `domains` has such scores by domain, each with `p_worse` (see `domains`) and its share of
`unseen_words`; `unseen_words` has that share of the whole, and scores of the sentences that have `some` and `none`.
Of running text, `windows` is the signature of all scores: "context:256|stride:128". `pairs_sha256` says which sentence
pairs were translated and scored, `passages_sha256` of which passages there are losses, and `weights_sha256` with which
weights (`exact_weights.hash_weights`).
"""

import hashlib
import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

from ..data.unseen_words import UnseenWords
from .confidence import Confidence
from .domains import DomainScores
from .metrics import METRICS, Score
from .passages import PassageLosses
from .translation_report import Weaknesses

EVALUATION_FILE = "evaluation.json"
OUTPUTS_FILE = "test.outputs.jsonl"
"""What the model put out for the test split, a JSON string a line; in the folder `evaluation/` of a run, and of a
model that translates."""

LOSSES_FILE = "test.losses.jsonl"
"""{"nats": 812.3, "tokens": 230, "bytes": 1003} of each passage of the test split, of a model that is scored by
perplexity; in the same folders (see `passages`)."""

PAIRS_FILE = "test.pairs.jsonl"
"""[source, reference] of each of them, in the run's folder only: the test set belongs to others."""

PASSAGES_FILE = "test.passages.jsonl"
"""The text of each of the passages, a JSON string a line; in the run's folder only, for the same reason."""


@dataclass(frozen=True, kw_only=True)
class Evaluation:
    """What a model does on a split."""

    scores: Sequence[Score]
    outputs: Sequence[str]
    """Translations of the whole split, or continuations of some prompts."""

    decoding: Mapping[str, Any] = field(default_factory=dict)
    """Settings of generation by which `outputs` were made; empty where they are not what is scored."""

    pairs: Sequence[tuple[str, str]] = ()
    """(source, reference) of each of the outputs, where they are translations."""

    passages: PassageLosses | None = None
    """The losses of the test split by passage, where it is running text."""

    domains: Sequence[str] = ()
    """Of each of the pairs, or of the passages, the domain that its source is of; of the test split."""

    unseen_words: UnseenWords | None = None
    """Of the sources of the pairs of the test split, as far as the training text can be read again."""


def hash_pairs(pairs: Iterable[Sequence[str]]) -> str:
    """SHA-256 of sentence pairs, by which two test sets are known to be the same."""
    digest = hashlib.sha256()
    for pair in pairs:
        digest.update(json.dumps(list(pair), ensure_ascii=False).encode() + b"\n")
    return digest.hexdigest()


def entry_of(task: str, split: str, evaluation: Evaluation, seconds: float) -> dict[str, Any]:
    """The entry of a split in evaluation.json."""
    entry: dict[str, Any] = {"task": task, "split": split}
    if evaluation.decoding:
        entry["decoding"] = dict(evaluation.decoding)
    entry |= fields_of(evaluation.scores) | {"seconds": round(seconds, 1)}
    if evaluation.passages is not None:
        entry["passages_sha256"] = evaluation.passages.sha256
    return entry | {"pairs_sha256": hash_pairs(evaluation.pairs)} if evaluation.pairs else entry


def entry_of_parts(weaknesses: Weaknesses | None) -> dict[str, Any]:
    """What the entry of the test split says of its parts."""
    if weaknesses is None:
        return {}
    entry: dict[str, Any] = {}
    if weaknesses.by_domain:
        entry["domains"] = {domain.name: _entry_of_part(domain) for domain in weaknesses.by_domain}
    if weaknesses.unseen_words is not None and weaknesses.by_unseen_words:
        parts = {part.name: _entry_of_part(part) for part in weaknesses.by_unseen_words}
        entry["unseen_words"] = {"share": weaknesses.unseen_words.share()} | parts
    return entry


def _entry_of_part(part: DomainScores) -> dict[str, Any]:
    entry = fields_of(part.scores)
    if part.p_worse is not None:
        entry["p_worse"] = part.p_worse
    if part.unseen_words is not None:
        entry["unseen_words"] = part.unseen_words
    return entry


def fields_of(scores: Iterable[Score]) -> dict[str, Any]:
    """Scores as evaluation.json has them, with their signatures and, once, their denominators."""
    fields: dict[str, Any] = {}
    for score in scores:
        metric, key = score.metric, score.metric.entry
        if score.signature and metric.value_key != "score":
            fields["windows"] = score.signature
        if metric.value_key == "score":
            fields[key] = {"score": score.value, "signature": score.signature}
            if score.confidence is not None:
                fields[key]["confidence"] = asdict(score.confidence)
        elif metric.value_key:
            fields[key] = {metric.value_key: score.value, metric.over: score.count}
            continue
        else:
            fields[key] = score.value
        fields.pop(metric.over, None)  # after the last of those that share it
        fields[metric.over] = score.count
    return fields


def read_scores(evaluation: Mapping[str, Any]) -> list[Score]:
    """The scores in the content of an evaluation.json, in the order of `METRICS`.

    Args:
        evaluation: the scores of one split, or {split name: scores}. Scores that are not there are left out.

    Raises:
        ValueError: if a score is not a number or lacks its signature or denominator. The message names the entry.
    """
    entries = [evaluation] if "task" in evaluation else list(evaluation.values())
    try:
        return [score for entry in entries for score in _scores_of_split(entry)]
    except (AttributeError, KeyError, TypeError) as error:
        raise ValueError(f"{EVALUATION_FILE} does not have the expected form: {error!r}") from error


def _scores_of_split(entry: Mapping[str, Any]) -> Iterable[Score]:
    decoding = ", ".join(f"{name} {value}" for name, value in entry.get("decoding", {}).items())
    windows = entry.get("windows", "")
    for metric in METRICS.values():
        if metric.entry in entry:
            own = entry[metric.entry]
            has_count = metric.value_key not in (None, "score")
            yield Score(
                metric=metric,
                value=float(own if metric.value_key is None else own[metric.value_key]),
                count=(own if has_count else entry)[metric.over],
                signature=own["signature"] if metric.value_key == "score" else windows if not metric.of_outputs else "",
                split=entry["split"],
                decoding=decoding if metric.of_outputs else "",
                confidence=_confidence(own) if metric.value_key == "score" else None,
            )


def _confidence(entry: Mapping[str, Any]) -> Confidence | None:
    return Confidence(**entry["confidence"]) if "confidence" in entry else None
