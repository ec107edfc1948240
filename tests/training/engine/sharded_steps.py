"""Run by torchrun in two processes: with weights that are sharded (FSDP2), steps and averages are those of one process.

In float64, in which the order of sums makes no difference that counts; torch's Muon turns to bfloat16 by name, which is
therefore taken for float64 here.
"""

from typing import Any

import pytest
import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.fsdp import fully_shard
from torch.distributed.tensor import DTensor

from paperformer import PaperformerForCausalLM, PaperformerLMConfig
from paperformer.modeling.blocks import TransformerBlock
from paperformer.training.console.input_error import InputError
from paperformer.training.engine.ema import ExponentialMovingAverage, make_average
from paperformer.training.engine.optimizers import build_optimizers, set_learning_rate
from paperformer.training.recipe.optimization import Optimization


def make(*, sharded: bool, tied: bool) -> nn.Module:
    torch.manual_seed(0)
    config = PaperformerLMConfig(
        vocab_size=51,  # odd sizes: the two shards are not equal
        hidden_size=27,
        intermediate_size=35,
        num_attention_heads=3,
        head_dim=8,
        num_hidden_layers=2,
        dropout=0.0,
        tie_word_embeddings=tied,
    )
    model = PaperformerForCausalLM(config).double()
    if sharded:
        for module in model.modules():
            if isinstance(module, TransformerBlock):
                fully_shard(module)
        fully_shard(model)
    return model


def whole(tensor: torch.Tensor) -> torch.Tensor:
    return tensor.detach().full_tensor() if isinstance(tensor, DTensor) else tensor.detach()


def assert_equal(ours: dict[str, torch.Tensor], theirs: dict[str, torch.Tensor], tolerance: float) -> None:
    assert ours.keys() == theirs.keys()
    for name, tensor in ours.items():
        torch.testing.assert_close(whole(tensor), whole(theirs[name]), rtol=0, atol=tolerance, msg=name)


def check(optimizer: str, *, tied: bool) -> None:
    models = [make(sharded=sharded, tied=tied) for sharded in (False, True)]
    start = {name: whole(p).clone() for name, p in models[0].named_parameters()}
    options: dict[str, Any] = {"optimizer": optimizer, "weight_decay": 0.1, "schedule": "constant"}
    optimizers = [build_optimizers(model, Optimization(**options)) for model in models]
    averages = [
        make_average(model, own, 0.9) or ExponentialMovingAverage(model, 0.9)
        for model, own in zip(models, optimizers, strict=True)
    ]
    ids = torch.randint(51, (4, 9), generator=torch.Generator().manual_seed(1))

    @torch.no_grad()
    def losses() -> list[float]:
        return [model(input_ids=ids, labels=ids, return_logits=False).loss.item() for model in models]

    for step in range(1, 4):
        for model, own, average in zip(models, optimizers, averages, strict=True):
            model(input_ids=ids, labels=ids, return_logits=False).loss.backward()
            set_learning_rate(own, 0.01)
            for each in own:
                each.step()
                each.zero_grad()
            average.update(step)
        # The evaluation gathers weights, which must not be taken for those of the average, nor the other way about.
        one, sharded = losses()
        assert sharded == pytest.approx(one, abs=1e-10)
        with averages[0].in_place(), averages[1].in_place():
            averaged, sharded = losses()
            assert sharded == pytest.approx(averaged, abs=1e-6)  # averages are in float32
            if step > 1 or optimizer != "schedule_free":  # whose first average is the first step
                assert averaged != pytest.approx(one, abs=1e-3)
        one_again, sharded = losses()
        assert one_again == pytest.approx(one, abs=1e-12)
        assert sharded == pytest.approx(one, abs=1e-10)
    for model in models:
        for module in model.modules():
            getattr(module, "reshard", lambda: None)()
    assert_equal(*(dict(model.named_parameters()) for model in models), tolerance=1e-12)
    assert_equal(*(dict(average.find_averages()) for average in averages), tolerance=1e-6)
    moved = [float((whole(p) - start[name]).abs().max()) for name, p in models[0].named_parameters()]
    assert min(moved) > 1e-3


if __name__ == "__main__":
    dist.init_process_group("gloo")
    torch.Tensor.bfloat16 = torch.Tensor.double
    for tied in (True, False):
        for optimizer in ("adamw", "adam", "muon", "schedule_free"):
            check(optimizer, tied=tied)
    with pytest.raises(InputError, match=r"optimization\.optimizer is adafactor"):
        build_optimizers(make(sharded=True, tied=True), Optimization(optimizer="adafactor"))
    if dist.get_rank() == 0:
        print("the same")
    dist.destroy_process_group()
