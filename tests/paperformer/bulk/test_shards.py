"""What is not Ray's of `--on ray`: shards, their marks, the order of lines, and going on after a kill."""

import os
import signal
import sys
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from paperformer.bulk import on_ray
from paperformer.bulk.shard_work import LineWork, ShardWorker, do_here
from paperformer.bulk.shards import Shard, ShardFolder, cut_into_shards
from paperformer.cli import main
from paperformer.commands.text.in_shards import work_in_shards
from paperformer.training.console.input_error import InputError
from paperformer.training.data.text.line_ranges import read_range
from paperformer.translation.line_source import clean_lines
from paperformer.translation.streaming import as_text

from ...examples import examples

LINES = [f"line {number}" for number in range(1, 24)]


def shout(lines: Sequence[str], note: Any) -> list[str]:
    for place, line in enumerate(lines):
        if line.endswith("7"):
            note(place, "it ends with a seven")
    return [line.upper() for line in lines]


def load() -> Callable[..., list[str]]:
    return shout


def by_one(do: Any, work: LineWork, shards: Sequence[Shard], workers: int) -> Iterator[Any]:
    return do(ShardWorker(work), shards)


@pytest.fixture
def work(tmp_path: Path) -> LineWork:
    (tmp_path / "in.txt").write_text("\n".join(LINES) + "\n", "utf-8")
    return LineWork(load, as_text, (str(tmp_path / "in.txt"),), str(tmp_path / "out.txt"))


@pytest.fixture
def run(work: LineWork) -> Callable[..., None]:
    def run(do: Any = do_here, own: LineWork = work, overwrite: bool = False, **request: Any) -> None:
        work_in_shards(own, request, workers=1, shard_lines=5, overwrite=overwrite, described="test",
                       do=partial(by_one, do))  # fmt: skip

    return run


@settings(max_examples=examples(60))
@given(st.lists(st.text("aé\r ", max_size=4), max_size=12), st.booleans(), st.integers(1, 5))
def test_shards_are_the_file(lines: list[str], ends: bool, size: int) -> None:
    path = Path(os.environ["PYTEST_SHARDS"])
    content = ("\n".join(lines) + "\n" * (ends and bool(lines))).encode()
    path.write_bytes(content)
    shards = cut_into_shards([path], size)
    parts = [b"".join(read_range(path, shard.places[0])) for shard in shards]
    assert b"".join(parts) == content
    whole = iter([content])
    expected = list(clean_lines(lambda _: next(whole, b"")))
    assert sum(shard.lines for shard in shards) == len(expected)
    found = []
    for shard, part in zip(shards, parts, strict=True):
        blocks = iter([part])
        own = list(clean_lines(lambda _, blocks=blocks: next(blocks, b""), shard.first_line))  # type: ignore[misc]
        assert len(own) == shard.lines
        found += own
    assert found == expected
    assert all(shard.lines == size for shard in shards[:-1])


