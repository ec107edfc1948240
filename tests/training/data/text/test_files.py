import bz2
import gzip
import lzma
import os
from collections.abc import Callable, Iterator
from pathlib import Path

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from paperformer.training.console.input_error import InputError
from paperformer.training.data.text.files import (
    COMPRESSIONS,
    find_file,
    open_binary,
    readable,
    unchanged,
    without_compression,
)

TEXT = "".join(f"Zeile {number}: größer als {number**2}\n" for number in range(300)).encode()


def zst_compress(content: bytes) -> bytes:
    buffer = pa.BufferOutputStream()
    with pa.CompressedOutputStream(buffer, "zstd") as stream:
        stream.write(content)
    return buffer.getvalue().to_pybytes()


COMPRESS: dict[str, Callable[[bytes], bytes]] = {
    ".gz": gzip.compress,
    ".xz": lzma.compress,
    ".zst": zst_compress,
    ".bz2": bz2.compress,
}
each_compression = pytest.mark.parametrize("ending", COMPRESSIONS)


def read(path: Path, size: int = 1000) -> bytes:
    with open_binary(path) as file:
        return b"".join(iter(lambda: file.read(size), b""))


@each_compression
@pytest.mark.parametrize("size", [1, 1000, 1 << 20])
def test_each_compression_of_one_stream_and_of_two(tmp_path: Path, ending: str, size: int) -> None:
    path, compress = tmp_path / f"text{ending}", COMPRESS[ending]
    for content in (compress(TEXT), compress(TEXT[:700]) + compress(TEXT[700:]), compress(b"") + compress(TEXT)):
        path.write_bytes(content)
        assert read(path, size) == TEXT
    path.write_bytes(compress(b""))
    assert read(path, size) == b""


def test_a_file_that_is_not_compressed(tmp_path: Path) -> None:
    (tmp_path / "text.txt").write_bytes(TEXT)
    assert read(tmp_path / "text.txt") == TEXT
    (tmp_path / "empty").touch()
    assert read(tmp_path / "empty") == b""


@each_compression
def test_every_cut_is_noticed(tmp_path: Path, ending: str) -> None:
    path, content = tmp_path / f"cut{ending}", COMPRESS[ending](TEXT)
    for length in [*range(0, len(content), 7), len(content) - 1]:
        path.write_bytes(content[:length])
        with pytest.raises(
            InputError, match=rf"cut\{ending} cannot be read: .*; it is damaged or incomplete, fetch it"
        ):
            read(path)


@each_compression
def test_a_second_stream_that_is_damaged_or_cut_off(tmp_path: Path, ending: str) -> None:
    path, compress = tmp_path / f"two{ending}", COMPRESS[ending]
    first, second = compress(TEXT[:700]), compress(TEXT[700:])
    for damaged in (b"\xff" + second[1:], second[:1], second[:-1], b"no stream at all"):
        path.write_bytes(first + damaged)
        with pytest.raises(InputError, match=rf"two\{ending} cannot be read: .*; it is damaged or incomplete"):
            read(path)


@each_compression
def test_text_under_the_name_of_a_compressed_file(tmp_path: Path, ending: str) -> None:
    path = tmp_path / f"plain{ending}"
    path.write_bytes(TEXT)
    with pytest.raises(InputError, match=rf"plain\{ending} cannot be read: "):
        read(path)


@settings(deadline=None)
@given(st.binary(max_size=100), st.data())
def test_any_damage_gives_an_input_error_or_the_text(
    tmp_path_factory: pytest.TempPathFactory, noise: bytes, data: st.DataObject
) -> None:
    folder = tmp_path_factory.getbasetemp()
    for ending, compress in COMPRESS.items():
        content = compress(TEXT)
        start, end = sorted(data.draw(st.integers(0, len(content))) for _ in range(2))
        for damaged in (noise, content[:start] + noise + content[end:], content[:end] + content[start:]):
            path = folder / f"damaged{ending}"
            path.write_bytes(damaged)
            try:
                result = read(path)
            except InputError:
                continue
            # pyarrow, which makes these, writes no checksum of the content into .zst.
            assert result == TEXT or ending == ".zst" or damaged == content + content


