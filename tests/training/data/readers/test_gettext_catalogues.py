import codecs
import gc
import gzip
import struct
import tracemalloc
from contextlib import suppress
from pathlib import Path

import polib
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from paperformer.training.console.input_error import InputError
from paperformer.training.data.readers import gettext_catalogues, gettext_messages
from paperformer.training.data.readers.gettext_catalogues import GettextCatalogues
from paperformer.training.data.text.bad_lines import BadLines
from paperformer.training.data.text.chunks import PAIR_SCHEMA

from ....examples import examples

both_modes = pytest.mark.parametrize("skip", [False, True])

HEADER = """# A comment.
msgid ""
msgstr ""
"Language: {language}\\n"
"Content-Type: text/plain; charset={charset}\\n"
"Plural-Forms: {plural}\\n"
"X-Poedit-Language: Klingon\\n"

"""


def header(language: str = "de", charset: str = "UTF-8", plural: str = "nplurals=2; plural=(n != 1);") -> str:
    return HEADER.format(language=language, charset=charset, plural=plural)


OPEN = '#: main.c:7\nmsgid "Open"\nmsgstr "Öffnen"\n\n'
FILES = 'msgid "%d file"\nmsgid_plural "%d files"\nmsgstr[0] "%d Datei"\nmsgstr[1] "%d Dateien"\n'


def entry(message: str, translation: str, before: str = "") -> str:
    return f'{before}msgid "{message}"\nmsgstr "{translation}"\n\n'


def write_mo(path: Path, content: str, tmp_path: Path) -> Path:
    source = tmp_path / "source.po.txt"
    source.write_text(content, "utf-8")
    path.parent.mkdir(parents=True, exist_ok=True)
    polib.pofile(str(source)).save_as_mofile(str(path))
    return path


def write_po(path: Path, content: str | bytes) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(content.encode() if isinstance(content, str) else content)
    return path


def read(folder: Path, bad: BadLines | None = None, language: str | None = None) -> list[tuple[str, str]]:
    rows = []
    for chunk in GettextCatalogues(path=folder, target_language=language).chunks(bad or BadLines()):
        assert chunk.schema == PAIR_SCHEMA
        rows += zip(chunk["source"].to_pylist(), chunk["target"].to_pylist(), strict=True)
    return rows


@both_modes
def test_messages_and_plurals_of_a_po_file(tmp_path, skip):
    path = write_po(tmp_path / "de.po", header() + OPEN + FILES)
    expected = [("Open", "Öffnen"), ("%d files", "%d Dateien"), ("%d file", "%d Datei")]
    assert sorted(read(path, BadLines(skip=skip))) == sorted(expected)


@both_modes
def test_a_mo_file_gives_what_its_po_file_gives(tmp_path, skip):
    content = header() + OPEN + FILES + entry("Save", "Sichern", 'msgctxt "menu"\n')
    path = write_mo(tmp_path / "mo" / "de.mo", content, tmp_path)
    expected = [("%d file", "%d Datei"), ("%d files", "%d Dateien"), ("Open", "Öffnen"), ("Save", "Sichern")]
    assert sorted(read(path, BadLines(skip=skip))) == expected
    assert sorted(read(write_po(tmp_path / "po" / "de.po", content))) == expected


def test_a_big_endian_mo_file(tmp_path):
    ids, strings = b"\0Open\0", b"\0Auf\0"
    numbers = struct.pack(">7I", 0x950412DE, 0, 2, 28, 44, 0, 60) + struct.pack(">8I", 0, 60, 4, 61, 0, 66, 3, 67)
    (tmp_path / "a.mo").write_bytes(numbers + ids + strings)
    assert read(tmp_path) == [("Open", "Auf")]


def test_what_is_not_translated_is_left_out(tmp_path):
    content = (
        header()
        + entry("fuzzy", "unscharf", "#, c-format, fuzzy\n")
        + entry("untranslated", "")
        + 'msgid "half"\nmsgid_plural "halves"\nmsgstr[0] ""\nmsgstr[1] "Hälften"\n\n'
        + OPEN
        + entry("", "no message", 'msgctxt "menu"\n')
        + '#~ msgid "obsolete"\n#~ msgstr "überholt"\n'
    )
    assert read(write_po(tmp_path / "de.po", content)) == [("halves", "Hälften"), ("Open", "Öffnen")]


