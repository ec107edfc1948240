"""A saved folder works with transformers alone, offline, in a process that cannot import paperformer.

With the version that is installed, and with the oldest that pyproject.toml names: `make test` makes an environment that
has it.
"""

import os
import shutil
import subprocess
import sys
import tomllib
from pathlib import Path
from typing import Any

import pytest
import torch
import transformers
from transformers import pipeline

from paperformer import (
    PaperformerEncoderConfig,
    PaperformerForCausalLM,
    PaperformerForMaskedLM,
    PaperformerLMConfig,
    train_tokenizer,
)

from ..released_models import RELEASED, assert_as_released
from .conftest import SIZE, TEXTS, Saved
from .hub_cache import cache_repository

REPOSITORY = Path(__file__).parents[2]
OLDEST = REPOSITORY / ".venv-oldest" / "bin" / "python"
IDS = torch.tensor([[5, 70, 9, 2]])
PIPELINE_TEXTS = ["A dog runs", "Two men talk", "Ein"]


@pytest.fixture(scope="module")
def encoder(tmp_path_factory: pytest.TempPathFactory) -> Saved:
    torch.manual_seed(3)
    tokenizer = train_tokenizer(TEXTS * 3, 300, append_eos=True, mask_token=True)
    tokenizer.split_special_tokens = False  # in a text to be filled in, <mask> is the token
    options = {"vocab_size": len(tokenizer), "position_embedding_type": "relative", "qk_norm": True}
    model = PaperformerForMaskedLM(PaperformerEncoderConfig(num_hidden_layers=1, **options, **SIZE)).eval()
    folder = tmp_path_factory.mktemp("runs") / "encoder"
    model.save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    return Saved(model, tokenizer, folder)


@pytest.fixture(scope="module")
def linear_lm(tmp_path_factory: pytest.TempPathFactory) -> Saved:
    torch.manual_seed(3)
    options = {"vocab_size": 300, "position_embedding_type": "none", "linear_attention": True}
    model = PaperformerForCausalLM(PaperformerLMConfig(num_hidden_layers=1, **options, **SIZE)).eval()
    folder = tmp_path_factory.mktemp("runs") / "linear-lm"
    model.save_pretrained(folder)
    return Saved(model, train_tokenizer(TEXTS, 260, append_eos=False), folder)


@pytest.fixture(scope="module", params=["oldest", "installed"])
def python(request: pytest.FixtureRequest) -> Path:
    """The interpreter whose transformers is that old."""
    executable = OLDEST if request.param == "oldest" else Path(sys.executable)
    if not executable.exists():
        pytest.skip(f"{executable} does not exist; `make test` makes it")
    return executable