def test_finding_a_file_with_or_without_its_compression(tmp_path: Path) -> None:
    path = tmp_path / "train.en"
    for ending in (".bz2", ".zst", ".xz", ".gz", ""):
        expected = Path(f"{path}{ending}")
        expected.touch()
        assert find_file(path) == expected
    assert find_file(tmp_path / "train.en.xz") == tmp_path / "train.en.xz"


def test_what_cannot_be_found(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"there is no .*nowhere/x\.en \(nor \.gz, \.xz, \.zst or \.bz2 of it\)"):
        find_file(tmp_path / "nowhere" / "x.en")
    with pytest.raises(InputError, match=r"is a folder; it must be a file"):
        find_file(tmp_path)
    with pytest.raises(InputError, match=r"^\. is a folder; it must be a file"):
        find_file(Path())
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(InputError, match=r"pipe is a pipe or a device; it must be a file"):
        find_file(tmp_path / "pipe")
    with pytest.raises(InputError, match=r"cannot be read: File name too long$"):
        find_file(tmp_path / ("x" * 300))


def test_opening_what_is_no_file(tmp_path: Path) -> None:
    for name in ("missing.txt", "missing.gz"):
        with pytest.raises(InputError, match=rf"{name} cannot be read: No such file or directory$"):
            read(tmp_path / name)
    with pytest.raises(InputError, match=r"cannot be read: Is a directory$"):
        read(tmp_path)


@pytest.fixture
def without_rights(tmp_path: Path) -> Iterator[Path]:
    """A folder that may not be entered; the superuser may enter any, so the test is another user meanwhile."""
    folder = tmp_path / "locked"
    folder.mkdir()
    (folder / "a.txt.gz").write_bytes(gzip.compress(TEXT))
    folder.chmod(0)
    user = os.geteuid()
    if user == 0:
        os.seteuid(65_534)
    yield folder
    os.seteuid(user)
    folder.chmod(0o700)


def test_missing_permission(without_rights: Path) -> None:
    with pytest.raises(InputError, match=r"a\.txt cannot be read: Permission denied$"):
        find_file(without_rights / "a.txt")
    with pytest.raises(InputError, match=r"a\.txt\.gz cannot be read: Permission denied$"):
        read(without_rights / "a.txt.gz")


def append(path: Path) -> None:
    with path.open("ab") as file:
        file.write(b"one more line\n")


def rewrite(path: Path) -> None:
    """The same number of bytes at another time."""
    path.write_bytes(TEXT.swapcase())
    os.utime(path, ns=(0, 0))


def replace(path: Path) -> None:
    """Another file of the same number of bytes and the same time."""
    times = path.stat().st_atime_ns, path.stat().st_mtime_ns
    other = path.with_name("other")
    other.write_bytes(TEXT.swapcase())
    os.utime(other, ns=times)
    other.replace(path)


@pytest.mark.parametrize("change", [append, rewrite, replace])
def test_a_file_that_changes_while_it_is_read(tmp_path: Path, change: Callable[[Path], None]) -> None:
    path = tmp_path / "growing.txt"
    path.write_bytes(TEXT)

    def read_and_change() -> None:
        with open_binary(path) as file:
            file.read(10)
            change(path)

    with pytest.raises(InputError, match=r"growing\.txt changed while it was read; start again when it is complete"):
        read_and_change()


def test_a_file_that_goes_away_while_it_is_used(tmp_path: Path) -> None:
    path = tmp_path / "gone.txt"
    path.write_bytes(TEXT)
    with unchanged(path):
        path.read_bytes()
    with pytest.raises(InputError, match=r"gone\.txt cannot be read: No such file"), unchanged(path):
        path.unlink()


def test_errors_of_other_kinds_pass_through(tmp_path: Path) -> None:
    with pytest.raises(ZeroDivisionError), readable(tmp_path):
        _ = 1 / 0
    with pytest.raises(InputError, match=r"x cannot be read: odd; it is damaged or incomplete"), readable(Path("x")):
        raise OSError("odd")


def test_without_compression() -> None:
    assert without_compression(Path("a/b.tsv.xz")) == without_compression(Path("a/b.tsv")) == Path("a/b.tsv")
