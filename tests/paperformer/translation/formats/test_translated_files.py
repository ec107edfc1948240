"""The command on files of records: which format, going on, and what is refused."""

import gzip
import io
import json
import os
import signal
import subprocess
import sys
import tracemalloc
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest

from paperformer.cli import main
from paperformer.translation import streaming
from paperformer.translation.formats.file_formats import find_format, read_records
from paperformer.translation.formats.names import FormatOptions
from paperformer.translation.formats.record_output import RecordFile

ROWS = "id,source\n" + "".join(f'{number},"{number} dogs\nrun"\n' for number in range(35))


@pytest.fixture
def translate(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, seq2seq: Any) -> Callable[..., None]:
    """The command, with a translator that takes no time."""

    def shout(model: Any, tokenizer: Any, texts: Sequence[str], note: Any, **options: Any) -> list[str]:
        return [text.upper() for text in texts]

    monkeypatch.setattr(streaming, "translate_texts", shout)
    monkeypatch.chdir(tmp_path)
    return lambda *words: main(["translate", str(seq2seq.folder), *words])


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("a.po", "gettext"), ("a.pot.gz", "gettext"), ("a.xlf", "xliff"), ("a.XLIFF.xz", "xliff"), ("a.tmx", "tmx"),
        ("a.tsv.zst", "tsv"), ("a.csv", "csv"), ("a.jsonl.bz2", "jsonl"), ("a.ndjson", "jsonl"), ("a.txt", "text"),
        ("-", "text"), ("xlf", "text"), ("a.sdlxliff", "xliff"),
    ],
)  # fmt: skip
def test_the_format_follows_from_the_name(name: str, expected: str) -> None:
    assert find_format(name, None, FormatOptions()) == expected
    assert find_format(name, "csv", FormatOptions(column="a")) == "csv"


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--input", "x.tmx", "--column", "a"], "--column is for tsv, csv, and x.tmx is taken for tmx; --format says"),
        (["--input", "x.csv", "--field", "a"], "--field is for jsonl, and x.csv is taken for csv"),
        (["--target_language", "is"], "--target_language is for xliff, tmx, and - is taken for text"),
        (["--input", "x.mo"], "x.mo is a compiled catalogue; translate the .po file that it was made of"),
        (["--input", "x.csv", "--format", "excel"], "--format is excel; it must be"),
        (["--input", "x.jsonl", "--field", "a"], "x.jsonl cannot be read: No such file"),
        (["--input", "good.csv", "--column", "1", "--output", "y.csv.gz"], "written uncompressed; leave .gz off"),
        (["--input", "x.po", "--output", "y.po.xz"], "written uncompressed; leave .xz off"),
        (["--input", "good.csv", "--column", "1", "--output", "good.csv"], "good.csv is there already"),
        (["--input", "good.csv", "--format", "xliff"], "good.csv, line 1, column 1: syntax error; the file must be"),
        (["--input", "good.csv", "--format", "tmx", "--target_language", "is"], "good.csv, line 1, column 1"),
    ],
)
def test_what_is_refused(
    translate: Any, capsys: pytest.CaptureFixture[str], tmp_path: Path, words: list[str], said: str
) -> None:
    (tmp_path / "good.csv").write_text("a,b\n")
    with pytest.raises(SystemExit) as stopped:
        translate(*words)
    assert stopped.value.code == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert said in line
    assert [path.name for path in tmp_path.iterdir() if path.name.endswith((".part", ".json"))] == []


def test_a_compressed_file_and_standard_output(
    translate: Any, tmp_path: Path, capsysbinary: pytest.CaptureFixture[bytes]
) -> None:
    (tmp_path / "x.jsonl.gz").write_bytes(gzip.compress(b'{"t": "a %s"}\n{"t": 1}\n'))
    translate("--input", "x.jsonl.gz", "--field", "t")
    out, err = capsysbinary.readouterr()
    assert out == b'{"t": "a %s", "translation": "A %S"}\n{"t": 1}\n'
    assert err.decode().splitlines() == [
        "line 1: other placeholders or tags (missing: %1$s; not in the source: none)",
        "line 2: 't' is 1, not a string: not translated",
        "1 objects translated; to be looked at: 1 other placeholders or tags; left as they were: 1 not a string",
    ]


