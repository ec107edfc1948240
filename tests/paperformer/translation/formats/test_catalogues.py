import copy
import gc
import io
import os
import pickle
import re
import signal
import tracemalloc
from collections.abc import Callable, Sequence
from itertools import count
from pathlib import Path
from typing import Any

import polib
import pytest
import torch

from paperformer.cli import main
from paperformer.decoding.ensemble import make_ensemble
from paperformer.training.console.input_error import InputError
from paperformer.training.data.readers import gettext_messages
from paperformer.translation.formats import records
from paperformer.translation.formats.catalogues import SureText, read_messages, restore_encoding
from paperformer.translation.formats.records import Outcome, translate_records
from paperformer.translation.likelihood import confidences
from paperformer.translation.line_source import ReadAhead

HEADER = """# Translators of the example.
msgid ""
msgstr ""
"Project-Id-Version: example\\n"
"Language: de\\n"
"Content-Type: text/plain; charset=UTF-8\\n"
"Plural-Forms: nplurals=2; plural=(n != 1);\\n"

"""
CATALOGUE = (
    HEADER
    + """#. where it is
#: main.c:12
msgid "Open"
msgstr ""

#: main.c:13
msgid   "Odd   spacing"
msgstr "Seltsamer"
" Abstand"

#, c-format
msgid "Save %s"
msgstr ""

#, fuzzy
msgid "Close"
msgstr "Schlüssen"

msgctxt "menu"
msgid "Quit"
msgstr ""

#, c-format
msgid "%d file"
msgid_plural "%d files"
msgstr[0] ""
msgstr[1] ""

#~ msgid "Gone"
#~ msgstr ""
"""
)


def sure(sources: Sequence[str], translations: Sequence[str]) -> list[float]:
    return [1.0] * len(sources)


@pytest.fixture
def fill() -> Callable[..., tuple[str, Outcome]]:
    """What is written of a catalogue, and what came of its messages."""

    def run(
        content: str | bytes, translate: Any = None, confidence: Any = sure, fuzzy_below: float = 0.5
    ) -> tuple[str, Outcome]:
        raw = io.BytesIO(content if isinstance(content, bytes) else content.encode())

        def work(texts: Sequence[str], note: Any) -> list[str]:
            found = (translate or shouting)(texts)
            return [SureText(*pair) for pair in zip(found, confidence(texts, found), strict=True)]

        outcome = Outcome()
        messages = ReadAhead(read_messages(raw.read, "x.po", fuzzy_below), lambda record: record.size)
        windows = translate_records(work, messages, lambda *_: None, outcome)
        return b"".join(written for written, _ in windows).decode(), outcome

    return run


def shouting(texts: Sequence[str]) -> list[str]:
    """Upper case, save placeholders."""
    return [re.sub(r"(?<!%)\b[A-Za-z]+\b", lambda match: match[0].upper(), text) for text in texts]


def entries(content: str) -> dict[str, polib.POEntry]:
    return {entry.msgid: entry for entry in polib.pofile(content) if not entry.obsolete}


def test_what_is_untranslated_is_filled_in_and_all_else_stays_to_the_byte(fill: Any) -> None:
    content, result = fill(CATALOGUE)
    expected = CATALOGUE
    for before, after in (
        ('"Open"\nmsgstr ""', '"Open"\nmsgstr "OPEN"'),
        ('"Save %s"\nmsgstr ""', '"Save %s"\nmsgstr "SAVE %s"'),
        ('"Quit"\nmsgstr ""', '"Quit"\nmsgstr "QUIT"'),
        ('msgstr[0] ""\nmsgstr[1] ""', 'msgstr[0] "%d FILE"\nmsgstr[1] "%d FILES"'),
    ):
        assert before in expected
        expected = expected.replace(before, after)
    assert content == expected
    assert (result.translated, result.left, result.flagged) == (4, {"translated already": 2}, {})


def test_a_second_time_there_is_nothing_to_do(fill: Any) -> None:
    content, _ = fill(CATALOGUE)
    again, result = fill(content)
    assert again == content
    assert (result.translated, result.left) == (0, {"translated already": 6})


