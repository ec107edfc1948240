"""The plan of the house: imports go one way, rooms and functions stay small."""

import ast
from collections import Counter
from collections.abc import Iterator
from functools import cache
from graphlib import TopologicalSorter
from importlib.util import resolve_name
from pathlib import Path

import pytest

REPOSITORY = Path(__file__).parents[1]
FOLDERS = ("configuration", "modeling", "tokenization", "training", "paperformer", "model_cards")
MODULES_IN_A_ROOM = 15
LINES_OF_A_FUNCTION = 80

ORDER = [
    {"configuration", "model_cards"},
    {"modeling.decoding"},
    {"modeling", "tokenization.corpus", "tokenization.reserved_tokens"},
    {"tokenization.training_options"},
    {"tokenization.algorithms"},
    {"tokenization.report", "tokenization.bpe_dropout", "tokenization.unigram_sampling", "tokenization.train"},
    {"tokenization.comparison"},
    {"tokenization"},
    {"training.console"},
    {"training.atomic_files", "training.exact_weights"},
    {"training.recipe"},
    {"training.path_lock"},
    {"training.run_folder"},
    {"training.data.text"},
    {"training.data.built_in"},
    {"training.data.readers"},
    {"training.data.cleaning"},
    {"training.data"},
    {"training.data.batches"},
    {"training.costs"},
    {"training.evaluation"},
    {"training.tasks"},
    {"training.reporting"},
    {"training.engine.memory", "training.engine.devices"},
    {"training.engine.checkpoints"},
    {"training.engine"},
    {"training.publishing"},
    {"training.run"},
    {
        "training.prepare",
        "training.train_seq2seq",
        "training.train_lm",
        "training.train_encoder",
        "training.train_denoising",
    },
    {"paperformer"},
]
"""The rooms, lower ones first: each imports from those before it only. A module in the root of training or of
tokenization is one."""


@cache
def modules() -> dict[str, Path]:
    """Every module by its name, `training.data.corpus`; a folder's own is the folder's name."""
    paths = {path for folder in FOLDERS for path in (REPOSITORY / folder).rglob("*.py")}
    paths -= {*(REPOSITORY / "paperformer" / "shipped_models").glob("*/*.py")}  # which travels with their weights
    return {
        ".".join(path.relative_to(REPOSITORY).with_suffix("").parts).removesuffix(".__init__"): path for path in paths
    }


@cache
def imports(module: str) -> frozenset[str]:
    """The modules of ours that a module imports, wherever in its text: in functions and for types too."""
    path = modules()[module]
    package = module if path.name == "__init__.py" else module.rpartition(".")[0]
    found = set()
    for node in ast.walk(ast.parse(path.read_text("utf-8"))):
        if isinstance(node, ast.ImportFrom) and node.level > 0:
            # Installed, all folders lie in one; `paperformer` is that one.
            installed = package if package.partition(".")[0] == "paperformer" else f"paperformer.{package}"
            target = resolve_name("." * node.level + (node.module or ""), installed)
            for name in (f"{target}.{alias.name}" for alias in node.names):
                known = [name, name.removeprefix("paperformer."), target, target.removeprefix("paperformer.")]
                found.add(next(module for module in known if module in modules()))
    return frozenset(found)


def room(module: str) -> str:
    """The folder that a module is in; of the front door all is one room."""
    top, *inner = module.split(".")
    if top == "paperformer":
        return top
    is_folder = modules()[module].name == "__init__.py"
    if top in ("training", "tokenization") and len(inner) == 1:
        return module
    return module if is_folder else module.rpartition(".")[0]


def steps_up() -> Iterator[tuple[str, str]]:
    """Imports that lead from a room to one that comes later, or to one that the order does not know."""
    height = {name: number for number, names in enumerate(ORDER) for name in names}
    for module in modules():
        for target in imports(module):
            here, there = room(module), room(target)
            if here != there and not height.get(there, 99) < height.get(here, -1):
                yield module, target


def test_imports_go_one_way() -> None:
    assert list(steps_up()) == []


def test_no_module_imports_itself_by_way_of_others() -> None:
    TopologicalSorter({module: imports(module) - {module} for module in modules()}).prepare()


def test_the_test_sees_imports_wherever_they_are() -> None:
    assert "training.run" in imports("training.prepare")
    assert "training.prepare" in imports("paperformer.commands.training")  # inside a function
    assert "configuration.configuration_lm" in imports("paperformer")  # for types only


def test_rooms_are_small() -> None:
    sizes = Counter(path.parent for path in modules().values() if path.name != "__init__.py")
    assert {str(path): size for path, size in sizes.items() if size > MODULES_IN_A_ROOM} == {}


@pytest.mark.parametrize("folder", FOLDERS)
def test_functions_are_short(folder: str) -> None:
    long = [
        f"{path.name}: {node.name} has {lines} lines"
        for path in (REPOSITORY / folder).rglob("*.py")
        for node in ast.walk(ast.parse(path.read_text("utf-8")))
        if isinstance(node, ast.FunctionDef)
        if (lines := (node.end_lineno or 0) - node.lineno + 1) > LINES_OF_A_FUNCTION
    ]
    assert long == []
