"""The commands and the Python of the guide to serving run as they are written, against servers in this process."""

import io
import json
import re
import shlex
from collections.abc import Iterator
from contextlib import redirect_stdout
from pathlib import Path
from typing import Any

import pytest
import torch
from starlette.testclient import TestClient

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
from paperformer.serving import server
from paperformer.serving.application import make_application
from paperformer.serving.engines.loading import load_engine
from paperformer.serving.limits import Limits

GUIDE = (Path(__file__).parents[1] / "docs" / "serving.md").read_text("utf-8")
LINES = ["The dog runs.", "A cat sings a song."]
SIZE = {"hidden_size": 16, "intermediate_size": 16, "num_attention_heads": 2, "max_position_embeddings": 64}


def blocks(language: str) -> list[str]:
    return re.findall(rf"```{language}\n(.*?)```", GUIDE, re.DOTALL)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The guide's translation model, and one of each other kind."""
    torch.manual_seed(1)
    folder = tmp_path_factory.mktemp("guide")
    for name, append_eos in (("en-is", True), ("lm", False), ("encoder", True)):
        is_encoder = name == "encoder"
        tokenizer = train_tokenizer(
            LINES, 264, append_eos=append_eos, mask_token=is_encoder, find_special_tokens=is_encoder
        )
        options: dict[str, Any] = {**SIZE, "vocab_size": len(tokenizer)}
        model: Any
        if name == "en-is":
            config = PaperformerSeq2SeqConfig(encoder_layers=1, decoder_layers=1, **options)
            model = PaperformerForConditionalGeneration(config)
        elif name == "lm":
            model = PaperformerForCausalLM(PaperformerLMConfig(num_hidden_layers=1, **options))
        else:
            model = PaperformerForMaskedLM(PaperformerEncoderConfig(num_hidden_layers=1, **options))
        model.save_pretrained(folder / "runs" / name / "model")
        tokenizer.save_pretrained(folder / "runs" / name / "model")
    return folder


@pytest.fixture(scope="module")
def clients(folder: Path) -> Iterator[dict[str, TestClient]]:
    """A client for each route."""
    names = {"/translate": "en-is", "/v1/completions": "lm", "/fill-mask": "encoder"}
    made = {
        route: TestClient(make_application(load_engine(str(folder / "runs" / name / "model")), name))
        for route, name in names.items()
    }
    for client in made.values():
        client.__enter__()
    yield made
    for client in made.values():
        client.__exit__()


def test_the_curl_lines_are_answered(clients: dict[str, TestClient]) -> None:
    lines = [line for block in blocks("bash") for line in block.splitlines() if line.startswith("curl ")]
    assert len(lines) == 4
    for line in lines:
        words = shlex.split(line)
        (address,) = (word for word in words if word.startswith("http://127.0.0.1:8000/"))
        route = address.removeprefix("http://127.0.0.1:8000")
        header, body = words[words.index("-H") + 1], words[words.index("-d") + 1]
        answer = clients[route].post(route, content=body, headers=dict([header.split(": ")]))
        assert answer.status_code == 200, answer.text
        asked = json.loads(body)
        if asked.get("stream"):
            assert answer.text.count("data: ") == 3
        elif route == "/translate":
            count = 1 if isinstance(asked["text"], str) else len(asked["text"])
            assert [len(own) for own in answer.json()["translations"]] == [asked.get("num_return_sequences", 1)] * count
        else:
            assert [len(mask) for mask in answer.json()["fillings"][0]] == [3]


def test_openai_s_client_works(clients: dict[str, TestClient], monkeypatch: pytest.MonkeyPatch) -> None:
    import openai  # here only: it takes a second

    (block,) = blocks("python")
    original = openai.OpenAI

    def in_this_process(base_url: str, api_key: str) -> openai.OpenAI:
        assert base_url == "http://127.0.0.1:8000/v1"
        http_client: Any = clients["/v1/completions"]
        return original(base_url="http://testserver/v1", api_key=api_key, http_client=http_client)

    monkeypatch.setattr(openai, "OpenAI", in_this_process)
    printed = io.StringIO()
    with redirect_stdout(printed):
        exec(block, {})
    assert len(printed.getvalue()) > 5
    client = openai.OpenAI(base_url="http://127.0.0.1:8000/v1", api_key="none")
    with pytest.raises(openai.NotFoundError, match="there is no model 'other' here; this server has 'lm'"):
        client.completions.create(model="other", prompt="The dog")
    with pytest.raises(openai.UnprocessableEntityError, match="the model takes 64 in all"):
        client.completions.create(model="lm", prompt="The dog", max_tokens=1000)


@pytest.mark.proof
def test_the_commands_run(folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.chdir(folder)
    served: list[str] = []
    monkeypatch.setattr(server, "serve", lambda application, listener, greeting, timeout: served.append(greeting))
    listen = server.listen
    monkeypatch.setattr(server, "listen", lambda host, port: listen(host, 0 if port == 8000 else port))
    for block in blocks("bash"):
        for line in block.splitlines():
            if line.startswith("paperformer "):
                main(shlex.split(line)[1:])
    assert len(served) == 1
    assert served[0].startswith("serving en-is (translation) at http://127.0.0.1:")
    assert "vLLM: no" in capsys.readouterr().out


def test_every_option_that_the_guide_names_is_there(capsys: pytest.CaptureFixture[str]) -> None:
    named = set(re.findall(r"--(\w+)", GUIDE.partition("## Other engines")[0]))
    with pytest.raises(SystemExit):
        main(["serve", "--help"])
    shown = capsys.readouterr().out
    assert {name for name in named if f"--{name}" not in shown} == set()
    limits = {name for name in vars(Limits()) if f"--{name}" not in shown}
    assert limits == set()