def test_standard_input(translate: Any, tmp_path: Path, capsysbinary: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "rows").write_bytes(b"a\tb\nc\td\n")
    with (tmp_path / "rows").open() as file:
        monkeypatch.setattr("sys.stdin", file)
        translate("--format", "tsv", "--column", "2")
    assert capsysbinary.readouterr().out == b"a\tb\tB\nc\td\tD\n"


def test_an_interrupted_command_goes_on_where_it_was(
    translate: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(streaming, "FIRST_WINDOW", 10)
    monkeypatch.setattr(streaming, "LARGEST_WINDOW", 10)
    (tmp_path / "x.csv").write_text(ROWS)
    words = ["--input", "x.csv", "--column", "source", "--output", "y.csv"]
    whole = streaming.translate_texts
    done: list[str] = []

    def interrupted(model: Any, tokenizer: Any, texts: Sequence[str], *others: Any, **options: Any) -> list[str]:
        if len(done) > 30:
            raise KeyboardInterrupt
        done.extend(texts)
        return whole(model, tokenizer, texts, *others, **options)

    with monkeypatch.context() as patch:
        patch.setattr(streaming, "translate_texts", interrupted)
        with pytest.raises(SystemExit):
            translate(*words)
    said = capsys.readouterr().err
    assert "records are in y.csv.part; the same command goes on behind them" in said
    with (tmp_path / "y.csv.part").open("ab") as file:
        file.write(b'20,"half a\nrow')
    with (tmp_path / "y.csv.part.json").open("a") as file:
        file.write("\n[99")
    with monkeypatch.context() as patch:
        seen: list[str] = []
        patch.setattr(
            streaming, "translate_texts", lambda *given, **options: seen.extend(given[2]) or whole(*given, **options)
        )
        translate(*words)
    assert "going on behind the" in capsys.readouterr().err
    assert done + seen == [line for number in range(35) for line in (f"{number} dogs", "run")]
    expected = "".join(f'{number},"{number} dogs\nrun","{number} DOGS\nRUN"\n' for number in range(35))
    assert (tmp_path / "y.csv").read_text() == "id,source,translation\n" + expected
    assert sorted(path.name for path in tmp_path.iterdir()) == ["x.csv", "y.csv"]


def test_what_was_begun_otherwise_is_not_gone_on_with(
    translate: Any, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "x.csv").write_text(ROWS)
    words = ["--input", "x.csv", "--output", "y.csv", "--column"]
    (tmp_path / "y.csv.part").write_text("")
    (tmp_path / "y.csv.part.json").write_text(json.dumps({"column": "source"}))
    with pytest.raises(SystemExit):
        translate(*words, "id")
    assert "y.csv.part was begun with another" in capsys.readouterr().err
    translate(*words, "id", "--overwrite", "true")
    assert (tmp_path / "y.csv").read_text().startswith('id,source,translation\n0,"0 dogs\nrun",0\n')


KILLED = """
import os, signal, sys
from pathlib import Path
from paperformer.translation.formats.record_output import RecordFile
output = RecordFile(Path(sys.argv[1]), {"model": "m"})
output.write_records(b"a\\nb", 1)
output.write_records(b"\\nc", 1)
output._file.write(b"half")
output._file.flush()
os.kill(os.getpid(), signal.SIGKILL)
"""


def test_a_killed_command_has_lost_no_window(tmp_path: Path) -> None:
    """By a signal that nothing can catch, in the middle of a write."""
    killed = subprocess.run([sys.executable, "-c", KILLED, str(tmp_path / "out")], timeout=60)
    assert killed.returncode == -signal.SIGKILL
    assert (tmp_path / "out.part").read_bytes() == b"a\nb\nchalf"
    again = RecordFile(tmp_path / "out", {"model": "m"})  # who held the lock is gone
    assert (again.done, (tmp_path / "out.part").read_bytes()) == (2, b"a\nb\nc")
    again.__exit__(KeyboardInterrupt, KeyboardInterrupt(), None)


def test_records_and_journal_are_on_the_disk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The records first: a journal that says more than there is would be of no use."""
    on_disk: list[int] = []
    sync = os.fsync
    with RecordFile(tmp_path / "out", {}) as output:
        monkeypatch.setattr(os, "fsync", lambda number: on_disk.append(os.fstat(number).st_size) or sync(number))
        output.write_records(b"abc", 1)
        assert on_disk == [3, (tmp_path / "out.part.json").stat().st_size]


def test_a_journal_that_says_more_than_there_is_does_not_count(tmp_path: Path) -> None:
    """As after a loss of power."""
    output = RecordFile(tmp_path / "out", {})
    output.write_records(b"abc", 3)
    output.write_records(b"def", 3)
    output.__exit__(KeyboardInterrupt, KeyboardInterrupt(), None)
    (tmp_path / "out.part").write_bytes(b"abcd")
    again = RecordFile(tmp_path / "out", {})
    assert (again.done, (tmp_path / "out.part").read_bytes()) == (3, b"abc")
    again._file.close()


def test_lines_of_text_are_compared_if_that_is_asked_for(
    translate: Any, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "x.txt").write_text("fine\nsave %s\n")
    translate("--input", "x.txt")
    assert capsys.readouterr() == ("FINE\nSAVE %S\n", "")
    translate("--input", "x.txt", "--check", "true")
    out, err = capsys.readouterr()
    assert out == "FINE\nSAVE %S\n"
    assert err == "line 2: other placeholders or tags (missing: %1$s; not in the source: none)\n"


def test_memory_does_not_grow_with_the_file() -> None:
    """Three megabytes, of which a block of 64 kilobytes and its units are in memory."""
    unit = b'<tu><tuv xml:lang="en"><seg>a dog</seg></tuv><tuv xml:lang="de"><seg>ein Hund</seg></tuv></tu>\n'
    gap = b"<!-- " + b"-x" * 240 + b" -->\n"
    head, end = b'<tmx version="1.4"><header srclang="en"/><body>\n', b"</body></tmx>\n"
    file = io.BytesIO(head + (unit + gap) * 5_000 + end)
    options = FormatOptions(target_language="de")
    tracemalloc.start()
    size = sum(len(record.write(()).content) for record in read_records(file.read, "x", "tmx", options))
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert size == len(file.getvalue())
    assert peak < 1_500_000 < size


def test_a_closed_pipe_ends_it_in_silence(
    translate: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "x.csv").write_text(ROWS)
    reading, writing = os.pipe()
    os.close(reading)
    with os.fdopen(writing, "w") as closed:
        monkeypatch.setattr("sys.stdout", closed)
        with pytest.raises(SystemExit) as stopped:
            translate("--input", "x.csv", "--column", "source")
    assert (stopped.value.code, capsys.readouterr().err) == (141, "")


@pytest.mark.parametrize(
    "words", [["--input", "x.csv", "--column", "source"], ["--input", "x.csv", "--format", "text"]]
)
def test_standard_output_on_a_full_disk_is_one_line(
    translate: Any,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    words: list[str],
) -> None:
    (tmp_path / "x.csv").write_text(ROWS)
    with Path("/dev/full").open("w") as full:
        monkeypatch.setattr("sys.stdout", full)
        with pytest.raises(SystemExit) as stopped:
            translate(*words)
    assert stopped.value.code == 2
    assert capsys.readouterr().err == "error: standard output cannot be written: No space left on device\n"
