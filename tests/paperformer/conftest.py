"""Finished model folders, as a run leaves them, of tiny random models; and commands that are refused."""

import json
import re
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from huggingface_hub import close_session, constants, file_download
from huggingface_hub.utils import _http as client_requests
from transformers import AutoTokenizer, GenerationConfig, PreTrainedModel, PreTrainedTokenizerBase

from paperformer import (
    PaperformerEncoderConfig,
    PaperformerForCausalLM,
    PaperformerForConditionalGeneration,
    PaperformerForMaskedLM,
    PaperformerLMConfig,
    PaperformerSeq2SeqConfig,
    train_tokenizer,
)
from paperformer.cli import main
from paperformer.training.data.splits import SplitFacts
from paperformer.training.exact_weights import hash_weights
from paperformer.training.publishing import hub_requests
from paperformer.training.reporting.card import ModelCardFacts, write_card

from .hub_server import Hub, serve_hub

TEXTS = ["A dog runs on the beach.", "Ein Hund läuft am Strand.", "Two men talk.", "Zwei Männer reden."]
SIZE = {"hidden_size": 16, "intermediate_size": 32, "num_attention_heads": 2, "max_position_embeddings": 64}
SCORES: dict[str, dict[str, Any]] = {
    "translation": {
        "task": "translation",
        "split": "test",
        "sentences": 1000,
        "decoding": {"num_beams": 2},
        "bleu": {"score": 12.345, "signature": "nrefs:1|case:mixed"},
    },
    "text-generation": {
        "task": "text-generation",
        "split": "test",
        "loss": {"nats_per_token": 3.21987, "tokens": 4567},
    },
    "fill-mask": {"task": "fill-mask", "split": "test", "loss": {"nats_per_token": 2.5, "tokens": 345}},
}


@dataclass(frozen=True)
class Saved:
    """A model and the folder to which it was saved."""

    model: PreTrainedModel
    tokenizer: PreTrainedTokenizerBase
    folder: Path

    @property
    def target_tokenizer(self) -> PreTrainedTokenizerBase:
        return AutoTokenizer.from_pretrained(self.folder, subfolder="target_tokenizer", trust_remote_code=False)


def finish(
    model: PreTrainedModel,
    tokenizer: PreTrainedTokenizerBase,
    folder: Path,
    task: Any,
    prompt: str,
    scores: dict[str, Any] | None = None,
) -> Saved:
    model.eval().save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    scores = (scores or SCORES[task]) | {"weights_sha256": hash_weights(folder)}
    (folder / "evaluation.json").write_text(json.dumps({"test": scores}), "utf-8")
    facts = ModelCardFacts(
        name=folder.name,
        task=task,
        dataset="four sentences",
        splits=[SplitFacts(name="train", examples=4)],
        languages=["en", "de"] if task == "translation" else ["en"],
        config=model.config.to_dict(),
        parameters=model.num_parameters(),
        recipe="seed: 1",
        command="paperformer train",
        seed=1,
        hardware="a processor",
        minutes=0.5,
        versions={"torch": torch.__version__},
        validation_curve=[(1, 5.0)],
        evaluation={"test": scores},
        samples=[(prompt, "", "")[: 3 if task == "translation" else 2]],
    )
    write_card(folder, facts)
    return Saved(model, tokenizer, folder)


def translation_settings() -> GenerationConfig:
    ids = {"pad_token_id": 0, "bos_token_id": 1, "eos_token_id": 2, "decoder_start_token_id": 1}
    return GenerationConfig(num_beams=2, max_new_tokens=7, **ids)


@pytest.fixture(scope="session")
def seq2seq(tmp_path_factory: pytest.TempPathFactory) -> Saved:
    torch.manual_seed(1)
    tokenizer = train_tokenizer(TEXTS * 3, 300, append_eos=True)
    config = PaperformerSeq2SeqConfig(encoder_layers=1, decoder_layers=1, vocab_size=len(tokenizer), **SIZE)
    model = PaperformerForConditionalGeneration(config)
    model.generation_config = translation_settings()
    return finish(model, tokenizer, tmp_path_factory.mktemp("runs") / "tiny-en-de", "translation", TEXTS[0])


