"""Extending the package from outside: what CONTRIBUTING.md promises a new part takes, and no file more.

Each extension is text inserted into a copy of the package's sources; one process, `with_extensions.py`, then uses all
of them, and has nothing but that copy.
"""

import json
import os
import shutil
import subprocess
import sys
import tomllib
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

pytestmark = pytest.mark.proof

REPOSITORY = Path(__file__).resolve().parent.parent


@dataclass(frozen=True)
class Insertion:
    """A piece of code for a file that exists."""

    file: str
    """Its path in the package as it is installed."""

    after: str
    """What it is inserted after, which the file has once."""

    text: str


@dataclass(frozen=True)
class Addition:
    """A file that is new."""

    file: str
    text: str


EXTENSIONS: dict[str, list[Insertion | Addition]] = {
    "metric": [
        Insertion(
            "training/evaluation/metrics.py",
            "make=_chrf),  # Popović 2015\n",
            """        Metric("length_ratio", "Length ratio", digits=3, make=_length_ratio),
""",
        ),
        Insertion(
            "training/evaluation/metrics.py",
            """    return TER()  # never with regard to case, as sacreBLEU's command has it, and its signature says
""",
            """

def _length_ratio(options: ScoringOptions) -> SacrebleuMetric:
    def count(hypothesis: str, references: Sequence[str]) -> tuple[int, int]:
        return len(hypothesis), len(references[0])

    return SummedStatistics("Length ratio", count, lambda sums: sums[0] / sums[1])
""",
        ),
    ],
    "reader": [
        Addition(
            "training/data/readers/pipes.py",
            """from collections.abc import Iterator

from ..text.bad_lines import BadLines
from ..text.files import find_file
from ..text.lines import read_lines
from .reader import FileFormat, FileReader


class Pipes(FileReader):
    def rows(self, bad: BadLines) -> Iterator[tuple[str, ...]]:
        return (tuple(line.split(" | ")) for line in read_lines(find_file(self.path), bad) if line)


PIPES = FileFormat(name="pipes", endings=(".pipes",), reader=lambda path, request: Pipes(path=path), has_text=False)
""",
        ),
        Insertion("training/data/readers/sources.py", "from .parquet import PARQUET\n", "from .pipes import PIPES\n"),
        Insertion("training/data/readers/sources.py", "FORMATS = [", "PIPES, "),
    ],
    "objective": [
        Addition(
            "training/tasks/reversal.py",
            """from dataclasses import dataclass, replace

from ..data.batches.token_budget import Batch
from ..recipe.data import ParallelData
from .protocols import Task
from .translation import TRANSLATION, translation_task


@dataclass(kw_only=True)
class ReversalData(ParallelData):
    reversed_side: str = "source"
    \"\"\"Which side is read from its end.\"\"\"


def reversal_task(recipe, splits, tokenizers) -> Task:
    task = translation_task(recipe, splits, tokenizers)
    collate = task.batches.collate

    def collate_reversed(batch) -> Batch:
        tensors = collate(batch)
        return tensors | {name: tensors[name].flip(1) for name in ("input_ids", "attention_mask")}

    task.batches.collate = collate_reversed
    return task


REVERSAL = replace(
    TRANSLATION,
    name="reversal",
    summary="Train a model to read from the end",
    hub_task="summarization",
    data=ReversalData,
    make_task=reversal_task,
    card=replace(TRANSLATION.card, title="Reversal"),
)
""",
        ),
        Addition(
            "training/train_reversal.py",
            """\"\"\"Train a model to read from the end.\"\"\"

from .run import main
from .tasks.reversal import REVERSAL

if __name__ == "__main__":
    main(REVERSAL)
""",
        ),
        Insertion(
            "training/tasks/registry.py",
            "from .objective import Objective\n",
            "from .reversal import REVERSAL\n",
        ),
        Insertion("training/tasks/registry.py", "for objective in (", "REVERSAL, "),
        Insertion(
            "commands/training.py",
            "TRAINED = {\n",
            """    "reversal": ("a model to read from the end", "the sentence pairs"),
""",
        ),
    ],
    "optimizer": [
        Insertion(
            "training/recipe/optimization.py", '    optimizer: Literal["adamw", "adam", "adafactor", "muon"', ', "sgd"'
        ),
        Insertion(
            "training/engine/optimizers.py",
            'FUSED_DEVICES = ("cpu", "cuda")\n',
            """

def _build_sgd(model: nn.Module, options: Optimization) -> list[torch.optim.Optimizer]:
    return [torch.optim.SGD(_groups(model, options), lr=0.0)]
""",
        ),
        Insertion("training/engine/optimizers.py", '    "muon": _build_muon,\n', '    "sgd": _build_sgd,\n'),
    ],
    "position scheme": [
        Insertion(
            "configuration/configuration_transformer.py",
            'PositionScheme = Literal["sinusoidal", "learned", "rope", "alibi", "relative"',
            ', "logarithmic"',
        ),
        Insertion(
            "configuration/configuration_transformer.py",
            '    "relative": "scores",\n',
            '    "logarithmic": "scores",\n',
        ),
        Insertion(
            "modeling/positions.py",
            "        return ahead + torch.where(distances < exact, distances, far.clamp(max=buckets - 1))\n",
            """

class LogarithmicPositions(DistanceBias):
    title = "Logarithmic biases"

    def __init__(self, config: PreTrainedConfig, *, is_causal: bool):
        super().__init__(config, is_causal=is_causal)
        self.rates = nn.Embedding(1, config.num_attention_heads)

    def bias(self, distances: torch.Tensor) -> torch.Tensor:
        return self.rates.weight[0][:, None, None] * torch.log1p(distances.abs().float())[:, None]
""",
        ),
        Insertion(
            "modeling/positions.py",
            '    "relative": RelativePositions,\n',
            '    "logarithmic": LogarithmicPositions,\n',
        ),
    ],
}
FILES_TO_TOUCH = {"metric": 1, "reader": 1, "optimizer": 2, "position scheme": 2, "objective": 2}
"""As CONTRIBUTING.md says."""


