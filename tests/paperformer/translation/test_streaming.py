import gzip
import itertools
import json
import random
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest

from paperformer.cli import main
from paperformer.commands.text.written_lines import _stamp
from paperformer.translation import streaming
from paperformer.translation.line_source import UNWANTED, Line, ReadAhead
from paperformer.translation.streaming import translate_stream, translate_texts

Note = Callable[[int, str], None]


def shout(texts: Sequence[str], note: Note) -> list[str]:
    return [text.upper() for text in texts]


def ignore(number: int, what: str) -> None:
    pass


def wait_for(lines: ReadAhead, count: int) -> None:
    """Until so many lines have been read ahead."""
    while len(lines._ready) < count:
        time.sleep(0.001)


def test_lines_come_in_order_one_for_one(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(streaming, "FIRST_WINDOW", 7)
    lines = ReadAhead(Line(number, f"line {number}") for number in range(1, 1001))
    windows = list(translate_stream(shout, lines, ignore))
    assert [line for window in windows for line in window] == [f"LINE {number}" for number in range(1, 1001)]
    assert len(windows) > 3


def test_windows_grow_to_what_some_seconds_hold(monkeypatch: pytest.MonkeyPatch) -> None:
    """At a hundred lines a second: 64 first, then five seconds'."""
    clock = itertools.count()
    sizes: list[int] = []

    def slowly(texts: Sequence[str], note: Note) -> list[str]:
        sizes.append(len(texts))
        now[0] += len(texts) / 100
        return list(texts)

    now = [0.0]
    monkeypatch.setattr(streaming.time, "monotonic", lambda: now[0] + 1e-9 * next(clock))
    lines = ReadAhead(Line(number, "") for number in range(1, 5001))
    wait_for(lines, 500)
    for _ in translate_stream(slowly, lines, ignore):
        wait_for(lines, min(500, 5000 - sum(sizes)))
    assert sizes[0] == 64
    assert max(sizes) in range(450, 501)


def test_windows_that_are_not_full_say_nothing_about_the_next_ones() -> None:
    """Lines that come one by one, and then many at once."""
    sizes: list[int] = []
    come = threading.Event()

    def in_turn() -> Iterator[Line]:
        for number in range(1, 6):
            yield Line(number, "")
            come.wait()
            come.clear()
        yield from (Line(number, "") for number in range(6, 1000))

    def translate(texts: Sequence[str], note: Note) -> list[str]:
        sizes.append(len(texts))
        return list(texts)

    lines = ReadAhead(in_turn())
    for _ in translate_stream(translate, lines, ignore):
        come.set()
        wait_for(lines, 1 if len(sizes) < 5 else min(64, 999 - sum(sizes)))
    assert sizes[:5] == [1] * 5
    assert sizes[5] == 64


def test_an_end_of_a_line_in_a_translation_is_a_blank() -> None:
    lines = ReadAhead(iter([Line(1, "a")]))
    assert list(translate_stream(lambda texts, note: ["x\ny\u2028z\r"], lines, ignore)) == [["x y z "]]


def test_notes_are_of_the_lines_by_their_numbers() -> None:
    notes: list[tuple[int, str]] = []

    def find_fault(texts: Sequence[str], note: Note) -> list[str]:
        note(1, "long")
        return list(texts)

    lines = ReadAhead(iter([Line(8, "a", ("odd",)), Line(9, "b")]))
    list(translate_stream(find_fault, lines, lambda *note: notes.append(note)))
    assert notes == [(8, "odd"), (9, "long")]


LONG = "A dog runs. Two men talk. " * 40


def test_a_long_text_is_translated_in_pieces_and_that_is_said(seq2seq: Any) -> None:
    notes: list[tuple[int, str]] = []
    texts = ["A dog runs.", "  ", LONG, "Two men talk."]
    outputs = translate_texts(
        seq2seq.model, seq2seq.tokenizer, texts, lambda *note: notes.append(note), num_beams=1, show_progress=False
    )
    alone = translate_texts(seq2seq.model, seq2seq.tokenizer, ["A dog runs.", "Two men talk."], ignore, num_beams=1)
    assert outputs == [alone[0], "", " ".join(alone * 40), alone[1]]
    ((index, what),) = notes
    assert index == 2
    assert "tokens, and the model takes" in what
    assert what.endswith("translated in 80 pieces")


def test_a_prefix_is_put_before_every_piece(seq2seq: Any) -> None:
    pieces = translate_texts(seq2seq.model, seq2seq.tokenizer, [LONG], ignore, num_beams=1, prefix="men ")
    prefixed = ["men A dog runs.", "men Two men talk."]
    alone = translate_texts(seq2seq.model, seq2seq.tokenizer, prefixed, ignore, num_beams=1)
    assert pieces == [" ".join(alone * 40)]


@pytest.mark.parametrize("num_beams", [1, 3])
def test_a_text_is_translated_as_if_it_were_alone(seq2seq: Any, num_beams: int) -> None:
    texts = [" ".join(["Two men talk and a dog runs."] * count) for count in range(1, 7)]
    together = translate_texts(seq2seq.model, seq2seq.tokenizer, texts, ignore, num_beams=num_beams)
    alone = [translate_texts(seq2seq.model, seq2seq.tokenizer, [text], ignore, num_beams=num_beams) for text in texts]
    assert [[text] for text in together] == alone


def test_an_interrupted_command_goes_on_where_it_was(
    seq2seq: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(streaming, "FIRST_WINDOW", 10)
    monkeypatch.setattr(streaming, "LARGEST_WINDOW", 10)
    source, output = tmp_path / "source", tmp_path / "output"
    source.write_text("".join(f"{number} dogs run.\n" for number in range(35)), "utf-8")
    command = ["translate", str(seq2seq.folder), "--num_beams", "1", "--input", str(source), "--output", str(output)]
    whole = streaming.translate_texts
    windows: list[int] = []

    def interrupted(model: Any, tokenizer: Any, texts: Sequence[str], *others: Any, **options: Any) -> list[str]:
        windows.append(len(texts))
        if len(windows) == 3:
            raise KeyboardInterrupt
        return whole(model, tokenizer, texts, *others, **options)

    with monkeypatch.context() as patch:
        patch.setattr(streaming, "translate_texts", interrupted)
        with pytest.raises(SystemExit) as stopped:
            main(command)
    assert stopped.value.code == 130
    part = tmp_path / "output.part"
    translated = part.read_text("utf-8").count("\n")
    assert translated == sum(windows[:2])
    assert f"{translated} lines are in {part}; the same command goes on" in capsys.readouterr().err
    assert not output.exists()

    main(command)
    assert f"going on behind the {translated} lines of {part}" in capsys.readouterr().err
    expected = whole(seq2seq.model, seq2seq.tokenizer, source.read_text("utf-8").splitlines(), ignore, num_beams=1)
    assert output.read_text("utf-8") == "".join(f"{UNWANTED.sub(' ', line)}\n" for line in expected)

    output.unlink()
    source.write_text("one\n", "utf-8")
    main([*command, "--overwrite", "true"])
    assert output.read_text("utf-8").count("\n") == 1


def test_fewer_lines_than_have_been_translated(
    seq2seq: Any, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """From a pipe, of which nobody knows whether it is the same."""
    for name, content in (("output.part", "a\nb\n"), ("input", "x\n")):
        (tmp_path / name).write_text(content, "utf-8")
    request = {"model": str(seq2seq.folder), "input": "-", "num_beams": 1, "length_penalty": 1.0, "prefix": ""}
    request["files"] = {"model": _stamp(seq2seq.folder), "input": []}
    (tmp_path / "output.part.json").write_text(json.dumps(request), "utf-8")
    with pytest.MonkeyPatch.context() as patch, (tmp_path / "input").open() as file:
        patch.setattr("sys.stdin", file)
        with pytest.raises(SystemExit) as stopped:
            main(["translate", str(seq2seq.folder), "--num_beams", "1", "--output", str(tmp_path / "output")])
    assert stopped.value.code == 2
    assert capsys.readouterr().err.endswith(
        "output.part has more lines than there are to translate; --overwrite true begins anew\n"
    )
    assert (tmp_path / "output.part").read_text("utf-8") == "a\nb\n"


def test_what_was_left_out_is_told_of_the_first_lines_and_counted(
    seq2seq: Any, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    source = tmp_path / "source"
    source.write_bytes(b"\xff\n" * 12 + b"A dog runs.\n")
    main(["translate", str(seq2seq.folder), "--input", str(source), "--num_beams", "1"])
    out, err = capsys.readouterr()
    assert out.count("\n") == 13
    assert out.startswith("\n" * 12)
    assert "line 10: what is not UTF-8 was left out, 0xff at byte 1 and no other" in err
    assert "line 11" not in err
    assert "12 such notes in all" in err


def run_command(*words: str, **options: Any) -> subprocess.Popen[bytes]:
    """The command, with a model that takes no time to load."""
    code = (
        # What is started in the background by a shell, as these tests may be, takes no notice of Ctrl-C.
        "import signal; signal.signal(signal.SIGINT, signal.default_int_handler); "
        "import sys; from paperformer.api import given_models; from paperformer.translation import streaming; "
        "from paperformer.commands import loading; given_models.load_given = lambda *_: (None, None); "
        "loading.load_target_tokenizer = lambda *_: None; "
        "from paperformer.decoding import languages; languages.choose_languages = lambda *_: None; "
        "streaming.translate_texts = lambda model, tokenizer, texts, *_, **__: [text.upper() for text in texts]; "
        "from paperformer.cli import main; main(['translate', 'model', *sys.argv[1:]])"
    )
    return subprocess.Popen([sys.executable, "-c", code, *words], **options)


@pytest.mark.proof
def test_a_reader_that_has_had_enough_ends_it_in_silence(tmp_path: Path) -> None:
    source = tmp_path / "source"
    source.write_text("a line\n" * 100_000, "utf-8")
    with run_command("--input", str(source), stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
        assert process.stdout.readline() == b"A LINE\n"
        process.stdout.close()
        assert process.wait(60) == 141
        # Nothing but progress, which a busy machine is slow enough to see.
        assert all(line.startswith(b"translate: ") for line in process.stderr.read().splitlines())


@pytest.mark.proof
def test_ctrl_c_ends_it_while_it_waits_for_a_line() -> None:
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
    with run_command(**pipes) as process:
        process.stdin.write(b"a line\n")
        process.stdin.flush()
        assert process.stdout.readline() == b"A LINE\n"  # before there is another
        process.send_signal(signal.SIGINT)
        assert process.wait(60) == 130
        assert process.stderr.read() == b"interrupted\n"


def test_a_damaged_file_is_one_line(tmp_path: Path, seq2seq: Any, refused: Callable[..., str]) -> None:
    source = tmp_path / "source.gz"
    source.write_bytes(gzip.compress(bytes(random.Random(1).choices(range(97, 123), k=9000)))[:2000])
    assert "source.gz cannot be read" in refused("translate", seq2seq.folder, "--input", source, "--num_beams", 1)