@pytest.fixture(scope="module")
def report(
    seq2seq: Saved,
    lm: Saved,
    encoder: Saved,
    linear_lm: Saved,
    two_vocabularies: Saved,
    python: Path,
    tmp_path_factory: pytest.TempPathFactory,
) -> dict[Any, Any]:
    """Everything that without_paperformer.py found, in one process: importing transformers takes seconds."""
    folder = tmp_path_factory.mktemp("elsewhere")
    seq2seq.model.model.save_pretrained(folder / "seq2seq-base")
    lm.model.model.save_pretrained(folder / "lm-base")
    older = shutil.copytree(two_vocabularies.folder, folder / "older")
    seq2seq.tokenizer.save_pretrained(older / "target_tokenizer")
    cache_repository(folder / "home" / "hub", "someone/pair", {"main": two_vocabularies.folder, "older": older})
    process = subprocess.run(
        [
            python,
            "-I",  # neither the current folder nor PYTHONPATH
            Path(__file__).with_name("without_paperformer.py"),
            seq2seq.folder,
            folder / "seq2seq-base",
            lm.folder,
            folder / "lm-base",
            encoder.folder,
            linear_lm.folder,
            two_vocabularies.folder,
            REPOSITORY / "tests" / "fixtures",
            folder / "report.pt",
        ],
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


@pytest.mark.parametrize(
    ("name", "auto_class"),
    [("linear_lm", "AutoModelForCausalLM"), ("encoder", "AutoModel"), ("encoder", "AutoModelForMaskedLM")],
)
@torch.no_grad()
def test_every_kind_of_model_loads(
    name: str, auto_class: str, report: dict[Any, Any], request: pytest.FixtureRequest
) -> None:
    saved: Saved = request.getfixturevalue(name)
    model = saved.model.base_model if auto_class == "AutoModel" else saved.model
    loaded = report[saved.folder.name, auto_class]
    assert loaded["class"] == type(model).__name__
    assert loaded["module"].startswith("transformers_modules.")
    torch.testing.assert_close(loaded["output"], model(IDS)[0])


def test_the_oldest_version_is_the_one_that_is_promised(python: Path, report: dict[Any, Any]) -> None:
    project = tomllib.loads((REPOSITORY / "pyproject.toml").read_text("utf-8"))["project"]
    (promise,) = [line for line in project["dependencies"] if line.startswith("transformers")]
    oldest = promise.partition(">=")[2].partition(",")[0]
    assert report["transformers"].startswith(oldest if python == OLDEST else transformers.__version__)
    for page in ("README.md", "model_cards/card.md.jinja"):
        assert f"transformers {oldest} or newer" in (REPOSITORY / page).read_text("utf-8"), page


def test_the_process_really_had_no_paperformer(report: dict[Any, Any]) -> None:
    assert report["import_error"] == "paperformer is kept out of this process"
    assert report["paperformer modules"] == []


@pytest.mark.parametrize("name", ["seq2seq", "lm"])
def test_configuration_and_tokenizer(name: str, report: dict[Any, Any], request: pytest.FixtureRequest) -> None:
    saved: Saved = request.getfixturevalue(name)
    assert report[name, "config module"].startswith("transformers_modules.")
    remote, local = report[name, "config"], saved.model.config.to_dict()
    # But for where it was loaded from, and which part of the model was saved last.
    keys = local.keys() - {"_name_or_path", "architectures", "transformers_version"}
    assert {key: remote[key] for key in keys} == {key: local[key] for key in keys}
    assert report[name, "ids"] == saved.tokenizer("A dog läuft").input_ids


@pytest.mark.parametrize(
    ("folder", "auto_class", "is_head"),
    [
        ("tiny-en-de", "AutoModel", False),
        ("tiny-en-de", "AutoModelForSeq2SeqLM", True),
        ("seq2seq-base", "AutoModel", False),
        ("tiny.lm", "AutoModel", False),
        ("tiny.lm", "AutoModelForCausalLM", True),
        ("lm-base", "AutoModel", False),
    ],
)
def test_auto_classes_give_the_same_outputs(
    folder: str, auto_class: str, is_head: bool, report: dict[Any, Any], seq2seq: Saved, lm: Saved
) -> None:
    local = lm.model if "lm" in folder else seq2seq.model
    local = local if is_head else local.model
    remote = report[folder, auto_class]
    inputs = {"input_ids": IDS} | ({"decoder_input_ids": IDS} if local.config.is_encoder_decoder else {})
    with torch.no_grad():
        output = local(**inputs)[0]
    assert remote["class"] == type(local).__name__
    assert remote["module"].startswith("transformers_modules.")
    torch.testing.assert_close(remote["output"], output, rtol=0, atol=1e-6)


def test_translation_pipeline(report: dict[Any, Any], seq2seq: Saved) -> None:
    expected = []
    for text in ("A dog runs", "Two men talk"):
        # The folder's generation_config.json, spelt out: two beams, seven tokens.
        ids = seq2seq.model.generate(
            seq2seq.tokenizer(text, return_tensors="pt").input_ids, num_beams=2, max_new_tokens=7
        )
        expected.append({"translation_text": seq2seq.tokenizer.decode(ids[0], skip_special_tokens=True)})
    assert report["translations"] == [expected[0], {"translation_text": ""}, expected[1]]
    assert report["translations again"] == [expected[0]]
    assert report["pipeline module"].startswith("transformers_modules.")
    assert report["inferred task"] == "translation"


def test_translation_of_a_loaded_model(report: dict[Any, Any], seq2seq: Saved) -> None:
    found = report["translation"]
    translate = pipeline("translation", model=seq2seq.model, tokenizer=seq2seq.tokenizer, device="cpu")
    one, two, three = (translate(text, max_new_tokens=7)[0] for text in PIPELINE_TEXTS)
    paragraphs = "\n\n".join(text["translation_text"] for text in (one, two, three)) + "\n"
    assert found["paragraph"] == [{"translation_text": paragraphs}]
    assert found["generator"] == found["data set"] == [[one], [two], [three]]
    assert found["column"] == [one, two, three]
    options = {"num_beams": 3, "num_return_sequences": 3, "return_scores": True}
    expected = translate(PIPELINE_TEXTS[0], **options)
    assert [text["translation_text"] for text in found["scores"]] == [text["translation_text"] for text in expected]
    assert [text["score"] for text in found["scores"]] == pytest.approx([text["score"] for text in expected])
    (ids,) = found["token ids"]
    assert seq2seq.tokenizer.decode(ids["translation_token_ids"], skip_special_tokens=True) == one["translation_text"]
    assert found["short"][0]["translation_token_ids"].shape == (3,)
    assert found["empty"] == [{"translation_text": ""}]
    assert found["warnings"] == []


def test_text_generation_in_all_ways(report: dict[Any, Any], lm: Saved) -> None:
    found = report["text generation"]
    expected = []
    for text in PIPELINE_TEXTS:
        ids = lm.model.generate(lm.tokenizer(text, return_tensors="pt").input_ids)[0]
        expected.append([{"generated_text": lm.tokenizer.decode(ids, skip_special_tokens=True)}])
    assert found["batch"] == found["one by one"] == found["generator"] == found["data set"] == expected
    whole = expected[0][0]["generated_text"]
    continuation = whole.removeprefix(PIPELINE_TEXTS[0])
    assert found["continuation"] == [{"generated_text": continuation}]
    assert found["streamed"].strip("\n") == found["iterated"] == continuation
    prompt = lm.tokenizer(PIPELINE_TEXTS[0]).input_ids
    ids = found["token ids"][0]["generated_token_ids"]
    assert (lm.tokenizer.decode(ids, skip_special_tokens=True), ids[: len(prompt)]) == (whole, prompt)
    assert found["short"][0]["generated_token_ids"] == ids[: len(prompt) + 2]
    assert len({text["generated_text"] for text in found["several"]}) == 3
    stopped = found["stopped"][0]["generated_text"]
    assert continuation.startswith(stopped)
    assert continuation[1:3] in stopped
    assert len(stopped) < len(continuation)
    assert found["assisted"] == found["looked up"] == expected[0]
    assert isinstance(found["empty"][0]["generated_text"], str)
    assert found["warnings"] == []  # of which transformers does not warn with its own models


@pytest.mark.parametrize("folder", RELEASED, ids=lambda folder: f"{folder.parent.name}-{folder.name}")
def test_models_of_earlier_releases_load_with_their_own_code(report: dict[Any, Any], folder: Path) -> None:
    assert_as_released(folder, report[folder.parent.name, folder.name])


def test_two_vocabularies(report: dict[Any, Any], two_vocabularies: Saved, seq2seq: Saved) -> None:
    """From a folder, by name on the Hub, of a branch with another target tokenizer, and saved again."""
    ids = [
        two_vocabularies.model.generate(two_vocabularies.tokenizer(text, return_tensors="pt").input_ids)[0]
        for text in ("A dog runs", "Two men")
    ]
    ours, older = (
        [{"translation_text": tokenizer.decode(tokens, skip_special_tokens=True)} for tokens in ids]
        for tokenizer in (two_vocabularies.target_tokenizer, seq2seq.tokenizer)
    )
    assert report["two vocabularies", str(two_vocabularies.folder)] == ours
    assert report["two vocabularies", "someone/pair"] == ours
    assert report["two vocabularies", "someone/pair", "older"] == older != ours
    assert report["two vocabularies", "again"] == older[:1]
    loaded = report["two-vocabularies", "AutoModelForSeq2SeqLM"]
    with torch.no_grad():
        expected = two_vocabularies.model(IDS, decoder_input_ids=IDS).logits
    torch.testing.assert_close(loaded["output"], expected, rtol=0, atol=1e-6)


def test_text_generation_pipeline(report: dict[Any, Any], lm: Saved) -> None:
    ids = lm.model.generate(
        lm.tokenizer("A dog runs", return_tensors="pt").input_ids, max_new_tokens=6, do_sample=False
    )
    assert report["generated"] == [{"generated_text": lm.tokenizer.decode(ids[0], skip_special_tokens=True)}]


def test_beam_search(report: dict[Any, Any], lm: Saved) -> None:
    ids = lm.model.generate(IDS, num_beams=3, num_return_sequences=2)
    assert torch.equal(report["beams"].sequences, ids)


def test_fill_mask_pipeline(report: dict[Any, Any], encoder: Saved) -> None:
    ids = encoder.tokenizer("A <mask> runs", return_tensors="pt").input_ids
    (place,) = (ids[0] == encoder.tokenizer.mask_token_id).nonzero()
    with torch.no_grad():
        scores, tokens = encoder.model(ids).logits[0, place].softmax(-1).topk(3)
    assert [found["token"] for found in report["filled in"]] == tokens[0].tolist()
    assert [found["score"] for found in report["filled in"]] == pytest.approx(scores[0].tolist())
    assert [found["token"] for found in report["filled in, batch"][0]] == tokens[0].tolist()
    assert report["filled in, generator"] == [report["filled in"]]
    assert report["fill-mask warnings"] == []


@pytest.mark.parametrize("name", ["seq2seq", "lm"])
@pytest.mark.parametrize("what", ["model", "pipeline"])
def test_saved_again_it_is_still_complete(
    name: str, what: str, report: dict[Any, Any], request: pytest.FixtureRequest
) -> None:
    saved: Saved = request.getfixturevalue(name)
    of_the_run = {"README.md", "evaluation.json"}
    assert report[name, f"files of the {what}"] == sorted({path.name for path in saved.folder.iterdir()} - of_the_run)


def test_saved_again_it_still_loads(report: dict[Any, Any], lm: Saved) -> None:
    with torch.no_grad():
        torch.testing.assert_close(report["lm again"]["output"], lm.model(IDS).logits, rtol=0, atol=1e-6)


def test_the_code_in_the_card_runs(report: dict[Any, Any], seq2seq: Saved, lm: Saved) -> None:
    # With a pipeline and without one, the same output.
    with_pipeline, without = report["seq2seq", "card"]
    ids = seq2seq.model.generate(seq2seq.tokenizer("A dog runs on the beach.", return_tensors="pt").input_ids)
    assert with_pipeline == without == seq2seq.tokenizer.decode(ids[0], skip_special_tokens=True)
    printed = report["lm", "card"]
    assert printed[: len(printed) // 2] == printed[len(printed) // 2 :]
    assert printed[0].startswith("A dog")
