"""Preparation by shards gives the cache and the report of one process, to the byte; on Ray itself in a long proof."""

import json
import os
import signal
import sys
from collections.abc import Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import paperformer
from paperformer.bulk.on_ray import each_on_ray
from paperformer.bulk.preparing import ShardedPreparation, do_here
from paperformer.cli import main
from paperformer.training.console.input_error import InputError
from paperformer.training.data.text import chunks
from paperformer.training.prepare import prepare
from paperformer.training.tasks.registry import OBJECTIVES

LEAK = ("The ferry leaves at nine today.", "Die Fähre fährt um neun.")


@pytest.fixture(autouse=True)
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(chunks, "ROWS_A_CHUNK", 9)  # so that a few rows are several shards of tokens
    Path("held-out.tsv").write_text("\t".join(LEAK) + "\nA cat.\tEine Katze.\n", "utf-8")
    Path("held-out.txt").write_text("A line of the evaluation set, which has more than fifty characters.\nB\n", "utf-8")


@pytest.fixture
def pairs() -> list[str]:
    """Recipe of pairs from two parallel files and a table, with what is to be left out of them in several shards."""
    sources = [f"Dog number {number} sleeps.".encode() for number in range(40)]
    targets = [f"Hund Nummer {number} schläft.".encode() for number in range(40)]
    for number in (3, 11, 12, 30):
        sources[number], targets[number] = b"Twice.", b"Doppelt."
    sources[8], sources[29] = LEAK[0].encode(), b"the ferry LEAVES at nine today"
    targets[5] = targets[21] = b"\xff is not UTF-8"
    sources[20] = b"a\0b"
    targets[25] = b""
    Path("corpus.en").write_bytes(b"\n".join(sources) + b"\n")
    Path("corpus.de").write_bytes(b"\n".join(targets))
    rows = [
        "en\tde",
        "Twice.\tDoppelt.",
        "no tab",
        *(f"Cat {number}.\tKatze {number}." for number in range(12)),
        "Cat 3.\tKatze 3.",
    ]
    Path("more.tsv").write_text("\n".join(rows) + "\n", "utf-8")
    train = [{"path": "corpus", "tag": "<2de>"}, {"path": "more.tsv", "tag": "<2de>"}]
    return command_line(
        {
            "data.source_language": "en",
            "data.target_language": "de",
            "data.train": json.dumps(train),
            "data.validation": "held-out.tsv",
            "data.test": "held-out.tsv",
            "data.on_bad_line": "skip",
            "tokenizer.user_symbols": '["<2de>"]',
        }
    )  # fmt: skip


@pytest.fixture
def texts() -> list[str]:
    """Recipe of running text of four kinds."""
    Path("lines.txt").write_text("".join(f"Line {number % 17} is here.\n" for number in range(30)), "utf-8")
    Path("paragraphs.txt").write_text("".join(f"Line {n} is here.\n" + "\n" * (n % 3 == 0) for n in range(30)), "utf-8")
    Path("whole.txt").write_text("One document.\nLine 1 is here.\n", "utf-8")
    rows = [json.dumps({"text": f"Row {number % 9}.\n"}) for number in range(20)]
    Path("rows.jsonl").write_text("\n".join([*rows, "{"]) + "\n", "utf-8")
    Path("tables").mkdir()
    for number in range(3):
        pq.write_table(pa.table({"text": [f"Cell {number}", "Row 1.\n", None]}), f"tables/{number}.parquet")
    train = [{"path": "lines.txt", "documents": "each"}, {"path": "paragraphs.txt", "documents": "blank_line"},
             "whole.txt", "rows.jsonl", "tables"]  # fmt: skip
    fields = {"data.train": json.dumps(train), "data.validation": "held-out.txt", "data.test": "held-out.txt"}
    return command_line({**fields, "data.on_bad_line": "skip", "data.context_length": 16})


def command_line(fields: dict[str, Any]) -> list[str]:
    fields = {"name": "a", "tokenizer.vocab_size": 300, **fields}
    return [word for name, value in fields.items() for word in (f"--{name}", str(value))]


def prepared(
    name: str, arguments: Sequence[str], do: Any = None, shard_lines: int = 7
) -> tuple[list[str], dict[Path, bytes]]:
    """What is told of it, and the cache."""
    lines: list[str] = []
    cache = Path("one" if do is None else "shards")
    recipe = OBJECTIVES[name].read_recipe([*arguments, "--data.cache_dir", str(cache)])
    prepare(OBJECTIVES[name], recipe, lines.append, ShardedPreparation(do, shard_lines) if do else None)
    return "\n".join(lines).splitlines(), contents(cache)


