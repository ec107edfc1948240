"""Models computed in bfloat16 and int8: by the commands, from Python, and compared with float32 first."""

import re
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
import torch

import paperformer
from paperformer.cli import main
from paperformer.commands.loading import compute_in, load
from paperformer.export import other_types
from paperformer.export.export_file import ExportFile
from paperformer.export.torch_engine import TorchEngine
from paperformer.serving.engines.loading import load_engine
from paperformer.training.console.input_error import InputError

from ..conftest import TEXTS, Saved

needs_vnni = pytest.mark.skipif(not torch.cpu._is_vnni_supported(), reason="int8 needs a CPU with AVX-512 VNNI")


@needs_vnni
def test_a_model_is_compared_with_itself_in_int8(lm: Saved, tmp_path, capsys) -> None:
    (tmp_path / "text").write_text(" ".join(TEXTS * 8), "utf-8")
    main(["check", str(lm.folder), "--dtype", "int8", "--text", str(tmp_path / "text"), "--sequences", "3"])
    said = capsys.readouterr().out
    rows = dict(re.findall(r"^(\S.*?\S)  +(.*)$", said, re.MULTILINE))
    assert 0 < float(rows["root mean square of the differences"]) < 0.1
    assert rows["the same tokens, greedy"] in {f"{count} of 3" for count in range(4)}
    before, after = map(float, rows["perplexity"].split())
    assert after == pytest.approx(before, rel=0.02)
    own, with_copies = map(float, rows["size, MB"].split())
    matrices = sum(each.weight.numel() for each in lm.model.modules() if type(each) is torch.nn.Linear)
    assert with_copies - own == pytest.approx(matrices / 1e6, abs=0.2)


def test_bfloat16_is_compared_as_well(seq2seq: Saved, encoder: Saved) -> None:
    facts, found = other_types.compare_dtype(str(seq2seq.folder), "bfloat16", sequences=2)
    assert facts.quantization == "bfloat16"
    assert found.difference > 0
    assert found.megabytes[1] == pytest.approx(found.megabytes[0] / 2)
    assert other_types.compare_dtype(str(encoder.folder), "bfloat16", sequences=1)[1].difference > 0


def write_run(folder: Path, model: Path, rows: dict[str, list[Any]], cached: bool) -> str:
    """A model in the folder of a run that was tested on some rows, which the cache still has or not."""
    shutil.copytree(model, folder / "model")
    (folder / "recipe.yaml").write_text("data: {cache_dir: null}", "utf-8")
    (folder / "data.json").write_text('{"test": {"folder": "text-1"}}', "utf-8")
    (folder / "evaluation").mkdir()
    (folder / "evaluation" / "samples.jsonl").write_text('["A dog runs over the", " green grass again."]\n', "utf-8")
    if cached:
        table = pa.table(rows)
        (folder.parent / ".cache" / "text-1").mkdir(parents=True)
        path = folder.parent / ".cache" / "text-1" / "text.arrow"
        with pa.OSFile(str(path), "wb") as file, pa.ipc.new_stream(file, table.schema) as stream:
            stream.write_table(table)
    return str(folder / "model")


def test_a_runs_own_test_text_is_compared(lm: Saved, seq2seq: Saved, encoder: Saved, tmp_path: Path) -> None:
    text = " ".join(TEXTS * 4)
    (tmp_path / "text").write_text(text, "utf-8")
    rows = {"text": [text[:100], text[100:]], "begins": [True, False]}
    model = write_run(tmp_path / "lm" / "run", lm.folder, rows, cached=True)
    found = [
        other_types.compare_dtype(model, "bfloat16", sequences=1, text=text)[1] for text in (None, tmp_path / "text")
    ]
    assert found[0].sample == "the run's test text"
    assert found[0].quality == found[1].quality != {}
    pairs = {"source": TEXTS[::2], "target": TEXTS[1::2]}
    model = write_run(tmp_path / "seq2seq" / "run", seq2seq.folder, pairs, cached=True)
    assert other_types.compare_dtype(model, "bfloat16", sequences=1)[1].quality.keys() == {"BLEU"}
    model = write_run(tmp_path / "encoder" / "run", encoder.folder, rows, cached=True)
    assert other_types.compare_dtype(model, "bfloat16", sequences=1)[1].sample == "the run's test text"


def test_what_nobody_wrote_has_no_perplexity(lm: Saved, tmp_path: Path, capsys) -> None:
    model = write_run(tmp_path / "run", lm.folder, {}, cached=False)
    for place, sample in ((model, "the run's samples"), (str(lm.folder), "random tokens")):
        main(["check", place, "--dtype", "bfloat16", "--sequences", "2"])
        said = capsys.readouterr().out
        assert f"({sample})" in said
        assert "\nperplexity" not in said
        assert said.endswith("With --text FILE there are perplexities as well.\n")
        assert re.search(r"^the same likeliest next token  +\d+\.\d\d %$", said, re.MULTILINE)


