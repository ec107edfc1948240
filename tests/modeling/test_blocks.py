"""The block against the formulas of the papers, and dropout in its places."""

from collections.abc import Callable

import pytest
import torch
from torch import Tensor

from paperformer import PaperformerSeq2SeqConfig
from paperformer.modeling.blocks import TransformerBlock, build_final_norm
from paperformer.modeling.dropout import Dropout

DROPPED = 0.75  # what the stand-in for dropout multiplies by

# Where each paper puts Norm and Dropout around a sub-layer f.
FORMULAS: dict[str, Callable[..., Tensor]] = {
    "post": lambda x, f, drop, norm: norm(x + drop(f(x))),  # Vaswani et al. (2017), sections 3.1 and 5.4
    "pre": lambda x, f, drop, norm: x + drop(f(norm(x))),  # Xiong et al. (2020), table 1
    "peri": lambda x, f, drop, norm, out: x + drop(out(f(norm(x)))),  # Kim et al. (2025), section 3
}


def block(norm_position: str, *, cross_attention: bool, dropout: float = 0.1) -> TransformerBlock:
    torch.manual_seed(0)
    config = PaperformerSeq2SeqConfig(
        hidden_size=16, intermediate_size=24, num_attention_heads=2, norm_position=norm_position, dropout=dropout
    )
    result = TransformerBlock(config, 0, is_causal=False, cross_attention=cross_attention)
    for name, parameter in result.named_parameters():
        if "norm" in name:  # no two norms are alike
            torch.nn.init.normal_(parameter)
    return result


def literal(module: TransformerBlock, x: Tensor, source: Tensor | None, drop: Callable[[Tensor], Tensor]) -> Tensor:
    def apply(residual: torch.nn.Module, sub_layer: Callable[[Tensor], Tensor], x: Tensor) -> Tensor:
        norms = [norm for name, norm in residual.named_children() if name != "dropout"]
        return FORMULAS[module.self_attn.config.norm_position](x, sub_layer, drop, *norms)

    x = apply(module.self_attn_residual, lambda x: module.self_attn(x)[0], x)
    if source is not None:
        x = apply(module.cross_attn_residual, lambda x: module.cross_attn(x, source)[0], x)
    return apply(module.mlp_residual, module.mlp, x)


@pytest.mark.parametrize("cross_attention", [False, True])
@pytest.mark.parametrize("norm_position", FORMULAS)
def test_the_block_is_the_papers_formula(norm_position, cross_attention):
    module = block(norm_position, cross_attention=cross_attention).eval()
    x, source = torch.randn(2, 5, 16), torch.randn(2, 7, 16) if cross_attention else None
    torch.testing.assert_close(module(x, source), literal(module, x, source, drop=lambda y: y))


@pytest.mark.parametrize("cross_attention", [False, True])
@pytest.mark.parametrize("norm_position", FORMULAS)
def test_dropout_is_on_each_sub_layers_output_before_it_is_added(monkeypatch, norm_position, cross_attention):
    """The stand-in scales instead of dropping: an exact formula shows where it is and where it is not."""
    active = [0]

    def scale(self: Dropout, states: Tensor) -> Tensor:
        active[0] += self.p > 0
        return states * DROPPED if self.training and self.p > 0 else states

    monkeypatch.setattr(Dropout, "forward", scale)
    module = block(norm_position, cross_attention=cross_attention).train()
    x, source = torch.randn(2, 5, 16), torch.randn(2, 7, 16) if cross_attention else None
    output = module(x, source)
    assert active == [3 if cross_attention else 2]
    torch.testing.assert_close(output, literal(module, x, source, drop=lambda y: y * DROPPED))
    assert not torch.allclose(output, module.eval()(x, source))


@pytest.mark.parametrize("norm_position", FORMULAS)
def test_evaluation_drops_nothing(norm_position):
    x = torch.randn(2, 5, 16)
    certain = block(norm_position, cross_attention=False, dropout=0.0)(x)
    assert torch.equal(block(norm_position, cross_attention=False, dropout=0.9).eval()(x), certain)
    assert not torch.equal(block(norm_position, cross_attention=False, dropout=0.9).train()(x), certain)


def test_the_stack_ends_in_a_norm_unless_every_block_does():
    final_norms = {
        norm_position: type(build_final_norm(PaperformerSeq2SeqConfig(norm_position=norm_position)))
        for norm_position in FORMULAS
    }
    assert final_norms == {"post": torch.nn.Identity, "pre": torch.nn.LayerNorm, "peri": torch.nn.LayerNorm}


@pytest.mark.parametrize(("norm_position", "norms_per_sub_layer"), [("post", 1), ("pre", 1), ("peri", 2)])
def test_every_norm_is_used(norm_position, norms_per_sub_layer):
    module = block(norm_position, cross_attention=True)
    norms = [name for name, child in module.named_modules() if isinstance(child, torch.nn.LayerNorm)]
    assert len(norms) == 3 * norms_per_sub_layer
    module(torch.randn(2, 5, 16), torch.randn(2, 7, 16)).square().sum().backward()
    assert all(parameter.grad is not None for parameter in module.parameters())