def test_comments_without_a_space_are_those_of_gettext(tmp_path: Path) -> None:
    """As msgfmt reads them."""
    tight = [
        entry("Open", "Öffnen", '#note\n#.what: it is\n#:a.c:1\n#,c-format\n#|msgid "Opn"\n'),
        entry("Save", "Sichern", "#,fuzzy\n"),
        '#~msgid "Gone"\n#~msgstr "Fort"\n\n',
        entry("Close", "Schließen", "#!\n#=x\n#\n##\n"),
    ]
    (tmp_path / "de.po").write_text(header() + "".join(tight), "utf-8")
    rows = GettextCatalogues(path=tmp_path / "de.po").rows(BadLines())
    assert list(rows) == [("Open", "Öffnen"), ("Close", "Schließen")]


@pytest.mark.parametrize(
    "text",
    ["_File", "&File", "Line\\nend\\n", 'a \\"b\\" \\\\ c', "tab\\t", "a\u2028b\u0085c\u00a0", "  blanks  ", "100%"],
)
def test_the_text_stays_as_it_is(tmp_path, text):
    expected = text.replace("\\n", "\n").replace("\\t", "\t").replace('\\"', '"').replace("\\\\", "\\")
    assert read(write_po(tmp_path / "x.po", header() + entry(text, text))) == [(expected, expected)]


@pytest.mark.parametrize(
    ("plural", "forms", "pairs"),
    [
        ("nplurals=1; plural=0;", 1, [("files", "form 0")]),
        ("nplurals=2; plural=(n > 1);", 2, [("file", "form 0"), ("files", "form 1")]),
        ("nplurals=3; plural=(n==1 ? 0 : n<5 ? 1 : 2);", 3, [("file", "form 0"), ("files", "form 2")]),
        ("nplurals=3; plural=(n==0 ? 0 : n==1 ? 1 : 2);", 3, [("files", "form 2")]),  # form 0 is that of nothing
        ("nplurals=2; plural=(n / 0);", 2, [("file", "form 0"), ("files", "form 1")]),
        ("nplurals=2; plural=(n != !1);", 2, [("file", "form 0"), ("files", "form 1")]),  # C's, but not Python's
        ("nplurals=2; plural=import;", 2, [("file", "form 0"), ("files", "form 1")]),
        ("", 2, [("file", "form 0"), ("files", "form 1")]),
    ],
)
def test_plural_forms(tmp_path, plural, forms, pairs):
    translations = "".join(f'msgstr[{form}] "form {form}"\n' for form in range(forms))
    content = header(plural=plural) + f'msgid "file"\nmsgid_plural "files"\n{translations}'
    assert sorted(read(write_po(tmp_path / "x.po", content))) == pairs
    assert sorted(read(write_mo(tmp_path / "mo" / "x.mo", content, tmp_path))) == pairs


@pytest.mark.parametrize(
    ("message", "translation", "is_equal"),
    [
        ("%s of %d", "%d von %s", False),  # C takes the arguments in order
        ("%s of %d", "%2$d von %1$s", True),
        ("%s of %s", "%s von", False),
        ("%5.2f %ld", "%.1f %ld", True),
        ("%ld", "%d", False),
        ("%ld of %s", "%s von %ld", False),
        ("%(name)s: %(size)d", "%(size)d: %(name)s", True),
        ("%(name)s", "%(Name)s", False),
        ("{name} {0}", "{0} {name}", True),
        ("{name}", "{}", False),
        ("${x}", "{x}", False),
        ("{size:.2f}", "{size:.2f}", True),
        ("%1 of %2", "%2 von %1", True),
        ("%1 of %2", "%2 von", False),
        ("<b>bold</b>", "<B>fett</B>", True),
        ("<b>bold</b>", "<b>fett", False),
        ("<a href='en'>x</a><br/>", "<a href='de'>x</a><br>", True),
        ("Usage: x <file>", "Aufruf: x <Datei>", True),
        ("50% off, 100 %", "50%ig, 100 % sicher", True),
        ("%d%%", "%d Prozent", True),
        ("20 %%d", "20 %%", True),
        ("5 < 6", "5 ist kleiner", True),
    ],
)
@both_modes
def test_placeholders_are_the_same_on_both_sides(tmp_path, message, translation, is_equal, skip):
    bad = BadLines(skip=skip)
    path = write_po(tmp_path / "x.po", header() + OPEN + entry(message, translation))
    if is_equal:
        assert read(path, bad)[1] == (message, translation)
    elif skip:
        assert read(path, bad) == [("Open", "Öffnen")]
        assert bad.counts == {"placeholders differ": 1}
        assert bad.places["placeholders differ"][0].startswith(f"{path}, line 1")
    else:
        with pytest.raises(InputError, match=r"x\.po, line 13: placeholders only in the message: .*; only in the tr"):
            read(path, bad)


