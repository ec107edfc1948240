"""Documents of the standard's kinds of units. They are read back by lxml, which knows nothing of ours."""

import re
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from lxml import etree

from paperformer.training.console.input_error import InputError
from paperformer.translation.formats import xml_units

REVIEW = 'state="needs-review-translation" state-qualifier="leveraged-mt"'
HEAD = """<?xml version='1.0' encoding="UTF-8"?>
<!-- a > b --><?tool x?>
<xliff version='1.2'   xmlns="urn:oasis:names:tc:xliff:document:1.2" xmlns:my="urn:my">
  <file original="a.html" source-language="en" datatype="html" target-language="de"><header><my:x/></header>
    <body>
"""
END = "\n    </body>\n  </file>\n</xliff>\n"


def document(*units: str) -> str:
    return HEAD + "".join(units) + END


def target(content: bytes, name: str = "target") -> list[Any]:
    return list(etree.fromstring(content).iter(f"{{urn:oasis:names:tc:xliff:document:1.2}}{name}"))


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ("<source>a dog</source>", f"<source>a dog</source><target {REVIEW}>A DOG</target>"),
        (
            "\n <source xml:lang='en'>a &lt; b &amp;</source>\n <note>n</note>",
            f"\n <source xml:lang='en'>a &lt; b &amp;</source>\n <target {REVIEW}>A &lt; B &amp;</target>\n"
            " <note>n</note>",
        ),
        (
            '<source>a</source><target\n xml:lang="de"  state="new"/>',
            f'<source>a</source><target\n xml:lang="de" {REVIEW}>A</target>',
        ),
        (
            "<source>a</source><target state='needs-translation' my:state='s'>a</target>",
            f"<source>a</source><target my:state='s' {REVIEW}>A</target>",
        ),
        (
            '<source><g id="1">a <![CDATA[<dog>]]></g><x id="2"/></source>',
            f'<source><g id="1">a <![CDATA[<dog>]]></g><x id="2"/></source>'
            f'<target {REVIEW}><g id="1">A &lt;DOG&gt;</g><x id="2"/></target>',
        ),
        (
            '<source><bpt id="1">&lt;b></bpt>a<ept id="1">&lt;/b></ept> <mrk mtype="protected">b</mrk></source>',
            '<source><bpt id="1">&lt;b></bpt>a<ept id="1">&lt;/b></ept> <mrk mtype="protected">b</mrk></source>'
            f'<target {REVIEW}><bpt id="1">&lt;b></bpt>A<ept id="1">&lt;/b></ept>'
            ' <mrk mtype="protected">b</mrk></target>',
        ),
        (
            '<source>a. b.</source><seg-source><mrk mtype="seg" mid="1">a.</mrk> <mrk mtype="seg" mid="2">b.</mrk>'
            "</seg-source><alt-trans><source>x</source><target>y</target></alt-trans>",
            '<source>a. b.</source><seg-source><mrk mtype="seg" mid="1">a.</mrk> <mrk mtype="seg" mid="2">b.</mrk>'
            f'</seg-source><target {REVIEW}><mrk mtype="seg" mid="1">A.</mrk> <mrk mtype="seg" mid="2">B.</mrk>'
            "</target><alt-trans><source>x</source><target>y</target></alt-trans>",
        ),
    ],
)
def test_a_target_is_added_and_all_else_stays_to_the_byte(translated: Any, before: str, after: str) -> None:
    units = '<my:unit><source>x</source></my:unit><trans-unit id="1" my:a="x > y">{}</trans-unit><!-- c -->'
    result = translated(document(units.format(before)), "xliff")
    assert result.content.decode() == document(units.format(after))
    assert (result.outcome.translated, result.notes) == (1, [])
    etree.fromstring(result.content)
    again = translated(result.content, "xliff")
    assert again.content == result.content
    assert again.outcome.left == {"translated already": 1}


@pytest.mark.parametrize(
    ("unit", "why"),
    [
        ('<trans-unit id="1" translate="no"><source>a</source></trans-unit>', "locked"),
        ('<group translate="no"><group><trans-unit><source>a</source></trans-unit></group></group>', "locked"),
        ('<trans-unit approved="yes"><source>a</source><target/></trans-unit>', "approved"),
        ("<trans-unit><source>a</source><target>ä</target></trans-unit>", "translated already"),
        ('<trans-unit><source>a</source><target state="new">ä</target></trans-unit>', "translated already"),
        ('<trans-unit><source>a</source><target><x id="1"/></target></trans-unit>', "translated already"),
        ('<trans-unit><source>a</source><target state="final"/></trans-unit>', "translated already"),
        ('<trans-unit><source> <x id="1"/></source></trans-unit>', "without text"),
        ("<trans-unit><note>a</note></trans-unit>", "without a source"),
    ],
)
def test_what_is_left_as_it_is(translated: Any, unit: str, why: str) -> None:
    result = translated(document(unit), "xliff")
    assert result.content.decode() == document(unit)
    assert (result.outcome.left, result.texts) == ({why: 1}, [])


