import copy
import os
import re
import signal
from collections.abc import Callable, Sequence
from itertools import count
from pathlib import Path
from typing import Any

import polib
import pytest
import torch

from paperformer.cli import main
from paperformer.decoding.ensemble import make_ensemble
from paperformer.translation import catalogues
from paperformer.translation.catalogues import Catalogue, FilledForm, TranslatedCatalogue
from paperformer.translation.likelihood import confidences

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
def fill(tmp_path: Path) -> Callable[..., tuple[str, TranslatedCatalogue]]:
    def run(content: str | bytes, translate: Any = None, confidence: Any = sure, **options: Any) -> Any:
        path = tmp_path / "x.po"
        path.write_bytes(content if isinstance(content, bytes) else content.encode())
        result = Catalogue(path).fill(translate or shouting, confidence, **{"fuzzy_below": 0.5, **options})
        return result.content.decode(), result

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
    assert (result.filled, result.kept, result.fuzzy) == (4, 2, {})


def test_a_second_time_there_is_nothing_to_do(fill: Any) -> None:
    content, _ = fill(CATALOGUE)
    again, result = fill(content)
    assert again == content
    assert (result.filled, result.kept) == (0, 6)


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
    assert result.fuzzy == ({reason: 1} if reason else {})


def test_a_translation_that_the_model_is_unsure_of_is_fuzzy(fill: Any) -> None:
    def by_length(sources: Sequence[str], translations: Sequence[str]) -> list[float]:
        assert translations == shouting(sources)
        return [1 / len(source) for source in sources]

    content, result = fill(CATALOGUE, confidence=by_length, fuzzy_below=0.2)
    flags = {name: entry.fuzzy for name, entry in entries(content).items()}
    assert flags == {
        "Open": False, "Odd   spacing": False, "Save %s": True, "Close": True, "Quit": False, "%d file": True,
    }  # fmt: skip
    assert result.fuzzy == {"unsure": 2}
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
    assert result.filled == 1


def test_a_form_that_is_there_is_kept(fill: Any) -> None:
    content, _ = fill(HEADER + 'msgid "%d file"\nmsgid_plural "%d files"\nmsgstr[0] "%d Datei"\nmsgstr[1] ""\n')
    assert list(entries(content)["%d file"].msgstr_plural.values()) == ["%d Datei", "%d FILES"]


def test_an_empty_translation_fills_nothing_in(fill: Any) -> None:
    content, result = fill(CATALOGUE, lambda texts: ["" for _ in texts])
    assert content == CATALOGUE
    assert result.filled == 0


def test_lines_are_wrapped_as_the_file_has_them(fill: Any) -> None:
    long = " ".join(["word"] * 30)
    wrapped, _ = fill(f'{HEADER}msgid ""\n"{long[:60]}"\n"{long[60:120]}"\n"{long[120:]}"\nmsgstr ""\n')
    assert max(map(len, wrapped.splitlines())) <= 80
    unwrapped, _ = fill(f'{HEADER}msgid "{long}"\nmsgstr ""\n')
    assert f'msgstr "{long.upper()}"\n' in unwrapped


@pytest.mark.parametrize("end", ["\n", "\r\n"])
def test_messages_without_an_empty_line_between_them(fill: Any, end: str) -> None:
    content, result = fill((HEADER + 'msgid "a"\nmsgstr ""\nmsgid "b"\nmsgstr "B"\n').replace("\n", end))
    assert {name: entry.msgstr for name, entry in entries(content).items()} == {"a": "A", "b": "B"}
    assert result.filled == 1


def test_the_line_ends_of_windows_stay(fill: Any) -> None:
    content, _ = fill(CATALOGUE.replace("\n", "\r\n"))
    assert content.replace("\r\n", "").count("\n") == 0
    assert content.replace("\r\n", "\n") == fill(CATALOGUE)[0]


