"""What was published loads again by its name: without paperformer, and with it; also where the download breaks."""

import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from huggingface_hub import constants

import paperformer
from paperformer.cli import main
from paperformer.training.publishing import upload

from .conftest import Saved, finish
from .hub_server import Hub

IDS = torch.tensor([[5, 70, 9, 2]])


@pytest.fixture
def publish(tmp_path: Path, hub: Hub, monkeypatch: pytest.MonkeyPatch) -> Callable[[Saved, str], str]:
    """Publishes a model by a name, and returns the hash of the commit."""
    monkeypatch.setattr(upload, "check_loads_alone", lambda folders, models: None)

    def push(saved: Saved, name: str) -> str:
        folder = shutil.copytree(saved.folder, tmp_path / "runs" / name)
        return paperformer.push_to_hub(folder, name).commit

    return push


def make_newer(lm: Saved, tmp_path: Path) -> torch.Tensor:
    """Publishes other weights as me/lm, and returns their logits."""
    newer = type(lm.model).from_pretrained(lm.folder).eval()
    with torch.no_grad():
        newer.model.norm.weight.mul_(2)
    folder = tmp_path / "newer" / "tiny.lm"
    finish(newer, lm.tokenizer, folder, "text-generation", "A dog")
    paperformer.push_to_hub(folder, "me/lm", force=True)
    with torch.no_grad():
        return newer(IDS).logits


@pytest.mark.proof
def test_without_paperformer(
    publish: Callable[[Saved, str], str], seq2seq: Saved, lm: Saved, encoder: Saved, hub: Hub, tmp_path: Path
) -> None:
    """All families in one process, private ones too; of me/lm there are newer weights on top."""
    models = {"me/seq2seq": seq2seq, "me/lm": lm, "me/encoder": encoder}
    published = {name: publish(saved, name) for name, saved in models.items()}
    newest = make_newer(lm, tmp_path)
    large = hub.repositories["me/encoder"].head.files["model.safetensors"].oid
    hub.fail(f"GET /storage/{large}", "truncate")  # and then goes on from there
    places = {"HF_HOME": tmp_path / "home", "HF_MODULES_CACHE": tmp_path / "modules"}
    process = subprocess.run(
        [
            sys.executable,
            "-I",
            Path(__file__).with_name("load_from_hub.py"),
            *published,
            "me/lm",
            published["me/lm"],
            tmp_path / "report.pt",
        ],
        env={
            **{name: value for name, value in os.environ.items() if name != "HF_HUB_CACHE"},
            **{name: str(place) for name, place in places.items()},
            "HF_ENDPOINT": hub.endpoint,
            "HF_HUB_OFFLINE": "0",
            "HF_HUB_DISABLE_XET": "1",  # see hub_server
        },
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=200,
        check=False,
    )
    assert process.returncode == 0, process.stderr[-4000:]
    report = torch.load(tmp_path / "report.pt", weights_only=False)
    assert report["paperformer modules"] == []
    with torch.no_grad():
        expected = {
            "me/seq2seq": seq2seq.model(IDS, decoder_input_ids=IDS).logits,
            "me/lm": newest,
            "me/encoder": encoder.model(IDS).logits,
        }
    for name, saved in models.items():
        loaded = report[name]
        assert loaded["type"] == saved.model.config.model_type
        assert loaded["module"].startswith("transformers_modules.me.")
        assert loaded["ids"] == saved.tokenizer("A dog läuft").input_ids
        torch.testing.assert_close(loaded["logits"], expected[name], rtol=0, atol=1e-6)
    with torch.no_grad():
        torch.testing.assert_close(report["pinned"], lm.model(IDS).logits, rtol=0, atol=1e-6)
    torch.testing.assert_close(report["newest"], newest, rtol=0, atol=1e-6)
    ids = seq2seq.model.generate(seq2seq.tokenizer("A dog runs", return_tensors="pt").input_ids)
    translation = seq2seq.tokenizer.decode(ids[0], skip_special_tokens=True)
    assert report["translation"] == [{"translation_text": translation}]
    assert report["text-generation"][0]["generated_text"].startswith("A dog runs")
    assert len(report["fill-mask"]) == 2
    assert "nowhere is not a valid git identifier" in report["no such revision"]
    assert hub.count(f"GET /storage/{large}") == 2
    assert {authorization for path, authorization in hub.authorizations if path == f"/storage/{large}"} == {""}


