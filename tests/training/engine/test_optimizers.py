import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

from paperformer import (
    PaperformerEncoderConfig,
    PaperformerForCausalLM,
    PaperformerForConditionalGeneration,
    PaperformerForMaskedLM,
    PaperformerLMConfig,
    PaperformerSeq2SeqConfig,
)
from paperformer.training.engine.optimizers import build_optimizers, set_learning_rate
from paperformer.training.recipe.optimization import Optimization

from . import sharded_steps
from .conftest import Together

TINY: dict[str, Any] = {
    "vocab_size": 40,
    "hidden_size": 24,
    "intermediate_size": 144,
    "num_attention_heads": 4,
    "max_position_embeddings": 16,
    "position_embedding_type": "learned",
    "qk_norm": True,
    "norm_position": "pre",
    "gated_mlp": False,
}

BLOCK_MATRICES = {
    *(f"self_attn.{name}_proj.weight" for name in "qkvo"),
    *(f"mlp.{name}_proj.weight" for name in ("up", "down")),
}
CROSS_MATRICES = {f"cross_attn.{name}_proj.weight" for name in "qkvo"}


def make_seq2seq(**options: Any) -> nn.Module:
    config = PaperformerSeq2SeqConfig(**TINY, encoder_layers=1, decoder_layers=1, **options)
    return PaperformerForConditionalGeneration(config)


def make_lm(**options: Any) -> nn.Module:
    return PaperformerForCausalLM(PaperformerLMConfig(**TINY, num_hidden_layers=2, **options))


def make_encoder(**options: Any) -> nn.Module:
    return PaperformerForMaskedLM(PaperformerEncoderConfig(**TINY, num_hidden_layers=1, **options))


IN_BLOCKS: dict[Callable[..., nn.Module], set[str]] = {
    make_seq2seq: {f"model.encoder.layers.0.{name}" for name in BLOCK_MATRICES}
    | {f"model.decoder.layers.0.{name}" for name in BLOCK_MATRICES | CROSS_MATRICES},
    make_lm: {f"model.layers.{index}.{name}" for index in (0, 1) for name in BLOCK_MATRICES},
    make_encoder: {f"model.layers.0.{name}" for name in BLOCK_MATRICES},
}
OUTSIDE: dict[Callable[..., nn.Module], set[str]] = {
    make_seq2seq: set(),
    make_lm: set(),
    make_encoder: {"transform.dense.weight"},
}


def members(model: nn.Module, optimizer: torch.optim.Optimizer) -> dict[float, set[str]]:
    """The names of the parameters that have each weight decay."""
    names = {p: name for name, p in model.named_parameters()}
    groups: dict[float, set[str]] = {}
    for group in optimizer.param_groups:
        groups.setdefault(group["weight_decay"], set()).update(names[p] for p in group["params"])
    return groups


def listed(optimizers: list[torch.optim.Optimizer]) -> list[torch.Tensor]:
    return [p for optimizer in optimizers for group in optimizer.param_groups for p in group["params"]]


@pytest.mark.parametrize("tied", [True, False])
@pytest.mark.parametrize("make", IN_BLOCKS)
@pytest.mark.parametrize("name", ["adamw", "adam", "adafactor", "schedule_free"])
def test_only_matrices_of_linear_layers_are_decayed(name: str, make: Callable[..., nn.Module], tied: bool) -> None:
    model = make(tie_word_embeddings=tied)
    (optimizer,) = build_optimizers(model, Optimization(optimizer=name, schedule="constant", weight_decay=0.1))
    decayed = IN_BLOCKS[make] | OUTSIDE[make] | (set() if tied else {"lm_head.weight"})
    everything = {name for name, _ in model.named_parameters()}
    assert members(model, optimizer) == {0.1: decayed, 0.0: everything - decayed}
    assert sum("embed_tokens" in name or "table" in name for name in everything - decayed) >= 2


@pytest.mark.parametrize("tied", [True, False])
@pytest.mark.parametrize("make", IN_BLOCKS)
def test_muon_has_the_matrices_of_the_blocks_and_adamw_all_else(make: Callable[..., nn.Module], tied: bool) -> None:
    model = make(tie_word_embeddings=tied)
    muon, adamw = build_optimizers(model, Optimization(optimizer="muon", weight_decay=0.1))
    assert isinstance(muon, torch.optim.Muon)
    assert isinstance(adamw, torch.optim.AdamW)
    assert members(model, muon) == {0.1: IN_BLOCKS[make]}
    decayed = OUTSIDE[make] | (set() if tied else {"lm_head.weight"})
    everything = {name for name, _ in model.named_parameters()}
    assert members(model, adamw).get(0.1, set()) == decayed
    assert members(model, adamw)[0.0] == everything - decayed - IN_BLOCKS[make]


