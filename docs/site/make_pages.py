"""Writes the pages of the site and its configuration: python docs/site/make_pages.py [FOLDER]

`make docs` calls this, then MkDocs. The folder, build/site by default, gets `pages/` and `mkdocs.yml`; what of that
does not depend on the pages is in `docs/site/mkdocs.yml`.
"""

import ast
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import yaml
from options import FORMULAS, PICTURES, Option, costs, list_options
from pictures import draw_all
from tree import REPOSITORY, STARTS, Tree, formula

HERE = Path(__file__).parent
Nav = list[dict[str, Any]]

GUIDES = {
    "Use": ("python", "translation", "evaluation", "exercises", "ablations"),
    "Train": ("data", "training", "trainers", "bad_input"),
    "Deploy": ("publishing", "deployment", "serving", "compatibility", "completion"),
    "Proofs": ("equivalence", "gradient_flow", "releasing"),
}
MODULES = {
    "Model": "modeling", "Decoding": "modeling/decoding", "Configuration": "configuration",
    "Tokenizers": "tokenization",
}  # fmt: skip


def main(folder: Path) -> None:
    """Writes everything."""
    shutil.rmtree(folder / "pages", ignore_errors=True)
    pages = folder / "pages"
    pages.mkdir(parents=True)
    tree = Tree(pages)
    for path in STARTS:
        tree.ask(path)
    options = list_options()
    drawn = pages / "options" / "pictures"
    drawn.mkdir(parents=True)
    draw_all(drawn)
    nav: Nav = [
        {"paperformer": "README.md"},
        {"Tutorials": ["docs/tutorials.md", *_tutorials(tree)]},
        {"Guides": _guides(tree)},
        {"Options": write_options(tree, options)},
        {"Results": _results(tree)},
        {"API": write_api(pages)},
        {"Gallery": write_gallery(tree)},
        {"Project": [tree.ask(path) for path in STARTS[1:]]},
    ]
    tree.write()
    shutil.copytree(HERE / "assets", pages / "assets")
    _lay_out_package(folder)
    config = {
        "INHERIT": os.path.relpath(HERE / "mkdocs.yml", folder),
        "docs_dir": "pages",
        "site_dir": "html",
        "hooks": [os.path.relpath(HERE / "no_requests.py", folder)],
        "nav": nav,
    }
    (folder / "mkdocs.yml").write_text(yaml.safe_dump(config, sort_keys=False, allow_unicode=True), "utf-8")


def _tutorials(tree: Tree) -> list[str]:
    tree.ask("docs/tutorials.md")
    return [
        tree.ask(path.relative_to(REPOSITORY).as_posix())
        for path in sorted((REPOSITORY / "docs" / "tutorials").glob("*.ipynb"))
    ]


def _guides(tree: Tree) -> Nav:
    known = {name for names in GUIDES.values() for name in names} | {"tutorials"}
    more = sorted(path.stem for path in (REPOSITORY / "docs").glob("*.md") if path.stem not in known)
    groups = {**GUIDES, **({"More": tuple(more)} if more else {})}
    return [
        {title: [tree.ask(f"docs/{name}.md") for name in names if (REPOSITORY / f"docs/{name}.md").exists()]}
        for title, names in groups.items()
    ]


def _results(tree: Tree) -> Nav:
    """Cards of recipes, cards of ablations and exercises, measurements."""

    def pages(pattern: str) -> list[str]:
        return [tree.ask(path.relative_to(REPOSITORY).as_posix()) for path in sorted(REPOSITORY.glob(pattern))]

    cards = [{Path(page).stem: page} for page in pages("model_cards/*.md")]
    return [
        {"Recipes": [tree.ask("training/recipes"), *cards]},
        {"Ablations": pages("docs/ablations/*.md")},
        {"Exercises": pages("docs/exercises/*/README.md")},
        {"Measurements": pages("benchmarks/results/*.md")},
    ]


def write_options(tree: Tree, options: dict[str, Option]) -> Nav:
    """A page for each option, and one for each section that lists them."""
    nav: Nav = []
    for section in dict.fromkeys(option.section for option in options.values()):
        folder = tree.folder / "options" / section
        folder.mkdir(parents=True)
        own = [option for option in options.values() if option.section == section]
        for option in own:
            text = tree.follow(show_option(option), f"options/{section}/{option.name}.md")
            (folder / f"{option.name}.md").write_text(text, "utf-8")
        title = {"model": "The model", "run": "The run"}.get(section, section.capitalize())
        rows = [f"| [`{each.name}`]({each.name}.md) | {_first_sentence(each.text)} |" for each in own]
        index = "\n".join([f"# Options: {title}", "", "| option | |", "|---|---|", *rows, ""])
        (folder / "index.md").write_text(index, "utf-8")
        pages = [{option.name: f"options/{section}/{option.name}.md"} for option in own]
        nav.append({title: [f"options/{section}/index.md", *pages]})
    return nav


