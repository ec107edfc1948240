"""Which engines can serve a model: by what they do with it, and with every fault that this has to find."""

import json
import shutil
import socket
import time
import urllib.error
import urllib.request
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from transformers import AutoModelForCausalLM, PreTrainedModel

from paperformer import (
    PaperformerEncoderConfig,
    PaperformerForCausalLM,
    PaperformerForMaskedLM,
    PaperformerLMConfig,
)
from paperformer.cli import main
from paperformer.compatibility.findings import Verdict
from paperformer.compatibility.transformers_serving import check_continuous_batching, check_serve
from paperformer.compatibility.vllm import check_vllm
from paperformer.modeling.attention import MultiHeadAttention
from paperformer.modeling.stack import TransformerStack

SIZE = {"hidden_size": 16, "intermediate_size": 32, "num_attention_heads": 4, "num_hidden_layers": 2, "vocab_size": 50}


def fill(model: PreTrainedModel) -> PreTrainedModel:
    generator = torch.Generator().manual_seed(1)
    with torch.no_grad():
        for weight in model.parameters():  # biases and norms too, and attention that is not nearly uniform
            weight.copy_(torch.randn(weight.shape, generator=generator) * 0.5)
    return model.eval()


def language_model(**options: Any) -> PreTrainedModel:
    return fill(PaperformerForCausalLM(PaperformerLMConfig(**SIZE, max_position_embeddings=64, **options)))


def against(verdict: Verdict) -> str:
    """What speaks against it."""
    return "; ".join(f"{each.what}: {each.reason}" for each in verdict.findings if each.is_met is False)


@pytest.mark.parametrize(
    "options",
    [
        {},
        {"position_embedding_type": "learned", "scale_embedding": True},
        {"position_embedding_type": "sinusoidal", "norm_position": "post", "use_bias": True},
        {"num_key_value_heads": 2, "qk_norm": True, "norm_position": "peri", "tie_word_embeddings": False},
        {"attention_window": 3},
    ],
    ids=str,
)
def test_vllm_computes_what_the_model_computes(options: dict[str, Any], lm: Any) -> None:
    verdict = check_vllm(language_model(**options), str(lm.folder))
    assert against(verdict) == ""
    assert [each.is_met for each in verdict.findings] == [True] * 6 + [None]  # vLLM itself was not there


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"position_embedding_type": "alibi"}, "position_embedding_type 'alibi' adds a bias"),
        ({"position_embedding_type": "relative"}, "position_embedding_type 'relative' adds a bias"),
        ({"attention_stride": 3}, "attention_stride is 3"),
        ({"linear_attention": True, "position_embedding_type": "none"}, "linear_attention is True"),
    ],
    ids=str,
)
def test_what_engines_would_leave_out_is_refused(options: dict[str, Any], said: str, lm: Any) -> None:
    model = language_model(**options)
    assert said in against(check_vllm(model, str(lm.folder)))
    with pytest.raises(ValueError, match=r"continuous batching does not know|not supported for continuous batching"):
        model.generate_batch([[1, 2]], max_new_tokens=1)  # type: ignore[operator]
    assert "generate_batch() continues as generate() does" in against(check_continuous_batching(model, ""))


def test_an_encoder_sees_all_of_its_own_text_and_no_other(lm: Any) -> None:
    model = fill(PaperformerForMaskedLM(PaperformerEncoderConfig(**SIZE, max_position_embeddings=64)))
    verdict = check_vllm(model, str(lm.folder))
    assert against(verdict) == ""
    assert "--runner pooling" in verdict.command
    assert "it is a paperformer-encoder" in against(check_continuous_batching(model, ""))


def test_an_encoder_decoder_is_for_none_of_them(seq2seq: Any) -> None:
    assert "no encoder-decoders" in against(check_vllm(seq2seq.model, str(seq2seq.folder)))


def drop_keywords(monkeypatch: pytest.MonkeyPatch) -> None:
    forward = MultiHeadAttention.forward

    def deaf(self: Any, hidden_states: Any, attention_instances: Any = None, **kwargs: Any) -> Any:
        return forward(self, hidden_states, **kwargs)

    monkeypatch.setattr(MultiHeadAttention, "forward", deaf)


def count_positions(monkeypatch: pytest.MonkeyPatch) -> None:
    run_blocks = TransformerStack.run_blocks

    def counting(self: Any, embeddings: Any, *args: Any, position_ids: Any = None, **kwargs: Any) -> Any:
        return run_blocks(self, embeddings, *args, position_ids=None, **kwargs)

    monkeypatch.setattr(TransformerStack, "run_blocks", counting)


def work_outside_of_the_base_model(monkeypatch: pytest.MonkeyPatch) -> None:
    forward = PaperformerForCausalLM.forward

    def doubled(self: Any, *args: Any, **kwargs: Any) -> Any:
        outputs = forward(self, *args, **kwargs)
        outputs.logits = 2 * outputs.logits
        return outputs

    monkeypatch.setattr(PaperformerForCausalLM, "forward", doubled)