def test_muon_has_the_matrices_of_recurrent_layers_too() -> None:
    model = nn.Sequential(nn.Embedding(5, 4), nn.LSTM(4, 4, num_layers=2), nn.Linear(4, 5))
    muon, adamw = build_optimizers(model, Optimization(optimizer="muon"))
    matrices = {"1.weight_ih_l0", "1.weight_hh_l0", "1.weight_ih_l1", "1.weight_hh_l1"}
    names = {p: name for name, p in model.named_parameters()}
    assert {names[p] for group in muon.param_groups for p in group["params"]} == matrices
    assert {names[p] for group in adamw.param_groups for p in group["params"]} == set(names.values()) - matrices


@pytest.mark.parametrize("name", ["adamw", "adam", "adafactor", "muon", "schedule_free"])
def test_every_parameter_is_trained_once_unless_it_is_frozen(name: str) -> None:
    model = make_seq2seq()
    model.model.encoder.requires_grad_(False)
    parameters = listed(build_optimizers(model, Optimization(optimizer=name, schedule="constant")))
    assert len(parameters) == len(set(parameters))
    assert set(parameters) == set(model.model.decoder.parameters()) - set(model.model.encoder.parameters())


@pytest.mark.parametrize("name", ["adamw", "adam", "adafactor", "muon", "schedule_free"])
def test_a_step_moves_what_has_a_gradient_and_only_by_a_learning_rate(name: str) -> None:
    torch.manual_seed(0)
    model = make_lm()
    optimizers = build_optimizers(model, Optimization(optimizer=name, schedule="constant", weight_decay=0.1))

    def step() -> set[str]:
        before = {name: p.detach().clone() for name, p in model.named_parameters()}
        for name, p in model.named_parameters():
            p.grad = None if "layers.1" in name else torch.randn_like(p)
        for optimizer in optimizers:
            optimizer.step()
        return {name for name, p in model.named_parameters() if not torch.equal(p, before[name])}

    assert step() == set()
    set_learning_rate(optimizers, 0.01)
    assert step() == {name for name, _ in model.named_parameters() if "layers.1" not in name}


@pytest.mark.parametrize("name", ["adamw", "adam", "adafactor", "muon", "schedule_free"])
def test_weight_decay_alone_shrinks_what_is_decayed(name: str) -> None:
    torch.manual_seed(0)
    model = make_lm(tie_word_embeddings=False)
    before = {name: p.detach().clone() for name, p in model.named_parameters()}
    optimizers = build_optimizers(model, Optimization(optimizer=name, schedule="constant", weight_decay=0.5))
    set_learning_rate(optimizers, 0.01)
    for p in model.parameters():
        p.grad = torch.zeros_like(p)
    for optimizer in optimizers:
        optimizer.step()
    decayed = IN_BLOCKS[make_lm] | {"lm_head.weight"}
    for parameter, p in model.named_parameters():
        if parameter not in decayed:
            assert torch.equal(p, before[parameter])
        elif name == "adam":  # the decay is the gradient, whose size Adam divides out
            torch.testing.assert_close(p, before[parameter] - 0.01 * before[parameter].sign(), rtol=0, atol=1e-4)
        else:
            torch.testing.assert_close(p, before[parameter] * (1 - 0.5 * 0.01))


def test_adamw_is_fused_and_to_the_bit_that_of_torch() -> None:
    models = []
    for build in (
        lambda model: build_optimizers(model, Optimization(optimizer="adamw"))[0],
        lambda model: torch.optim.AdamW(
            model.parameters(), lr=0, betas=(0.9, 0.98), eps=1e-9, weight_decay=0, fused=True
        ),
    ):
        torch.manual_seed(0)
        model = make_lm()
        optimizer = build(model)
        for step in range(1, 4):
            set_learning_rate([optimizer], 0.01 / step)
            for p in model.parameters():
                p.grad = torch.randn_like(p)
            optimizer.step()
        models.append(model)
    assert all(torch.equal(p, q) for p, q in zip(*(model.parameters() for model in models), strict=True))


