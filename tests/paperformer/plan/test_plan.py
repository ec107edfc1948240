import json
import subprocess
import sys
from collections.abc import Callable
from dataclasses import fields
from pathlib import Path
from typing import Any

import pytest

from paperformer import PaperformerEncoderConfig, PaperformerLMConfig, PaperformerSeq2SeqConfig
from paperformer.cli import main
from paperformer.plan.options import PlanOptions
from paperformer.training.costs.activations import activation_bytes
from paperformer.training.costs.compute_budget import CHINCHILLA, training_hours
from paperformer.training.costs.flops import forward_flops
from paperformer.training.costs.memory import state_bytes
from paperformer.training.costs.parameters import count_parameters
from paperformer.training.costs.peak_flops import PEAK_TFLOPS


@pytest.fixture
def planned(capsys: pytest.CaptureFixture[str]) -> Callable[..., dict[str, Any]]:
    def run(*arguments: object) -> dict[str, Any]:
        main(["plan", *map(str, arguments), "--json"])
        return json.loads(capsys.readouterr().out)

    return run


@pytest.fixture
def table(capsys: pytest.CaptureFixture[str]) -> Callable[..., str]:
    def run(*arguments: object) -> str:
        main(["plan", *map(str, arguments)])
        return capsys.readouterr().out

    return run


def test_figures_of_a_language_model(planned: Callable[..., dict[str, Any]]) -> None:
    plan = planned("--preset", "gpt2", "--tokens", "3e9", "--hardware", "A100", "--devices", 2, "--utilisation", 0.5)
    config = PaperformerLMConfig.from_preset("gpt2")
    assert plan["model"] == {"name": "gpt2", "type": "paperformer-lm"}
    assert plan["parameters"]["total"] == plan["base model parameters"] == 124_439_808
    flops = forward_flops(config, 1024)
    assert plan["flops a token"]["forward"] * 1024 == sum(flops.values())
    assert plan["flops a token"]["scores"] * 1024 == flops["scores"]
    assert plan["flops a token"]["training"] == 3 * plan["flops a token"]["forward"]
    assert plan["setting"]["batch size"] == 4
    activations = activation_bytes(config, 4, 1024, precision="bf16")
    assert plan["memory"] == state_bytes(config, "adamw") | {
        "activations": activations.kept,
        "recomputed block": 0,
        "total": 16 * 124_439_808 + activations.kept,
    }
    assert plan["cache a token"] == {"self-attention": 2 * 12 * 768 * 2}
    assert plan["cache of a sequence"] == 1024 * 2 * 12 * 768 * 2
    compute = 3e9 * plan["flops a token"]["training"]
    assert plan["training"]["flops"] == pytest.approx(compute)
    assert plan["training"]["hours"] == pytest.approx(training_hours(compute, 312e12, 0.5, 2))
    laws = plan["chinchilla"]
    assert laws["tokens for this model"]["rule of thumb"] == 20 * 124_439_808
    assert laws["best for these flops"]["fit"]["parameters"] == pytest.approx(CHINCHILLA.optimum(compute)[0])
    assert laws["expected loss"] == pytest.approx(CHINCHILLA.loss(124_439_808, 3e9))


def test_figures_of_a_translation_model(planned: Callable[..., dict[str, Any]]) -> None:
    plan = planned("--preset", "transformer-base", "--flops", "1e13", "--precision", "fp32", "--sequence_length", 32)
    config = PaperformerSeq2SeqConfig.from_preset("transformer-base")
    assert plan["flops a token"]["forward"] * 32 == sum(forward_flops(config, 32, 32).values())
    assert plan["cache a token"] == dict.fromkeys(["self-attention", "cross-attention, a source token"], 8 * 6 * 512)
    assert plan["cache of a sequence"] == 32 * 2 * 8 * 6 * 512
    assert plan["training"]["tokens"] == 20 * 63_082_496
    assert not plan["training"]["tokens are given"]
    assert plan["setting"]["batch size"] == 4096 // 32
    assert plan["training"]["hours"] == pytest.approx(plan["training"]["flops"] / 1e13 / 0.4 / 3600)


