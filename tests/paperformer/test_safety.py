"""Whoever loads a model or a checkpoint runs no code that lies in it, and names stay in their folders."""

import ast
import json
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from accelerate import Accelerator

from paperformer.hub.remote_code import flat_sources
from paperformer.modeling.families import FAMILIES
from paperformer.pipeline_translation import TranslationPipeline
from paperformer.training.console.input_error import InputError
from paperformer.training.engine.checkpoints.snapshot import Snapshot, read_newest_sound_checkpoint, write_snapshot
from paperformer.training.recipe.run import RunOptions
from paperformer.training.run_folder import RunFolder

from .conftest import Saved

REPOSITORY = Path(__file__).parents[2]
FOLDERS = ("configuration", "modeling", "tokenization", "training", "paperformer")

LIBRARIES = {"torch", "transformers", "huggingface_hub.dataclasses"}
STANDARD_LIBRARY = {
    *(
        "abc",
        "collections",
        "contextlib",
        "copy",
        "dataclasses",
        "difflib",
        "functools",
        "itertools",
        "math",
        "re",
        "typing",
    ),
    *("threading", "types", "warnings", "operator", "enum", "numbers", "string", "__future__"),
    "mmap",  # of memory; for a file's it needs what `open` gives
}
"""Modules that reach no file, no socket and no other process."""
NAMES_OF_OTHERS = {"os": {"PathLike"}, "pathlib": {"Path"}, "sys": {"maxsize"}}
"""Of modules that do, what does not by itself."""
FORBIDDEN_NAMES = {"open", "eval", "exec", "compile", "__import__", "breakpoint", "globals", "__builtins__"}
FORBIDDEN_ATTRIBUTES = {
    *(
        "open",
        "read_text",
        "read_bytes",
        "write_text",
        "write_bytes",
        "unlink",
        "mkdir",
        "rmdir",
        "rename",
        "replace_file",
    ),
    *("system", "popen", "fork", "import_module", "__globals__", "__subclasses__", "__code__", "__loader__"),
    *("load_library", "load_state_dict_from_url", "download_url_to_file", "urlopen", "torch.load", "torch.save"),
}


class CreatesFile:
    """Pickled, an order to create a file."""

    def __init__(self, path: Path):
        self.path = path

    def __reduce__(self) -> tuple[Callable[..., Any], tuple[Path]]:
        return Path.touch, (self.path,)


def offences(source: str) -> Iterator[str]:
    """What a module of exported code may not do, by its syntax tree."""
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Import):
            for alias in node.names:
                if not _may_import(alias.name) and alias.name not in NAMES_OF_OTHERS:
                    yield f"import {alias.name}"
        elif isinstance(node, ast.ImportFrom) and node.level == 0:
            module, names = node.module or "", {alias.name for alias in node.names}
            if not _may_import(module) and not names <= NAMES_OF_OTHERS.get(module, set()):
                yield f"from {module} import {', '.join(sorted(names))}"
        elif isinstance(node, ast.Name) and node.id in FORBIDDEN_NAMES:
            yield node.id
        elif isinstance(node, ast.Attribute):
            whole = ast.unparse(node)
            module, _, inner = whole.partition(".")
            is_forbidden = node.attr in FORBIDDEN_ATTRIBUTES or whole in FORBIDDEN_ATTRIBUTES
            if is_forbidden or (module in NAMES_OF_OTHERS and inner not in NAMES_OF_OTHERS[module]):
                yield whole


def _may_import(module: str) -> bool:
    return module.split(".")[0] in STANDARD_LIBRARY or any(
        module == library or module.startswith(f"{library}.") for library in LIBRARIES
    )


def exported() -> dict[str, str]:
    """Every file that the exporter writes, of all families."""
    classes = [family.config for family in FAMILIES.values()]
    classes += [cls for family in FAMILIES.values() for cls in family.auto_classes.values()]
    return flat_sources([TranslationPipeline.__module__, *dict.fromkeys(cls.__module__ for cls in classes)])


def test_exported_code_reaches_no_file_socket_or_process() -> None:
    sources = exported()
    assert len(sources) > 20
    assert {name: found for name, source in sources.items() if (found := list(offences(source)))} == {}


@pytest.mark.parametrize(
    "line",
    [
        "import socket",
        "import numpy as np",
        "from importlib import import_module",
        "from os import system",
        "from pathlib import PosixPath",
        "import os\nos.remove('x')",
        "import sys\nsys.modules",
        "import torch\ntorch.load('x')",
        "import torch\ntorch.ops.load_library('x')",
        "open('x')",
        "eval('1')",
        "def f():\n    import subprocess",
        "from pathlib import Path\nPath('x').write_text('y')",
        "getattr(__builtins__, 'ex' + 'ec')('1')",
        "import requests",
        "from huggingface_hub import hf_hub_download",
    ],
)
def test_the_reader_of_syntax_trees_finds_what_it_should(line: str) -> None:
    assert list(offences(f"import torch\n{line}\n")) != []