def contents(cache: Path) -> dict[Path, bytes]:
    return {path.relative_to(cache): path.read_bytes() for path in cache.rglob("*") if path.is_file()}


def test_pairs_are_the_same_to_the_byte(pairs: list[str]) -> None:
    told, cache = prepared("seq2seq", pairs)
    assert told[0] == "data.train: kept 43 of 51 rows"
    assert [line for line in told if "left out" in line] == [
        "        2 left out (not UTF-8), first corpus.de, line 6",
        "        1 left out (NUL byte), first corpus.en, line 21",
        "        1 left out (too few columns), first more.tsv, line 3",
    ]
    for reason in ("also in the evaluation sets", "duplicate", "empty"):
        assert any(line.endswith(f"%  {reason}") for line in told)
    found = prepared("seq2seq", pairs, backwards)
    assert found == (told, cache)
    (tokens,) = Path("shards").glob("tokens-*/store.json")
    assert json.loads(tokens.read_text())["rows"] == 43


def backwards(make: Any, shards: Sequence[Any]) -> Iterator[Any]:
    """The last shard first; each of several by a worker of its own, that knows nothing of the others."""
    for shard in reversed(shards):
        yield from do_here(make, [shard])


@pytest.mark.parametrize("name", ["lm", "encoder"])
def test_running_text_is_the_same_to_the_byte(name: str, texts: list[str]) -> None:
    told, cache = prepared(name, texts)
    assert any(line.endswith("%  duplicate") for line in told)
    assert prepared(name, texts, backwards) == (told, cache)


def test_held_out_parts_are_the_same(pairs: list[str]) -> None:
    splits = pairs.index("--data.validation")
    arguments = [*pairs[:splits], *pairs[splits + 4 :], "--data.hold_out", "0.2"]
    assert prepared("seq2seq", arguments, do_here) == prepared("seq2seq", arguments)


