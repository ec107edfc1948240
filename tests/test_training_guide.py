"""What the guide to training names is there: options, commands, files, records; and its choices are all of them."""

import contextlib
import re
import shlex
from collections.abc import Iterator
from dataclasses import asdict, fields
from pathlib import Path
from types import SimpleNamespace
from typing import Any, get_args, get_type_hints

import pytest
import torch
from accelerate.commands.launch import launch_command_parser

from paperformer.cli import main
from paperformer.configuration.configuration_encoder import PaperformerEncoderConfig
from paperformer.configuration.configuration_lm import PaperformerLMConfig
from paperformer.configuration.configuration_seq2seq import PaperformerSeq2SeqConfig
from paperformer.training.engine.checkpoints import snapshot as checkpoints
from paperformer.training.engine.guard import Verdict
from paperformer.training.evaluation.metrics import LOSS, Score
from paperformer.training.recipe.data import CorruptedTextData, MaskedTextData, ParallelData, TextData
from paperformer.training.recipe.optimization import Optimization
from paperformer.training.recipe.parsing import recipe_parser
from paperformer.training.recipe.run import RunOptions
from paperformer.training.reporting import recorder
from paperformer.training.reporting.progress_state import ProgressState
from paperformer.training.run_folder import RunFolder
from paperformer.training.tasks import objective
from paperformer.training.tasks.registry import OBJECTIVES

FOLDER = Path(__file__).parents[1] / "docs"
GUIDE = (FOLDER / "training.md").read_text("utf-8")
SECTIONS = dict(re.findall(r"^## (.*?)\n(.*?)(?=^## |\Z)", GUIDE, flags=re.MULTILINE | re.DOTALL))
FAMILIES: dict[str, tuple[Any, Any]] = {
    "lm": (PaperformerLMConfig, TextData),
    "seq2seq": (PaperformerSeq2SeqConfig, ParallelData),
    "encoder": (PaperformerEncoderConfig, MaskedTextData),
    "denoising": (PaperformerSeq2SeqConfig, CorruptedTextData),
}
RUN_OPTIONS = {field.name for field in fields(RunOptions)}


def commands() -> list[str]:
    blocks = re.findall(r"^```bash\n(.*?)^```$", GUIDE, flags=re.MULTILINE | re.DOTALL)
    return [line for block in blocks for line in block.splitlines()]


def first_cells(section: str) -> list[str]:
    return re.findall(r"^\| (`.*?) \|", SECTIONS[section], flags=re.MULTILINE)


def test_every_option_that_is_named_exists() -> None:
    known = {name for family in FAMILIES.values() for name in recipe_parser(*family).fields}
    sections = {name.partition(".")[0] for name in known if "." in name}
    words = [word for span in re.findall(r"`([^`\n]+)`", GUIDE) for word in span.split() if ".safetensors" not in word]
    named = {word for word in words if word.partition(".")[0] in sections and "." in word}
    assert len(named) > 30
    assert named - known == set()
    assert {word for word in words if word in ("trackers", "device_watts")} <= RUN_OPTIONS


def test_every_option_of_these_sections_is_explained() -> None:
    """Whoever adds an option to the engine says in the guide what it is for."""
    known = recipe_parser(*FAMILIES["lm"]).fields
    engine = {name for name in known if name.partition(".")[0] in ("guard", "checkpoints", "optimization")}
    left_to_help = {"adam_beta1", "adam_beta2", "adam_epsilon", "muon_momentum"}
    missing = {name for name in engine if f"`{name}" not in GUIDE}
    assert {name.partition(".")[2] for name in missing} == left_to_help


@pytest.mark.parametrize(
    ("option", "column"), [("optimizer", "optimization.optimizer"), ("schedule", "optimization.schedule")]
)
def test_tables_have_every_choice(option: str, column: str) -> None:
    table = GUIDE.partition(f"| `{column}` |")[2].partition("\n\n")[0]
    choices = get_args(get_type_hints(Optimization)[option])
    assert set(re.findall(r"^\| `(\w+)` \|", table, flags=re.MULTILINE)) == set(choices)