def test_options_reach_the_figures(planned: Callable[..., dict[str, Any]]) -> None:
    plain = planned("--preset", "bert-base")
    assert "hours" not in plain["training"]
    other = planned(
        *("--preset", "bert-base", "--optimizer", "sgd", "--attention", "eager", "--precision", "fp32"),
        *("--batch_tokens", 1024, "--gradient_checkpointing"),
    )
    config = PaperformerEncoderConfig.from_preset("bert-base")
    expected = activation_bytes(config, 2, 512, precision="fp32", attention="eager", gradient_checkpointing=True)
    assert (other["memory"]["activations"], other["memory"]["recomputed block"]) == expected
    assert other["memory"]["optimizer states"] == 0
    assert other["flops a token"]["training"] > plain["flops a token"]["training"]
    assert other["chinchilla"] == plain["chinchilla"]  # what is computed twice does not make a model better
    assert plain["base model parameters"] == 109_482_240
    assert plain["cache of a sequence"] == 0


def test_fields_are_overridden_by_name_and_by_the_papers_aliases(planned: Callable[..., dict[str, Any]]) -> None:
    config = PaperformerLMConfig.from_preset("llama-160m", hidden_size=96, num_hidden_layers=3, num_key_value_heads=4)
    for options in ("--hidden_size 96 --num_hidden_layers 3", "--d_model=96 --n_layers 3"):
        plan = planned("--preset", "llama-160m", *options.split(), "--num_key_value_heads", 4)
        assert plan["parameters"]["total"] == sum(count_parameters(config).values())
    both = planned("--preset", "transformer-tiny", "--n_layers", 2)["parameters"]
    four = planned("--preset", "transformer-tiny")["parameters"]
    assert both["cross-attention"] * 2 == four["cross-attention"]
    assert both["feed-forward"] * 2 == four["feed-forward"]
    flag = planned("--preset", "transformer-tiny", "--gated_mlp", "--norm_type", "rmsnorm")["parameters"]
    assert flag["feed-forward"] > four["feed-forward"]
    assert flag["norms"] * 2 == four["norms"]


def test_a_models_folder(planned: Callable[..., dict[str, Any]], tmp_path: Path) -> None:
    config = PaperformerSeq2SeqConfig.from_preset("transformer-tiny", norm_position="peri", head_dim=20)
    config.save_pretrained(tmp_path)
    plan = planned("--model", tmp_path)
    assert plan["model"]["name"] == str(tmp_path)
    assert plan["parameters"]["total"] == sum(count_parameters(config).values())
    wider = PaperformerSeq2SeqConfig.from_preset("transformer-tiny", norm_position="peri", head_dim=20, hidden_size=96)
    wider_parameters = sum(count_parameters(wider).values())
    assert planned("--model", tmp_path, "--d_model", 96)["parameters"]["total"] == wider_parameters


def test_the_table(table: Callable[..., str]) -> None:
    shown = table("--preset", "gpt2", "--tokens", "3e9", "--hardware", "h100", "--devices", 8)
    lines = [line.split() for line in shown.splitlines()]
    assert ["embeddings", "38,597,376", "31.0%"] in lines
    for row in (
        "total 124,439,808 output layer is tied to the embeddings",
        "forward 284.8 MFLOP",
        "training 854.4 MFLOP forward and backward: 3.00 x",
        "weights 497.8 MB float32",
        "optimizer states 995.5 MB adamw",
        "a whole sequence 37.75 MB",
        "tokens 3,000,000,000",
        "compute 2.56e+18 FLOP",
        "time 13 minutes 8 x h100, 989 TFLOP/s each, of which 40%",
        "data for this model, rule of thumb 2,490,000,000 20 tokens a parameter",
    ):
        assert row.split() in lines
    assert "cross-attention" not in shown
    columns = {line.rindex("%") for line in shown.splitlines() if line.endswith("%") and "of which" not in line}
    assert len({len(line.split("  ")[0]) for line in shown.splitlines() if line.startswith("  ")}) == 1
    assert len(columns) <= 2  # 5.0% and 45.0%, from the same column on


