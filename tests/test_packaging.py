"""What is installed: every module and data file, and no import without a declared dependency."""

import ast
import re
import shutil
import subprocess
import sys
import tomllib
import zipfile
from importlib.metadata import entry_points, version
from pathlib import Path, PurePosixPath

import pytest

REPOSITORY = Path(__file__).resolve().parent.parent
PYPROJECT = tomllib.loads((REPOSITORY / "pyproject.toml").read_text(encoding="utf-8"))
FOLDERS = PYPROJECT["tool"]["setuptools"]["package-dir"]  # {"paperformer.modeling": "modeling", ...}
DATA_SUFFIXES = {".py", ".yaml", ".xz", ".md", ".jinja", ".typed", ".json", ".safetensors", ".css", ".js"}


def source_files() -> dict[str, Path]:
    """Every file that belongs into the wheel: its name there, and where it is now."""
    return {
        str(PurePosixPath(*package.split(".")) / path.relative_to(REPOSITORY / folder).as_posix()): path
        for package, folder in FOLDERS.items()
        for path in (REPOSITORY / folder).rglob("*")
        if path.suffix in DATA_SUFFIXES and "__pycache__" not in path.parts
    }


def test_the_wheel_holds_every_module_and_data_file(tmp_path: Path) -> None:
    source = tmp_path / "source"  # a copy: building leaves build/ and *.egg-info/ behind
    top = [REPOSITORY / name for name in ("pyproject.toml", "README.md", "LICENSE")]
    for path in [*source_files().values(), *top]:
        copy = source / path.relative_to(REPOSITORY)
        copy.parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(path, copy)
    build = [sys.executable, "-m", "pip", "wheel", "--quiet", "--no-deps", "--no-build-isolation"]
    subprocess.run([*build, "--no-index", "--wheel-dir", tmp_path, source], check=True, timeout=120)

    (wheel,) = tmp_path.glob("*.whl")
    with zipfile.ZipFile(wheel) as archive:
        packed = {name for name in archive.namelist() if ".dist-info/" not in name}
        licences = [name for name in archive.namelist() if name.endswith("licenses/LICENSE")]
    assert packed == set(source_files())
    assert licences


def test_the_version_is_written_once() -> None:
    assert version("paperformer") == PYPROJECT["project"]["version"]
    citation = (REPOSITORY / "CITATION.cff").read_text(encoding="utf-8")
    assert f"\nversion: {version('paperformer')}\n" in citation


def test_the_command_is_installed() -> None:
    (command,) = entry_points(group="console_scripts", name="paperformer")
    assert callable(command.load())


# Import name -> distribution name, where they differ.
DISTRIBUTIONS = {"yaml": "pyyaml", "pynvml": "nvidia_ml_py"}


def declared(requirements: list[str]) -> set[str]:
    return {re.split(r"[\[<>=~! ;]", line)[0].lower().replace("-", "_") for line in requirements}


@pytest.mark.parametrize("path", [path for path in source_files().values() if path.suffix == ".py"], ids=str)
def test_every_import_is_a_declared_dependency(path: Path) -> None:
    project = PYPROJECT["project"]
    optional = project["optional-dependencies"]
    allowed = declared(project["dependencies"] + [line for extra in optional.values() for line in extra])
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            imported = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom) and not node.level:
            imported = [node.module or ""]
        else:
            continue
        for name in (module.partition(".")[0] for module in imported):
            if name not in sys.stdlib_module_names and name != "paperformer":
                assert DISTRIBUTIONS.get(name, name) in allowed, f"line {node.lineno} imports {name}"


def test_every_dependency_is_pinned() -> None:
    """An unpinned one would be another version on each machine; torch unpinned is gigabytes of CUDA."""
    lines = (REPOSITORY / "constraints.txt").read_text(encoding="utf-8").splitlines()
    pinned = declared([line for line in lines if line and not line.startswith("#")])
    project = PYPROJECT["project"]
    required = list(project["dependencies"])
    for extra in ("dev", "plots"):
        required += project["optional-dependencies"][extra]
    assert declared(required) <= pinned
