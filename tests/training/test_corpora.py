import gzip
import lzma
from pathlib import Path

import pytest

from paperformer.training.corpora import read_documents, read_lines, read_pairs, read_parallel
from paperformer.training.input_error import InputError
from paperformer.training.recipe import ParallelData, TextData


def write(folder: Path, **files: str) -> Path:
    """train_en="a" writes the file train.en."""
    for name, text in files.items():
        (folder / name.replace("_", ".")).write_text(text, "utf-8")
    return folder


def pairs_of(folder: Path) -> dict[str, list[tuple[str, str]]]:
    return read_pairs(ParallelData(dataset=str(folder)))


SPLITS = {f"{split}_{language}": "x\n" for split in ("train", "validation", "test") for language in ("en", "de")}


def test_pairs_from_two_files_a_table_and_compressed_files(tmp_path: Path) -> None:
    write(tmp_path, **SPLITS | {"train_en": "one\ntwo\r\n\nlast", "train_de": "eins\nzwei\nleer\nzuletzt"})
    (tmp_path / "test.tsv").write_text("a dog\tein Hund\n", "utf-8")
    (tmp_path / "validation.en").unlink()
    (tmp_path / "validation.de").unlink()
    (tmp_path / "validation.en.gz").write_bytes(gzip.compress("naïve\n".encode()))
    (tmp_path / "validation.de.xz").write_bytes(lzma.compress("naiv\u2028\x0c\n".encode()))  # no line ends these two
    pairs = pairs_of(tmp_path)
    assert pairs["train"] == [("one", "eins"), ("two", "zwei"), ("last", "zuletzt")]
    assert pairs["validation"] == [("naïve", "naiv\u2028\x0c")]
    assert pairs["test"] == [("a dog", "ein Hund")]


def test_documents(tmp_path: Path) -> None:
    write(tmp_path, train_txt="a\n\nb\n", validation_txt="c", test_txt="d\n")
    documents = read_documents(TextData(dataset=str(tmp_path)))
    assert documents == {"train": ["a\n\nb\n"], "validation": ["c\n"], "test": ["d\n"]}


def test_built_in_text() -> None:
    documents = read_documents(TextData(dataset="built-in:shakespeare"))
    assert [len(documents[split]) for split in ("train", "validation", "test")] == [33, 2, 2]


@pytest.mark.parametrize(
    ("files", "message"),
    [
        ({"train_en": "a\nb\n"}, r"train\.en has 2 lines and .*train\.de has 1; line n of one must be the translation"),
        ({"train_en": "", "train_de": ""}, r"train\.en is empty; it must have text"),
        ({"train_en": " \n", "train_de": "x\n"}, "data.train 'train' of .* is empty; a pair must have text on both"),
        ({"train_tsv": "a\tb\nno tab\n"}, r"train\.tsv, line 2: no tab; a line must be SOURCE<tab>TARGET"),
    ],
)
def test_unusable_pairs(tmp_path: Path, files: dict[str, str], message: str) -> None:
    with pytest.raises(InputError, match=message):
        pairs_of(write(tmp_path, **SPLITS | files))


def test_missing_file_names_it(tmp_path: Path) -> None:
    write(tmp_path, **SPLITS)
    (tmp_path / "test.de").unlink()
    with pytest.raises(InputError, match=r"there is no .*test\.de \(nor \.gz, \.xz or \.bz2 of it\)"):
        pairs_of(tmp_path)


@pytest.mark.parametrize("text", ["", "\n \n"])
def test_empty_text(tmp_path: Path, text: str) -> None:
    write(tmp_path, train_txt=text, validation_txt="x", test_txt="x")
    with pytest.raises(InputError, match=r"train.* is empty; it must have text"):
        read_documents(TextData(dataset=str(tmp_path)))


def test_bytes_that_are_not_utf8(tmp_path: Path) -> None:
    (tmp_path / "latin1.txt").write_bytes("fine\nalso fine\nna\u00efve\n".encode("latin-1"))
    with pytest.raises(InputError, match=r"latin1\.txt, line 3: byte 0xef at column 3 is not UTF-8; convert"):
        read_lines(tmp_path / "latin1.txt")


def test_folders_files_and_damaged_archives(tmp_path: Path) -> None:
    (tmp_path / "cut.gz").write_bytes(gzip.compress(b"text" * 100)[:-10])
    (tmp_path / "not.xz").write_bytes(b"text")
    (tmp_path / "file").write_text("x")
    with pytest.raises(InputError, match="is a folder; it must be a text file"):
        read_lines(tmp_path)
    for name in ("cut.gz", "not.xz", "missing.txt"):
        with pytest.raises(InputError, match=f"{name} cannot be read: ."):
            read_lines(tmp_path / name)
    with pytest.raises(InputError, match=r"data.dataset is the file .*; it must be a folder"):
        pairs_of(tmp_path / "file")
    with pytest.raises(InputError, match=r"data.dataset: there is no folder .*nowhere"):
        pairs_of(tmp_path / "nowhere")


def test_a_wrong_name_on_the_hub(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(name: str, split: str) -> None:
        raise ConnectionError("no network\nand much more")

    monkeypatch.setattr("datasets.load_dataset", refuse)
    with pytest.raises(InputError, match=r"no folder somebody/pears, and split train .* from the Hub: no network$"):
        read_pairs(ParallelData(dataset="somebody/pears"))


def test_columns_of_the_hub(monkeypatch: pytest.MonkeyPatch) -> None:
    class Rows(dict[str, list[object]]):
        column_names = property(lambda self: list(self))

    rows = Rows(en=["a"], de=["ein"])
    monkeypatch.setattr("datasets.load_dataset", lambda name, split: rows)
    assert read_pairs(ParallelData(dataset="x/y"))["test"] == [("a", "ein")]
    rows = Rows(translation=[{"en": "a", "de": "ein"}])
    assert read_pairs(ParallelData(dataset="x/y"))["test"] == [("a", "ein")]
    with pytest.raises(InputError, match="x/y has no language 'fr' in its column 'translation'"):
        read_pairs(ParallelData(dataset="x/y", target_language="fr"))
    rows = Rows(text=["a"])
    with pytest.raises(InputError, match=r"x/y has the columns \['text'\]; it must have en and de, or 'translation'"):
        read_pairs(ParallelData(dataset="x/y"))
    with pytest.raises(InputError, match=r"data.text_column is 'body'; x/y has the columns \['text'\]"):
        read_documents(TextData(dataset="x/y", text_column="body"))


def test_unknown_built_ins() -> None:
    with pytest.raises(InputError, match="built-in pairs are built-in:cldr"):
        read_pairs(ParallelData(dataset="built-in:clrd"))
    with pytest.raises(InputError, match="built-in text is built-in:shakespeare"):
        read_documents(TextData(dataset="built-in:goethe"))
    with pytest.raises(InputError, match=r"data\.source_language, data\.target_language: CLDR has no locale 'xx'"):
        read_pairs(ParallelData(dataset="built-in:cldr", source_language="xx"))


def test_read_parallel_keeps_blank_lines(tmp_path: Path) -> None:
    write(tmp_path, a_en="one\n\n", a_de="eins\n\n")
    assert read_parallel(tmp_path / "a.en", tmp_path / "a.de") == [("one", "eins"), ("", "")]
