"""The documentation's site: what its pages are made from. `make docs` builds it; this goes without MkDocs."""

import importlib
import re
import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from paperformer.configuration.configuration_seq2seq import PaperformerSeq2SeqConfig
from paperformer.training.recipe.parsing import recipe_parser
from paperformer.training.tasks.registry import OBJECTIVES

REPOSITORY = Path(__file__).parents[1]
SCRIPTS = REPOSITORY / "docs" / "site"
WITHOUT_TEST = {
    "data.shuffle_buffer", "data.text_column", "data.too_long", "tokenizer.pad_vocab_to_multiple_of",
    "tokenizer.unigram_alpha",
}  # fmt: skip
"""Options that no test has by name; their pages say so. None is to be added."""


@pytest.fixture(scope="module")
def scripts() -> Iterator[dict[str, ModuleType]]:
    """The scripts of docs/site, which lie in no package."""
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(str(SCRIPTS))
        import make_pages
        import options
        import tree

        modules = {"options": options, "tree": tree, "make_pages": make_pages}
        patch.setattr(make_pages, "formula", lambda latex: f"<math>{latex}</math>")  # which the extra docs brings
        yield modules
        for name in ("options", "tree", "make_pages", "pictures", "no_requests"):
            sys.modules.pop(name, None)


@pytest.fixture(scope="module")
def options(scripts: dict[str, ModuleType]) -> dict[str, Any]:
    found: dict[str, Any] = scripts["options"].list_options()
    return found


def test_every_option_of_every_recipe_is_there(options: dict[str, Any]) -> None:
    flags = {option.flag.removeprefix("--") for option in options.values()}
    for objective in OBJECTIVES.values():
        fields = recipe_parser(objective.family.config, objective.data).fields
        assert len(fields) > 80
        assert set(fields) <= flags


def test_every_option_has_its_facts(options: dict[str, Any], scripts: dict[str, ModuleType]) -> None:
    assert {key for key, option in options.items() if not option.tests} == WITHOUT_TEST
    for key, option in options.items():
        page = scripts["make_pages"].show_option(option)
        assert len(option.text.split()) > 1, key
        assert " ".join(option.text.split()) in page
        assert f"`{option.flag} VALUE`" in page
        assert all(f"`{default}`" in page for default in option.defaults.values())
        assert all(f"https://arxiv.org/abs/{number}" in page for number in option.papers)
        assert all(f"](../../{path})" in page for path in option.tests)
    known = scripts["options"]
    assert set(known.FORMULAS) | set(known.PICTURES) <= set(options)


def test_facts_are_those_of_the_classes(options: dict[str, Any]) -> None:
    option = options["model.norm_position"]
    assert option.type == "`post`, `pre`, `peri`"
    assert option.defaults == {"encoder-decoder": "post", "language model": "pre", "encoder": "post"}
    assert option.papers == ["2002.04745", "2502.02732"]
    assert option.citations == ["Vaswani et al. 2017", "Xiong et al. 2020", "Kim et al. 2025"]
    assert ("Gemma 2", "tests/equivalence/test_gemma2.py") in option.proofs
    assert "tests/modeling/test_blocks.py" in option.tests
    assert options["optimization.learning_rate"].type == "`float` or `paper`"
    assert options["model.num_key_value_heads"].type == "`int` or none"


def test_every_row_of_the_readmes_table_is_a_proof_on_a_page(options: dict[str, Any]) -> None:
    lines = (REPOSITORY / "README.md").read_text("utf-8").split("### One block, many papers")[1].splitlines()
    named = {name for line in lines if line.count("|") == 6 for name in re.findall(r"`(\w+)`", line.split("|")[1])}
    assert len(named) > 15
    assert [name for name in named if not options[f"model.{name}"].proofs] == []


def test_costs_are_those_of_the_model(options: dict[str, Any], scripts: dict[str, ModuleType]) -> None:
    costs = scripts["options"].costs
    base = PaperformerSeq2SeqConfig()
    tied, untied = (cost for cost in costs(options["model.tie_word_embeddings"]) if cost.family == "encoder-decoder")
    assert tied.is_default
    assert untied.parameters - tied.parameters == base.vocab_size * base.hidden_size
    assert untied.flops == tied.flops
    values = [cost.value for cost in costs(options["model.position_embedding_type"]) if cost.family == "language model"]
    assert values == ["sinusoidal", "learned", "rope", "alibi", "relative", "none"]
    assert list(costs(options["optimization.optimizer"])) == []


def test_every_link_leads_to_a_page(scripts: dict[str, ModuleType], tmp_path: Path) -> None:
    tree = scripts["tree"].Tree(tmp_path)
    tree.follow("", "README.md")
    guides = [*REPOSITORY.glob("*.md"), *(REPOSITORY / "docs").rglob("*.md"), *REPOSITORY.glob("model_cards/*.md")]
    assert len(guides) > 30
    for path in guides:
        place = path.relative_to(REPOSITORY).as_posix()
        tree.follow(path.read_text("utf-8"), place)
    assert {"modeling/attention.py", "configuration", "docs/tutorials/attention-and-norms.ipynb"} <= set(tree.pages)
    assert tree.pages["modeling/attention.py"] == "modeling/attention.py.md"
    assert tree.pages["configuration"] == "configuration/index.md"


def test_links_of_a_page(scripts: dict[str, ModuleType], tmp_path: Path) -> None:
    tree = scripts["tree"].Tree(tmp_path)
    text = "[a](../modeling/norms.py#x) [b](#here) [c](https://example.org) [d](python.md)\n```\n[e](nowhere.md)\n```\n"
    followed = text.replace("norms.py#x", "norms.py.md#x")
    assert tree.follow(text, "docs/guide.md") == followed
    with pytest.raises(FileNotFoundError, match=r"docs/nowhere\.md is linked"):
        tree.follow("[e](nowhere.md)", "docs/guide.md")


def test_nothing_is_asked_of_other_hosts(scripts: dict[str, ModuleType]) -> None:
    check = importlib.import_module("no_requests").on_post_page
    page = '<a href="https://arxiv.org">x</a><script src="a.js"></script><link rel="icon" href="b.png">'
    assert check(page, page=None) == page
    with pytest.raises(ValueError, match=r"from another host: <script src=.https://cdn"):
        check(page + '<script src="https://cdn.example/a.js">')
    for path in (SCRIPTS / "mkdocs.yml", *(SCRIPTS / "assets").iterdir()):
        assert "://" not in path.read_text("utf-8")
    assert "font: false" in (SCRIPTS / "mkdocs.yml").read_text("utf-8")