def test_a_killed_run_goes_on_where_it_was(pairs: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    """Killed in the middle of writing the third shard's mark."""
    child = os.fork()
    if not child:
        replace_path, marks = Path.replace, iter(range(100))

        def killed(path: Path, target: Path) -> Path:
            if ".done." in path.name and next(marks) == 2:
                os.kill(os.getpid(), signal.SIGKILL)
            return replace_path(path, target)

        Path.replace = killed  # type: ignore[assignment, method-assign]
        prepared("seq2seq", pairs, do_here)
        os._exit(0)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == -signal.SIGKILL
    (shards,) = Path("shards").glob("text-*.shards")
    assert len(list(shards.glob("*.done"))) == 2
    done = []

    def spy(make: Any, items: Sequence[Any]) -> Iterator[Any]:
        done.append([item.number for item in items])
        return do_here(make, items)

    found = prepared("seq2seq", pairs, spy)
    assert done == [[2, 3, 4, 5, 6, 7, 8], [0, 1, 2, 3, 4]]  # of text, and of tokens
    assert "clean data.train: going on behind 2 of 9 shards, which are done" in capsys.readouterr().err
    assert found == prepared("seq2seq", pairs)


def test_shards_that_were_cut_otherwise_or_are_damaged_are_done_again(
    pairs: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    def stopping(make: Any, items: Sequence[Any]) -> Iterator[Any]:
        yield from do_here(make, items[:4])
        raise InputError("enough")

    with pytest.raises(InputError, match="enough"):
        prepared("seq2seq", pairs, stopping)
    assert "4 of 9 shards are in shards/text-" in capsys.readouterr().err

    def damaging(make: Any, items: Sequence[Any]) -> Iterator[Any]:
        assert [item.number for item in items] == list(range(6))  # none of those that were done
        yield from do_here(make, items)
        (path,) = Path("shards").glob("text-*.shards/00000001.examined")
        path.write_bytes(bytes(path.stat().st_size))

    with pytest.raises(InputError, match=r"00000001\.examined is missing or damaged; the same command does it again"):
        prepared("seq2seq", pairs, damaging, shard_lines=10)

    def spy(make: Any, items: Sequence[Any]) -> Iterator[Any]:
        if hasattr(items[0], "reader"):
            assert [item.number for item in items] == [1]
        return do_here(make, items)

    assert prepared("seq2seq", pairs, spy, shard_lines=10) == prepared("seq2seq", pairs)


def test_a_bad_line_ends_it_with_its_place(pairs: list[str]) -> None:
    arguments = [*pairs, "--data.on_bad_line", "stop"]
    with pytest.raises(InputError, match=r"corpus\.de, line 6: byte 0xff at byte 1 of the line is not UTF-8"):
        prepared("seq2seq", arguments, do_here)


def test_a_file_that_changes_meanwhile_is_noticed(pairs: list[str]) -> None:
    def changing(make: Any, items: Sequence[Any]) -> Iterator[Any]:
        yield from do_here(make, items)
        with Path("more.tsv").open("a") as file:
            file.write("x\ty\n")

    with pytest.raises(InputError, match=r"more\.tsv changed while it was read"):
        prepared("seq2seq", pairs, changing)
    assert not [
        path for path in Path("shards").glob("text-*") if path.with_suffix(".shards").is_dir() and not path.suffix
    ]


def test_without_ray_it_is_said_how_to_get_it(
    pairs: list[str], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setitem(sys.modules, "ray", None)
    with pytest.raises(SystemExit) as stopped:
        main(["prepare", "seq2seq", *pairs, "--on", "ray"])
    assert stopped.value.code == 2
    assert capsys.readouterr().err.endswith("error: --on ray needs Ray Data; pip install 'paperformer[ray]'\n")
    assert not Path("runs").exists()


@pytest.fixture
def given(monkeypatch: pytest.MonkeyPatch) -> list[tuple[int, int]]:
    """The numbers of shards and workers that Ray, for which this process stands in, has been asked for."""
    from paperformer.bulk import on_ray

    given: list[tuple[int, int]] = []

    def do(make: Any, items: Sequence[Any], workers: int, stays: bool) -> Iterator[Any]:
        given.append((len(items), workers))
        return do_here(make, items)

    monkeypatch.setattr(on_ray, "each_on_ray", do)
    monkeypatch.setattr(on_ray, "import_ray", lambda: None)
    return given


def test_the_command_divides_the_work(
    pairs: list[str], given: list[tuple[int, int]], capsys: pytest.CaptureFixture[str]
) -> None:
    main(["prepare", "seq2seq", "--on", "ray", *pairs, "--processes", "3", "--shard_lines=20"])
    assert given == [(3, 3), (2, 3)]
    assert "data.train: kept 43 of 51 rows" in capsys.readouterr().out
    with pytest.raises(SystemExit):
        main(["prepare", "lm", "--help"])
    assert "--shard_lines SHARD_LINES" in capsys.readouterr().out


def test_python_divides_the_work(pairs: list[str], given: list[tuple[int, int]]) -> None:
    fields = {
        name.removeprefix("--"): json.loads(value) if value.startswith("[") else value
        for name, value in zip(pairs[::2], pairs[1::2], strict=True)
    }
    prepared = paperformer.prepare(overrides=fields, objective="seq2seq", on="ray", processes=3, shard_lines=20)
    assert given == [(3, 3), (2, 3)]
    assert prepared.report["train"]["cleaning"]["kept"] == 43
    with pytest.raises(InputError, match="on is 'dask'; it must be 'ray', or None"):
        paperformer.prepare(overrides=fields, objective="seq2seq", on="dask")  # type: ignore[arg-type]
    with pytest.raises(InputError, match="processes is -1"):
        paperformer.prepare(overrides=fields, objective="seq2seq", on="ray", processes=-1)


@pytest.mark.proof
def test_an_actor_that_is_killed_costs_nothing(pairs: list[str], tmp_path: Path) -> None:
    pytest.importorskip("ray", reason="ray is not installed: pip install 'paperformer[ray]'")

    def killing(make: Any) -> Any:  # local: it travels by value
        do = make()

        def work(shard: Any) -> int:
            if shard.number == 3 and not (tmp_path / "killed").exists():
                (tmp_path / "killed").touch()
                os.kill(os.getpid(), signal.SIGKILL)
            return do(shard)  # type: ignore[no-any-return]

        return work

    def do(make: Any, items: Sequence[Any]) -> Iterator[Any]:
        return each_on_ray(partial(killing, make), items, workers=2)

    assert prepared("seq2seq", pairs, do) == prepared("seq2seq", pairs)
    assert (tmp_path / "killed").exists()
