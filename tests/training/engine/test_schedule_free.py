"""The schedule-free optimizer and the algorithm of its paper, and that the averages are what is used."""

import math
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file

from paperformer.training.engine.ema import make_average
from paperformer.training.engine.optimizers import build_optimizers, set_learning_rate
from paperformer.training.engine.schedule_free import ScheduleFreeAdamW
from paperformer.training.engine.schedules import learning_rate
from paperformer.training.recipe.data import TextData
from paperformer.training.recipe.optimization import Optimization
from paperformer.training.recipe.recipe import Recipe

from .conftest import Train

OPTIONS = Optimization(
    optimizer="schedule_free", schedule="constant", learning_rate=0.05, warmup_steps=7, weight_decay=0.1
)


def follow_the_paper(start: float, gradient: Callable[[float, int], float], steps: int) -> tuple[float, float]:
    """Algorithm 1 of Defazio et al. (2024) for one number, with x, y and z each kept: the last x and the next y.

    As there: beta1 interpolates, the squared gradients' mean is corrected for its start, the decay is that of y, and
    the average weights a step by the square of its learning rate, which warms up linearly.
    """
    beta1, beta2, peak = OPTIONS.adam_beta1, OPTIONS.adam_beta2, 0.05
    z = x = start
    squares = weights = 0.0
    for t in range(1, steps + 1):
        y = (1 - beta1) * z + beta1 * x
        g = gradient(y, t)
        squares = beta2 * squares + (1 - beta2) * g**2
        rate = peak * min(1.0, t / OPTIONS.warmup_steps)
        z -= rate * (g / (math.sqrt(squares / (1 - beta2**t)) + OPTIONS.adam_epsilon) + OPTIONS.weight_decay * y)
        weights += rate**2
        share = rate**2 / weights
        x = (1 - share) * x + share * z
    return x, (1 - beta1) * z + beta1 * x


def test_it_is_the_algorithm_of_the_paper() -> None:
    """The authors' package (`schedulefree` 1.4.1) was found to give the same weights to the bit, over 60 steps."""
    torch.manual_seed(0)
    layer = torch.nn.Linear(5, 3, bias=False).double()
    start, noise = layer.weight.detach().clone(), torch.randn(40, 3, 5, dtype=torch.float64)

    def gradient(y: torch.Tensor, t: int) -> torch.Tensor:
        return torch.sin(3 * y) + noise[t - 1]

    (optimizer,) = build_optimizers(layer, OPTIONS)  # type: ignore[arg-type]
    assert isinstance(optimizer, ScheduleFreeAdamW)
    for step in range(1, 41):
        layer.weight.grad = gradient(layer.weight.detach(), step)
        set_learning_rate([optimizer], learning_rate(OPTIONS, step, 5))
        optimizer.step()
    averages = optimizer.find_averages()[layer.weight]
    for row in range(3):
        for column in range(5):
            x, y = follow_the_paper(
                float(start[row, column]),
                lambda y, t, at=(row, column): math.sin(3 * y) + float(noise[(t - 1, *at)]),  # type: ignore[misc]
                steps=40,
            )
            assert float(averages[row, column]) == pytest.approx(x, abs=1e-12)
            assert float(layer.weight.detach()[row, column]) == pytest.approx(y, abs=1e-12)
    assert float((averages - layer.weight.detach()).abs().max()) > 1e-3


def test_averages_take_no_memory_and_leave_no_trace() -> None:
    torch.manual_seed(0)
    layer = torch.nn.Linear(4, 4)
    optimizers = build_optimizers(layer, OPTIONS)  # type: ignore[arg-type]
    average = make_average(layer, optimizers, 0.0)
    assert average is not None
    with average.in_place():  # of weights that have not moved: themselves
        assert torch.equal(average.find_averages()["weight"], layer.weight)
    for step in (1, 2, 3):
        layer.weight.grad = torch.randn(4, 4)  # the bias has none
        set_learning_rate(optimizers, 0.1)
        optimizers[0].step()
        before = {name: p.detach().clone() for name, p in layer.named_parameters()}
        expected = dict(average.find_averages())
        with average.in_place():
            assert torch.equal(layer.weight, expected["weight"])
            assert torch.equal(layer.weight, before["weight"]) == (step == 1)  # of which the average is the one step
        assert all(torch.equal(p, before[name]) for name, p in layer.named_parameters())


def test_the_averages_are_validated_saved_and_chosen(
    lm_recipe: Callable[..., Recipe[TextData]], train: Train, tmp_path: Path
) -> None:
    options = {
        "optimization__optimizer": "schedule_free",
        "optimization__schedule": "constant",
        "optimization__max_steps": 6,
        "evaluation__every_steps": 3,
        "guard__spike": "roll_back",  # a checkpoint is saved before the first step
    }
    fitted, folder = train(lm_recipe(**options))
    last = folder.checkpoints()[-1][1]
    trained, averaged = load_file(last / "model.safetensors"), load_file(last / "ema.safetensors")
    assert any(not torch.equal(trained[name], averaged[name]) for name in averaged)
    assert fitted.weights == "step 6"
    weights = fitted.model.state_dict()
    assert all(torch.equal(weights[name], tensor) for name, tensor in averaged.items())
    state = torch.load(last / "optimizer.pt", weights_only=True)["state"]
    assert {each["step"] for each in state.values()} == {6}  # that checkpoint was no step


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"schedule": "cosine"}, "schedule is cosine; with the optimizer schedule_free, .* it must be constant"),
        ({"schedule": "constant", "ema_decay": 0.9}, r"ema_decay is 0\.9; the optimizer schedule_free averages"),
        ({"schedule": "constant", "adam_beta1": 0.0}, "adam_beta1 is 0; with the optimizer schedule_free"),
    ],
)
def test_what_does_not_go_with_it_is_refused(given: dict[str, object], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        Optimization(optimizer="schedule_free", **given)  # type: ignore[arg-type]