def test_a_unit_to_be_looked_at_has_a_note(translated: Any) -> None:
    unit = '\n  <trans-unit id="1">\n    <source>save <g id="1">{name} now</g> or 3</source>\n  </trans-unit>'
    result = translated(document(unit), "xliff", lambda texts, note: ["Name speichern oder 3"])
    (added,) = target(result.content)
    assert ["".join(added.itertext()), [child.tag.partition("}")[2] for child in added]] == [
        "Name speichern oder 3",
        ["g"],
    ]
    assert [note.text for note in target(result.content, "note")] == [
        "other placeholders or tags: missing: {name}; not in the source: none",
        "inline elements placed by estimate: in proportion to where the source has them",
    ]
    assert b"\n    <note from=" in result.content
    assert [number for number, _ in result.notes] == [7, 7]
    assert result.outcome.flagged == {"other placeholders or tags": 1, "inline elements placed by estimate": 1}


def test_white_space_means_what_xml_space_says(translated: Any) -> None:
    unit = "<trans-unit{}><source>one\n   two</source></trans-unit>"
    assert translated(document(unit.format("")), "xliff").texts == ["one two"]
    kept = translated(document(unit.format(' xml:space="preserve"')), "xliff")
    assert kept.texts == ["one", "two"]
    assert b"ONE\n   TWO</target>" in kept.content


VERSION_2 = """<?xml version="1.0"?>
<x:xliff xmlns:x="urn:oasis:names:tc:xliff:document:2.0" version="2.1" srcLang="en" trgLang="de">
 <x:file id="f"><x:unit id="1"><x:originalData><x:data id="d1">&lt;b></x:data></x:originalData>
  <x:segment id="s1"><x:source>a <x:pc id="1" dataRefStart="d1">dog</x:pc></x:source></x:segment>
  <x:ignorable><x:source> </x:source></x:ignorable>
  <x:segment state="initial" subState="a:b"><x:source>two<x:ph id="2"/></x:source><x:target></x:target></x:segment>
  <x:segment state="initial"><x:source>5 cats</x:source><x:target>5 cats</x:target></x:segment>
  <x:segment><x:source>ok</x:source><x:target>ok</x:target></x:segment>
  <x:segment state="final"><x:source>c</x:source><x:target>d</x:target></x:segment>
 </x:unit><x:unit id="2" translate="no"><x:segment><x:source>a</x:source></x:segment></x:unit></x:file></x:xliff>
"""


def test_version_2(translated: Any) -> None:
    result = translated(VERSION_2, "xliff", lambda texts, note: [text.upper().replace("5", "6") for text in texts])
    expected = VERSION_2
    for before, after in (
        ('<x:segment id="s1">', '<x:segment id="s1" state="translated" subState="paperformer:{}">'),
        (
            "dog</x:pc></x:source>",
            'dog</x:pc></x:source><x:target>A <x:pc id="1" dataRefStart="d1">DOG</x:pc></x:target>',
        ),
        (
            '<x:segment state="initial" subState="a:b">',
            '<x:segment state="translated" subState="paperformer:machine-translation">',
        ),
        ("<x:target></x:target>", '<x:target>TWO<x:ph id="2"/></x:target>'),
        (
            '<x:segment state="initial"><x:source>5',
            '<x:segment state="translated" subState="paperformer:other-numbers"><x:source>5',
        ),
        ("<x:target>5 cats</x:target>", "<x:target>6 CATS</x:target>"),
    ):
        assert before in expected
        expected = expected.replace(before, after.format("inline-elements-placed-by-estimate"))
    assert result.content.decode() == expected
    etree.fromstring(result.content)
    assert (result.outcome.translated, result.outcome.left) == (1, {"locked": 1})
    assert translated(result.content, "xliff").content == result.content


@pytest.mark.parametrize("encoding", ["utf-16", "utf-16-le", "iso-8859-1", "windows-1251", "utf-8-sig", "us-ascii"])
def test_the_encoding_stays(translated: Any, encoding: str) -> None:
    declared = {"utf-8-sig": "utf-8", "utf-16-le": "utf-16"}.get(encoding, encoding)
    word = {"windows-1251": "стол", "us-ascii": "dog", "iso-8859-1": "dög"}.get(encoding, "стол")
    text = document(f"<trans-unit><source>{word}</source></trans-unit>").replace("UTF-8", declared)
    result = translated(text.encode(encoding), "xliff", lambda texts, note: ["Öl стол" for _ in texts])
    assert target(result.content)[0].text == "Öl стол"
    raw = text.encode(encoding)
    without_mark = {"utf-16": "utf-16-le", "utf-8-sig": "utf-8"}.get(encoding, encoding)
    place = raw.index("</source>".encode(without_mark))
    assert result.content.startswith(raw[:place])
    assert result.content.endswith(raw[-30:])


