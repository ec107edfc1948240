"""The commands and the Python of the guide to translating run as they are written."""

import re
from ast import literal_eval
from pathlib import Path

import pytest

from paperformer import PaperformerForConditionalGeneration, PaperformerSeq2SeqConfig, train_tokenizer
from paperformer.cli import main

GUIDE = (Path(__file__).parents[1] / "docs" / "translation.md").read_text("utf-8")
LINES = ["The dog runs.", "A cat sings a song."]


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    tokenizer = train_tokenizer(LINES, vocab_size=264, append_eos=True)
    size = {"hidden_size": 16, "intermediate_size": 16, "num_attention_heads": 2, "max_position_embeddings": 130}
    model = tmp_path / "runs" / "en-is" / "model"
    config = PaperformerSeq2SeqConfig(vocab_size=len(tokenizer), encoder_layers=1, decoder_layers=1, **size)
    PaperformerForConditionalGeneration(config).save_pretrained(model)
    tokenizer.save_pretrained(model)
    (model.parent / "recipe.yaml").write_text("data: {}\n")
    (tmp_path / "news.en").write_text("".join(f"{line}\n" for line in LINES))
    monkeypatch.chdir(tmp_path)
    return tmp_path


def test_the_commands_run(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    lines, catalogue = re.findall(r"```bash\n(.*?)```", GUIDE, re.DOTALL)
    by_file, by_pipe = lines.splitlines()
    main(by_file.split()[1:])
    written = (folder / "news.is").read_text("utf-8")
    assert written.count("\n") == 2
    words = by_pipe.split()
    assert (words[:3], words[-2:]) == (["cat", "news.en", "|"], [">", "news.is"])
    with (folder / "news.en").open() as file, pytest.MonkeyPatch.context() as patch:
        patch.setattr("sys.stdin", file)
        main(words[4:-2])
    assert capsys.readouterr().out == written
    (folder / "app.po").write_text('msgid ""\nmsgstr ""\n\nmsgid "The dog runs."\nmsgstr ""\n', "utf-8")
    main(catalogue.split()[1:])
    assert (folder / "app.is.po").stat().st_size > (folder / "app.po").stat().st_size


def test_the_python_runs(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    ours, of_transformers = re.findall(r"```python\n(.*?)```", GUIDE, re.DOTALL)
    exec(ours, {})
    printed = capsys.readouterr().out
    assert printed.startswith("['")
    assert ", '', '" in printed
    exec(of_transformers, {})
    text, texts, several = (literal_eval(line) for line in capsys.readouterr().out.splitlines())
    assert text[0]["translation_text"].count("\n") >= 3
    assert [list(found) for found in texts] == [["translation_text"]] * 2
    assert [list(found) for found in several] == [["translation_text", "score"]] * 3
