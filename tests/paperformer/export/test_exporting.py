"""From a model folder to an export: compared before it is written, whole or not at all."""

import json
import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch

import paperformer
from paperformer.api.given_models import search_of
from paperformer.cli import main
from paperformer.export import comparison, exporting
from paperformer.export.export_file import ExportFile
from paperformer.export.formats.registry import FORMATS
from paperformer.training.console.input_error import InputError

from ..conftest import TEXTS, Saved

Refused = Callable[..., str]


@pytest.fixture(scope="module")
def exported(seq2seq: Saved, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An export by the command, on sentences with references."""
    folder = tmp_path_factory.mktemp("exports")
    (folder / "text").write_text(f"{TEXTS[0]}\n\n{TEXTS[2]}\n", "utf-8")
    (folder / "references").write_text(f"{TEXTS[1]}\n\n{TEXTS[3]}\n", "utf-8")
    arguments = ["--to", "ctranslate2", "--text", str(folder / "text"), "--reference", str(folder / "references")]
    main(["export", str(seq2seq.folder), str(folder / "out"), *arguments])
    return folder / "out"


def test_an_export_says_what_was_compared(exported: Path) -> None:
    facts = ExportFile.read(exported)
    assert facts.comparison["sequences"] == 2
    assert search_of(exported) == (2, 1.0)  # the model's own
    assert facts.comparison["difference"] < 1e-4
    assert facts.comparison["identical"] == {"greedy": 2, "beam 5": 2}
    before, after = facts.comparison["quality"]["BLEU"]
    assert before == after
    report = (exported / "export.md").read_text("utf-8")
    assert "## Export to ctranslate2, float32" in report
    assert "| the same tokens, beam 5 |  | 2 of 2 |" in report
    assert sorted(path.name for path in exported.parent.iterdir()) == ["out", "references", "text"]


def test_translations_are_those_of_torch(
    seq2seq: Saved, exported: Path, capfd: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    lines = tmp_path / "lines"
    lines.write_text("\n".join([*TEXTS, "", " ", "two \x07 dogs", "A dog runs. " * 40]), "utf-8")
    said = []
    for arguments in ([str(seq2seq.folder)], [str(exported), "--engine", "ctranslate2"]):
        main(["translate", *arguments, "--input", str(lines)])
        said.append(capfd.readouterr())
    assert said[0].out.count("\n") == 8
    assert said[0] == said[1]


def test_a_model_folder_is_exported_once_for_an_engine(
    two_vocabularies: Saved, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr("paperformer.export.running.HF_HOME", str(tmp_path))
    monkeypatch.setattr("paperformer.export.running.CACHED_SEQUENCES", 2)
    translate = paperformer.translate
    wanted = translate(two_vocabularies.folder, TEXTS)
    assert translate(two_vocabularies.folder, TEXTS, engine="ctranslate2") == wanted
    (folder,) = (tmp_path / "paperformer" / "exports").iterdir()
    before = (folder / "export.json").stat().st_mtime_ns
    assert translate(two_vocabularies.folder, TEXTS, engine="ctranslate2") == wanted
    assert (folder / "export.json").stat().st_mtime_ns == before


def test_an_export_is_scored_like_a_model(exported: Path, capfd: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    (tmp_path / "pairs.tsv").write_text(f"{TEXTS[0]}\t{TEXTS[1]}\n{TEXTS[2]}\t{TEXTS[3]}\n", "utf-8")
    options = ["--metrics", "[chrf]", "--resamples", "0", "--format", "json"]
    main(["evaluate", str(exported), str(tmp_path / "pairs.tsv"), "--engine", "ctranslate2", *options])
    assert json.loads(capfd.readouterr().out)["sentences"] == 2


def test_a_language_model_with_rounded_weights(lm: Saved, tmp_path: Path) -> None:
    found = paperformer.export_model(lm.folder, tmp_path / "out", "ctranslate2", quantization="int8", sequences=2)
    assert 0 < found.root_mean_square < comparison.ACTIVATIONS_TOO * found.explained
    assert found.megabytes[1] < 0.7 * found.megabytes[0]
    assert not (tmp_path / "out" / "float32").exists()
    assert found.sample == "random tokens"
    assert found.quality == {}  # how likely random tokens are says nothing
    assert "With --text FILE there are perplexities as well." in (tmp_path / "out" / "export.md").read_text("utf-8")


def test_an_encoder_that_generates_nothing(encoder: Saved, tmp_path: Path) -> None:
    found = paperformer.export_model(encoder.folder, tmp_path / "out", "ctranslate2")
    assert found.difference < 1e-4
    assert ExportFile.read(tmp_path / "out").num_beams is None


@pytest.mark.parametrize("part", ["k_proj.weight", "mlp_residual.norm.bias", "lm_head.bias"])
def test_another_function_is_not_written(
    part: str, two_vocabularies: Saved, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    write = FORMATS["ctranslate2"].write

    def write_wrongly(exportable: exporting.Exportable, folder: Path, quantization: str) -> None:
        weights = dict(exportable.model.named_parameters())
        weight = weights[next(name for name in weights if name.endswith(part))]
        kept = weight.detach().clone()
        with torch.no_grad():
            weight[-1] += 0.5
            write(exportable, folder, quantization)
            weight.copy_(kept)

    monkeypatch.setitem(FORMATS, "ctranslate2", replace(FORMATS["ctranslate2"], write=write_wrongly))
    with pytest.raises(InputError, match=r"is not the same function: its values differ by .*; nothing is written"):
        paperformer.export_model(two_vocabularies.folder, tmp_path / "out", "ctranslate2")
    assert list(tmp_path.iterdir()) == []


def test_a_wrong_token_is_found_where_the_values_are_right(seq2seq: Saved) -> None:
    facts = ExportFile.of(seq2seq.model.config, format="ctranslate2", quantization="float32", model="a model")
    ours = exporting.TorchEngine(seq2seq.model, facts)

    class Hasty(exporting.TorchEngine):
        def decode(self, *arguments: object, **options: object) -> list[list[int]]:
            return [[5, *ids[1:]] for ids in super().decode(*arguments, **options)]  # type: ignore[arg-type]

    sample = exporting.Sample("ids", [[5, 6, 2], [7, 8, 9, 2]], [[5], [6, 7]])
    comparison.check_function(ours, ours, sample, "itself")
    with pytest.raises(InputError, match="decodes otherwise: where torch's likeliest token is ahead by"):
        comparison.check_function(ours, Hasty(seq2seq.model, facts), sample, "another")


def test_rounding_that_explains_too_little_is_refused(
    lm: Saved, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(comparison, "ACTIVATIONS_TOO", 0.01)
    with pytest.raises(InputError, match=r"with int8 differs by .* where rounding its weights explains"):
        paperformer.export_model(lm.folder, tmp_path / "out", "ctranslate2", quantization="int8", sequences=2)
    assert list(tmp_path.iterdir()) == []


def test_what_is_refused(seq2seq: Saved, lm: Saved, exported: Path, tmp_path: Path, refused: Refused) -> None:
    out = tmp_path / "out"
    assert refused("export", seq2seq.folder, out) == "give --to ctranslate2, --to onnx or --to gguf"
    assert "exists; give a new folder" in refused("export", seq2seq.folder, exported, "--to", "ctranslate2")
    said = refused("export", seq2seq.folder, out, "--to", "ctranslate2", "--quantization", "int4")
    assert "CTranslate2 has float32, int8" in said
    one_line = tmp_path / "one"
    one_line.write_text("A dog.\n", "utf-8")
    assert "without --text" in refused("export", seq2seq.folder, out, "--to", "ctranslate2", "--reference", one_line)
    assert "no folder" in refused("export", tmp_path / "none", out, "--to", "ctranslate2")
    assert "holds no" not in (said := refused("translate", tmp_path, "--engine", "ctranslate2", "--input", one_line))
    assert "no config.json" in said
    assert not out.exists()


def test_an_export_for_a_model_that_moved_its_options(lm: Saved, tmp_path: Path, refused: Refused) -> None:
    folder = shutil.copytree(lm.folder, tmp_path / "model")
    config = json.loads((folder / "config.json").read_text("utf-8"))
    (folder / "config.json").write_text(json.dumps(config | {"attention_window": 4}), "utf-8")
    said = refused("export", folder, tmp_path / "out", "--to", "ctranslate2")
    assert said.startswith("attention_window is 4, which CTranslate2 cannot say: ")


def test_a_missing_package_is_one_line(lm: Saved, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setitem(__import__("sys").modules, "ctranslate2", None)
    with pytest.raises(InputError, match=r"ctranslate2 is missing; install it with: pip install 'paperformer\[ctran"):
        paperformer.export_model(lm.folder, tmp_path / "out", "ctranslate2")
    assert list(tmp_path.iterdir()) == []


def test_an_interrupted_export_leaves_nothing(lm: Saved, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    def interrupt(*arguments: object, **options: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(exporting, "compare", interrupt)
    with pytest.raises(KeyboardInterrupt):
        paperformer.export_model(lm.folder, tmp_path / "out", "ctranslate2")
    assert list(tmp_path.iterdir()) == []


def test_milliseconds_are_medians_of_rounds_in_turn(monkeypatch: pytest.MonkeyPatch) -> None:
    clock = iter(np.cumsum([0, 1, 0, 4, 0, 9, 0, 2, 0, 2, 0, 3]).tolist())
    monkeypatch.setattr(comparison.time, "perf_counter", lambda: next(clock))
    monkeypatch.setattr(comparison, "ROUNDS", 3)
    assert comparison._milliseconds([lambda: None, lambda: None], 10) == (200.0, 300.0)
