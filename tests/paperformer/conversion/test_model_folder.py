import dataclasses
import json
import os
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file
from transformers import (
    AutoModelForCausalLM,
    AutoModelForMaskedLM,
    AutoModelForSeq2SeqLM,
    AutoTokenizer,
    BertForPreTraining,
    GPT2Model,
    PreTrainedModel,
    PreTrainedTokenizerBase,
)

from paperformer import train_tokenizer
from paperformer.cli import main
from paperformer.conversion import model_folder
from paperformer.conversion.architecture import Weight
from paperformer.conversion.bert import BERT
from paperformer.conversion.gpt2 import GPT2
from paperformer.conversion.llama import LLAMA
from paperformer.conversion.marian import MARIAN
from paperformer.conversion.model_folder import ARCHITECTURES, compare_logits
from paperformer.pipeline_translation import load_target_tokenizer

from .conftest import OURS, THEIRS, random_model

TEXT = "A dog läuft am Strand, 3 mal."
AUTO_CLASSES: dict[str, Any] = {
    "gpt2": AutoModelForCausalLM,
    "llama": AutoModelForCausalLM,
    "bert": AutoModelForMaskedLM,
    "marian": AutoModelForSeq2SeqLM,
}


@dataclass(frozen=True)
class Original:
    """A model of ours, saved as a run leaves it."""

    model: PreTrainedModel
    tokenizer: PreTrainedTokenizerBase
    folder: Path


@pytest.fixture(scope="module")
def tokenizer() -> PreTrainedTokenizerBase:
    return train_tokenizer(["A dog runs on the beach.", "Ein Hund läuft am Strand."] * 3, 270, append_eos=True)


@pytest.fixture(scope="module")
def originals(tokenizer: PreTrainedTokenizerBase, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Original]:
    made = {}
    for name, architecture in ARCHITECTURES.items():
        config = architecture.ours.config_class(**OURS[name] | {"vocab_size": len(tokenizer)})
        model, folder = random_model(architecture.ours, config), tmp_path_factory.mktemp("ours") / name
        if model.can_generate():
            model.generation_config.update(num_beams=2, max_length=9, length_penalty=0.6)
        model.save_pretrained(folder)
        tokenizer.save_pretrained(folder)
        made[name] = Original(model, tokenizer, folder)
    return made