def show_option(option: Option) -> str:
    """The page of an option, with links as from a file of the repository in options/SECTION/."""
    lines = [f"# `{option.name}`", "", f"Command line: `{option.flag} VALUE`. Values: {option.type}.", ""]
    lines += [" ".join(option.text.split()), ""]
    if latex := FORMULAS.get(option.key):
        lines += [formula(latex), ""]
    if picture := PICTURES.get(option.key):
        place = f"../{picture}" if picture.startswith("../") else f"../pictures/{picture}"
        lines += [f"![{option.name}]({place})", ""]
    lines += ["## Default", ""]
    if len(set(option.defaults.values())) == 1:
        lines += [f"`{next(iter(option.defaults.values()))}`", ""]
    else:
        lines += [
            "| of | default |",
            "|---|---|",
            *(f"| {where} | `{value}` |" for where, value in option.defaults.items()),
        ]
        lines += [""]
    if option.papers or option.citations:
        lines += ["## Papers", "", *(f"- {citation}" for citation in option.citations)]
        lines += [*(f"- [arXiv {number}](https://arxiv.org/abs/{number})" for number in option.papers), ""]
    lines += ["## Proof", ""]
    if option.proofs:
        lines += [*(f"- [{title}](../../{path})" for title, path in option.proofs), ""]
    tests = [f"- [{path}](../../{path})" for path in option.tests]
    lines += ["Tests that use it:" if tests else "No test has it by name.", "", *tests, ""]
    if rows := _cost_rows(option):
        lines += ["## Cost", "", *rows, ""]
    return "\n".join(lines)


def _cost_rows(option: Option) -> list[str]:
    found = list(costs(option))
    if len({(cost.family, cost.parameters, cost.flops, cost.cache) for cost in found}) <= 1:
        return []
    return [
        "Beside the default configuration of each family, with 128 tokens:",
        "",
        "| family | value | parameters | MFLOPs a token, forward | cache a token, bytes |",
        "|---|---|---:|---:|---:|",
        *(
            f"| {cost.family} | `{cost.value}`{' (default)' if cost.is_default else ''} | {cost.parameters:,} "
            f"| {cost.flops / 1e6:.1f} | {f'{cost.cache:,.0f}' if cost.cache else '–'} |"
            for cost in found
        ),
    ]


def _first_sentence(text: str) -> str:
    return " ".join(text.split()).split(". ")[0].split(": ")[0].removesuffix(".").replace("|", "\\|")


def write_api(pages: Path) -> Nav:
    """A page for each public name of `paperformer`, and one for each module of the model."""
    folder = pages / "api"
    folder.mkdir()
    source = ast.parse((REPOSITORY / "paperformer" / "__init__.py").read_text("utf-8"))
    assigned = {
        target.id: node.value
        for node in source.body
        if isinstance(node, ast.Assign)
        for target in node.targets
        if isinstance(target, ast.Name)
    }
    modules: dict[str, str] = ast.literal_eval(assigned["_MODULES"])
    names = []
    for name, module in sorted(modules.items(), key=lambda item: (item[0][0].isupper(), item[0])):
        place = f"paperformer{module}.{name}"
        (folder / f"{name}.md").write_text(f"# paperformer.{name}\n\n::: {place}\n", "utf-8")
        names.append({name: f"api/{name}.md"})
    nav: Nav = [{"paperformer": names}]
    for title, room in MODULES.items():
        own = []
        for path in sorted((REPOSITORY / room).glob("*.py")):
            if path.stem != "__init__":
                page = f"api/{room}/{path.stem}.md"
                (pages / page).parent.mkdir(parents=True, exist_ok=True)
                module = f"paperformer.{room.replace('/', '.')}.{path.stem}"
                (pages / page).write_text(f"# {path.stem}\n\n::: {module}\n", "utf-8")
                own.append({path.stem: page})
        nav.append({title: own})
    return nav


def write_gallery(tree: Tree) -> str:
    """A page with every picture of the repository, and where each comes from."""
    lines = ["# Gallery", "", "Every picture was drawn by a command, from a run or from the code itself.", ""]
    for path in sorted((REPOSITORY / "docs").rglob("*.svg")):
        place = path.relative_to(REPOSITORY).as_posix()
        beside = path.with_name("README.md") if path.with_name("README.md").exists() else path.with_suffix(".md")
        lines += [f"## [{path.parent.name if beside.stem == 'README' else path.stem}]"]
        lines[-1] += f"(../{beside.relative_to(REPOSITORY).as_posix()})"
        lines += ["", f"![{path.stem}](../{place})", ""]
    text = tree.follow("\n".join(lines), "gallery/index.md")
    drawn = {"activations": "hidden_act", "patterns": "attention_window", "positions": "position_embedding_type"}
    for name, option in drawn.items():
        text += f"## [{option}](../options/model/{option}.md)\n\n![{name}](../options/pictures/{name}.svg)\n\n"
    text += "## [schedule](../options/optimization/schedule.md)\n\n![schedules](../options/pictures/schedules.svg)\n"
    (tree.folder / "gallery").mkdir()
    (tree.folder / "gallery" / "index.md").write_text(text, "utf-8")
    return "gallery/index.md"


def _lay_out_package(folder: Path) -> None:
    """The package as it is once installed, which mkdocstrings reads: its folders lie apart in the repository."""
    build = [sys.executable, "-c", "import setuptools; setuptools.setup()", "-q", "build_py", "--no-compile"]
    shutil.rmtree(folder / "package", ignore_errors=True)
    subprocess.run([*build, "--build-lib", str((folder / "package").resolve())], cwd=REPOSITORY, check=True)


if __name__ == "__main__":
    main(Path(sys.argv[1]) if len(sys.argv) > 1 else REPOSITORY / "build" / "site")