def copy_package(root: Path) -> Path:
    """Puts the sources into one folder of `root`, as they are installed; `root` on sys.path then has the package."""
    folders = tomllib.loads((REPOSITORY / "pyproject.toml").read_text("utf-8"))["tool"]["setuptools"]["package-dir"]
    for package, folder in sorted(folders.items()):
        target = root.joinpath(*package.split("."))
        shutil.copytree(REPOSITORY / folder, target, ignore=shutil.ignore_patterns("__pycache__"), dirs_exist_ok=True)
    return root / "paperformer"


def insert(package: Path, insertion: Insertion | Addition) -> None:
    path = package / insertion.file
    if isinstance(insertion, Addition):
        assert not path.exists()
        path.write_text(insertion.text, "utf-8")
        return
    text = path.read_text("utf-8")
    assert text.count(insertion.after) == 1, f"{insertion.file} has no single {insertion.after!r}"
    path.write_text(text.replace(insertion.after, insertion.after + insertion.text), "utf-8")


@pytest.fixture(scope="module")
def report(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """What the process with all extensions found, by extension."""
    root = tmp_path_factory.mktemp("extended")
    package = copy_package(root)
    for insertions in EXTENSIONS.values():
        for insertion in insertions:
            insert(package, insertion)
    ended = subprocess.run(
        [sys.executable, Path(__file__).with_name("with_extensions.py"), root / "work"],
        cwd=root,
        env=os.environ | {"PYTHONPATH": str(root), "OMP_NUM_THREADS": "1"},
        capture_output=True,
        text=True,
        timeout=250,
        check=False,
    )
    assert ended.returncode == 0, ended.stderr[-4000:]
    found: dict[str, Any] = json.loads(ended.stdout.splitlines()[-1])
    assert Path(found["package"]) == package
    return found


@pytest.mark.parametrize("extension", EXTENSIONS)
def test_an_extension_touches_no_more_files_than_it_must(extension: str) -> None:
    touched = {insertion.file for insertion in EXTENSIONS[extension] if isinstance(insertion, Insertion)}
    assert len(touched) == FILES_TO_TOUCH[extension]


def test_a_metric_from_outside_is_wherever_scores_are(report: dict[str, Any]) -> None:
    found = report["metric"]
    assert found["validated"] == ["loss", "bleu", "chrf", "length_ratio", "exact_match"]
    assert found["selected by"] == "length_ratio"
    assert found["in evaluation.json"]["signature"].startswith("nrefs:1|version:")
    shown = f"{found['in evaluation.json']['score']:.3f}"
    assert f"| test | Length ratio | {shown} ± " in found["card"]
    assert f'<td class="number">{shown} ± ' in found["report"]
    assert found["compared"] == ["validation length_ratio", "test length_ratio"]


def test_a_reader_from_outside_reads_by_its_ending(report: dict[str, Any]) -> None:
    assert report["reader"] == {"sources": ["train.pipes"], "first": ["A dog sleeps.", "Ein Hund schläft."]}


def test_an_objective_from_outside_trains_and_tells(report: dict[str, Any]) -> None:
    found = report["objective"]
    assert found["task of the run"] == found["task of the card"] == "summarization"
    assert "--data.reversed_side" in found["help"]
    assert found["model"] == "PaperformerForConditionalGeneration"
    assert found["reads from the end"]


def test_an_optimizer_from_outside_trains(report: dict[str, Any]) -> None:
    found = report["optimizer"]
    assert found["optimizers"] == ["SGD"]
    first, second = found["losses"]
    assert second < first
    assert found["is in the recipe"]


def test_a_position_scheme_from_outside_is_one_of_every_family_s(report: dict[str, Any]) -> None:
    for family, found in report["position scheme"].items():
        assert found == {
            "tells orders apart": True,
            "generates with a cache as without": True,
            "is the same when loaded": True,
            "has its parameters counted": True,
            "is split over processes": False,
            "title": f"Logarithmic biases of {family}",
        }, family
