import pickle
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from paperformer.training.console.input_error import InputError
from paperformer.training.data.token_store import TokenStore, TokenWriter

ROWS = st.lists(st.tuples(*[st.lists(st.integers(0, 299), max_size=6)] * 2), max_size=8)


def write(folder: Path, rows: list[tuple[list[int], ...]], vocab_size: int = 300) -> TokenStore:
    folder.mkdir(parents=True, exist_ok=True)
    with TokenWriter(folder, columns=2, vocab_size=vocab_size) as writer:
        for row in rows:
            writer.write_ids(np.array([i for sequence in row for i in sequence], dtype=np.int64))
            writer.write_lengths(np.array([[len(sequence) for sequence in row]]))
    return TokenStore(folder)


@given(rows=ROWS)
def test_rows_come_back(tmp_path_factory: pytest.TempPathFactory, rows: list[tuple[list[int], ...]]) -> None:
    store = write(tmp_path_factory.mktemp("store"), rows)
    assert len(store) == len(rows)
    assert [[ids.tolist() for ids in store.row(i)] for i in range(len(store))] == [list(row) for row in rows]
    assert store.lengths.tolist() == [[len(sequence) for sequence in row] for row in rows]
    assert store.starts[-1] == len(store.ids)


@pytest.mark.parametrize(("vocab_size", "dtype"), [(300, "uint16"), (65_536, "uint16"), (65_537, "uint32")])
def test_ids_take_as_many_bytes_as_the_vocabulary_needs(tmp_path: Path, vocab_size: int, dtype: str) -> None:
    store = write(tmp_path, [([vocab_size - 1], [0])], vocab_size)
    assert store.ids.dtype == dtype
    assert store.row(0)[0].tolist() == [vocab_size - 1]


def test_another_process_gets_the_folder_not_the_content(tmp_path: Path) -> None:
    store = write(tmp_path, [(list(range(300)) * 100, [1])])
    pickled = pickle.dumps(store)
    assert len(pickled) < 500
    assert np.asarray(pickle.loads(pickled).ids).tolist() == np.asarray(store.ids).tolist() == [*range(300)] * 100 + [1]


def test_what_is_interrupted_is_no_store(tmp_path: Path) -> None:
    def write_and_stop() -> None:
        with TokenWriter(tmp_path, columns=1, vocab_size=9) as writer:
            writer.write_ids(np.array([1]))
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        write_and_stop()
    with pytest.raises(FileNotFoundError):
        TokenStore(tmp_path)


def test_a_file_that_was_cut_off_is_named(tmp_path: Path) -> None:
    store = write(tmp_path, [([1, 2, 3], [4])])
    (tmp_path / "ids.bin").write_bytes(b"\1\0\2\0")
    assert store.ids[0:2].tolist() == [1, 2]
    with pytest.raises(InputError, match=r"ids\.bin is cut off; delete its folder"):
        store.row(0)
