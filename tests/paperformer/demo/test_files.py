"""Files that are translated on the page are what the command makes of them."""

from pathlib import Path
from typing import Any

import pytest

from paperformer.cli import main
from paperformer.decoding.translator import Translator
from paperformer.demo.files import MOST_NOTES, Notes, output_name, translate_file
from paperformer.training.console.input_error import InputError
from paperformer.translation.formats.names import FormatOptions

FILES = {
    "lines.txt": "A dog runs.\n\nTwo men talk.\n",
    "app.po": 'msgid ""\nmsgstr "Content-Type: text/plain; charset=UTF-8\\n"\n\nmsgid "A dog."\nmsgstr ""\n',
    "table.tsv": "id\ten\n1\tA dog runs.\n2\tTwo men talk.\n",
    "table.csv": "id,en\n1,A dog runs.\n",
    "rows.jsonl": '{"en": "A dog runs."}\n',
    "unit.xlf": '<xliff version="1.2" xmlns="urn:oasis:names:tc:xliff:document:1.2"><file source-language="en" '
    'target-language="de" original="a" datatype="plaintext"><body><trans-unit id="1"><source>A dog.</source>'
    "</trans-unit></body></file></xliff>",
    "memory.tmx": '<tmx version="1.4"><header srclang="en" segtype="sentence" adminlang="en" o-tmf="a" '
    'creationtool="a" creationtoolversion="1" datatype="plaintext"/><body><tu><tuv xml:lang="en"><seg>A dog.</seg>'
    "</tuv></tu></body></tmx>",
}
SAID = {
    ".tsv": {"column": "en"},
    ".csv": {"column": "en"},
    ".jsonl": {"field": "en"},
    ".tmx": {"target_language": "de"},
}


@pytest.mark.parametrize("name", FILES)
def test_a_file_of_each_format(name: str, seq2seq: Any, tmp_path: Path) -> None:
    path, output, expected = tmp_path / name, tmp_path / "own", tmp_path / "command"
    path.write_text(FILES[name], "utf-8")
    said, told = SAID.get(path.suffix, {}), []
    options = FormatOptions(**said)
    translator = Translator(seq2seq.model, seq2seq.tokenizer)
    summary, _ = translate_file(
        translator, path, output, options, lambda *done: told.append(done), num_beams=1, prefix="Two men: "
    )
    words = [word for option, value in said.items() for word in (f"--{option}", value)] + ["--prefix", "Two men: "]
    main(
        ["translate", str(seq2seq.folder), "--input", str(path), "--output", str(expected), "--num_beams", "1", *words]
    )
    assert output.read_bytes() == expected.read_bytes()
    assert output.read_text("utf-8") != FILES[name]
    assert " translated" in summary
    assert told[0] == (0, None)
    assert told[-1][0] == told[-1][1] > 0


def test_a_file_that_is_not_what_it_is_called_is_refused(seq2seq: Any, tmp_path: Path) -> None:
    path = tmp_path / "unit.xlf"
    path.write_text("no XML", "utf-8")
    translator = Translator(seq2seq.model, seq2seq.tokenizer)
    with pytest.raises(InputError, match=r"unit\.xlf"):
        translate_file(translator, path, tmp_path / "out", FormatOptions(), lambda *_: None)


def test_names_of_outputs() -> None:
    assert [output_name(name) for name in ("app.po", "app.po.gz", "a.b.txt", "plain")] == [
        "app.translated.po",
        "app.translated.po",
        "a.b.translated.txt",
        "plain.translated",
    ]


def test_notes_do_not_fill_the_page() -> None:
    notes = Notes()
    for number in range(MOST_NOTES + 5):
        notes(number, "odd")
    assert len(notes.all()) == MOST_NOTES + 1
    assert notes.all()[-1] == "and 5 more"