@pytest.mark.parametrize(
    ("content", "options", "said"),
    [
        ("<tmx version='1.4'/>", {}, 'x is no XLIFF file of version 1 or 2: it begins with <tmx version="1.4">'),
        ("<xliff version='3.0'/>", {}, 'it begins with <xliff version="3.0">'),
        ("a,b\n", {}, "x, line 1, column 1: syntax error; the file must be well-formed XML"),
        (document(), {"target_language": "is"}, 'x, line 4: target-language="de", and --target_language is is'),
        (VERSION_2.replace(' trgLang="de"', ""), {}, r"does not say which language it is translated into \(trgLang\)"),
        (document("<trans-unit><source>a</trans-unit>"), {}, "x, line 6, column 24: mismatched tag"),
        (document("<trans-unit>&x;</trans-unit>"), {}, "x, line 6, column 13: undefined entity"),
        ('<!DOCTYPE a [<!ENTITY b "c">]><xliff version="1.2"/>', {}, "declares the entity 'b'"),
        (b"<?xml version='1.0' encoding='klingon'?><xliff/>", {}, "x is in klingon, an encoding that is not known"),
        (b"<?xml version='1.0' encoding='base64'?><xliff/>", {}, "x is in base64, an encoding that is not known"),
        (b"\xff\xfe<\0a", {}, "x is not utf-16-le, as its beginning says"),
    ],
)
def test_what_is_no_xliff_is_one_line(translated: Any, content: Any, options: dict[str, str], said: str) -> None:
    with pytest.raises(InputError, match=said):
        translated(content, "xliff", **options)


def test_a_language_is_written_where_there_is_none(translated: Any) -> None:
    bare = document("<trans-unit><source>a</source></trans-unit>").replace(' target-language="de"', "")
    assert translated(bare, "xliff").content.decode().count("target-language") == 0
    said = translated(bare, "xliff", target_language="is").content
    assert etree.fromstring(said)[0].get("target-language") == "is"
    two = translated(VERSION_2.replace(' trgLang="de"', ""), "xliff", target_language="is").content
    assert etree.fromstring(two).get("trgLang") == "is"
    assert translated(document(), "xliff", target_language="de-AT").content.decode() == document()


def test_what_is_in_memory_is_a_unit_or_a_piece_between_units(translated: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(xml_units, "BLOCK_BYTES", 1 << 10)
    monkeypatch.setattr(xml_units, "LONGEST_GAP", 1 << 12)
    skeleton = f"<my:skeleton>{'x' * (1 << 14)}</my:skeleton>"
    text = document(skeleton, "<trans-unit><source>a</source></trans-unit>", skeleton)
    result = translated(text, "xliff")
    assert result.content.decode() == text.replace("a</source>", f"a</source><target {REVIEW}>A</target>")
    assert result.records == 8  # of four kilobytes, and the unit
    assert translated(text, "xliff", block=7).records == result.records
    monkeypatch.setattr(xml_units, "LONGEST_UNIT", 1 << 12)
    with pytest.raises(InputError, match="x, line 6: a unit of more than 4,096 bytes; split it"):
        translated(document(f"<trans-unit>{skeleton}</trans-unit>"), "xliff")


INLINE = st.recursive(
    st.text(
        st.characters(codec="utf-8", exclude_categories=["Cc", "Cs"], exclude_characters="\ufffe\uffff"), max_size=6
    ),
    lambda inner: st.tuples(st.sampled_from(["g", "x", "ph", "mrk", "bx"]), st.lists(inner, max_size=3)),
    max_leaves=6,
)


def build(parent: Any, content: list[Any]) -> None:
    for item in content:
        if isinstance(item, str):
            if len(parent):
                parent[-1].tail = (parent[-1].tail or "") + item
            else:
                parent.text = (parent.text or "") + item
        else:
            child = etree.SubElement(parent, item[0], id="1")
            if item[0] in ("g", "ph", "mrk"):
                build(child, item[1])


@given(st.lists(INLINE, min_size=1, max_size=4), st.text("ab c", max_size=9), st.integers(1, 50))
def test_inline_elements_are_all_kept_in_their_order(content: list[Any], translation: str, block: int) -> None:
    import io

    from paperformer.translation.formats.file_formats import read_records
    from paperformer.translation.formats.names import FormatOptions

    source = etree.Element("source")
    build(source, content)
    raw = document(f"<trans-unit>{etree.tostring(source, encoding='unicode')}</trans-unit>").encode()
    file = io.BytesIO(raw)
    records = read_records(lambda count: file.read(min(count, block)), "x", "xliff", FormatOptions())
    written = b"".join(record.write([translation] * len(record.texts)).content for record in records)
    targets = target(written)
    if not targets:  # no text
        assert written == raw
        return
    assert [child.tag.partition("}")[2] for child in targets[0].iter()][1:] == [child.tag for child in source.iter()][
        1:
    ]
    without = re.sub(rb"<target.*</target>|<note.*</note>", b"", written, flags=re.DOTALL)
    assert without == raw