@pytest.mark.parametrize(
    ("message", "translation", "reason"),
    [
        ("Save %s", "Sichern", "other placeholders or tags"),
        ("Save <b>all</b>", "Alles <i>sichern</i>", "other placeholders or tags"),
        ("Chapter 12", "Kapitel 21", "other numbers"),
        ("1,000 files", "1.000 Dateien", None),
        ("%s of %s", "%2$s: %1$s", None),
        ("Open", "Offen", None),
    ],
)
def test_a_translation_with_other_placeholders_or_numbers_is_fuzzy(
    fill: Any, message: str, translation: str, reason: str | None
) -> None:
    content, result = fill(f'{HEADER}msgid "{message}"\nmsgstr ""\n', lambda texts: [translation for _ in texts])
    assert entries(content)[message].msgstr == translation
    assert entries(content)[message].fuzzy == (reason is not None)
    assert result.flagged == ({reason: 1} if reason else {})


def test_a_translation_that_the_model_is_unsure_of_is_fuzzy(fill: Any) -> None:
    def by_length(sources: Sequence[str], translations: Sequence[str]) -> list[float]:
        assert translations == shouting(sources)
        return [1 / len(source) for source in sources]

    content, result = fill(CATALOGUE, confidence=by_length, fuzzy_below=0.2)
    flags = {name: entry.fuzzy for name, entry in entries(content).items()}
    assert flags == {
        "Open": False, "Odd   spacing": False, "Save %s": True, "Close": True, "Quit": False, "%d file": True,
    }  # fmt: skip
    assert result.flagged == {"unsure": 2}
    assert '#, fuzzy, c-format\nmsgid "Save %s"\nmsgstr "SAVE %s"\n' in content
    content, _ = fill(CATALOGUE, confidence=lambda sources, translations: [0.0] * len(sources))
    assert '#: main.c:12\n#, fuzzy\nmsgid "Open"\n' in content
    assert '#, fuzzy\nmsgctxt "menu"\nmsgid "Quit"\n' in content


def test_white_space_and_line_ends_are_the_messages(fill: Any) -> None:
    message = '"  one\\n"\n"\\n"\n"\\ttwo \\n"'
    seen: list[str] = []

    def spy(texts: Sequence[str]) -> list[str]:
        seen.extend(texts)
        return shouting(texts)

    content, _ = fill(f'{HEADER}msgid {message}\nmsgstr ""\n', spy)
    assert entries(content)["  one\n\n\ttwo \n"].msgstr == "  ONE\n\n\tTWO \n"
    assert [text for text in seen if text] == ["one", "two"]


@pytest.mark.parametrize(
    ("plural", "forms"),
    [
        ("nplurals=1; plural=0;", ["%d FILES"]),
        ("nplurals=2; plural=(n > 1);", ["%d FILE", "%d FILES"]),
        ("nplurals=3; plural=(n==1 ? 0 : n<5 ? 1 : 2);", ["%d FILE", "%d FILES", "%d FILES"]),
        ("nplurals=3; plural=(n==0 ? 0 : n==1 ? 1 : 2);", ["%d FILES", "%d FILES", "%d FILES"]),
    ],
)
def test_plural_forms_are_those_of_the_header(fill: Any, plural: str, forms: list[str]) -> None:
    header = HEADER.replace("nplurals=2; plural=(n != 1);", plural)
    content, result = fill(header + 'msgid "%d file"\nmsgid_plural "%d files"\nmsgstr[0] ""\n')
    assert list(entries(content)["%d file"].msgstr_plural.values()) == forms
    assert result.translated == 1


def test_a_form_that_is_there_is_kept(fill: Any) -> None:
    content, _ = fill(HEADER + 'msgid "%d file"\nmsgid_plural "%d files"\nmsgstr[0] "%d Datei"\nmsgstr[1] ""\n')
    assert list(entries(content)["%d file"].msgstr_plural.values()) == ["%d Datei", "%d FILES"]


def test_an_empty_translation_fills_nothing_in(fill: Any) -> None:
    content, result = fill(CATALOGUE, lambda texts: ["" for _ in texts])
    assert content == CATALOGUE
    assert result.flagged == {"empty translations": 4}


def test_lines_are_wrapped_as_the_file_has_them(fill: Any) -> None:
    long = " ".join(["word"] * 30)
    wrapped, _ = fill(f'{HEADER}msgid ""\n"{long[:60]}"\n"{long[60:120]}"\n"{long[120:]}"\nmsgstr ""\n')
    assert max(map(len, wrapped.splitlines())) <= 80
    unwrapped, _ = fill(f'{HEADER}msgid "{long}"\nmsgstr ""\n')
    assert f'msgstr "{long.upper()}"\n' in unwrapped