def test_a_bad_message_in_a_mo_file_is_named_by_its_number(tmp_path):
    path = write_mo(tmp_path / "x.mo", header() + OPEN + entry("see %s", "siehe"), tmp_path)
    with pytest.raises(InputError, match=r"x\.mo, message 2: placeholders only in the message: %1\$s; .*: none;"):
        read(path)


@pytest.mark.parametrize(
    ("charset", "translation", "reason"), [("UTF-8", b"a\\0b", "NUL byte"), ("UTF-7", b"a+2AA-b", "lone surrogate")]
)
def test_text_that_no_tokenizer_takes(tmp_path, charset, translation, reason):
    path = write_mo(tmp_path / "x.mo", header(charset=charset) + entry("m", "y" * 7), tmp_path)
    path.write_bytes(path.read_bytes().replace(b"y" * 7, translation.replace(b"\\0", b"\0").ljust(7)))
    bad = BadLines(skip=True)
    with pytest.raises(InputError, match=r"no message catalogue|message 1: the message or its translation has"):
        read(path)
    assert read(path, bad) == []
    assert bad.counts == {reason: 1}


def test_catalogues_below_a_folder_in_the_order_of_their_paths(tmp_path):
    for name in ("b/x.po", "a/z.po", "c.po"):
        write_po(tmp_path / name, header() + entry(name, name))
    write_po(tmp_path / "a" / "notes.txt", "no catalogue")
    assert [message for message, _ in read(tmp_path)] == ["a/z.po", "b/x.po", "c.po"]
    reader = GettextCatalogues(path=tmp_path)
    assert reader.name == str(tmp_path)
    assert reader.files() == [tmp_path / "a" / "z.po", tmp_path / "b" / "x.po", tmp_path / "c.po"]


def test_the_po_file_is_read_instead_of_its_mo_file(tmp_path):
    write_mo(tmp_path / "a" / "x.mo", header() + entry("compiled", "x"), tmp_path)
    write_mo(tmp_path / "b" / "x.mo", header() + entry("alone", "x"), tmp_path)
    write_po(tmp_path / "a" / "x.po", header() + entry("source", "x"))
    assert [message for message, _ in read(tmp_path)] == ["source", "alone"]


def test_compressed_catalogues(tmp_path):
    (tmp_path / "x.po.gz").write_bytes(gzip.compress((header() + OPEN).encode()))
    assert read(tmp_path, language="de") == [("Open", "Öffnen")]
    assert read(tmp_path / "x.po") == [("Open", "Öffnen")]


@pytest.mark.parametrize(
    ("asked", "messages"),
    [
        ("de", ["header", "file name", "folder"]),
        ("DE", ["header", "file name", "folder"]),
        ("de_AT", ["folder"]),
        ("fr", ["other"]),
    ],
)
def test_only_the_catalogues_of_a_language(tmp_path, asked, messages):
    write_po(tmp_path / "1" / "fr.po", header("de") + entry("header", "x"))  # the header counts more than the name
    write_po(tmp_path / "2" / "de.po", header("German") + entry("file name", "x"))  # which is no code
    path = write_mo(tmp_path / "3" / "de_AT.UTF-8" / "LC_MESSAGES" / "app.mo", entry("folder", "x"), tmp_path)
    write_mo(tmp_path / "4" / "de" / "x.mo", header("fr") + entry("other", "x"), tmp_path)
    write_po(tmp_path / "5" / "messages.po", entry("Language: de\\n", "x"))
    assert [message for message, _ in read(tmp_path, language=asked)] == messages
    if asked == "de_AT":
        assert GettextCatalogues(path=tmp_path, target_language=asked).files() == [path]


