"""The commands and the Python of the guide to translating run as they are written."""

import re
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
    lines, catalogue, *_ = re.findall(r"```bash\n(.*?)```", GUIDE, re.DOTALL)
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


FILES = {
    "strings.csv": 'id,source\n1,"The dog runs."\n',
    "pairs.tsv": "The dog runs.\tx\n",
    "texts.jsonl": '{"text": {"en": "The dog runs."}}\n',
    "app.xlf": '<xliff version="1.2"><file><trans-unit><source>The dog runs.</source></trans-unit></file></xliff>',
    "memory.tmx": '<tmx><header srclang="en"/><tu><tuv xml:lang="en"><seg>The dog runs.</seg></tuv></tu></tmx>',
    "news.en": "The dog runs.\n",
}
"""The input of each command, in the order of the guide."""


def test_the_commands_on_other_formats_run(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    _, _, *blocks = re.findall(r"```bash\n(.*?)```", GUIDE, re.DOTALL)
    commands = [line.split() for block in blocks for line in block.splitlines()]
    assert [words[words.index("--input") + 1] for words in commands] == list(FILES)
    for words, (name, content) in zip(commands, FILES.items(), strict=True):
        (folder / name).write_text(content, "utf-8")
        main(words[1:])
        if "--output" in words:
            written = (folder / words[words.index("--output") + 1]).read_text("utf-8")
            assert len(written) > len(content)
            said = capsys.readouterr().err
            assert re.search("1 (rows|objects|units) translated", said)


def test_the_python_runs(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (block,) = re.findall(r"```python\n(.*?)```", GUIDE, re.DOTALL)
    exec(block, {})
    printed = capsys.readouterr().out
    assert printed.startswith("['")
    assert ", '', '" in printed