@pytest.mark.parametrize("end", ["\n", "\r\n"])
def test_messages_without_an_empty_line_between_them(fill: Any, end: str) -> None:
    catalogue = (HEADER + 'msgid "a"\nmsgstr ""\nmsgid "b"\nmsgstr "B"\n').replace("\n", end)
    content, result = fill(catalogue)
    assert content == catalogue.replace('"a"' + end + 'msgstr ""', '"a"' + end + 'msgstr "A"')
    assert result.translated == 1


def test_the_line_ends_of_windows_stay(fill: Any) -> None:
    content, _ = fill(CATALOGUE.replace("\n", "\r\n"))
    assert content.replace("\r\n", "").count("\n") == 0
    assert content.replace("\r\n", "\n") == fill(CATALOGUE)[0]


def test_the_encoding_stays_where_it_can_hold_the_translations(fill: Any, tmp_path: Path) -> None:
    content = CATALOGUE.replace("UTF-8", "ISO-8859-1").encode("latin-1")
    source, translated, output = (tmp_path / name for name in ("x.po", "utf-8.po", "y.po"))
    source.write_bytes(content)
    translated.write_text(fill(content)[0], "utf-8")
    assert restore_encoding(source, translated, output)
    assert output.read_bytes() == fill(CATALOGUE)[0].replace("UTF-8", "ISO-8859-1").encode("latin-1")
    changed, _ = fill(content, lambda texts: ["Открыть" for _ in texts])
    translated.write_text(changed, "utf-8")
    output.unlink()
    assert not restore_encoding(source, translated, output)
    assert sorted(tmp_path.iterdir()) == [translated, source]
    assert "charset=UTF-8" in changed
    assert entries(changed)["Close"].msgstr == "Schlüssen"


def test_of_a_template_a_catalogue_is_made(fill: Any) -> None:
    content, _ = fill(CATALOGUE.replace("UTF-8", "CHARSET"))
    assert "charset=UTF-8" in content.upper().replace("CHARSET=", "charset=")
    assert entries(content)["Open"].msgstr == "OPEN"


ODD = (
    "\ufeff"
    + HEADER
    + """
#~ msgid "Gone before"
#~ msgstr ""
#~ "in two lines"
#~| msgid "what it was"
#~ msgid "Gone too"
#~ msgstr "fort"
#~msgid "Gone without spaces"
#~msgstr ""
#note
#,fuzzy
#| msgid "Save it"
msgid "Save"
msgstr "Sichern"
  msgid "Indented"
  msgstr ""
#, python-format

msgid ""
"%s has a separator\\n"
msgstr ""
msgctxt "no text"
msgid ""
msgstr "not a header"

# in the middle
msgid "Between"
# of a message
msgstr ""

# the end"""
)


@pytest.mark.parametrize("size", [1, 100, 1 << 18])
def test_odd_catalogues_stay_to_the_byte_however_they_are_read(
    fill: Any, monkeypatch: pytest.MonkeyPatch, size: int
) -> None:
    monkeypatch.setattr(gettext_messages, "BATCH", size)
    monkeypatch.setattr(gettext_messages, "BLOCK_BYTES", max(3, size))
    monkeypatch.setattr(gettext_messages, "LOOK_AHEAD", 300)
    for end in ("\n", "\r\n"):
        odd = ODD.replace("\n", end)
        content, result = fill(odd, lambda texts: ["" for _ in texts])
        assert content == odd
        assert (result.translated, result.left) == (3, {"translated already": 2})
        content, result = fill(odd, lambda texts: [text.upper().replace("%S", "%s") for text in texts])
        filled = [("Indented", '  msgstr ""', 'msgstr "INDENTED"'), ("Between", 'msgstr ""', 'msgstr "BETWEEN"')]
        for text, before, after in filled:
            head, _, tail = odd.partition(f'"{text}"')
            odd = f'{head}"{text}"{tail.replace(before, after, 1)}'
        assert content == odd.replace(
            f'\\n"{end}msgstr ""{end}msgctxt', f'\\n"{end}msgstr "%s HAS A SEPARATOR\\n"{end}msgctxt'
        )
        assert not result.flagged


