"""Every example of the user's guide to data, run as it is written."""

import re
import shlex
from pathlib import Path

import pytest

from paperformer.cli import main

GUIDE = (Path(__file__).parents[1] / "docs" / "data.md").read_text("utf-8")
BLOCK = re.compile(r"^```(\w+) ?(\S*)\n(.*?)^```$", flags=re.MULTILINE | re.DOTALL)
SECTIONS = dict(re.findall(r"^## (.*?)\n(.*?)(?=^## |\Z)", GUIDE, flags=re.MULTILINE | re.DOTALL))
COMMON = "The examples' common files"


def write_files(section: str, folder: Path) -> None:
    for _, name, content in BLOCK.findall(SECTIONS[section]):
        if name:
            (folder / name).parent.mkdir(exist_ok=True)
            (folder / name).write_text(content, "utf-8")


@pytest.mark.proof
@pytest.mark.parametrize("section", [name for name, text in SECTIONS.items() if "```bash" in text])
def test_example(
    section: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    for name in (COMMON, "Two parallel files", section):  # the tokenizers' example uses the parallel files
        write_files(name, tmp_path)
    printed = ""
    for language, _, content in BLOCK.findall(SECTIONS[section]):
        match language:
            case "python":
                exec(content, {})
            case "bash":
                for command in content.splitlines():
                    program, *arguments = shlex.split(command)
                    assert program == "paperformer"
                    main(arguments)
                printed = capsys.readouterr().out
                assert printed
            case "console":
                lines = content.splitlines()
                assert lines
                assert [line for line in lines if line not in printed] == []


def test_every_source_has_an_example() -> None:
    """Whoever adds a reader adds an example: the formats and the other kinds of sources are all in the guide."""
    from paperformer.training.data.readers.sources import FORMATS, PARALLEL

    endings = {"parallel": "train: corpus\n", "text": "stories.txt", "gettext": "locale/de.po"}
    missing = [
        kind for kind in (PARALLEL, *(known.name for known in FORMATS)) if endings.get(kind, f".{kind}\n") not in GUIDE
    ]
    assert missing == []
    assert "hub: " in GUIDE
    assert "built-in:" in GUIDE


def test_links_lead_somewhere() -> None:
    anchors = {re.sub(r"[^\w\- ]", "", name.lower()).replace(" ", "-") for name in SECTIONS}
    links = re.findall(r"\]\(([^)]*)\)", GUIDE)
    assert links
    for link in links:
        if link.startswith("#"):
            assert link[1:] in anchors, link
        else:
            assert (Path(__file__).parents[1] / "docs" / link).exists(), link