class TestWithPaperformer:
    """Of the command line; what is broken is one line and exit code 2, as the fixture `refused` checks."""

    @pytest.fixture(autouse=True)
    def published(
        self, publish: Callable[[Saved, str], str], lm: Saved, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(constants, "HF_HUB_CACHE", str(tmp_path / "cache"))
        publish(lm, "me/lm")

    def test_a_download_that_breaks_off_goes_on(self, hub: Hub, capsys: pytest.CaptureFixture[str]) -> None:
        hub.fail("GET /storage/", "truncate", "ok", "drop")
        main(["generate", "me/lm", "A dog", "--max_new_tokens", "2"])
        assert capsys.readouterr().out.startswith("A dog")

    @pytest.mark.parametrize(
        ("pattern", "answer", "message"),
        [
            ("GET /storage/", "truncate", "cannot be reached, or the connection broke ("),
            ("GET /storage/", 500, "the Hub is busy or out of order: 500; try again later"),
            ("(GET|HEAD) ", 500, "the Hub is busy or out of order: 500; try again later"),
            ("(GET|HEAD) ", "drop", "cannot be reached, or the connection broke ("),
        ],
    )
    def test_a_download_that_cannot_be_had(
        self,
        pattern: str,
        answer: Any,
        message: str,
        hub: Hub,
        refused: Callable[..., str],
        capsys: pytest.CaptureFixture[str],
    ) -> None:
        """Half a file is never taken for a whole one, later either."""
        hub.fail(pattern, *[answer] * 200)
        assert message in refused("generate", "me/lm", "A dog")
        hub.faults.clear()
        main(["generate", "me/lm", "A dog", "--max_new_tokens", "2"])
        assert capsys.readouterr().out.startswith("A dog")

    def test_what_is_not_there(self, hub: Hub, refused: Callable[..., str], monkeypatch: pytest.MonkeyPatch) -> None:
        gone = "is not on the Hub, or the access token may not see it (Repository not found)"
        assert refused("generate", "me/nothing", "A dog").endswith(f"me/nothing {gone}")
        monkeypatch.delenv("HF_TOKEN")
        assert refused("generate", "me/lm", "A dog").endswith(f"me/lm {gone}")  # it is private

    @pytest.mark.parametrize("answer", [500, "drop"])
    def test_a_hub_that_does_not_answer_is_waited_for_once(
        self,
        answer: Any,
        publish: Callable[[Saved, str], str],
        seq2seq: Saved,
        hub: Hub,
        refused: Callable[..., str],
        capsys: pytest.CaptureFixture[str],
        tmp_path: Path,
        monkeypatch: pytest.MonkeyPatch,
    ) -> None:
        """By commands that ask for a model's beams before they load it; a name may be that of a folder, mistyped."""
        publish(seq2seq, "me/tiny")
        (source := tmp_path / "source.en").write_text("A dog runs.\n", "utf-8")
        monkeypatch.chdir(tmp_path)
        (tmp_path / "me").mkdir()
        asked = ("translate", "me/tiny", "--input", source)
        hub.fail("(GET|HEAD) ", *[answer] * 200)
        capsys.readouterr()
        assert refused(*asked).endswith("try again later; nor is there a folder me/tiny")
        assert hub.count("^HEAD /me/tiny/.*/generation_config.json") > 0
        assert hub.count("^HEAD /me/tiny/.*/config.json") == 0
        hub.faults.clear()
        main([str(argument) for argument in asked])
        hub.fail("(GET|HEAD) ", *[answer] * 200)
        main([str(argument) for argument in asked])  # what has been fetched is in the cache
        said = capsys.readouterr()
        assert "the Hub: busy, or the connection broke" in said.err  # our line, not the client's
        first, second = said.out.splitlines()
        assert first == second != ""
