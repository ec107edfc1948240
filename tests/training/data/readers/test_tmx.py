import gzip
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from paperformer.training.console.input_error import InputError
from paperformer.training.data.readers.tmx import LONGEST_SEGMENT, TranslationMemory
from paperformer.training.data.text.bad_lines import BadLines
from paperformer.training.data.text.chunks import PAIR_SCHEMA
from paperformer.training.data.text.xml_parsing import LONGEST_MARKUP

from ....examples import examples

both_modes = pytest.mark.parametrize("skip", [False, True])


def tmx(*units: str, prolog: str = '<?xml version="1.0"?>') -> str:
    body = "\n".join(f"<tu>{unit}</tu>" for unit in units)
    return f'{prolog}\n<tmx version="1.4"><header srclang="en"/><body>\n{body}\n</body></tmx>\n'


def tuv(language: str, segment: str) -> str:
    return f'<tuv xml:lang="{language}"><seg>{segment}</seg></tuv>'


HELLO = tuv("en", "Hello") + tuv("de", "Hallo")


def read(path: Path, content: str | bytes, bad: BadLines | None = None, source: str = "en", target: str = "de"):
    path.write_bytes(content.encode() if isinstance(content, str) else content)
    reader = TranslationMemory(path=path, source_language=source, target_language=target)
    rows = []
    for chunk in reader.chunks(bad or BadLines()):
        assert chunk.schema == PAIR_SCHEMA
        rows += zip(chunk["source"].to_pylist(), chunk["target"].to_pylist(), strict=True)
    return rows


@pytest.fixture
def path(tmp_path):
    return tmp_path / "memory.tmx"


@both_modes
def test_pairs_in_order_and_whichever_language_comes_first(path, skip):
    content = tmx(HELLO, tuv("de", "Zwei") + tuv("fr", "Deux") + tuv("en", "Two"))
    assert read(path, content, BadLines(skip=skip)) == [("Hello", "Hallo"), ("Two", "Zwei")]


def test_making_a_reader_touches_no_file_and_reading_twice_gives_the_same(path):
    reader = TranslationMemory(path=path, source_language="en", target_language="de")
    assert reader.name == str(path)
    with pytest.raises(InputError, match=r"there is no .*memory\.tmx"):
        reader.files()
    read(path, tmx(HELLO))
    assert reader.files() == [path]
    first, second = (list(reader.chunks(BadLines())) for _ in range(2))
    assert first == second


def test_compressed_and_found_without_its_ending(path):
    path.with_name("memory.tmx.gz").write_bytes(gzip.compress(tmx(HELLO).encode()))
    reader = TranslationMemory(path=path, source_language="en", target_language="de")
    assert [len(chunk) for chunk in reader.chunks(BadLines())] == [1]
    path.with_name("memory.tmx.gz").write_bytes(gzip.compress(tmx(HELLO).encode())[:-12])
    with pytest.raises(InputError, match="damaged or incomplete"):
        list(reader.chunks(BadLines(skip=True)))


def test_the_lang_attribute_of_old_files(path):
    assert read(path, tmx(HELLO.replace("xml:lang", "lang"))) == [("Hello", "Hallo")]


@pytest.mark.parametrize(
    ("languages", "asked", "pair"),
    [
        (["en-US", "de-AT"], ("en", "de"), (0, 1)),
        (["EN_us", "De"], ("en", "de"), (0, 1)),
        (["en-GB", "en", "de"], ("en", "de"), (1, 2)),  # exactly what was asked for comes first
        (["en-GB", "en-US", "de"], ("en-us", "de"), (1, 2)),
        (["en-GB", "en-US", "de"], ("en", "de"), (0, 2)),  # the first of two that fit
        (["en", "de", "de"], ("en", "de"), (0, 1)),
        (["pt-BR", "pt-PT"], ("pt", "pt-BR"), (1, 0)),  # never one segment for both sides
        (["pt-BR"], ("pt", "pt-BR"), None),
        (["zh-hant-tw"], ("zh", "zh-hant"), None),
        (["en", "de"], ("en-US", "de"), None),  # a general segment is not what was asked for
        (["eng", "de"], ("en", "de"), None),
    ],
)
def test_languages_match(path, languages, asked, pair):
    unit = "".join(tuv(language, f"text {index}") for index, language in enumerate(languages))
    bad = BadLines()
    certain = tuv(asked[0], "source") + tuv(asked[1], "target")
    rows = read(path, tmx(certain, unit), bad, *asked)
    expected = [] if pair is None else [tuple(f"text {index}" for index in pair)]
    assert rows == [("source", "target"), *expected]
    assert bad.counts["language missing"] == (pair is None)