@pytest.fixture(autouse=True, scope="module")
def place_of_shards(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PYTEST_SHARDS", str(tmp_path_factory.mktemp("shards") / "lines"))
        yield


def test_lines_longer_than_a_block(tmp_path: Path) -> None:
    lines = [b"x" * 3_000_000, b"y", b"z" * 1_500_000]
    (tmp_path / "long").write_bytes(b"\n".join(lines))
    shards = cut_into_shards([tmp_path / "long"], 1)
    assert [b"".join(read_range(tmp_path / "long", shard.places[0])).rstrip(b"\n") for shard in shards] == lines


def test_files_beside_each_other(tmp_path: Path) -> None:
    (tmp_path / "a").write_text("a\nbbb\nc\n")
    (tmp_path / "b").write_text("1\n2\n3")
    shards = cut_into_shards([tmp_path / "a", tmp_path / "b"], 2)
    assert [shard.places for shard in shards] == [((0, 6), (0, 4)), ((6, 8), (4, 5))]
    (tmp_path / "b").write_text("1\n2\n")
    with pytest.raises(InputError, match=r"b has 2 lines and .*a has 3; each must belong to one"):
        cut_into_shards([tmp_path / "a", tmp_path / "b"], 2)
    (tmp_path / "a.gz").write_bytes(b"")
    with pytest.raises(InputError, match=r"a\.gz is compressed, .* unpack it"):
        cut_into_shards([tmp_path / "a.gz"], 2)
    with pytest.raises(InputError, match="shard_lines is 0; it must be at least 1"):
        cut_into_shards([tmp_path / "a"], 0)


def test_all_lines_in_order_whatever_the_order_of_shards(
    run: Callable[..., None], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run(lambda worker, shards: do_here(worker, shards[::-1]))
    assert (tmp_path / "out.txt").read_text("utf-8").splitlines() == [line.upper() for line in LINES]
    assert sorted(path.name for path in tmp_path.iterdir()) == ["in.txt", "out.txt"]
    said = capsys.readouterr().err
    assert "line 7: it ends with a seven" in said
    assert "line 17: it ends with a seven" in said
    with pytest.raises(InputError, match=r"out\.txt is there already"):
        run()
    run(overwrite=True)


def test_a_killed_run_goes_on_where_it_was(
    run: Callable[..., None], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Killed in the middle of writing the third shard's mark."""
    child = os.fork()
    if not child:
        replace_path, marks = Path.replace, iter(range(100))

        def killed(path: Path, target: Path) -> Path:
            if ".done." in path.name and next(marks) == 2:
                os.kill(os.getpid(), signal.SIGKILL)
            return replace_path(path, target)

        Path.replace = killed  # type: ignore[assignment, method-assign]
        run()
        os._exit(0)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == -signal.SIGKILL
    assert len(list((tmp_path / "out.txt.shards").glob("*.done"))) == 2
    with pytest.raises(InputError, match=r"out.txt.shards was begun with another model; give that again"):
        run(model="another")
    done = []

    def spy(worker: ShardWorker, shards: Sequence[Shard]) -> Iterator[Any]:
        done.extend(shard.number for shard in shards)
        return do_here(worker, shards)

    run(spy)
    assert done == [2, 3, 4]
    assert "going on behind 2 of 5 shards" in capsys.readouterr().err
    assert (tmp_path / "out.txt").read_text("utf-8").splitlines() == [line.upper() for line in LINES]


def test_two_commands_do_not_do_the_same_shards(run: Callable[..., None], work: LineWork, tmp_path: Path) -> None:
    def another(worker: ShardWorker, shards: Sequence[Shard]) -> Iterator[Any]:
        for overwrite in (False, True):
            with pytest.raises(InputError, match=r"out\.txt is being written by process .*, or give another --output"):
                run(overwrite=overwrite)
        return do_here(worker, shards)

    run(another)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["in.txt", "out.txt"]
    with pytest.raises(InputError, match=r"there is no folder .*nowhere for --output"):
        run(own=replace(work, output=str(tmp_path / "nowhere" / "out.txt")))
    assert not (tmp_path / "nowhere").exists()


def test_a_shard_that_was_damaged_is_done_again(run: Callable[..., None], work: LineWork, tmp_path: Path) -> None:
    def damaging(worker: ShardWorker, shards: Sequence[Shard]) -> Iterator[Any]:
        yield from do_here(worker, shards)
        (worker.folder.folder / "00000001.lines").write_bytes(b"x" * 35)  # as many bytes
        (worker.folder.folder / "00000003.lines").write_bytes(b"too few")

    with pytest.raises(InputError, match=r"00000001\.lines is missing or damaged; the same command does it again"):
        run(damaging)
    done = []

    def spy(worker: ShardWorker, shards: Sequence[Shard]) -> Iterator[Any]:
        done.extend(shard.number for shard in shards)
        return do_here(worker, shards)

    run(spy)
    assert done == [1, 3]
    assert (tmp_path / "out.txt").read_text("utf-8").splitlines() == [line.upper() for line in LINES]


def test_what_cannot_be_done_leaves_what_is_done(
    run: Callable[..., None], work: LineWork, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "in.txt").write_text("a\tb\n" * 7 + "none\n", "utf-8")
    with pytest.raises(InputError, match=r"in\.txt, line 8 has no tab; it must be a source, a tab and its translation"):
        run(own=replace(work, is_of_pairs=True))
    assert "1 of 2 shards are in" in capsys.readouterr().err


def test_a_file_beside_and_a_prefix_become_parts_of_the_line(run: Callable[..., None], work: LineWork) -> None:
    other = Path(work.files[0]).with_name("other.txt")
    other.write_text("".join(f"other {number}\n" for number in range(1, 24)), "utf-8")
    run(own=replace(work, files=(*work.files, str(other)), prefix="p"))
    lines = Path(work.output).read_text("utf-8").splitlines()
    assert lines[11] == "LINE 12\tOTHER 12\tP"


def test_commands_in_shards_give_what_they_give_otherwise(
    seq2seq: Any,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    refused: Callable[..., str],
    capsys: pytest.CaptureFixture[str],
) -> None:
    def do(work: LineWork, shards: Sequence[Shard], workers: int) -> Iterator[Any]:
        return do_here(ShardWorker(work), shards)

    monkeypatch.setattr(on_ray, "do_on_ray", do)
    source = tmp_path / "in.txt"
    source.write_text("".join(f"Two men talk {number}.\n" for number in range(13)), "utf-8")
    translate = ["translate", str(seq2seq.folder), "--num_beams", "2", "--input", str(source)]
    main([*translate, "--output", str(tmp_path / "plain")])
    main([*translate, "--output", str(tmp_path / "shards"), "--on", "ray", "--shard_lines", "4"])
    assert (tmp_path / "shards").read_bytes() == (tmp_path / "plain").read_bytes()
    main([*translate, "--output", str(tmp_path / "two"), "--n_best", "2"])
    main([*translate, "--output", str(tmp_path / "best"), "--n_best", "2", "--on", "ray", "--shard_lines", "4"])
    parts = [
        [line.split(" ||| ") for line in (tmp_path / name).read_text("utf-8").splitlines()] for name in ("best", "two")
    ]
    assert [line[:2] for line in parts[0]] == [line[:2] for line in parts[1]]  # scores may differ in their last digits
    score = ["likelihood", str(seq2seq.folder), "--input", str(source), "--translations", str(tmp_path / "plain")]
    main([*score, "--output", str(tmp_path / "a")])
    main([*score, "--output", str(tmp_path / "b"), "--on", "ray", "--shard_lines", "4"])
    columns = [[float(word) for line in (tmp_path / name).read_text().splitlines() for word in line.split()]
               for name in ("a", "b")]  # fmt: skip
    assert columns[1] == pytest.approx(columns[0], rel=1e-4)
    capsys.readouterr()
    assert "give --input and --output" in refused(*translate, "--on", "ray")
    assert "processes is -1; it must be at least 1" in refused(*score, "--processes", -1)
    (tmp_path / "x.po").write_text("", "utf-8")
    assert "--on ray is for lines of text" in refused("translate", "none", "--input", tmp_path / "x.po", "--on", "ray")


def test_without_ray_it_is_said_how_to_get_it(monkeypatch: pytest.MonkeyPatch, work: LineWork) -> None:
    monkeypatch.setitem(sys.modules, "ray", None)
    with pytest.raises(InputError, match=r"--on ray needs Ray Data; pip install 'paperformer\[ray\]'"):
        list(on_ray.do_on_ray(work, cut_into_shards([Path(work.files[0])], 5), 1))
    assert not ShardFolder(Path(work.output)).folder.exists()