@pytest.fixture
def refused(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> Callable[..., str]:
    """Runs a conversion to `tmp_path / "out"` that must end in one line, exit code 2, and nothing written."""

    def expect(source: object, *options: str) -> str:
        before = sorted(tmp_path.rglob("*"))
        with pytest.raises(SystemExit) as stopped:
            main(["convert", str(source), str(tmp_path / "out"), *options])
        assert stopped.value.code == 2
        assert sorted(tmp_path.rglob("*")) == before
        said = capsys.readouterr()
        assert said.err.count("\n") == 1
        return said.err.removeprefix("error: ").strip()

    return expect


@pytest.mark.parametrize("name", ARCHITECTURES)
def test_there_and_back(
    name: str, originals: dict[str, Original], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    original = originals[name]
    main(["convert", str(original.folder), str(tmp_path / "theirs"), "--to", name])
    theirs = AUTO_CLASSES[name].from_pretrained(tmp_path / "theirs")
    assert type(theirs) is ARCHITECTURES[name].theirs.model
    assert not list((tmp_path / "theirs").glob("*.py"))
    difference, scale = compare_logits(original.model, theirs)
    assert difference <= 1e-5 * scale
    said = capsys.readouterr().out.splitlines()
    assert said[0] == f"{original.model.num_parameters():,} parameters, float32"
    assert said[1] == f"logits differ by at most {difference:.1e}, where the largest is {scale:.2f}"
    assert said[-2:] == [f"tokenizer: {type(original.tokenizer).__name__}", str(tmp_path / "theirs")]
    assert AutoTokenizer.from_pretrained(tmp_path / "theirs")(TEXT).input_ids == original.tokenizer(TEXT).input_ids

    main(["convert", "--from", name, str(tmp_path / "theirs"), str(tmp_path / "ours")])
    weights, expected = (load_file(folder / "model.safetensors") for folder in (tmp_path / "ours", original.folder))
    assert weights.keys() == expected.keys()
    assert all(torch.equal(tensor, expected[key]) for key, tensor in weights.items())
    assert AutoTokenizer.from_pretrained(tmp_path / "ours")(TEXT).input_ids == original.tokenizer(TEXT).input_ids
    config, before = (
        json.loads((folder / "config.json").read_text()) for folder in (tmp_path / "ours", original.folder)
    )
    lost = {"initialization", "label_smoothing"}
    assert {key: config[key] for key in config.keys() - lost} == {key: before[key] for key in before.keys() - lost}
    code = {path.name for path in original.folder.glob("*.py")}
    assert code
    assert {path.name for path in (tmp_path / "ours").glob("*.py")} == code


def two_embeddings(folder: Path, tokenizer: PreTrainedTokenizerBase, **sizes: int) -> PreTrainedModel:
    """A translation model, saved with its tokenizer, of which source and target have an embedding each."""
    config = MARIAN.ours.config_class(**OURS["marian"] | sizes, share_embeddings=False)
    model = random_model(MARIAN.ours, config)
    model.save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    return model


@pytest.mark.parametrize("source_vocab_size", [290, 270])  # vocabularies of one size are still two
def test_two_vocabularies_and_their_tokenizers(
    source_vocab_size: int,
    tokenizer: PreTrainedTokenizerBase,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    model = two_embeddings(tmp_path / "first", tokenizer, vocab_size=270, source_vocab_size=source_vocab_size)
    target = train_tokenizer(["Zwei Hunde laufen.", "Zwei Männer."] * 3, 265, append_eos=True)
    target.save_pretrained(tmp_path / "first" / "target_tokenizer")
    main(["convert", str(tmp_path / "first"), str(tmp_path / "theirs"), "--to", "marian"])
    main(["convert", str(tmp_path / "theirs"), str(tmp_path / "ours"), "--from", "marian"])
    kind = type(tokenizer).__name__
    assert capsys.readouterr().out.count(f"tokenizer: {kind}, target_tokenizer: {kind}\n") == 2
    for folder in ("theirs", "ours"):
        converted = AutoModelForSeq2SeqLM.from_pretrained(tmp_path / folder)
        assert converted.get_input_embeddings().num_embeddings == source_vocab_size
        source, decoder = torch.tensor([[5, source_vocab_size - 1]]), torch.tensor([[1, 269, 8]])
        logits = converted(source, decoder_input_ids=decoder).logits
        torch.testing.assert_close(logits, model(source, decoder_input_ids=decoder).logits, rtol=1e-4, atol=1e-4)
        for subfolder, expected in (("", tokenizer), ("target_tokenizer", target)):
            loaded = AutoTokenizer.from_pretrained(tmp_path / folder, subfolder=subfolder)
            assert loaded(TEXT).input_ids == expected(TEXT).input_ids
    assert converted.config.source_vocab_size == source_vocab_size
    assert load_target_tokenizer(converted).get_vocab() == target.get_vocab()


def test_two_embeddings_of_a_joint_vocabulary(tokenizer: PreTrainedTokenizerBase, tmp_path: Path) -> None:
    two_embeddings(tmp_path / "first", tokenizer, vocab_size=270)
    main(["convert", str(tmp_path / "first"), str(tmp_path / "theirs"), "--to", "marian"])
    main(["convert", str(tmp_path / "theirs"), str(tmp_path / "ours"), "--from", "marian"])
    assert not (tmp_path / "ours" / "target_tokenizer").exists()
    config = AutoModelForSeq2SeqLM.from_pretrained(tmp_path / "ours").config
    assert (config.source_vocab_size, config.vocab_size, config.share_embeddings) == (None, 270, False)


@pytest.mark.parametrize("name", ["gpt2", "llama", "marian"])
def test_generation_settings(name: str, originals: dict[str, Original], tmp_path: Path) -> None:
    original = originals[name]
    main(["convert", str(original.folder), str(tmp_path / "theirs"), "--to", name])
    main(["convert", str(tmp_path / "theirs"), str(tmp_path / "ours"), "--from", name])
    ids = torch.tensor([[5, 70, 9, 2]])
    expected = original.model.generate(ids)
    for folder in ("theirs", "ours"):
        model = AUTO_CLASSES[name].from_pretrained(tmp_path / folder)
        settings = model.generation_config
        assert (settings.num_beams, settings.max_length, settings.length_penalty) == (2, 9, 0.6)
        assert (settings.pad_token_id, settings.bos_token_id, settings.eos_token_id) == (0, 1, 2)
        assert settings.decoder_start_token_id == (1 if name == "marian" else None)
        assert getattr(settings, "forced_eos_token_id", None) is None
        assert torch.equal(model.generate(ids), expected)


@pytest.mark.parametrize("name", ["llama", "marian"])
def test_half_precision_stays_so_and_is_checked_in_full(
    name: str, originals: dict[str, Original], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    # Marian keeps its sinusoids among the weights, in bfloat16 rounded ones; in the comparison they must not matter.
    half = AUTO_CLASSES[name].from_pretrained(originals[name].folder, dtype=torch.bfloat16)
    half.save_pretrained(tmp_path / "half")
    main(["convert", str(tmp_path / "half"), str(tmp_path / "theirs"), "--to", name])
    main(["convert", str(tmp_path / "theirs"), str(tmp_path / "ours"), "--from", name])
    said = capsys.readouterr().out
    assert said.count(" parameters, bfloat16\n") == 2
    assert said.count("tokenizer: none in ") == 2
    weights, expected = (load_file(tmp_path / folder / "model.safetensors") for folder in ("ours", "half"))
    assert {tensor.dtype for tensor in weights.values()} == {torch.bfloat16}
    assert all(torch.equal(weights[key], tensor) for key, tensor in expected.items())
    for folder in ("theirs", "ours"):
        assert json.loads((tmp_path / folder / "config.json").read_text())["dtype"] == "bfloat16"


@pytest.fixture(scope="module")
def elsewhere(originals: dict[str, Original], tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """What a process without paperformer makes of a model converted to Marian, and of one converted back."""
    folder = tmp_path_factory.mktemp("elsewhere")
    main(["convert", str(originals["marian"].folder), str(folder / "theirs"), "--to", "marian"])
    main(["convert", str(folder / "theirs"), str(folder / "ours"), "--from", "marian"])
    script = Path(__file__).with_name("load_without_paperformer.py")
    process = subprocess.run(
        [sys.executable, "-I", script, folder / "theirs", folder / "ours", folder / "report.pt"],
        env={
            **os.environ,
            "HF_HUB_OFFLINE": "1",
            "HF_HOME": str(folder / "home"),
            "HF_MODULES_CACHE": str(folder / "home" / "modules"),
        },
        cwd=folder,
        capture_output=True,
        text=True,
        timeout=200,
        check=False,
    )
    assert process.returncode == 0, process.stderr[-4000:]
    return torch.load(folder / "report.pt", weights_only=False)


@pytest.mark.proof
def test_both_load_without_paperformer(elsewhere: dict[str, Any], originals: dict[str, Original]) -> None:
    assert elsewhere["modules"] == []
    original = originals["marian"]
    ids = original.tokenizer(TEXT[:11], return_tensors="pt").input_ids
    with torch.no_grad():
        logits = original.model(input_ids=ids, decoder_input_ids=ids).logits
    for side, class_name in (("theirs", "MarianMTModel"), ("ours", "PaperformerForConditionalGeneration")):
        assert elsewhere[side]["class"] == class_name
        assert torch.equal(elsewhere[side]["ids"], ids)
        torch.testing.assert_close(elsewhere[side]["logits"], logits, rtol=0, atol=1e-5 * logits.abs().max().item())
        assert torch.equal(elsewhere[side]["generated"], original.model.generate(ids))


def test_bad_command_lines(originals: dict[str, Original], refused: Callable[..., str], tmp_path: Path) -> None:
    folder = originals["llama"].folder
    one_of = "give either --to ARCHITECTURE or --from ARCHITECTURE, one of marian, gpt2, llama, bert"
    assert refused(folder) == one_of
    assert refused(folder, "--to", "llama", "--from", "llama") == one_of
    assert refused(folder, "--to", "lama").startswith("--to is lama; it must be marian, gpt2, llama or bert")
    assert refused(folder, "--from", "llama").endswith("holds a paperformer-lm; this conversion needs a llama")
    assert refused(folder, "--to", "marian").endswith(
        "holds a paperformer-lm; this conversion needs a paperformer-seq2seq"
    )
    assert refused("./nowhere", "--to", "llama") == "there is no folder ./nowhere"
    (tmp_path / "out").mkdir()
    assert refused(folder, "--to", "llama") == f"{tmp_path / 'out'} exists; give a new folder"


def test_a_model_that_cannot_be_expressed(originals: dict[str, Original], refused: Callable[..., str]) -> None:
    said = refused(originals["llama"].folder, "--to", "gpt2")
    assert said == "norm_type is 'rmsnorm'; for gpt2 it must be 'layernorm': it has no other norm"


def test_folders_that_are_damaged(originals: dict[str, Original], refused: Callable[..., str], tmp_path: Path) -> None:
    folder = shutil.copytree(originals["llama"].folder, tmp_path / "damaged")
    weights = folder / "model.safetensors"
    weights.write_bytes(weights.read_bytes()[:-1000])
    assert f"{folder} is no paperformer-lm that can be loaded: " in refused(folder, "--to", "llama")
    config = json.loads((folder / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps(config | {"quantization_config": {"quant_method": "gptq"}}))
    assert "has a quantization_config; convert the model that is not quantized" in refused(folder, "--to", "llama")
    shutil.copy(originals["llama"].folder / "model.safetensors", weights)
    (folder / "config.json").write_text(json.dumps(config | {"intermediate_size": 12}))
    assert f"{folder}: the weights are not those of the configuration" in refused(folder, "--to", "llama")


def test_a_model_without_its_head(refused: Callable[..., str], tmp_path: Path) -> None:
    config = GPT2.theirs.config_class(**THEIRS["gpt2"], tie_word_embeddings=False)
    GPT2Model(config).save_pretrained(tmp_path / "headless")
    assert "a gpt2: of its tensors 1 missing (lm_head.weight); " in refused(tmp_path / "headless", "--from", "gpt2")


def test_weights_of_other_heads_are_named(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    BertForPreTraining(BERT.theirs.config_class(**THEIRS["bert"])).save_pretrained(tmp_path / "bert")
    main(["convert", str(tmp_path / "bert"), str(tmp_path / "out"), "--from", "bert"])
    left_out = next(line for line in capsys.readouterr().out.splitlines() if line.startswith("left out, weights"))
    assert left_out == (
        "left out, weights of other heads: bert.pooler.dense.bias, bert.pooler.dense.weight, "
        "cls.seq_relationship.bias, cls.seq_relationship.weight"
    )


def test_another_function_is_not_written(
    originals: dict[str, Original], refused: Callable[..., str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def swapped(config: Any) -> Iterator[Weight]:
        other = {"q_proj": "k_proj", "k_proj": "q_proj"}
        for weight in LLAMA.weights(config):
            projection = weight.theirs.split(".")[-2]
            theirs = weight.theirs.replace(projection, other.get(projection, projection))
            yield dataclasses.replace(weight, theirs=theirs)

    monkeypatch.setitem(ARCHITECTURES, "llama", dataclasses.replace(LLAMA, weights=swapped))
    assert "the converted model is not the same function: its logits differ by" in refused(
        originals["llama"].folder, "--to", "llama"
    )


def test_a_model_that_computes_no_numbers_is_not_written(refused: Callable[..., str], tmp_path: Path) -> None:
    model = random_model(LLAMA.ours, LLAMA.ours.config_class(**OURS["llama"]))
    torch.nn.init.constant_(model.model.norm.weight, float("nan"))
    model.save_pretrained(tmp_path / "broken")
    assert "tensors have values that are NaN or infinite (model.norm.weight)" in refused(
        tmp_path / "broken", "--to", "llama"
    )
    torch.nn.init.constant_(model.model.norm.weight, 3e38)  # finite, and what is computed with it is not
    model.save_pretrained(tmp_path / "broken")
    assert "its logits differ by nan" in refused(tmp_path / "broken", "--to", "llama")


def test_a_tokenizer_that_cannot_be_loaded_is_copied(
    originals: dict[str, Original], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = shutil.copytree(originals["llama"].folder, tmp_path / "damaged")
    (folder / "tokenizer.json").write_text("{")
    main(["convert", str(folder), str(tmp_path / "out"), "--to", "llama"])
    assert "tokenizer: files copied as they are, because it cannot be loaded here: " in capsys.readouterr().out
    assert (tmp_path / "out" / "tokenizer.json").read_text() == "{"
    assert (tmp_path / "out" / "tokenizer_config.json").is_file()


def test_a_tokenizer_that_changes_is_refused(
    originals: dict[str, Original], refused: Callable[..., str], monkeypatch: pytest.MonkeyPatch
) -> None:
    load = model_folder.AutoTokenizer.from_pretrained

    def load_as_another_class(folder: Path, **options: Any) -> PreTrainedTokenizerBase:
        tokenizer = load(folder, **options)
        if folder != originals["llama"].folder:
            tokenizer.add_bos_token = True
            tokenizer.add_tokens(["dog"])
        return tokenizer

    monkeypatch.setattr(model_folder.AutoTokenizer, "from_pretrained", load_as_another_class)
    assert "gives other ids when it is loaded from" in refused(originals["llama"].folder, "--to", "llama")