@pytest.fixture(scope="session")
def two_vocabularies(tmp_path_factory: pytest.TempPathFactory) -> Saved:
    """A translation model with a vocabulary for each language, and two tokenizers in its folder."""
    torch.manual_seed(3)
    source, target = (train_tokenizer(TEXTS[side::2] * 3, size, append_eos=True) for side, size in ((0, 285), (1, 275)))
    options = {"vocab_size": len(target), "source_vocab_size": len(source), "share_embeddings": False}
    config = PaperformerSeq2SeqConfig(encoder_layers=1, decoder_layers=1, output_bias=True, **options, **SIZE)
    model = PaperformerForConditionalGeneration(config)
    torch.nn.init.constant_(model.lm_head.bias[260:], 9.0)  # what comes before are special tokens and bytes in both
    model.generation_config = translation_settings()
    folder = tmp_path_factory.mktemp("runs") / "two-vocabularies"
    target.save_pretrained(folder / "target_tokenizer")
    return finish(model, source, folder, "translation", TEXTS[0])


@pytest.fixture(scope="session")
def lm(tmp_path_factory: pytest.TempPathFactory) -> Saved:
    torch.manual_seed(2)
    tokenizer = train_tokenizer(TEXTS * 3, 300, append_eos=False)
    model = PaperformerForCausalLM(PaperformerLMConfig(num_hidden_layers=1, vocab_size=len(tokenizer), **SIZE))
    model.generation_config = GenerationConfig(
        do_sample=False, max_new_tokens=6, bos_token_id=1, eos_token_id=2, pad_token_id=0
    )
    return finish(model, tokenizer, tmp_path_factory.mktemp("runs") / "tiny.lm", "text-generation", "A dog")


@pytest.fixture(scope="session")
def encoder(tmp_path_factory: pytest.TempPathFactory) -> Saved:
    torch.manual_seed(3)
    tokenizer = train_tokenizer(TEXTS * 3, 300, append_eos=True, mask_token=True)
    tokenizer.split_special_tokens = False  # in a text to be filled in, <mask> is the token
    model = PaperformerForMaskedLM(PaperformerEncoderConfig(num_hidden_layers=1, vocab_size=len(tokenizer), **SIZE))
    return finish(model, tokenizer, tmp_path_factory.mktemp("runs") / "tiny-encoder", "fill-mask", "A <mask> runs.")


@pytest.fixture(scope="session")
def driver(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    """A browser for all pages."""
    pytest.importorskip("selenium", reason="no selenium is installed, which drives the browser")
    from .browser import start_browser

    driver = start_browser(tmp_path_factory.mktemp("profile"))
    yield driver
    driver.quit()


@pytest.fixture
def hub(monkeypatch: pytest.MonkeyPatch) -> Iterator[Hub]:
    """A Hub that knows the token of the environment; huggingface_hub asks it, and takes no time between attempts."""
    for name in ("HF_TOKEN", "HUGGING_FACE_HUB_TOKEN"):
        monkeypatch.delenv(name, raising=False)
    with serve_hub() as hub:
        monkeypatch.setenv("HF_TOKEN", "hf_of_me")
        monkeypatch.setattr(constants, "ENDPOINT", hub.endpoint)
        template = f"{hub.endpoint}/{{repo_id}}/resolve/{{revision}}/{{filename}}"
        monkeypatch.setattr(constants, "HUGGINGFACE_CO_URL_TEMPLATE", template)
        monkeypatch.setattr(constants, "HF_HUB_OFFLINE", False)
        monkeypatch.setattr(constants, "HF_HUB_DISABLE_XET", True)  # see hub_server
        monkeypatch.setattr(constants, "HF_TOKEN_PATH", "/nowhere")
        for module in (hub_requests, client_requests, file_download):
            monkeypatch.setattr(module, "time", SimpleNamespace(sleep=hub.sleeps.append, time=time.time))
        yield hub
        close_session()


@pytest.fixture
def refused(capsys: pytest.CaptureFixture[str]) -> Callable[..., str]:
    """Runs a command that must end in one line on standard error and exit code 2; returns that line.

    Before it may be said that the Hub is asked again.
    """

    def expect(*arguments: object) -> str:
        with pytest.raises(SystemExit) as stopped:
            main([str(argument) for argument in arguments])
        assert stopped.value.code == 2
        said = capsys.readouterr()
        assert said.out == ""
        again = r"the Hub: busy, or the connection broke; trying again in \d+ s\n"
        last = re.fullmatch(rf"(?:{again})*error: (.*)\n", said.err)
        assert last, said.err
        return last[1].strip()

    return expect
