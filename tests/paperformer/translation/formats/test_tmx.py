from typing import Any

import pytest
from lxml import etree

from paperformer.training.console.input_error import InputError
from paperformer.training.data.readers.tmx import TranslationMemory
from paperformer.training.data.text.bad_lines import BadLines

TOOL = 'creationtool="paperformer" creationtoolversion="0.1.0"'
HEAD = """<?xml version="1.0" encoding="UTF-8"?>
<!DOCTYPE tmx SYSTEM "tmx14.dtd">
<tmx version="1.4">
  <header srclang="en-US" segtype="sentence" datatype="x"/>
  <body>
"""
END = "\n  </body>\n</tmx>\n"


def memory(*units: str) -> str:
    return HEAD + "".join(units) + END


@pytest.fixture(autouse=True)
def one_version(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("paperformer.translation.formats.tmx.version", lambda name: "0.1.0")


@pytest.mark.parametrize(
    ("before", "after"),
    [
        (
            '<tu tuid="1">\n <tuv xml:lang="en-us">\n  <seg>a &lt; b</seg>\n </tuv>\n'
            ' <tuv xml:lang="fr"><seg>c</seg></tuv>{}\n</tu>',
            f'\n <tuv xml:lang="de" {TOOL}>\n  <seg>A &lt; B</seg>\n </tuv>',
        ),
        (
            '<tu><tuv xml:lang="EN_US"><seg>a<ph x="1"/></seg></tuv>{}</tu>',
            f'<tuv xml:lang="de" {TOOL}><seg>A<ph x="1"/></seg></tuv>',
        ),
        ('<tu srclang="fr"><tuv lang="fr-CA"><seg>a</seg></tuv>{}</tu>', f'<tuv lang="de" {TOOL}><seg>A</seg></tuv>'),
        (
            '<tu><tuv xml:lang="en-US"><seg>a</seg></tuv><tuv xml:lang="de-AT">{}</tuv></tu>',
            None,
        ),
    ],
)
def test_units_that_lack_the_language_get_it(translated: Any, before: str, after: str | None) -> None:
    empty, filled = ("", after) if after else ("<seg/>", "<seg>A</seg>")
    result = translated(memory(before.format(empty)), "tmx", target_language="de")
    assert result.content.decode() == memory(before.format(filled))
    assert (result.outcome.translated, result.notes) == (1, [])
    again = translated(result.content, "tmx", target_language="de")
    assert again.content == result.content


def test_a_memory_asks_once_what_version_of_the_package_translates_it(
    translated: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[str] = []
    monkeypatch.setattr("paperformer.translation.formats.tmx.version", lambda name: asked.append(name) or "0.1.0")
    units = '<tu><tuv xml:lang="en-US"><seg>a</seg></tuv></tu>' * 20
    assert translated(memory(units), "tmx", target_language="de").outcome.translated == 20
    assert asked == ["paperformer"]


@pytest.mark.parametrize(
    ("unit", "why"),
    [
        (
            '<tu><tuv xml:lang="en-US"><seg>a</seg></tuv><tuv xml:lang="DE-at"><seg>b</seg></tuv></tu>',
            "translated already",
        ),
        ('<tu><tuv xml:lang="fr"><seg>a</seg></tuv></tu>', "without en-US"),
        ('<tu><tuv xml:lang="en-US"><seg> <ph/></seg></tuv></tu>', "without text"),
        ('<tu><tuv xml:lang="en-US"></tuv></tu>', "without en-US"),
    ],
)
def test_what_is_left_as_it_is(translated: Any, unit: str, why: str) -> None:
    result = translated(memory(unit), "tmx", target_language="de")
    assert (result.content.decode(), result.outcome.left) == (memory(unit), {why: 1})


def test_a_region_of_the_source_is_not_taken_where_it_is_the_target(translated: Any) -> None:
    unit = '<tu><tuv xml:lang="en-GB"><seg>a</seg></tuv></tu>'
    result = translated(memory(unit), "tmx", source_language="en", target_language="en-GB")
    assert result.outcome.left == {"without en": 1}


def test_our_reader_and_lxml_read_it(translated: Any, tmp_path: Any) -> None:
    units = [
        f'<tu><tuv xml:lang="en-US"><seg>{number} <bpt i="1">&lt;b></bpt>dogs<ept i="1"/> run</seg></tuv></tu>'
        for number in range(50)
    ]
    result = translated(memory(*units), "tmx", target_language="de")
    path = tmp_path / "x.tmx"
    path.write_bytes(result.content)
    reader = TranslationMemory(path=path, source_language="en", target_language="de")
    pairs = list(reader.rows(BadLines()))
    assert pairs == [(f"{number} dogs run", f"{number} DOGS RUN") for number in range(50)]
    seen = etree.fromstring(result.content).findall(".//tuv[@creationtool='paperformer']")
    assert [[child.tag for child in variant.iter()] for variant in seen] == [["tuv", "prop", "seg", "bpt", "ept"]] * 50
    assert seen[0][0].get("type") == "x-paperformer-review"
    assert seen[0][0].text.startswith("inline elements placed by estimate")


@pytest.mark.parametrize(
    ("content", "options", "said"),
    [
        (memory(), {}, "x: into which language. .* say --target_language"),
        (
            memory("<tu/>").replace("en-US", "*all*"),
            {"target_language": "de"},
            "line 6: it does not say which language",
        ),
        ("<xliff/>", {"target_language": "de"}, "x is no TMX file: it begins with <xliff>"),
    ],
)
def test_what_has_to_be_said_is_one_line(translated: Any, content: str, options: dict[str, str], said: str) -> None:
    with pytest.raises(InputError, match=said):
        translated(content, "tmx", **options)


def test_the_source_language_can_be_said(translated: Any) -> None:
    unit = '<tu><tuv xml:lang="fr"><seg>a</seg></tuv></tu>'
    content = memory(unit).replace("en-US", "*all*")
    result = translated(content, "tmx", target_language="de", source_language="fr")
    assert result.outcome.translated == 1