def test_a_fault_is_told_with_the_line_of_the_file(monkeypatch: pytest.MonkeyPatch, fill: Any) -> None:
    monkeypatch.setattr(gettext_messages, "BATCH", 10)
    for fault, said in (
        ('msgid "a" "b"', "line 32: a broken string"),
        ("word", r"is not a message catalogue: .*\(line 32\)"),
        ('msgid "a"\nmsgid "b"\nmsgstr ""', r"is not a message catalogue: .*\(line 33\)"),
        ('msgid "a"', "ends before the translation of its last message"),
    ):
        with pytest.raises(InputError, match=f"x.po.*{said}"):
            fill(HEADER + 'msgid "b"\nmsgstr ""\n' * 11 + f"\n{fault}\n")
    with pytest.raises(InputError, match=r"x\.po, byte 385: it cannot be read as ascii"):
        fill(CATALOGUE.replace("UTF-8", "ascii"))
    with pytest.raises(InputError, match=r"x\.po: it cannot be read as base64, the encoding of its header"):
        fill(CATALOGUE.replace("UTF-8", "base64"))
    monkeypatch.setattr(gettext_messages, "LONGEST_MESSAGE", 500)
    with pytest.raises(InputError, match=r"x\.po, line 9: a message of more than 500 characters"):
        fill(HEADER + "# no end\n" * 100)