@both_modes
def test_units_without_a_language_are_counted(path, skip):
    bad = BadLines(skip=skip)
    assert read(path, tmx(tuv("en", "One"), HELLO, tuv("fr", "Deux"), ""), bad) == [("Hello", "Hallo")]
    assert bad.counts == {"language missing": 3}


@both_modes
def test_a_file_without_the_languages_says_which_it_has(path, skip):
    with pytest.raises(InputError, match=r"memory\.tmx has no unit in both en and de; its languages are EN-us, fr"):
        read(path, tmx(tuv("EN-us", "One") + tuv("fr", "Un"), tuv("EN-us", "Two")), BadLines(skip=skip))
    with pytest.raises(InputError, match="no segment in any language; is it a TMX file"):
        read(path, "<html><p>Hello</p></html>", BadLines(skip=skip))


@pytest.mark.parametrize(
    ("segment", "text"),
    [
        ("a <bpt i='1'>&lt;b&gt;</bpt>bold<ept i='1'>&lt;/b&gt;</ept> word", "a bold word"),
        ("a<ph>\\par<sub>inner</sub>more</ph>b<it pos='begin'>{</it>c<ut>}</ut>", "abc"),
        ("a <hi>high <ph>x</ph>light</hi> b", "a high light b"),
        ("  two\n\t lines\r\nand  more ", "two lines and more"),
        ("no-break\u00a0\u00a0space stays", "no-break\u00a0\u00a0space stays"),
        ("&lt;b&gt; &amp; &#65;&#x42;<![CDATA[<i>]]>", "<b> & AB<i>"),
        ("", ""),
    ],
)
def test_markup_and_white_space_in_segments(path, segment, text):
    assert read(path, tmx(tuv("en", segment) + tuv("de", "x"))) == [(text, "x")]


def test_text_outside_segments_is_not_read(path):
    unit = f"<note>no</note><prop type='x'>no</prop>{HELLO}no".replace("<seg>", "<note>no</note>no<seg>")
    assert read(path, tmx(unit)) == [("Hello", "Hallo")]


@both_modes
@pytest.mark.parametrize(
    "declaration",
    [
        '<!ENTITY lol "ha">',
        '<!ENTITY lol SYSTEM "file:///etc/passwd">',
        '<!ENTITY % lol "<!ATTLIST tu a CDATA #IMPLIED>">',
    ],
)
def test_entities_are_refused_by_name(path, declaration, skip):
    content = tmx(HELLO, prolog=f"<!DOCTYPE tmx [\n{declaration}]>")
    with pytest.raises(InputError, match=r"line 2: the file declares the entity 'lol'; entities can expand"):
        read(path, content, BadLines(skip=skip))


def test_expanding_entities_are_refused_before_they_expand(path):
    levels = "".join(f'<!ENTITY l{n} "{f"&l{n - 1};" * 10}">' for n in range(1, 12))
    content = tmx(tuv("en", "&l11;") + tuv("de", "x"), prolog=f'<!DOCTYPE tmx [<!ENTITY l0 "ha">{levels}]>')
    with pytest.raises(InputError, match="declares the entity 'l0'"):
        read(path, content)


def test_the_document_type_may_be_named_and_fetches_nothing(path, tmp_path):
    (tmp_path / "tmx14.dtd").write_text("this is no DTD; reading it would fail")
    prolog = '<!DOCTYPE tmx SYSTEM "tmx14.dtd">'
    assert read(path, tmx(HELLO, prolog=prolog)) == [("Hello", "Hallo")]
    with pytest.raises(InputError, match=r"line 3: the entity 'nbsp' \(&nbsp;\) is defined outside"):
        read(path, tmx(tuv("en", "a&nbsp;b") + tuv("de", "c"), prolog=prolog))


@both_modes
@pytest.mark.parametrize(
    ("content", "place"),
    [
        (tmx(HELLO).replace("</tu>", "</tv>"), r"line 3, column \d+: mismatched tag"),
        (tmx(HELLO)[:-20], r"line \d, column \d+: (no element found|unclosed token)"),
        (tmx(tuv("en", "a\0b") + tuv("de", "x")), r"line 3, column \d+: not well-formed"),
        (tmx(tuv("en", "a&#xD800;b") + tuv("de", "x")), r"line 3, column \d+: reference to invalid character"),
        (tmx(tuv("en", "a&#0;b") + tuv("de", "x")), r"line 3, column \d+: reference to invalid character"),
        (tmx(HELLO).encode().replace(b"Hello", b"H\xe4llo"), r"line 3, column \d+: not well-formed"),
        ("", r"line 1, column 1: no element found"),
    ],
)
def test_xml_that_is_not_well_formed(path, content, place, skip):
    with pytest.raises(InputError, match=rf"memory\.tmx, {place}"):
        read(path, content, BadLines(skip=skip))