@both_modes
def test_no_catalogue_at_all(tmp_path, skip):
    with pytest.raises(InputError, match=r"has no message catalogue \(\.po or \.mo\)"):
        read(tmp_path, BadLines(skip=skip))
    with pytest.raises(InputError, match=r"there is no .*x\.po"):
        read(tmp_path / "x.po", BadLines(skip=skip))
    write_po(tmp_path / "fr.po", header("fr") + OPEN)
    write_po(tmp_path / "messages.po", OPEN)
    with pytest.raises(InputError, match=r"has no message catalogue in de; there are \(not said\), fr$"):
        read(tmp_path, BadLines(skip=skip), language="de")


@pytest.mark.parametrize("charset", ["ISO-8859-1", "UTF-8", "windows-1252", "CHARSET"])
def test_the_encoding_is_that_of_the_header(tmp_path, charset):
    content = (header(charset=charset) + OPEN).encode("utf-8" if charset == "CHARSET" else charset)
    assert read(write_po(tmp_path / "x.po", content)) == [("Open", "Öffnen")]


def test_a_codec_that_someone_registered_is_not_used(tmp_path):
    def search(name):
        return codecs.CodecInfo(None, lambda *_: 1 / 0, name=name) if name == "no_charset" else None

    codecs.register(search)
    try:
        assert read(write_po(tmp_path / "x.po", header(charset="no_charset") + OPEN)) == [("Open", "Öffnen")]
        path = write_mo(tmp_path / "mo" / "x.mo", header() + OPEN, tmp_path)
        path.write_bytes(path.read_bytes().replace(b"charset=UTF-8\nPlural", b"charset=no_charset\n\n"))
        assert read(path) == [("Open", "Öffnen")]
    finally:
        codecs.unregister(search)


def test_byte_order_mark_and_windows_line_ends(tmp_path):
    content = b"\xef\xbb\xbf" + (header() + OPEN).replace("\n", "\r\n").encode()
    assert read(write_po(tmp_path / "x.po", content)) == [("Open", "Öffnen")]


BROKEN_PO = {
    "wrong encoding": ((header() + OPEN).encode("latin-1"), r"byte \d+: it cannot be read as UTF-8"),
    "no text encoding": (header(charset="base64") + OPEN, r"it cannot be read as base64"),
    "no encoding at all": (header(charset="undefined") + OPEN, r"it cannot be read as undefined"),
    "surrogates": (header(charset="utf-7") + entry("a", "+2AA-"), r"it cannot be read as utf-7"),
    "cut off in a string": ((header() + OPEN)[:-4], "line 11: a broken string"),
    "cut off before a translation": (header() + 'msgid "Open"\n', "ends before the translation"),
    "quote in a string": (header() + entry('a"b', "c"), "line 9: a broken string"),
    "no catalogue": ("Once upon a time\n", r"is not a message catalogue: Syntax error in po file \(line 1\)"),
    "two messages": (header() + 'msgid "a"\nmsgid "b"\nmsgstr "c"\n', r"\(line 10\)"),
    "UTF-16": ((header() + OPEN).encode("utf-16"), r"byte 1: it cannot be read as utf-8"),
}


@both_modes
@pytest.mark.parametrize("fault", BROKEN_PO)
def test_broken_po_files(tmp_path, fault, skip):
    content, reason = BROKEN_PO[fault]
    with pytest.raises(InputError, match=rf"x\.po.*{reason}"):
        read(write_po(tmp_path / "x.po", content), BadLines(skip=skip))


