"""Run by torchrun in four processes: with blocks split over two of them and shards over two pairs, steps are those of
one process.

In float64, in which the order of sums makes no difference that counts; torch's Muon turns to bfloat16 by name, which is
therefore taken for float64 here.
"""

import os
from typing import Any

import torch
import torch.distributed as dist
from accelerate import PartialState
from torch.distributed.tensor import DTensor

from paperformer import (
    PaperformerForCausalLM,
    PaperformerForConditionalGeneration,
    PaperformerLMConfig,
    PaperformerSeq2SeqConfig,
)
from paperformer.training.engine.checkpoints.snapshot import (
    gather_optimizers,
    gather_weights,
    scatter_optimizers,
    scatter_weights,
)
from paperformer.training.engine.devices.compiling import recompute_activations
from paperformer.training.engine.devices.sharding import Layout, distribute
from paperformer.training.engine.ema import ExponentialMovingAverage
from paperformer.training.engine.gradients import clip_gradients, gradient_norms
from paperformer.training.engine.optimizers import build_optimizers, set_learning_rate
from paperformer.training.engine.r_drop import r_drop_loss
from paperformer.training.recipe.optimization import Optimization

SIZES: dict[str, Any] = {
    "vocab_size": 51,
    "hidden_size": 24,
    "intermediate_size": 36,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "use_bias": True,
    "dropout": 0.0,
}
MODELS: dict[str, Any] = {
    "lm": (PaperformerForCausalLM, PaperformerLMConfig, {"num_hidden_layers": 2, "qk_norm": True}),
    "untied lm": (PaperformerForCausalLM, PaperformerLMConfig, {"num_hidden_layers": 1, "tie_word_embeddings": False}),
    "learned": (
        PaperformerForCausalLM,
        PaperformerLMConfig,
        {
            "num_hidden_layers": 1,
            "position_embedding_type": "learned",
            "linear_attention": True,
            "norm_position": "peri",
        },
    ),
    "seq2seq": (
        PaperformerForConditionalGeneration,
        PaperformerSeq2SeqConfig,
        {"encoder_layers": 1, "decoder_layers": 1, "gated_mlp": False, "qk_norm": True, "output_bias": True},
    ),
}


def make(name: str, **changes: Any) -> torch.nn.Module:
    torch.manual_seed(0)
    model_class, config_class, fields = MODELS[name]
    return model_class(config_class(**SIZES | fields | changes)).double()


def check(
    processes: PartialState,
    layout: Layout,
    name: str,
    optimizer: str,
    *,
    r_drop: float = 0.0,
    recompute: bool = False,
    is_saved: bool = False,
) -> None:
    models = [make(name), make(name)]
    if recompute:
        for model in models:
            recompute_activations(model)
    models[1] = distribute(models[1], layout, processes)
    optimizers = [build_optimizers(model, Optimization(optimizer=optimizer, weight_decay=0.1)) for model in models]
    averages = [ExponentialMovingAverage(model, 0.9) for model in models]
    every = torch.randint(3, 51, (4, 9), generator=torch.Generator().manual_seed(1))
    own = every.tensor_split(layout.data_size)[layout.data_rank]
    count = torch.tensor(float(every[:, 1:].numel() if name != "seq2seq" else every.numel()))
    for step in range(1, 3):
        found = []
        for model, ids in zip(models, (every, own), strict=True):
            model.train()
            batch = {"input_ids": ids, "labels": ids}
            if r_drop > 0:
                loss = r_drop_loss(model, batch, r_drop, count)
            else:
                loss = model(**batch, num_items_in_batch=count, return_logits=False).loss
            (loss * (1 if model is models[0] else layout.data_size)).backward()
            parameters = dict(model.named_parameters())
            norms = gradient_norms(parameters)
            clip_gradients(parameters.values(), norms, 0.1)
            whole = loss.detach() if model is models[0] else layout.sum(loss.detach())
            found.append([float(whole), *norms.parameters.tolist()])
        torch.testing.assert_close(found[1], found[0], rtol=1e-8, atol=1e-10, msg=lambda text: f"{name}: {text}")
        for steppers, average in zip(optimizers, averages, strict=True):
            set_learning_rate(steppers, 0.01)
            for each in steppers:
                each.step()
                each.zero_grad()
            average.update(step)
    expected = averages[0].averages
    for parameter, tensor in averages[1].averages.items():  # of all steps' weights
        torch.testing.assert_close(tensor.full_tensor(), expected[parameter], rtol=1e-5, atol=1e-6, msg=parameter)
    if is_saved:
        check_checkpoint(processes, layout, name, models[1], optimizers[1])


