"""The test split as it was scored: what a run keeps of it in its folder `evaluation/`, and how two compare on it."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from .evaluation_file import EVALUATION_FILE, LOSSES_FILE, OUTPUTS_FILE, PAIRS_FILE, PASSAGES_FILE, hash_pairs
from .metrics import METRICS, ScoringOptions
from .passages import PassageLosses, read_losses
from .significance import Comparison, compare_losses, compare_systems

COMPARED = ("bleu", "chrf")
"""By which metrics translations are compared."""

FEWEST_PASSAGES = 20
"""Of fewer, resampling says little of what another text would have given."""


@dataclass(frozen=True, kw_only=True)
class ScoredSplit:
    """N translations, or N passages of running text; what is not known is empty."""

    entry: Mapping[str, Any]
    """Of the split in evaluation.json."""

    outputs: Sequence[str] = ()
    pairs: Sequence[Sequence[str]] = ()
    """(source, reference) of each of the outputs."""

    losses: PassageLosses | None = None
    texts: Sequence[str] = ()
    """Of the passages."""

    @property
    def options(self) -> ScoringOptions:
        """How translations were scored, by the signature of BLEU."""
        signature = next((self.entry[name]["signature"] for name in COMPARED if name in self.entry), "")
        fields = dict(part.split(":", 1) for part in signature.split("|") if ":" in part)
        return ScoringOptions(bleu_tokenizer=fields.get("tok", "13a"), lowercase=fields.get("case") == "lc", warn=False)


def read_scored_split(folder: Path) -> ScoredSplit:
    """What a run's folder `evaluation/` holds of the test split.

    Raises:
        OSError, ValueError, KeyError, TypeError: if a file cannot be read, or is not as a run writes it.
    """
    entry = json.loads((folder / EVALUATION_FILE).read_text("utf-8"))["test"]

    def read(name: str) -> list[Any]:
        path = folder / name
        # Not splitlines: JSON leaves other line ends than \n as they are in a text.
        return [json.loads(line) for line in path.read_text("utf-8").split("\n") if line] if path.is_file() else []

    losses_path = folder / LOSSES_FILE
    losses = read_losses(losses_path.read_text("utf-8"), entry["passages_sha256"]) if losses_path.is_file() else None
    outputs, pairs, texts = read(OUTPUTS_FILE), read(PAIRS_FILE), read(PASSAGES_FILE)
    if len(outputs) != len(pairs):  # continuations of a language model, or an evaluation of an earlier version
        outputs = pairs = []
    if losses is None or len(texts) != len(losses.nats):
        texts = []
    return ScoredSplit(entry=entry, outputs=outputs, pairs=pairs, losses=losses, texts=texts)


def compare_splits(baseline: ScoredSplit, system: ScoredSplit) -> tuple[list[Comparison], str]:
    """Tests whether a system is better than a baseline on the same test split.

    Args:
        baseline, system: the pairs are those of the system.

    Returns:
        The tests, or why there are none.

    Raises:
        InputError: as `compare_systems`.
    """
    if "passages_sha256" in system.entry:
        return _compare_losses(baseline, system)
    if "pairs_sha256" not in system.entry:
        return [], "there are no translations to compare, and no losses by passage"
    if system.entry["pairs_sha256"] != baseline.entry.get("pairs_sha256"):
        return [], "the test sentences are others"
    if not system.pairs or hash_pairs(system.pairs) != system.entry["pairs_sha256"]:
        return [], f"the reference translations are not here; they are in the run's folder, evaluation/{PAIRS_FILE}"
    if not len(system.outputs) == len(baseline.outputs) == len(system.pairs):
        return [], f"evaluation/{OUTPUTS_FILE} has not a translation of each sentence, here or there"
    references = [reference for _, reference in system.pairs]
    metrics = [METRICS[name] for name in COMPARED if name in system.entry]
    return compare_systems(baseline.outputs, system.outputs, [references], system.options, metrics=metrics), ""


def _compare_losses(baseline: ScoredSplit, system: ScoredSplit) -> tuple[list[Comparison], str]:
    if system.entry["passages_sha256"] != baseline.entry.get("passages_sha256"):
        return [], "the test text, or which tokens of it are masked, is another"
    own, other = system.losses, baseline.losses
    if own is None or other is None or len(own.nats) != len(other.nats):
        return [], f"evaluation/{LOSSES_FILE} has not the losses of each passage, here or there"
    if len(own.nats) < FEWEST_PASSAGES:
        return [], f"the test split has {len(own.nats)} passages; it takes {FEWEST_PASSAGES} to tell"
    return [compare_losses(other, own)], ""