@pytest.mark.parametrize("name", ["adam", "adamw"])
def test_adam_is_algorithm_1_of_its_paper(name: str) -> None:
    """Kingma and Ba (2014); the decay is the gradient's in adam, and in adamw the weight's (Loshchilov and Hutter)."""
    rng = np.random.default_rng(0)
    layer = nn.Linear(5, 3, bias=False, dtype=torch.float64)
    beta1, beta2, epsilon, decay = 0.8, 0.95, 1e-3, 0.3
    optimizers = build_optimizers(
        layer,
        Optimization(optimizer=name, adam_beta1=beta1, adam_beta2=beta2, adam_epsilon=epsilon, weight_decay=decay),
    )
    theta = layer.weight.detach().numpy().copy()
    m, v = np.zeros_like(theta), np.zeros_like(theta)
    for t in range(1, 6):
        alpha, g = 0.1 / t, rng.normal(size=theta.shape)
        layer.weight.grad = torch.from_numpy(g.copy())
        set_learning_rate(optimizers, alpha)
        optimizers[0].step()
        if name == "adam":
            g = g + decay * theta
        else:
            theta = theta - alpha * decay * theta
        m = beta1 * m + (1 - beta1) * g
        v = beta2 * v + (1 - beta2) * g**2
        m_hat, v_hat = m / (1 - beta1**t), v / (1 - beta2**t)
        theta = theta - alpha * m_hat / (np.sqrt(v_hat) + epsilon)
        np.testing.assert_allclose(layer.weight.detach().numpy(), theta, rtol=1e-12)


def test_updates_of_muon_are_orthogonal_and_as_large_as_those_of_adamw() -> None:
    torch.manual_seed(0)
    model = make_lm()
    optimizers = build_optimizers(model, Optimization(optimizer="muon", muon_momentum=0.9))
    set_learning_rate(optimizers, 0.01)
    weight = model.model.layers[0].mlp.down_proj.weight  # (24, 144)
    before = weight.detach().clone()
    gradient = torch.randn_like(weight)
    weight.grad = gradient.clone()
    for optimizer in optimizers:
        optimizer.step()
    update = (before - weight).detach() / 0.01
    u, _, v = torch.linalg.svd(gradient, full_matrices=False)
    assert torch.nn.functional.cosine_similarity(update.flatten(), (u @ v).flatten(), dim=0) > 0.95
    # Newton-Schulz leaves singular values between about 0.7 and 1.2, times 0.2 sqrt(max(24, 144)).
    singular = torch.linalg.svdvals(update) / (0.2 * math.sqrt(144))
    assert 0.6 < singular.min() <= singular.max() < 1.3
    assert update.square().mean().sqrt() == pytest.approx(0.2, rel=0.2)


def test_muon_keeps_as_much_of_earlier_gradients_as_it_is_told() -> None:
    model = make_lm()
    muon, _ = build_optimizers(model, Optimization(optimizer="muon", muon_momentum=0.75))
    weight = model.model.layers[0].self_attn.q_proj.weight
    for value in (1.0, 2.0):
        weight.grad = torch.full_like(weight, value)
        muon.step()
    mean = muon.state[weight]["momentum_buffer"]
    torch.testing.assert_close(mean, torch.full_like(weight, 0.25 * (0.75 * 1 + 2)))


def test_adafactor_takes_a_row_and_a_column_of_memory_and_moves_relative_to_the_weights() -> None:
    torch.manual_seed(0)
    layer = nn.Linear(30, 20, bias=False)
    with torch.no_grad():
        layer.weight.mul_(7)
    (optimizer,) = optimizers = build_optimizers(layer, Optimization(optimizer="adafactor"))
    set_learning_rate(optimizers, 0.01)
    before = layer.weight.detach().clone()
    layer.weight.grad = torch.randn_like(before)
    optimizer.step()
    assert sum(state.numel() for state in optimizer.state[layer.weight].values()) == 30 + 20 + 1
    size = (layer.weight - before).square().mean().sqrt() / before.square().mean().sqrt()
    assert size.item() == pytest.approx(0.01, rel=0.01)


@pytest.mark.proof
def test_sharded_steps_are_those_of_one_process(together: Together, tmp_path: Path) -> None:
    """Two processes with FSDP2; the checks are in the script, as are those of averages of sharded weights."""
    first, _ = together(sharded_steps.__file__, tmp_path, number=2)
    assert first == "the same\n"