def check_checkpoint(
    processes: PartialState, layout: Layout, name: str, model: torch.nn.Module, optimizers: list[torch.optim.Optimizer]
) -> None:
    """What is gathered, and scattered to a new model in the same layout, is there again."""
    kinds = {type(optimizer).__name__.lower() for optimizer in optimizers}
    other = distribute(make(name), layout, processes)
    for p in other.parameters():
        p.data.zero_()
    others = build_optimizers(other, Optimization(optimizer="muon" if "muon" in kinds else kinds.pop()))
    scatter_optimizers(other, others, gather_optimizers(model, optimizers), processes)
    scatter_weights(other, gather_weights(model), processes)
    states = {parameter: tensor.full_tensor() for parameter, tensor in model.named_parameters()}
    for parameter, tensor in other.named_parameters():
        assert torch.equal(tensor.full_tensor(), states[parameter]), parameter
    for mine, theirs in zip(others, optimizers, strict=True):
        for one, two in zip(mine.state.values(), theirs.state.values(), strict=True):
            assert one.keys() == two.keys()
            assert all(torch.equal(whole(one[key]), whole(two[key])) for key in one)


def whole(tensor: torch.Tensor) -> torch.Tensor:
    return tensor.full_tensor() if isinstance(tensor, DTensor) else tensor


def check_generation(processes: PartialState, layout: Layout, name: str) -> None:
    """Before anything else has gone through the model: `generate` begins with a part of it, such as the encoder."""
    ids = torch.randint(3, 51, (3, 5), generator=torch.Generator().manual_seed(1))
    options: dict[str, Any] = {"max_new_tokens": 6, "num_beams": 2, "do_sample": False}
    models: Any = [make(name).eval(), distribute(make(name), layout, processes).eval()]  # type: ignore[arg-type]
    outputs = [model.generate(input_ids=ids, attention_mask=torch.ones_like(ids), **options) for model in models]
    assert torch.equal(*outputs), outputs


def check_dropout(processes: PartialState, layout: Layout) -> None:
    """Processes that compute a block together drop the same; those with other batches do not."""
    model = distribute(make("lm", dropout=0.3), layout, processes).train()
    torch.manual_seed(layout.data_rank)
    ids = torch.arange(3, 12)[None]
    loss = model(input_ids=ids, labels=ids, return_logits=False).loss.detach()
    every = [torch.zeros_like(loss) for _ in range(layout.num_processes)]
    dist.all_gather(every, loss)
    first, second, third, fourth = (float(each) for each in every)
    assert first == second != third == fourth


if __name__ == "__main__":
    torch.Tensor.bfloat16 = torch.Tensor.double
    os.environ |= {"ACCELERATE_USE_FSDP": "true", "PARALLELISM_CONFIG_TP_SIZE": "2"}
    state = PartialState(cpu=True)
    both = Layout.of(state)
    assert (both.data_size, both.data_rank, both.tensor_parallel) == (2, state.process_index // 2, 2)
    check(state, both, "lm", "adamw", recompute=True)
    check(state, both, "lm", "muon", is_saved=True)
    check(state, both, "untied lm", "adam")
    check(state, both, "learned", "adamw", r_drop=1.0)
    check(state, both, "seq2seq", "adamw", is_saved=True)
    for name in ("lm", "seq2seq"):
        check_generation(state, both, name)
    check_dropout(state, both)
    if state.is_main_process:
        print("the same")
    state.destroy_process_group()