def test_which_tokens_are_the_likeliest(lm: Saved, encoder: Saved, tmp_path: Path) -> None:
    texts = lm.tokenizer(TEXTS[:2]).input_ids
    inputs, outputs = [ids[:3] for ids in texts], [ids[3:] for ids in texts]
    facts = ExportFile.of(lm.model.config, format="torch", quantization="float32", model="a model")
    for ids, given, likeliest in zip(
        texts, inputs, TorchEngine(lm.model, facts).likeliest(inputs, outputs), strict=True
    ):
        logits = lm.model(torch.tensor([ids])).logits[0]
        assert likeliest.tolist() == logits.argmax(-1)[len(given) - 1 : -1].tolist()
    states = ExportFile.of(encoder.model.config, format="onnx", quantization="float32", model="a model")
    assert TorchEngine(encoder.model, states).likeliest(inputs, outputs) == []


@needs_vnni
def test_what_is_more_than_rounding_is_refused(lm: Saved, monkeypatch) -> None:
    def compute_worse(model, dtype, name):
        compute_in(model, dtype, name)
        model.model.norm.weight.data.mul_(1.5)
        return model

    monkeypatch.setattr(other_types, "compute_in", compute_worse)
    with pytest.raises(InputError, match=r"in int8 differs by .* rounding its weights explains"):
        other_types.compare_dtype(str(lm.folder), "int8", sequences=2)


@needs_vnni
def test_the_commands_compute_in_it(lm: Saved, capsys, monkeypatch) -> None:
    asked = []
    monkeypatch.setattr(type(lm.model), "pack_weights", lambda self, dtype=None: asked.append(dtype) or self)
    main(["generate", str(lm.folder), "A dog", "--dtype", "int8", "--max_new_tokens", "3"])
    assert paperformer.generate(str(lm.folder), "A dog", dtype="int8", max_new_tokens=3).startswith("A dog")
    paperformer.evaluate_text(str(lm.folder), TEXTS[0], dtype="int8")
    load_engine(str(lm.folder), dtype="int8")
    assert asked == [torch.int8] * 4


def test_translations_are_computed_in_it(seq2seq: Saved, tmp_path, monkeypatch) -> None:
    seen = []
    generate = type(seq2seq.model).generate

    def spy(self, **arguments):
        seen.append(next(self.parameters()).dtype)
        return generate(self, **arguments)

    monkeypatch.setattr(type(seq2seq.model), "generate", spy)
    (tmp_path / "a.txt").write_text("A dog.\n")
    words = [str(seq2seq.folder), "--num_beams", "1", "--dtype", "bfloat16"]
    main(["translate", *words, "--input", str(tmp_path / "a.txt"), "--output", str(tmp_path / "b.txt")])
    main(["evaluate", *words, str(tmp_path / "a.txt"), "--reference", str(tmp_path / "a.txt"), "--resamples", "0"])
    assert seen == [torch.bfloat16] * 2
    ways = ["--alignment", "true", "--n_best", "2", "--num_beams", "2", "--output", str(tmp_path / "c.txt")]
    main(["translate", *words[:1], "--dtype", "bfloat16", "--input", str(tmp_path / "a.txt"), *ways])
    assert (tmp_path / "c.txt").read_text().count("|||") == 6
    with pytest.raises(InputError, match=r"has been loaded: call its .to\(dtype\)"):
        paperformer.translate(seq2seq.model, ["A"], tokenizer=seq2seq.tokenizer, dtype="bfloat16")


@needs_vnni
def test_a_translation_model_in_int8_translates_as_it_does(seq2seq: Saved) -> None:
    rounded, exact = (paperformer.translate(str(seq2seq.folder), TEXTS, 1, dtype=dtype) for dtype in ("int8", None))
    assert len(rounded) == len(exact) == len(TEXTS)
    assert [bool(text) for text in rounded] == [bool(text) for text in exact]


def test_types_are_those_of_the_weights(lm: Saved) -> None:
    assert load(str(lm.folder), None, dtype="bfloat16")[0].dtype == torch.bfloat16
    assert load(str(lm.folder), None)[0].dtype == torch.float32


def test_what_cannot_be_is_refused_in_a_line(lm: Saved, refused: Callable[..., str], monkeypatch) -> None:
    with pytest.raises(InputError, match="dtype is 'int4'; it must be one of float32, bfloat16, int8"):
        paperformer.generate(str(lm.folder), "A", dtype="int4")  # type: ignore[arg-type]
    with pytest.raises(InputError, match=r"has been loaded: call its .to\(dtype\)"):
        paperformer.generate(lm.model, "A", tokenizer=lm.tokenizer, dtype="int8")
    monkeypatch.setattr(torch.cpu, "_is_vnni_supported", lambda: False)
    assert "int8 needs a CPU with AVX-512 VNNI" in refused("generate", lm.folder, "A", "--dtype", "int8")