def test_the_encoding_stays_where_it_can_hold_the_translations(tmp_path: Path) -> None:
    content = CATALOGUE.replace("UTF-8", "ISO-8859-1").encode("latin-1")
    (tmp_path / "x.po").write_bytes(content)
    kept = Catalogue(tmp_path / "x.po").fill(shouting, sure, 0.5)
    assert "Schlüssen" in kept.content.decode("latin-1")
    changed = Catalogue(tmp_path / "x.po").fill(lambda texts: ["Открыть" for _ in texts], sure, 0.5)
    assert "charset=UTF-8" in changed.content.decode()
    assert entries(changed.content.decode())["Close"].msgstr == "Schlüssen"


def test_of_a_template_a_catalogue_is_made(fill: Any) -> None:
    content, _ = fill(CATALOGUE.replace("UTF-8", "CHARSET"))
    assert "charset=UTF-8" in content.upper().replace("CHARSET=", "charset=")
    assert entries(content)["Open"].msgstr == "OPEN"


def test_the_command(
    seq2seq: Any, tmp_path: Path, capsys: pytest.CaptureFixture[str], refused: Callable[..., str]
) -> None:
    source, output = tmp_path / "in.po", tmp_path / "out.po"
    source.write_text(CATALOGUE, "utf-8")
    command = ["translate", str(seq2seq.folder), "--num_beams", "1", "--input", str(source), "--output"]
    main([*command, str(output), "--fuzzy_below", "0"])
    said = capsys.readouterr().err
    assert re.search(r"4 messages translated, \d of them marked as fuzzy \(.*\); 2 left as they were", said)
    catalogue = entries(output.read_text("utf-8"))
    assert all(entry.msgstr or all(entry.msgstr_plural.values()) for entry in catalogue.values())
    assert catalogue["Close"].msgstr == "Schlüssen"
    assert "out.po is there already" in refused(*command, output)
    main([*command, "-", "--fuzzy_below", "0"])
    assert capsys.readouterr().out == output.read_text("utf-8")
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


def test_what_was_translated_before_is_not_translated_again(tmp_path: Path) -> None:
    (tmp_path / "x.po").write_text(CATALOGUE, "utf-8")
    kept: list[FilledForm] = []
    whole = Catalogue(tmp_path / "x.po").fill(shouting, sure, 0.5, keep=kept.extend)
    assert [form.translation for form in kept] == ["OPEN", "SAVE %s", "QUIT", "%d FILE", "%d FILES"]
    for done in range(len(kept) + 1):
        asked: list[str] = []

        def spy(texts: Sequence[str], asked: list[str] = asked) -> list[str]:
            asked += texts
            return shouting(texts)

        again: list[FilledForm] = []
        catalogue = Catalogue(tmp_path / "x.po")
        result = catalogue.fill(spy, sure, 0.5, known=kept[:done], keep=again.extend)
        assert (result.content, len(catalogue)) == (whole.content, len(kept))
        assert again == kept[done:]
        assert len(asked) == len(again)


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
        fill_forms = catalogues._fill_forms

        def killed(*arguments: Any) -> Any:
            if next(windows) == 1:
                os.kill(os.getpid(), signal.SIGKILL)
            return fill_forms(*arguments)

        catalogues._fill_forms = killed
        main([*command, str(output)])
        os._exit(0)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == -signal.SIGKILL
    begun = (tmp_path / "out.po.part").read_text("utf-8").splitlines()
    assert 64 <= len(begun) < 150
    capsys.readouterr()
    assert "was begun with another num_beams" in refused(*command, output, "--num_beams", "2")
    (tmp_path / "out.po.part").write_text("\n".join([*begun, '["half a li']), "utf-8")
    capsys.readouterr()
    main([*command, str(output)])
    assert f"going on behind the {len(begun)} translations of " in capsys.readouterr().err
    assert output.read_bytes() == whole.read_bytes()
    assert not list(tmp_path.glob("*.part*"))


@pytest.mark.parametrize(
    ("option", "value", "message"),
    [
        ("--n_best", 2, "--n_best is for lines of text"),
        ("--target_prefix", "Ein", "--target_prefix is for lines of text"),
        ("--processes", 2, "which one process translates with torch"),
        ("--engine", "onnx", "which one process translates with torch"),
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
