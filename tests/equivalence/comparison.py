"""Two models, the same weights, the same input: the same logits, loss and gradients.

The models need not store their weights alike. A proof gives `translate`, a function that makes our parameters from
theirs, of differentiable operations on tensors: a renaming, a transposition, a split, a factor folded into a matrix.
It is used twice: its values are copied into our model, and by the chain rule its Jacobian turns the gradients of our
parameters into gradients of theirs, where they are compared.
"""

from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass
from typing import Any

import torch
from torch import Tensor, nn

Weights = dict[str, Tensor]
Translation = Callable[[Weights], Weights]
"""Their named parameters -> ours, under the names of `named_parameters()`: a tied parameter appears once."""

TOLERANCE = 1e-4
"""Largest difference allowed, relative to the scale. Computed in float64, differences are far smaller, unless a model
computes a part (a norm, a softmax) in float32 all the same; even the two forms of GELU are farther apart."""

GRADIENT_FLOOR = 1e-3
"""Scale of a parameter's gradient, at least this part of the largest of all: some gradients are zero but for rounding,
such as that of a bias of all keys, to which a softmax is blind."""


@dataclass(frozen=True)
class Differences:
    """Largest absolute differences, each relative to its scale."""

    logits: float
    """At real positions, relative to their largest logit."""

    loss: float
    """In evaluation or in training mode, relative to their loss."""

    gradients: float
    """Of all parameters, relative to the largest gradient of each."""


def randomize(model: nn.Module) -> None:
    """Fills every parameter with random values, biases and norms too: at their usual 0 and 1 they would hide mistakes.

    Matrices get a variance of 2 / fan-in, large enough for attention to be far from uniform.
    """
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            if parameter.dim() > 1:
                parameter.normal_(std=(2 / parameter.shape[-1]) ** 0.5)
            else:
                parameter.normal_(mean=1.0 if name.endswith("weight") else 0.0, std=0.3)


def rename(weights: Weights, names: Mapping[str, str]) -> Weights:
    """The same tensors, with every key of `names` in a name replaced by its value, one after the other."""
    renamed = {}
    for name, tensor in weights.items():
        for old, new in names.items():
            name = name.replace(old, new)
        renamed[name] = tensor
    return renamed


def copy_weights(ours: nn.Module, theirs: nn.Module, translate: Translation) -> tuple[Weights, Weights]:
    """Sets our parameters to the translation of theirs.

    Returns:
        Their parameters, and our parameters as functions of them in autograd's graph.

    Raises:
        AssertionError: if a parameter of ours gets no value or one that is not made from theirs, or if a value has no
            parameter of that name and shape.
    """
    sources = {name: parameter.detach().clone().requires_grad_() for name, parameter in theirs.named_parameters()}
    translated = translate(sources)
    targets = dict(ours.named_parameters())
    assert translated.keys() == targets.keys(), f"only one side has {sorted(translated.keys() ^ targets.keys())}"
    with torch.no_grad():
        for name, target in targets.items():
            assert translated[name].shape == target.shape, f"{name}: {translated[name].shape} for {target.shape}"
            assert translated[name].requires_grad, f"{name} is made from none of their parameters"
            target.copy_(translated[name])
    return sources, translated


def compare(
    ours: nn.Module,
    theirs: nn.Module,
    translate: Translation,
    inputs: Mapping[str, Any],
    real: Tensor,
    their_inputs: Mapping[str, Any] | None = None,
    gradient_floor: float = GRADIENT_FLOOR,
) -> Differences:
    """Copies their weights into our model and compares logits and loss in evaluation mode, loss and gradients in
    training mode, where our loss is computed without logits.

    Neither model may have dropout. If one smooths labels while training, the other has to.

    Args:
        ours, theirs: called with keywords, labels among them; they return an object with `logits` and `loss`.
        translate: our parameters from theirs.
        inputs: the arguments of our model.
        real: (B, T), true where a logit is of a real token rather than of padding.
        their_inputs: the arguments of their model; None: the same.
        gradient_floor: the smallest scale of a gradient, as a part of the largest gradient of all.

    Raises:
        AssertionError: if anything differs by more than `TOLERANCE`, if a parameter of either model is left out by
            `translate`, or if one takes no part in the loss.
    """
    sides = ((ours, inputs), (theirs, inputs if their_inputs is None else their_inputs))
    sources, translated = copy_weights(ours, theirs, translate)
    our_output, their_output = (model.eval()(**arguments) for model, arguments in sides)
    our_loss, their_loss = (model.train()(**arguments).loss for model, arguments in sides)
    for model, loss in ((ours, our_loss), (theirs, their_loss)):
        model.zero_grad()
        loss.backward()
    differences = Differences(
        logits=_relative(our_output.logits[real], their_output.logits[real]),
        loss=max(_relative(our_output.loss, their_output.loss), _relative(our_loss, their_loss)),
        gradients=_largest_gradient_difference(ours, theirs, sources, translated, gradient_floor),
    )
    for part, difference in asdict(differences).items():
        assert difference <= TOLERANCE, f"{part} differ by {difference:.1e} of their scale"
    return differences


def compare_generation(ours: Any, theirs: Any, translate: Translation, inputs: Mapping[str, Any]) -> None:
    """Copies their weights into our model and lets both continue, greedily and with their caches.

    Random models soon repeat one token for ever; here no pair of tokens may come twice.

    Raises:
        AssertionError: if a token differs.
    """
    copy_weights(ours, theirs, translate)
    settings = {"max_new_tokens": 24, "do_sample": False, "no_repeat_ngram_size": 2}
    expected, generated = (model.eval().generate(**inputs, **settings) for model in (theirs, ours))
    assert torch.equal(generated, expected), f"{generated.tolist()} instead of {expected.tolist()}"


def _largest_gradient_difference(
    ours: nn.Module, theirs: nn.Module, sources: Weights, translated: Weights, gradient_floor: float
) -> float:
    our_gradients = {name: parameter.grad for name, parameter in ours.named_parameters()}
    their_gradients = {name: parameter.grad for name, parameter in theirs.named_parameters()}
    for whose, gradients in (("our", our_gradients), ("their", their_gradients)):
        idle = [name for name, gradient in gradients.items() if gradient is None]
        assert not idle, f"the loss does not depend on {whose} {idle}"
    pulled_back = torch.autograd.grad(
        [translated[name] for name in our_gradients],
        list(sources.values()),
        list(our_gradients.values()),
        allow_unused=True,  # reported below, by name
    )
    unused = [name for name, gradient in zip(sources, pulled_back, strict=True) if gradient is None]
    assert not unused, f"translate makes nothing of their {unused}"
    floor = gradient_floor * max(gradient.abs().max().item() for gradient in their_gradients.values())
    return max(
        _relative(gradient, their_gradients[name], floor) for name, gradient in zip(sources, pulled_back, strict=True)
    )


def _relative(ours: Tensor, theirs: Tensor, floor: float = 0.0) -> float:
    """The largest absolute difference relative to their largest absolute value, or to `floor` if that is larger."""
    difference = (ours - theirs).abs().max()
    assert difference.isfinite(), "nan or infinity"  # max() of floats would pass over a nan
    return (difference / theirs.abs().max().clamp(min=floor)).item()
