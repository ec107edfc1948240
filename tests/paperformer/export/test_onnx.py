"""ONNX: whatever is not refused computes the same as torch, and decodes to the same tokens."""

import subprocess
import sys
from pathlib import Path

import onnx
import pytest

import paperformer
from paperformer.export.coverage import OPTIONS, says
from paperformer.export.formats import onnx_format
from paperformer.export.formats.onnx_format import ONNX

from ..conftest import TEXTS, Saved
from .conftest import VOCABULARY, both, decoded, is_about_caches, largest_difference, random_ids, random_model

EVERY = [(family, name) for family in ONNX.families for name in OPTIONS]
SAID = [(family, name) for family, name in EVERY if says(ONNX, family, OPTIONS[name])]


@pytest.mark.parametrize(
    ("family", "name"), [pair for pair in SAID if pair[0] == "seq2seq" or is_about_caches(pair[1])]
)
def test_an_option_computes_the_same(family: str, name: str, tmp_path: Path) -> None:
    ours, theirs = both(ONNX, random_model(family, **OPTIONS[name]), tmp_path / "export")
    assert largest_difference(ours, theirs) < 2e-5
    if family != "encoder" and is_about_caches(name):
        assert decoded(theirs, 1) == decoded(ours, 1)
        assert decoded(theirs, 4) == decoded(ours, 4)


@pytest.mark.parametrize(
    ("family", "name"),
    [("lm", "positions learned"), ("lm", "linear_attention"), ("seq2seq", "positions rope")],
)
def test_a_batch_is_decoded_as_each_by_itself(family: str, name: str, tmp_path: Path) -> None:
    _, engine = both(ONNX, random_model(family, **OPTIONS[name]), tmp_path / "export")
    inputs = random_ids(7, 12, 1, 3, 9)
    for num_beams in (1, 3):
        for ends in (list(range(2, 12)), []):  # soon and never
            engine.model.facts["end_ids"] = ends
            settings = {"num_beams": num_beams, "length_penalty": 0.7, "max_new_tokens": 8}
            alone = [engine.model.decode(ids, **settings) for ids in inputs]
            assert engine.decode(inputs, **settings) == alone
            assert engine.decode([], **settings) == []


def test_weights_of_both_graphs_are_there_once(tmp_path: Path) -> None:
    model = random_model("seq2seq")
    both(ONNX, model, tmp_path / "export")
    size = sum(weight.nbytes for weight in model.parameters())
    files = {path.name: path.stat().st_size for path in (tmp_path / "export").iterdir()}
    embedding = model.get_input_embeddings().weight.nbytes
    assert size - embedding / 2 < files["model.weights"] + files["encoder.onnx"] + files["decoder.onnx"]
    assert files["model.weights"] < size + embedding / 2


def test_what_is_refused() -> None:
    assert set(EVERY) - set(SAID) == {(family, "rope scaled: dynamic") for family in ONNX.families}


@pytest.fixture(scope="module")
def exported(two_vocabularies: Saved, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("exports") / "onnx"
    paperformer.export_model(two_vocabularies.folder, folder, "onnx", sequences=2)
    return folder


def test_translations_are_those_of_torch(two_vocabularies: Saved, exported: Path) -> None:
    texts = [*TEXTS, "", "A dog runs. " * 40]
    wanted = paperformer.translate(two_vocabularies.folder, texts)
    assert len(set(wanted)) > 3
    assert paperformer.translate(exported, texts, engine="onnx") == wanted


def test_the_file_beside_the_model_decodes_alone(two_vocabularies: Saved, exported: Path) -> None:
    blocked = ("paperformer", "torch", "transformers", "onnx")
    program = (
        f"import runpy, sys\nsys.modules.update(dict.fromkeys({blocked}))\n"
        f"sys.argv = ['decode.py', '--max_new_tokens', '40']\n"
        f"runpy.run_path({str(exported / 'decode.py')!r}, run_name='__main__')"
    )
    done = subprocess.run(
        [sys.executable, "-c", program], input=f"{TEXTS[0]}\n\n{TEXTS[2]}\n", capture_output=True, text=True, check=True
    )
    first, empty, second = done.stdout.split("\n")[:3]
    model = two_vocabularies.model
    assert model.generation_config.num_beams == 2  # its own, which the file takes too; five find another second line
    for text, found in ((TEXTS[0], first), (TEXTS[2], second)):
        ids = two_vocabularies.tokenizer(text, return_tensors="pt")
        tokens = model.generate(**ids, num_beams=2, max_new_tokens=40, do_sample=False)  # type: ignore[operator]
        assert found == two_vocabularies.target_tokenizer.decode(tokens[0], skip_special_tokens=True)
    assert empty == ""


def test_rounded_weights_and_a_language_model(lm: Saved, tmp_path: Path) -> None:
    found = paperformer.export_model(lm.folder, tmp_path / "out", "onnx", quantization="int8", sequences=2)
    assert found.root_mean_square > 0
    operations = {node.op_type for node in onnx.load(tmp_path / "out" / "decoder.onnx").graph.node}
    assert "MatMulInteger" in operations


def test_an_encoder_fills_masks_with_and_without_segments(tmp_path: Path) -> None:
    for types in (0, 3):
        model = random_model("encoder", type_vocab_size=types, pooling="first")
        ours, theirs = both(ONNX, model, tmp_path / str(types))
        assert theirs.values([[5, 6, 7]], [[]])[0].shape == (3, VOCABULARY)
        assert largest_difference(ours, theirs) < 2e-5


def test_weights_too_large_for_one_file_lie_beside_it(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(onnx_format, "LARGEST_FILE", 2_000)
    ours, theirs = both(ONNX, random_model("lm"), tmp_path / "out")
    assert (tmp_path / "out" / "model.weights").stat().st_size > 10_000
    assert largest_difference(ours, theirs) < 2e-5