@both_modes
def test_broken_mo_files(tmp_path, skip):
    path = write_mo(tmp_path / "x.mo", header() + OPEN + FILES, tmp_path)
    content = path.read_bytes()
    overlapping = bytearray(content)
    overlapping[28:52] = struct.pack("<6I", *(0, 0, len(content) // 2, 0, len(content) // 2 + 2, 0))
    for broken, reason in [
        (b"", "it has not the first bytes of one"),
        (b"x" * 99, "it has not the first bytes of one"),
        (content[:12], "it has not the first bytes of one"),
        (content[:24], "table of 3 messages is not all there"),
        (content[:-20], "it is shorter than its messages"),
        (bytes(overlapping), "it is shorter than its messages"),
        (content[:4] + struct.pack("<I", 9 << 16) + content[8:], "unexpected major revision"),
        (content.replace(b"=UTF-8", b"=ascii"), "'ascii' codec can't decode"),
        (content.replace(b"=UTF-8\n", b"=hex\n\n\n"), "not a text encoding"),
    ]:
        path.write_bytes(broken)
        for language in (None, "de"):
            with pytest.raises(InputError, match=rf"x\.mo .*{reason}"):
                read(path, BadLines(skip=skip), language)


def test_a_huge_compiled_catalogue_is_refused_before_it_is_in_memory(tmp_path, monkeypatch):
    monkeypatch.setattr(gettext_catalogues, "LARGEST_MO", 3 << 20)
    (tmp_path / "x.mo.gz").write_bytes(gzip.compress(b"#\n" * (8 << 20)))
    with pytest.raises(InputError, match=r"x\.mo\.gz has more than 3,145,728 bytes"):
        read(tmp_path)


def test_memory_does_not_grow_with_the_catalogue(tmp_path, monkeypatch):
    for name in ("BATCH", "BLOCK_BYTES", "LOOK_AHEAD"):
        monkeypatch.setattr(gettext_messages, name, 1 << 12)
    peaks = []
    for messages in (1, 400, 2000):
        path = write_po(tmp_path / "x.po", header() + entry("some text", "ein Text") * messages)
        tracemalloc.start()
        try:
            for number, row in enumerate(GettextCatalogues(path=path).rows(BadLines())):
                assert row == ("some text", "ein Text")
                if number % 100 == 0:  # polib's parsers are cycles
                    gc.collect()
            peaks.append(tracemalloc.get_traced_memory()[1])
        finally:
            tracemalloc.stop()
        assert number == messages - 1
    assert peaks[2] < 1.3 * peaks[1]


@pytest.mark.parametrize("batch", [1, 100, 10_000])
def test_places_are_the_same_however_messages_are_read_together(tmp_path, monkeypatch, batch):
    monkeypatch.setattr(gettext_messages, "BATCH", batch)
    fault = entry("Save %s", "Sichern", "# a comment\n#: main.c:3\n")
    path = write_po(tmp_path / "x.po", header() + OPEN + FILES + "\n" + fault + OPEN.replace("Open", "Close") + fault)
    bad = BadLines(skip=True)
    assert len(read(path, bad)) == 4
    assert [place.split(":")[0] for place in bad.places["placeholders differ"]] == [
        f"{path}, line {n}" for n in (18, 27)
    ]


def test_no_room_for_the_temporary_copy(tmp_path, monkeypatch):
    def full(*_, **__):
        raise OSError(28, "No space left on device")

    write_po(tmp_path / "x.po", header() + OPEN)
    monkeypatch.setattr("tempfile._TemporaryFileWrapper.write", full, raising=False)
    with pytest.raises(InputError, match=r"cannot write .*: No space left on device"):
        read(tmp_path)


@st.composite
def damaged(draw, content: bytes):
    """A catalogue with bytes changed, cut out and repeated."""
    damaged = bytearray(content)
    for _ in range(draw(st.integers(1, 4))):
        start = draw(st.integers(0, len(damaged)))
        stop = start + draw(st.integers(0, 20))
        piece = bytes(damaged[start:stop])
        damaged[start:stop] = draw(st.binary(max_size=4) | st.sampled_from([b"", piece * 2, b"\n", b'"', b"\xff" * 4]))
    return bytes(damaged)


@pytest.fixture(scope="module")
def catalogue(tmp_path_factory):
    """The bytes of a valid catalogue, as .po and as .mo."""
    folder = tmp_path_factory.mktemp("valid")
    content = header() + OPEN + FILES + entry("Save", "Sichern", 'msgctxt "menu"\n#, fuzzy\n') + '#~ msgid "x"\n'
    return {".po": content.encode(), ".mo": write_mo(folder / "x.mo", content, folder).read_bytes()}


@pytest.mark.parametrize("ending", [".po", ".mo"])
@settings(max_examples=examples(300), suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(data=st.data(), language=st.sampled_from([None, "de"]))
def test_whatever_the_bytes_only_an_input_error_comes_out(tmp_path, catalogue, ending, data, language):
    content = data.draw(damaged(catalogue[ending]) | st.binary(max_size=100))
    path = write_po(tmp_path / f"de{ending}", content)
    bad, strict = BadLines(skip=True), None
    with suppress(InputError):
        strict = read(path, language=language)
    try:
        kept = read(path, bad, language)
    except InputError:
        assert strict is None
    else:
        assert (strict == kept) == (not bad.counts)