@pytest.mark.parametrize("command", commands())
def test_commands_parse(
    command: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("my.tsv").write_text("A dog.\tHundur.\n", "utf-8")
    Path("my.txt").write_text("A dog.\n", "utf-8")
    Path("runs/my-en-is").mkdir(parents=True)
    Path("runs/my-en-is/recipe.yaml").write_text("name: my-en-is\ndata: {source_language: en, target_language: is}\n")
    monkeypatch.setattr(objective, "defaults_of_base", lambda given, family: {})  # no such model is here
    program, *arguments = shlex.split(command)
    if program == "accelerate":
        assert arguments.pop(0) == "launch"
        launched = launch_command_parser().parse_args(arguments)
        assert launched.module
        family = launched.training_script.removeprefix("paperformer.training.train_")
        arguments = launched.training_script_args
        if launched.config_file is not None:
            assert (FOLDER.parent / launched.config_file).is_file()
    elif arguments[0] == "train":
        _, family, *arguments = arguments
    else:
        assert program == "paperformer"
        with contextlib.suppress(SystemExit):
            main([arguments[0], "--help"])
        shown = capsys.readouterr().out
        assert [word for word in arguments if word.startswith("--") and word not in shown] == []
        assert shown.startswith("usage: paperformer " + arguments[0])
        return
    assert OBJECTIVES[family].read_recipe(arguments).run.name


def test_every_configuration_file_is_named() -> None:
    names = {path.name for path in (FOLDER.parent / "training" / "accelerate").glob("*.yaml")}
    assert names == set(re.findall(r"\]\(\.\./training/accelerate/(.*?)\)", GUIDE))


def test_the_files_of_a_checkpoint_are_all_named() -> None:
    names = {
        value for value in vars(checkpoints).values() if isinstance(value, str) and re.fullmatch(r"\w+\.\w+", value)
    }
    assert len(names) == 6
    assert {cell.strip("`") for cell in first_cells("Interruptions and resuming")} == names


def records(folder: Path) -> Iterator[set[str]]:
    """The names in each record that a recorder writes: of training, of a validation, of an event, at the end."""
    run = RunFolder(RunOptions(name="any", output_dir=str(folder)))
    run.path.mkdir()
    accelerator: Any = SimpleNamespace(
        is_main_process=True, num_processes=1, device=torch.device("cpu"), log=lambda *_, **__: None, trackers=[]
    )
    energy: Any = SimpleNamespace(start=lambda: None, joules=lambda: 1.0, source="a counter")
    progress = ProgressState(step=recorder.LOG_EVERY)
    with recorder.Recorder(accelerator, run, progress, 100, 1e9, energy) as writer:
        writer.step_done(0.1, 1.0, lambda: {"norm": 1.0})
        writer.validated([Score(metric=LOSS, value=1.0, count=1)])
        found = asdict(Verdict("spike", "warn", "why")) | {"batch": {}, "parameter": "norm.weight"}
        writer.event(20, found, "why")
    for record in run.metrics():
        yield record.keys() - {"step"}


def test_the_records_of_metrics_are_as_described(tmp_path: Path) -> None:
    described = [
        set(re.findall(r"`(\w+)`", cell.partition(": where")[0])) - {"spike", "non_finite"}
        for cell in first_cells("Watching a run")
    ]
    assert f"every {recorder.LOG_EVERY} steps" in SECTIONS["Watching a run"]
    assert list(records(tmp_path)) == described[1:5]


def test_links_lead_somewhere() -> None:
    anchors = {re.sub(r"[^\w\- ]", "", name.lower()).replace(" ", "-") for name in SECTIONS}
    links = re.findall(r"\]\(([^)]*)\)", GUIDE)
    assert {link[1:] for link in links if link.startswith("#")} == anchors
    assert [link for link in links if not link.startswith("#") and not (FOLDER / link).exists()] == []