def test_what_only_some_families_show(table: Callable[..., str]) -> None:
    translation, masked = table("--preset", "transformer-base"), table("--preset", "bert-base")
    assert "FLOPs a pair of a source and a target token" in translation
    assert "  cross-attention, a source token " in translation
    assert "Cache" not in masked
    assert "109,482,240" in masked
    assert "logits of masked tokens only" in masked
    for shown in (translation, masked):
        assert "fitted to decoder-only language models" in shown
        assert "loss of the fit" not in shown
    decoder_only = table("--preset", "nano", "--gradient_checkpointing")
    assert "loss of the fit" in decoder_only
    assert "fitted to decoder-only language models" not in decoder_only
    assert "recomputed block" in decoder_only
    assert "blocks once more" in decoder_only


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ("", "there is no model to plan; give --preset NAME or --model FOLDER"),
        ("gpt2", "'gpt2' belongs to no option"),
        ("--preset gpt3", "--preset is gpt3; did you mean gpt2?"),
        ("--preset cook", "--preset is cook; there are transformer-base, transformer-big,"),
        ("--preset gpt2 --model x", "--preset and --model are both given; give one of them"),
        ("--preset gpt2 --hardware A100 --flops 1", "--hardware and --flops are both given; give one of them"),
        ("--preset gpt2 --tokens 0", "--tokens is 0; it must be greater than 0"),
        ("--preset gpt2 --tokens -3e9", "--tokens is -3e+09; it must be greater than 0"),
        ("--preset gpt2 --tokens many", "--tokens is many; it must be a number"),
        ("--preset gpt2 --flops 1e999", "--flops is inf; it must be greater than 0 and finite"),
        ("--preset gpt2 --utilisation 40", "--utilisation is 40; it must be greater than 0 and at most 1"),
        ("--preset gpt2 --precision int8", "--precision is int8; it must be fp32, bf16 or fp16"),
        ("--preset gpt2 --hardware V100", "--precision is bf16, which V100 cannot multiply"),
        ("--preset gpt2 --hidden_size 65", "hidden_size is 65; it must be a multiple of num_attention_heads (12)"),
        ("--preset gpt2 --hidden_size wide", "--hidden_size is wide; it must be an integer"),
        ("--preset gpt2 --hidden_sizes 768", "there is no option --hidden_sizes; did you mean --hidden_size?"),
        ("--preset gpt2 --tokenz 768", "there is no option --tokenz; did you mean --tokens?"),
        ("--preset gpt2 --bananas 3", "there is no option --bananas; --help lists them all"),
        ("--preset transformer-base --pooling first", "there is no option --pooling of a paperformer-seq2seq"),
        ("--preset gpt2 --sequence_length 1025", "it must be at most 1024, the learned positions"),
        ("--preset gpt2 --batch_tokens 1023", "--batch_tokens is 1023; it must be at least the sequence length, 1024"),
        ("--model /no/such", "/no/such/config.json cannot be read: No such file or directory"),
    ],
)
def test_bad_input(arguments: str, message: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as stopped:
        main(["plan", *arguments.split()])
    assert stopped.value.code == 2
    said = capsys.readouterr()
    assert said.out == ""
    assert said.err.startswith("error: ")
    assert said.err.count("\n") == 1
    assert message in said.err


@pytest.mark.parametrize(
    ("content", "message"),
    [("{", "config.json is not JSON"), ('{"model_type": "t5"}', "holds a t5; it must be a paperformer-seq2seq or a")],
)
def test_folders_that_cannot_be_planned(
    content: str, message: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "config.json").write_text(content)
    with pytest.raises(SystemExit) as stopped:
        main(["plan", "--model", str(tmp_path)])
    assert stopped.value.code == 2
    assert message in capsys.readouterr().err


def test_help_explains_every_option_and_does_not_wait_for_torch() -> None:
    script = (
        "import sys; sys.argv = ['paperformer', 'plan', '--help']\n"
        "from paperformer.cli import main; main()\n"
        "print({'torch', 'transformers'} & set(sys.modules))"
    )
    shown = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, check=True, timeout=120
    ).stdout
    assert shown.endswith("set()\n")
    words = " ".join(shown.split())
    for field in fields(PlanOptions):
        explanation = words.split(f" --{field.name} ")[-1]
        assert len(explanation.split("(type:")[0].split()) > 5, field.name
    presets = [*PaperformerSeq2SeqConfig.presets, *PaperformerLMConfig.presets, *PaperformerEncoderConfig.presets]
    for name in (*presets, *PEAK_TFLOPS):
        assert name in shown.replace("-\n                        ", "-")


def test_a_source_vocabulary_counts(planned: Callable[..., dict[str, Any]]) -> None:
    sizes = ("--vocab_size", 8000, "--source_vocab_size", 5000, "--share_embeddings", "false")
    plan = planned("--preset", "transformer-tiny", *sizes)
    assert plan["parameters"]["embeddings"] == (8000 + 5000) * 128
    assert plan["flops a token"]["output layer"] == 2 * 8000 * 128
