import math
from collections.abc import Callable, Iterable

import pytest
import torch

from paperformer import PaperformerForCausalLM
from paperformer.training.engine import step
from paperformer.training.engine.gradients import GradientNorms, clip_gradients, gradient_norms
from paperformer.training.recipe.data import TextData
from paperformer.training.recipe.recipe import Recipe
from paperformer.training.reporting import recorder

from .conftest import Task, Train

Recipes = Callable[..., Recipe[TextData]]


def test_the_gradient_is_clipped() -> None:
    model = torch.nn.Linear(3, 1, bias=False)
    model.weight.grad = torch.tensor([[0.0, 3.0, 4.0]])
    norms = gradient_norms({"weight": model.weight})
    assert norms.total == 5.0
    clip_gradients([model.weight], norms, 10.0)
    assert model.weight.grad.tolist() == [[0.0, 3.0, 4.0]]
    clip_gradients([model.weight], norms, 0.5)
    torch.testing.assert_close(model.weight.grad, torch.tensor([[0.0, 0.3, 0.4]]))


def test_norms_are_of_the_whole_gradient_and_of_each_layer_and_are_logged(
    lm_recipe: Recipes, train: Train, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(recorder, "LOG_EVERY", 1)
    expected: list[tuple[dict[str, float], float]] = []
    after: list[float] = []
    clip = step.clip_gradients
    models: list[PaperformerForCausalLM] = []

    def keep_model(task: Task) -> None:
        build = task.build_model
        task.build_model = lambda: models.append(build()) or models[-1]  # type: ignore

    def norm(model: torch.nn.Module) -> float:
        return math.sqrt(sum(float((p.grad.double() ** 2).sum()) for p in model.parameters() if p.grad is not None))

    def record(parameters: Iterable[torch.nn.Parameter], norms: GradientNorms, max_norm: float) -> None:
        (model,) = models
        modules = {"embed_tokens": model.model.embed_tokens, "layers.0": model.model.layers[0]}
        modules |= {"layers.1": model.model.layers[1], "norm": model.model.norm}
        assert sum(len(list(module.parameters())) for module in modules.values()) == len(list(model.parameters()))
        expected.append(({name: norm(module) for name, module in modules.items()}, norms.total))
        clip(parameters, norms, max_norm)
        after.append(norm(model))

    monkeypatch.setattr(step, "clip_gradients", record)
    recipe = lm_recipe(optimization__max_grad_norm=0.25, optimization__accumulation_steps=2, model__num_hidden_layers=2)
    _, folder = train(recipe, change=keep_model)
    lines = [line for line in folder.metrics() if "loss" in line]
    for (by_layer, total), line in zip(expected, lines, strict=True):
        assert line["gradient_norm_by_layer"] == pytest.approx(by_layer, rel=1e-5)
        assert total == line["gradient_norm"] == pytest.approx(math.hypot(*by_layer.values()), rel=1e-5)
        assert total > 0.25
    assert after == pytest.approx([0.25] * len(lines), rel=1e-4)


def test_layers_of_both_stacks_have_names_of_their_own() -> None:
    names = ["model.encoder.embed_tokens.weight", "model.encoder.layers.1.mlp.up.weight", "model.encoder.norm.bias"]
    names += ["model.encoder.layers.1.mlp.up.bias", "model.decoder.layers.1.mlp.up.bias", "lm_head.weight"]
    norms = GradientNorms(8.0, names, torch.tensor([1.0, 3.0, 2.0, 4.0, 6.0, 7.0]))
    assert norms.by_layer() == {
        "encoder.embed_tokens": 1.0,
        "encoder.layers.1": 5.0,
        "encoder.norm": 2.0,
        "decoder.layers.1": 6.0,
        "lm_head": 7.0,
    }
    assert norms.conspicuous_parameter() == "lm_head.weight"


def test_the_parameter_that_is_not_finite_is_named() -> None:
    norms = GradientNorms(math.nan, ["a", "b", "c"], torch.tensor([9.0, math.inf, math.nan]))
    assert not norms.is_finite
    assert norms.conspicuous_parameter() == "b"


def test_the_total_is_that_of_torch_bit_for_bit() -> None:
    torch.manual_seed(1)
    model = torch.nn.Sequential(*(torch.nn.Linear(n, n + 3) for n in (7, 10, 13)))
    for parameter in model.parameters():
        parameter.grad = torch.randn_like(parameter)
    expected = float(torch.nn.utils.get_total_norm([p.grad for p in model.parameters()]))
    assert gradient_norms(dict(model.named_parameters())).total == expected