def test_the_files_in_a_folder_are_those_that_were_read(seq2seq: Saved) -> None:
    sources = exported()
    for path in seq2seq.folder.glob("*.py"):
        assert path.read_text("utf-8").startswith(sources[path.name])
        assert list(offences(path.read_text("utf-8"))) == []


def test_nothing_of_ours_unpickles_code() -> None:
    """`torch.load` with `weights_only` is all there is, and YAML is loaded without objects."""
    loads = 0
    for path in (path for folder in FOLDERS for path in (REPOSITORY / folder).rglob("*.py")):
        for node in ast.walk(ast.parse(path.read_text("utf-8"))):
            where = f"{path}:{getattr(node, 'lineno', 0)}"
            if isinstance(node, ast.Import):
                assert not {alias.name for alias in node.names} & {"pickle", "marshal", "shelve", "dill", "joblib"}, (
                    where
                )
            if isinstance(node, ast.ImportFrom) and node.module == "pickle":
                assert [alias.name for alias in node.names] == ["UnpicklingError"], where
            if not isinstance(node, ast.Call):
                continue
            options = {keyword.arg: ast.unparse(keyword.value) for keyword in node.keywords}
            called = ast.unparse(node.func)
            if called == "torch.load":
                loads += 1
                assert options.get("weights_only") == "True", where
            assert called not in ("yaml.unsafe_load", "yaml.full_load", "np.load", "numpy.load"), where
            if called == "yaml.load":
                assert options.get("Loader") in ("yaml.BaseLoader", "yaml.SafeLoader"), where
    assert loads > 0


@pytest.mark.parametrize("file", ["optimizer.pt", "random.pt"])
def test_a_checkpoint_with_code_in_it_is_refused(file: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    created, folder = tmp_path / "created", RunFolder(RunOptions(name="run", output_dir=str(tmp_path)))
    content = {"optimizer.pt": {"state": {}}, "random.pt": [{}]} | {file: CreatesFile(created)}
    optimizer, states = content.values()

    def write(path: Path) -> None:
        write_snapshot(path, Snapshot({"w": torch.zeros(2)}, None, optimizer, states, {}))  # type: ignore[arg-type]

    path = folder.save_checkpoint(1, write)
    with pytest.raises(InputError, match=r"^every checkpoint of .* is damaged"):
        read_newest_sound_checkpoint(folder, Accelerator())
    assert "optimizer.pt or random.pt holds other things than a checkpoint has" in capsys.readouterr().err
    assert not created.exists()
    torch.load(path / file, weights_only=False)
    assert created.exists()  # it would have been


@pytest.mark.parametrize("allowed", [False, True])
def test_pickled_weights_with_code_in_them(
    allowed: bool, lm: Saved, tmp_path: Path, refused: Callable[..., str]
) -> None:
    folder, created = Path(shutil.copytree(lm.folder, tmp_path / "model")), tmp_path / "created"
    (folder / "model.safetensors").unlink()
    torch.save({"w": CreatesFile(created)}, folder / "pytorch_model.bin")
    for command, option in (
        (("generate", folder, "A"), "--trust_remote_code"),
        (("convert", folder, tmp_path / "out", "--to", "gpt2"), "--allow_pickle"),
    ):
        said = refused(*command, option, str(allowed).lower())
        reason = "hold other things than tensors, and are not loaded" if allowed else "has no weights in safetensors"
        assert reason in said
    assert not created.exists()


@pytest.mark.parametrize("name", ["", ".", "..", "../x", "a/b", "/x", "../../x"])
def test_the_name_of_a_run_is_no_path(name: str) -> None:
    with pytest.raises(ValueError, match="it must be the plain name of a folder"):
        RunOptions(name=name)


def test_shards_of_weights_lie_in_their_folder(lm: Saved, tmp_path: Path, refused: Callable[..., str]) -> None:
    folder = Path(shutil.copytree(lm.folder, tmp_path / "model"))
    (folder / "model.safetensors").rename(tmp_path / "elsewhere.safetensors")
    index = {"metadata": {}, "weight_map": {"lm_head.weight": "../elsewhere.safetensors"}}
    (folder / "model.safetensors.index.json").write_text(json.dumps(index), "utf-8")
    for command in (("generate", folder, "A"), ("push", folder, "someone/model")):
        assert "names a file outside the folder: ../elsewhere.safetensors" in refused(*command)


def test_a_full_disk_behind_standard_output_is_one_line() -> None:
    with Path("/dev/full").open("w") as full:
        process = subprocess.run(
            [sys.executable, "-m", "paperformer.cli", "--version"],
            stdout=full,
            stderr=subprocess.PIPE,
            text=True,
            check=False,
        )
    line = "error: standard output cannot be written: No space left on device\n"
    assert (process.returncode, process.stderr) == (2, line)