@pytest.mark.parametrize("encoding", ["utf-8", "utf-8-sig", "utf-16", "utf-16-le", "iso-8859-1", "windows-1252"])
def test_encodings(path, encoding):
    declared = {"utf-8-sig": "utf-8", "utf-16-le": "utf-16"}.get(encoding, encoding)
    content = tmx(tuv("en", "Öl") + tuv("de", "Äöü"), prolog=f'<?xml version="1.0" encoding="{declared}"?>')
    mark = b"\xff\xfe" if encoding == "utf-16-le" else b""
    assert read(path, mark + content.encode(encoding)) == [("Öl", "Äöü")]


@pytest.mark.parametrize("encoding", ["nonsense", "shift_jis", "rot13", "idna", "undefined"])
def test_encodings_that_cannot_be_read(path, encoding):
    with pytest.raises(InputError, match=r"memory\.tmx"):
        read(path, tmx(HELLO, prolog=f'<?xml version="1.0" encoding="{encoding}"?>'))


@pytest.mark.parametrize("character", ["a", "ä"])
def test_a_segment_of_over_a_mebibyte_is_a_bad_line(path, character):
    longest = character * (LONGEST_SEGMENT // len(character.encode()))
    content = tmx(HELLO, tuv("en", longest + "b") + tuv("de", "x"), tuv("en", longest) + tuv("de", "y"))
    with pytest.raises(InputError, match=r"line 4: a segment of more than 1,048,576 bytes"):
        read(path, content)
    bad = BadLines(skip=True)
    assert read(path, content, bad) == [("Hello", "Hallo"), (longest, "y")]
    assert bad.counts == {"segment too long": 1}
    assert bad.places == {"segment too long": [f"{path}, line 4"]}


def test_a_long_segment_in_another_language_does_not_matter(path):
    assert read(path, tmx(HELLO + tuv("fr", "x" * (LONGEST_SEGMENT + 1)))) == [("Hello", "Hallo")]


def test_an_endless_comment_is_refused(path):
    with pytest.raises(InputError, match="a tag, comment or declaration of more than 8,388,608 bytes"):
        read(path, tmx(HELLO).replace("<body>", f"<body><!--{'x' * (LONGEST_MARKUP + (2 << 20))}-->"))


def test_it_is_streamed(path):
    path.write_text(tmx(*[HELLO] * 30_000)[:-10])
    chunks = TranslationMemory(path=path, source_language="en", target_language="de").chunks(BadLines())
    assert len(next(chunks)) == 10_000  # although the file is cut off
    with pytest.raises(InputError, match="line 30003"):
        list(chunks)


units = st.lists(
    st.lists(
        st.tuples(st.sampled_from(["en", "de", "fr"]), st.text(st.characters(codec="utf-8", categories=["L", "N"]))),
        max_size=4,
    ),
    max_size=8,
)


@settings(max_examples=examples(150), suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(units=units, encoding=st.sampled_from(["utf-8", "utf-16"]))
def test_kept_and_counted_units_add_up(path, units, encoding):
    units.append([("en", "x"), ("de", "y")])
    bad = BadLines(skip=True)
    content = tmx(*("".join(tuv(*variant) for variant in unit) for unit in units))
    expected = [(dict(reversed(unit)).get("en"), dict(reversed(unit)).get("de")) for unit in units]
    expected = [pair for pair in expected if None not in pair]
    assert read(path, content.encode(encoding), bad) == expected
    assert bad.counts.total() == len(units) - len(expected)


VALID = tmx(
    HELLO + "<note>n</note>",
    tuv("en-US", "a <bpt i='1'>&lt;b&gt;</bpt>&amp;<hi>c</hi>") + tuv("de", "Ä<![CDATA[<]]>"),
    tuv("fr", "x"),
    prolog='<?xml version="1.0"?>\n<!DOCTYPE tmx SYSTEM "tmx14.dtd">',
)


@st.composite
def damaged(draw):
    """A valid document, with bytes changed, cut out and repeated."""
    content = bytearray(VALID.encode(draw(st.sampled_from(["utf-8", "utf-16"]))))
    for _ in range(draw(st.integers(1, 4))):
        start = draw(st.integers(0, len(content)))
        stop = start + draw(st.integers(0, 40))
        piece = bytes(content[start:stop])
        content[start:stop] = draw(st.binary(max_size=3) | st.sampled_from([b"", piece * 2, b"<tu>", b"&x;"]))
    return bytes(content)


@settings(max_examples=examples(400), suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(content=damaged() | st.binary(max_size=200))
def test_whatever_the_bytes_only_an_input_error_comes_out(path, content):
    results = []
    for skip in (False, True):
        bad = BadLines(skip=skip)
        try:
            results.append((read(path, content, bad), bad.counts))
        except InputError:
            results.append(None)
    assert results[0] == results[1]  # nothing in so small a file is a fault of a line
