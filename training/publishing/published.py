"""What a repository on the Hub holds now, and whether a new model is worse than that."""

import json
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from huggingface_hub import HfApi
from huggingface_hub.errors import RepositoryNotFoundError

from ..console.input_error import InputError
from ..evaluation.evaluation_file import EVALUATION_FILE, LOSSES_FILE, OUTPUTS_FILE, PAIRS_FILE, read_scores
from ..evaluation.metrics import Score
from ..evaluation.passages import read_losses
from ..evaluation.scored_split import ScoredSplit, compare_splits
from ..evaluation.significance import Comparison
from .hub_requests import try_again

OUTPUTS = f"evaluation/{OUTPUTS_FILE}"
LOSSES = f"evaluation/{LOSSES_FILE}"
FILES = (OUTPUTS, LOSSES)


@dataclass(frozen=True, kw_only=True)
class Published:
    """One revision of a repository."""

    commit: str
    files: Collection[str]
    config: Mapping[str, Any]
    evaluation: Mapping[str, Any]
    """The content of its evaluation.json; empty where it has none."""

    outputs: Sequence[str]
    """Of the test split; empty where they are not there."""

    losses: str = ""
    """The content of the file of the test split's losses by passage; empty where there is none."""

    @property
    def holds_model(self) -> bool:
        """Whether there is one."""
        return bool(self.config)


def read_published(api: HfApi, repo_id: str, revision: str | None) -> Published | None:
    """What is on a branch of a repository.

    Args:
        api: of the Hub.
        repo_id: `USER/NAME`.
        revision: the branch; by default main.

    Returns:
        None if there is no such repository, or it cannot be seen with this token.

    Raises:
        huggingface_hub.errors.RevisionNotFoundError: if the repository has no such branch.
        huggingface_hub.errors.HfHubHTTPError: if the Hub refuses.
    """
    try:
        info = try_again(lambda: api.model_info(repo_id, revision=revision), connects=True)
    except RepositoryNotFoundError as error:
        if error.response.status_code == 401:  # a token that is none; of what cannot be seen, 404 is said
            raise
        return None
    files = {sibling.rfilename for sibling in info.siblings or []}
    commit = str(info.sha)

    def content(name: str) -> str:
        if name not in files:
            return ""
        with TemporaryDirectory() as folder:
            place = try_again(lambda: api.hf_hub_download(repo_id, name, revision=commit, local_dir=folder))
            return Path(place).read_text("utf-8")

    return Published(
        commit=commit,
        files=files,
        config=_parse(content("config.json")),
        evaluation=_parse(content(EVALUATION_FILE)),
        outputs=_parse_lines(content(OUTPUTS)),
        losses=content(LOSSES),
    )


def _parse(text: str) -> dict[str, Any]:
    """The object in a JSON file; an empty one where there is none, or something else, which is not ours to mend."""
    try:
        value = json.loads(text or "{}")
    except ValueError:
        return {}
    return value if isinstance(value, dict) else {}


def _parse_lines(text: str) -> list[str]:
    """The strings of a file of JSON lines; none if it is something else."""
    try:
        values = [json.loads(line) for line in text.splitlines()]
    except ValueError:
        return []
    return values if all(isinstance(value, str) for value in values) else []


def check_not_worse(folder: Path, published: Published, repo_id: str) -> list[str]:
    """Compares a model with what is published, by paired bootstrap resampling of the test split: of its
    translations, or of its passages where the model is scored by perplexity.

    Args:
        folder: the new model's.
        published: the revision that it is to replace.
        repo_id: its repository.

    Returns:
        Lines on what was found; among them why there was nothing to test.

    Raises:
        InputError: if the new model is significantly worse.
    """
    new = json.loads((folder / EVALUATION_FILE).read_text("utf-8"))
    place = f"{repo_id} ({published.commit[:7]})"
    own, other = (_test_scores(evaluation) for evaluation in (new, published.evaluation))
    if not other:
        return [f"{place} has no scores of a test split: there is nothing to compare with"]
    if not (shared := [name for name in own if name in other and own[name].basis == other[name].basis]):
        return [f"{place} was not measured in the same way on as much text: it cannot be compared"]
    comparisons, untested = _test(folder, new, published)
    if comparisons:
        lines = [
            f"test {one.metric.title}: {one.system:.{one.metric.digits}f}, {place} has "
            f"{one.baseline:.{one.metric.digits}f}: {one.verdict} "
            f"(p = {one.p_value:.3f})"
            for one in comparisons
        ]
        if worse := [line for line, one in zip(lines, comparisons, strict=True) if one.verdict == "worse"]:
            raise InputError(f"{'; '.join(worse)}; nothing was published (--force publishes it all the same)")
        return lines
    lines = [f"test {name}: {own[name].shown}, {place} has {other[name].shown}" for name in shared]
    return [*lines, f"whether that is more than chance is not tested: {untested}"]


def _test_scores(evaluation: Mapping[str, Any]) -> dict[str, Score]:
    """Title of a metric -> the score on the test split."""
    try:
        return {score.metric.label: score for score in read_scores(evaluation) if score.split == "test"}
    except ValueError:
        return {}


def _test(folder: Path, new: Mapping[str, Any], published: Published) -> tuple[list[Comparison], str]:
    """The tests, or why there are none."""
    entry, other = new["test"], published.evaluation.get("test", {})
    if "passages_sha256" in entry and other.get("passages_sha256") is None:
        return [], f"what is published has no losses by passage ({LOSSES})"
    outputs, losses = ((folder / name).read_text("utf-8") if (folder / name).is_file() else "" for name in FILES)
    own = ScoredSplit(
        entry=entry,
        outputs=_parse_lines(outputs),
        pairs=read_pairs(folder),
        losses=read_losses(losses, entry.get("passages_sha256", "")),
    )
    theirs = ScoredSplit(
        entry=other, outputs=published.outputs, losses=read_losses(published.losses, other.get("passages_sha256", ""))
    )
    return compare_splits(theirs, own)


def read_pairs(folder: Path) -> list[list[str]]:
    """(source, reference) of the test split, of a model in its run's folder; empty where they are not there."""
    path = folder.resolve().parent / "evaluation" / PAIRS_FILE
    return [json.loads(line) for line in path.read_text("utf-8").splitlines()] if path.is_file() else []