def test_memory_does_not_grow_with_the_catalogue(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("BATCH", "BLOCK_BYTES", "LOOK_AHEAD"):
        monkeypatch.setattr(gettext_messages, name, 1 << 12)
    peaks = []
    for messages in (1, 400, 2000):
        file = io.BytesIO((HEADER + 'msgid "some text"\nmsgstr ""\n\n' * messages).encode())
        tracemalloc.start()
        texts = 0
        for number, record in enumerate(read_messages(file.read, "x.po", 0.5)):
            texts += len(record.texts)
            if number % 100 == 0:  # polib's parsers are cycles
                gc.collect()
        peaks.append(tracemalloc.get_traced_memory()[1])
        tracemalloc.stop()
        assert texts == messages
    assert peaks[2] < 1.3 * peaks[1]


def test_confidence_comes_from_another_process() -> None:
    there = pickle.loads(pickle.dumps(SureText("Hund", 0.25)))
    assert (there, there.confidence) == ("Hund", 0.25)


def test_the_command(
    seq2seq: Any,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
    refused: Callable[..., str],
) -> None:
    source, output = tmp_path / "in.po", tmp_path / "out.po"
    source.write_text(CATALOGUE, "utf-8")
    command = ["translate", str(seq2seq.folder), "--num_beams", "1", "--input", str(source), "--output"]
    main([*command, str(output), "--fuzzy_below", "0"])
    said = capsys.readouterr().err
    assert re.search(r"4 messages translated(; to be looked at: .*)?; left as they were: 2 translated already", said)
    catalogue = entries(output.read_text("utf-8"))
    assert all(entry.msgstr or all(entry.msgstr_plural.values()) for entry in catalogue.values())
    assert catalogue["Close"].msgstr == "Schlüssen"
    assert "out.po is there already" in refused(*command, output)
    main([*command, "-", "--fuzzy_below", "0"])
    assert capsys.readouterr().out == output.read_text("utf-8")
    with source.open() as file, monkeypatch.context() as patch:
        patch.setattr("sys.stdin", file)
        main(["translate", str(seq2seq.folder), "--num_beams", "1", "--format", "gettext", "--fuzzy_below", "1"])
    marked = entries(capsys.readouterr().out)
    assert {name for name, entry in marked.items() if not entry.fuzzy} == {"Odd   spacing"}
    assert "fuzzy_below is 2.0; it must be a probability" in refused(*command, "-", "--fuzzy_below", 2)
    source.write_text('msgid "a\n', "utf-8")
    assert "in.po, line 1: a broken string" in refused(*command, tmp_path / "other.po")


def test_confidences_are_mean_probabilities_of_the_tokens(seq2seq: Any) -> None:
    model, tokenizer = seq2seq.model, seq2seq.tokenizer
    sources, targets = ["A dog runs.", "Two men talk about it."], ["Ein Hund läuft am Strand.", "Zwei."]
    found = confidences(model, tokenizer, None, sources, targets)
    for source, target, confidence in zip(sources, targets, found, strict=True):
        ids, labels = (tokenizer(text, return_tensors="pt").input_ids for text in (source, target))
        loss = model(input_ids=ids, labels=labels).loss
        assert confidence == pytest.approx(float((-loss.detach()).exp()), rel=1e-5)


def test_a_killed_command_goes_on_where_it_was(
    seq2seq: Any, tmp_path: Path, capsys: pytest.CaptureFixture[str], refused: Callable[..., str]
) -> None:
    """The process is killed in a fork, which has all modules already, as it begins with the second window."""
    source, output, whole = (tmp_path / name for name in ("in.po", "out.po", "whole.po"))
    messages = "".join(f'msgid "Two men talk {number}."\nmsgstr ""\n\n' for number in range(150))
    source.write_text(HEADER + messages, "utf-8")
    command = ["translate", str(seq2seq.folder), "--num_beams", "1", "--input", str(source), "--output"]
    main([*command, str(whole)])
    child = os.fork()
    if not child:
        windows = count()
        work_in_windows = records.work_in_windows

        def until_killed(items: Any, work: Any) -> Any:
            def killed(window: Any) -> Any:
                if next(windows) == 1:
                    os.kill(os.getpid(), signal.SIGKILL)
                return work(window)

            return work_in_windows(items, killed)

        records.work_in_windows = until_killed
        main([*command, str(output)])
        os._exit(0)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == -signal.SIGKILL
    begun = (tmp_path / "out.po.part").read_text("utf-8")
    assert whole.read_text("utf-8").startswith(begun)
    assert 64 <= begun.count("msgid ") < 150
    capsys.readouterr()
    assert "was begun with another num_beams" in refused(*command, output, "--num_beams", "2")
    (tmp_path / "out.po.part").write_text(begun + 'msgid "half a', "utf-8")
    capsys.readouterr()
    main([*command, str(output)])
    assert f"going on behind the {begun.count('msgid ')} records of " in capsys.readouterr().err
    assert output.read_bytes() == whole.read_bytes()
    assert not list(tmp_path.glob("*.part*"))


@pytest.mark.parametrize(
    ("option", "value", "message"),
    [
        ("--n_best", 2, "--n_best is for lines of text"),
        ("--target_prefix", "Ein", "--target_prefix is for lines of text"),
        ("--engine", "onnx", "which torch translates, since it is to say how sure"),
    ],
)
def test_what_a_catalogue_has_no_place_for(
    option: str, value: object, message: str, tmp_path: Path, refused: Callable[..., str]
) -> None:
    (tmp_path / "in.po").write_text(CATALOGUE, "utf-8")
    assert message in refused("translate", "none", "--input", tmp_path / "in.po", option, value)


def test_searches(seq2seq: Any, tmp_path: Path) -> None:
    """An ensemble of a model with itself is the model; a glossary's term is there."""
    (tmp_path / "in.po").write_text(CATALOGUE, "utf-8")
    (tmp_path / "terms.tsv").write_text("Quit\tZwei\n", "utf-8")
    folder = str(seq2seq.folder)
    found = {}
    for name, options in {
        "plain": [],
        "ensemble": ["--ensemble", folder],
        "glossary": ["--glossary", str(tmp_path / "terms.tsv")],
        "mbr": ["--mbr", "4"],
    }.items():
        output = tmp_path / f"{name}.po"
        main(["translate", folder, "--num_beams", "2", "--input", str(tmp_path / "in.po"), "--output", str(output),
              *options])  # fmt: skip
        found[name] = output.read_text("utf-8")
    assert found["ensemble"] == found["plain"] != found["mbr"]
    assert "Zwei" in entries(found["glossary"])["Quit"].msgstr


def test_confidences_of_an_ensemble_are_of_the_mean_of_probabilities(seq2seq: Any) -> None:
    torch.manual_seed(5)
    other = copy.deepcopy(seq2seq.model)
    for parameter in other.parameters():
        parameter.data += 0.1 * torch.randn_like(parameter)
    models = [seq2seq.model, other]
    tokenizer = seq2seq.tokenizer
    ensemble = make_ensemble([(str(place), model, (tokenizer, None)) for place, model in enumerate(models)])
    ids, labels = (tokenizer(text, return_tensors="pt").input_ids for text in ("A dog runs.", "Ein Hund."))
    with torch.no_grad():
        probabilities = torch.stack([model(input_ids=ids, labels=labels).logits.softmax(-1) for model in models])
    expected = probabilities.mean(0)[0, torch.arange(labels.shape[1]), labels[0]].log().mean().exp()
    (found,) = confidences(ensemble, tokenizer, None, ["A dog runs."], ["Ein Hund."])
    assert found == pytest.approx(float(expected), rel=1e-5)
