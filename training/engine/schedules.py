"""The learning rate of each step, as a pure function: there is no state to save, or to restore."""

import math

from ..recipe.optimization import Optimization


def learning_rate(options: Optimization, step: int, hidden_size: int) -> float:
    """The learning rate of one step: a linear warm-up to the peak, then the shape named by `options.schedule`.

    Args:
        options: peak, schedule and their lengths. `warmup_steps` 0 is as 1: the first step has the peak.
        step: from 1 to `max_steps`.
        hidden_size: the model's width, on which the peak depends where `learning_rate` is `paper`.
    """
    warmup = max(1, options.warmup_steps)
    peak = (hidden_size * warmup) ** -0.5 if options.learning_rate == "paper" else options.learning_rate
    if step <= warmup:
        return peak * (step / warmup)
    if options.schedule == "constant":
        return peak
    if options.schedule == "inverse_sqrt":
        # hidden_size^-0.5 * step^-0.5 (Vaswani et al. 2017, equation 3), relative to its maximum.
        return peak * math.sqrt(warmup / step)
    final = options.final_learning_rate
    return peak * (final + (1 - final) * _decay(options, step, warmup))


def _decay(options: Optimization, step: int, warmup: int) -> float:
    """How much of the decay is still to come, after the warm-up: 0 at the last step."""
    steps = options.max_steps - warmup
    if options.schedule == "wsd":
        wanted = max(1, options.max_steps // 5) if options.decay_steps is None else options.decay_steps
        steps = min(steps, wanted)
    progress = max(0.0, 1 - (options.max_steps - step) / steps)
    if options.schedule == "cosine":
        return (1 + math.cos(math.pi * progress)) / 2
    # "1-sqrt" ends lower than a line (Hägele et al. 2024, arXiv 2405.18392, section 3).
    return 1 - (math.sqrt(progress) if options.schedule == "wsd" else progress)