def forget_the_registry(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(PaperformerForCausalLM, "_supports_attention_backend", False)


def plan_for_others(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(PaperformerLMConfig, "base_model_tp_plan", {"layers.*.attn.q": "colwise"})


@pytest.mark.parametrize(
    ("fault", "said"),
    [
        (drop_keywords, "attention_instances does not reach the attention"),
        (count_positions, "called as vLLM calls it, it computes the same: hidden states differ by"),
        (work_outside_of_the_base_model, "all but the output projection is in the base model"),
        (forget_the_registry, "_supports_attention_backend"),
        (plan_for_others, "there is no layers.*.attn.q"),
    ],
    ids=lambda value: getattr(value, "__name__", ""),
)
def test_every_fault_is_found(
    fault: Callable[[pytest.MonkeyPatch], None], said: str, monkeypatch: pytest.MonkeyPatch, lm: Any
) -> None:
    fault(monkeypatch)
    model = language_model(position_embedding_type="learned")  # others see differences of positions only
    assert said in against(check_vllm(model, str(lm.folder)))


def test_a_folder_without_its_code_is_found(lm: Any, tmp_path: Path) -> None:
    folder = tmp_path / "model"
    shutil.copytree(lm.folder, folder)
    (folder / "modeling_lm.py").unlink()
    assert "modeling_lm.py is missing" in against(check_vllm(lm.model, str(folder)))
    config = json.loads((folder / "config.json").read_text("utf-8"))
    del config["auto_map"]
    (folder / "config.json").write_text(json.dumps(config), "utf-8")
    assert "has no auto_map.AutoModel" in against(check_vllm(lm.model, str(folder)))


@pytest.mark.parametrize("options", [{}, {"attention_window": 3}], ids=str)
def test_continuous_batching_continues_as_generate(options: dict[str, Any]) -> None:
    assert against(check_continuous_batching(language_model(**options), "")) == ""


@pytest.mark.parametrize("continuous", [False, True])
def test_transformers_serve_serves_what_was_converted(
    lm: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, continuous: bool, capfd: pytest.CaptureFixture[str]
) -> None:
    from transformers.cli.serve import Serve

    refused = check_serve(lm.model, "MODEL")
    assert "paperformer convert MODEL OUTPUT --to llama, and serve OUTPUT" in against(refused)
    folder = tmp_path / "converted"
    main(["convert", str(lm.folder), str(folder), "--to", "llama"])
    assert against(check_serve(AutoModelForCausalLM.from_pretrained(folder), str(folder))) == ""
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    server = Serve(
        force_model=str(folder),
        port=port,
        non_blocking=True,
        device="cpu",
        log_level="error",
        continuous_batching=continuous,
        cb_block_size=16,
        cb_num_blocks=16,
        cb_max_batch_tokens=64,
    )
    try:
        body = {"model": str(folder), "prompt": "A dog", "max_tokens": 5, "temperature": 0}
        answer = json.loads(ask(f"http://127.0.0.1:{port}/v1/completions", body))
    finally:
        server.kill_server()
    ids = lm.tokenizer("A dog", return_tensors="pt").input_ids
    expected = lm.model.generate(ids, max_new_tokens=5, do_sample=False)[0, ids.shape[1] :]
    assert answer["choices"][0]["text"] == lm.tokenizer.decode(expected, skip_special_tokens=True)


def ask(address: str, body: Any) -> bytes:
    request = urllib.request.Request(address, json.dumps(body).encode(), {"Content-Type": "application/json"})
    end = time.monotonic() + 30
    while True:
        try:
            with urllib.request.urlopen(request, timeout=30) as answer:
                return answer.read()
        except urllib.error.URLError:
            if time.monotonic() > end:
                raise
            time.sleep(0.1)


def test_the_command_says_which_engines_can(lm: Any, seq2seq: Any, capsys: pytest.CaptureFixture[str]) -> None:
    main(["check", str(lm.folder)])
    said = capsys.readouterr().out
    assert f"paperformer serve: yes\n    paperformer serve {lm.folder}\n" in said
    assert f"vLLM: yes, as far as can be told here\n    vllm serve {lm.folder} --model-impl transformers" in said
    assert "the tokenizer puts no <s> before them" in said
    assert "continuous batching: yes\n" in said
    main(["check", str(seq2seq.folder)])
    said = capsys.readouterr().out
    assert "paperformer serve: yes\n" in said
    assert "OUTPUT" not in said  # nothing of it can be converted
    for engine in ("vLLM", "transformers serve", "continuous batching"):
        assert f"\n{engine}: no\n" in said
    assert said.endswith("see paperformer export\n")
