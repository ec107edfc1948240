import multiprocessing
import time
from pathlib import Path

import pytest

from paperformer.training.console.input_error import InputError
from paperformer.training.data.cache import cached_folder, content_hashes


def test_a_folder_is_made_once_for_the_same_ingredients(tmp_path: Path) -> None:
    made: list[Path] = []

    def write(folder: Path) -> None:
        (folder / "content").write_text("x")
        made.append(folder)

    first = cached_folder(tmp_path / "cache", "text", {"a": 1, "b": [2]}, write)
    assert (first / "content").read_text() == "x"
    assert first.name.startswith("text-")
    assert cached_folder(tmp_path / "cache", "text", {"b": [2], "a": 1}, write) == first
    assert len(made) == 1
    assert cached_folder(tmp_path / "cache", "text", {"a": 1, "b": [3]}, write) != first
    assert cached_folder(tmp_path / "cache", "tokens", {"a": 1, "b": [2]}, write) != first
    assert len(made) == 3


@pytest.mark.parametrize("error", [KeyboardInterrupt, InputError("bad line"), OSError(28, "No space left on device")])
def test_what_is_interrupted_leaves_nothing_that_looks_complete(tmp_path: Path, error: BaseException) -> None:
    def half(folder: Path) -> None:
        (folder / "content").write_text("ha")
        raise error

    with pytest.raises((KeyboardInterrupt, InputError)):
        cached_folder(tmp_path, "text", 1, half)
    assert [path for path in tmp_path.iterdir() if path.is_dir()] == []
    folder = cached_folder(tmp_path, "text", 1, lambda path: (path / "content").write_text("whole"))
    assert (folder / "content").read_text() == "whole"


def _die_while_writing(cache: Path) -> None:
    import os

    def write(folder: Path) -> None:
        (folder / "content").write_text("ha")
        os._exit(9)

    cached_folder(cache, "text", 1, write)


def test_a_process_that_is_killed_leaves_neither_a_folder_nor_a_lock(tmp_path: Path) -> None:
    process = multiprocessing.get_context("fork").Process(target=_die_while_writing, args=(tmp_path,))
    process.start()
    process.join()
    assert process.exitcode == 9
    folder = cached_folder(tmp_path, "text", 1, lambda path: (path / "content").write_text("whole"))
    assert (folder / "content").read_text() == "whole"
    assert [path.name for path in tmp_path.iterdir() if path.is_dir()] == [folder.name]


def _make_slowly(cache: Path) -> None:
    def write(folder: Path) -> None:
        with (cache / "made").open("a") as file:
            file.write("once\n")
        time.sleep(0.3)
        (folder / "content").write_text("x")

    assert (cached_folder(cache, "text", 1, write) / "content").read_text() == "x"


def test_of_processes_that_start_together_one_makes_it_and_the_others_wait(tmp_path: Path) -> None:
    context = multiprocessing.get_context("fork")
    processes = [context.Process(target=_make_slowly, args=(tmp_path,)) for _ in range(4)]
    for process in processes:
        process.start()
    for process in processes:
        process.join()
    assert [process.exitcode for process in processes] == [0] * 4
    assert (tmp_path / "made").read_text() == "once\n"


def test_a_cache_that_cannot_be_written_is_named(tmp_path: Path) -> None:
    (tmp_path / "cache").write_text("a file")
    with pytest.raises(InputError, match=r"cannot write .*cache"):
        cached_folder(tmp_path / "cache", "text", 1, lambda path: None)


def test_content_decides_the_hash_not_name_or_time(tmp_path: Path) -> None:
    for name, content in {"a": b"x" * 10_000_000, "b": b"x" * 10_000_000, "c": b"x" * 9_999_999 + b"y"}.items():
        (tmp_path / name).write_bytes(content)
    first, second, third = content_hashes([tmp_path / name for name in "abc"])
    assert first == second != third
    with pytest.raises(InputError, match=r"cannot be read"):
        content_hashes([tmp_path])
