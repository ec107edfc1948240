"""The figures of a plan. They come from the configuration alone (see `training/costs`)."""

from typing import Any

from ..modeling.families import Config
from ..training.console.input_error import InputError
from ..training.costs import compute_budget
from ..training.costs.activations import activation_bytes
from ..training.costs.flops import forward_flops, training_flops
from ..training.costs.memory import cache_bytes, state_bytes
from ..training.costs.parameters import count_parameters
from ..training.costs.peak_flops import peak_flops
from .options import PlanOptions

TRANSLATION_LENGTH = 128  # tokens of the longest sentence, as in recipes; the models themselves go on beyond it
USUAL_BATCH = 4096  # tokens


def make_plan(config: Config, options: PlanOptions) -> dict[str, Any]:
    """All figures, as plain numbers: FLOPs, bytes, hours, tokens.

    Args:
        config: of the model.
        options: `preset` and `model` are only names here.

    Raises:
        InputError: for lengths that the model or the batch cannot have, or an unknown device.
    """
    length = _choose_length(config, options)
    lengths = (length, length if config.is_encoder_decoder else 0)  # of the target, or the only one, and of the source
    batch_tokens = options.batch_tokens or max(USUAL_BATCH, length)
    if batch_tokens < length:
        raise InputError(f"--batch_tokens is {batch_tokens}; it must be at least the sequence length, {length}")
    setting = {
        "batch size": batch_tokens // length,
        "sequence length": length,
        "precision": options.precision,
        "optimizer": options.optimizer,
        "attention": options.attention,
        "gradient checkpointing": options.gradient_checkpointing,
    }
    parameters = count_parameters(config)
    size = sum(parameters.values())
    forward = forward_flops(config, *lengths)
    training = training_flops(config, *lengths, gradient_checkpointing=options.gradient_checkpointing)
    flops = {"forward": sum(forward.values()), **forward, "training": training}
    activations = activation_bytes(
        config,
        batch_tokens // length,
        *lengths,
        precision=options.precision,
        attention=options.attention,
        gradient_checkpointing=options.gradient_checkpointing,
    )
    memory = state_bytes(config, options.optimizer)
    memory |= {"activations": activations.kept, "recomputed block": activations.recomputed}
    tokens = options.tokens or compute_budget.TOKENS_PER_PARAMETER * size
    useful = training_flops(config, *lengths) / length * tokens  # the laws count nothing twice
    return {
        "model": {"name": options.preset or options.model, "type": config.model_type},
        "parameters": {"total": size, **parameters},
        "base model parameters": sum(count_parameters(config, with_head=False).values()),
        "flops a token": {part: count / length for part, count in flops.items()},
        "memory": {"total": sum(memory.values()), **memory},
        "cache a token": _count_cache_bytes(config, options),
        "cache of a sequence": cache_bytes(config, *lengths, precision=options.precision),
        "setting": setting,
        "training": _plan_training(training / length * tokens, tokens, options),
        "chinchilla": _apply_scaling_laws(size, tokens, useful)
        | {"is decoder-only": config.model_type == "paperformer-lm"},
    }


def _choose_length(config: Config, options: PlanOptions) -> int:
    """Tokens of a sequence, or of each side of a pair."""
    longest = config.max_position_embeddings
    if options.sequence_length is None:
        return min(TRANSLATION_LENGTH, longest) if config.is_encoder_decoder else longest
    if config.position_limit is not None and options.sequence_length > config.position_limit:
        raise InputError(
            f"--sequence_length is {options.sequence_length}; it must be at most {longest}, the learned positions that "
            "there are (--max_position_embeddings)"
        )
    return options.sequence_length


def _count_cache_bytes(config: Config, options: PlanOptions) -> dict[str, int]:
    """Of keys and values a token, by the attention that they are for."""
    own = cache_bytes(config, 1, precision=options.precision)
    if not config.is_encoder_decoder:
        return {"self-attention": own}
    both = cache_bytes(config, 1, 1, precision=options.precision)
    return {"self-attention": own, "cross-attention, a source token": both - own}


def _plan_training(flops: float, tokens: float, options: PlanOptions) -> dict[str, Any]:
    """What training takes, in hours too if the device is known."""
    training = {"tokens": tokens, "tokens are given": options.tokens is not None, "flops": flops}
    if options.hardware is None and options.flops is None:
        return training
    peak = options.flops or peak_flops(str(options.hardware), options.precision)
    return training | {
        "hardware": options.hardware,
        "devices": options.devices,
        "peak flops a second": peak,
        "utilisation": options.utilisation,
        "hours": compute_budget.training_hours(flops, peak, options.utilisation, options.devices),
    }


def _apply_scaling_laws(size: int, tokens: float, flops: float) -> dict[str, Any]:
    """The data that suits the model, the model and data that suit the FLOPs, and the loss to expect."""
    law = compute_budget.CHINCHILLA
    best = {"rule of thumb": compute_budget.rule_of_thumb(flops), "fit": law.optimum(flops)}
    return {
        "tokens for this model": {
            "rule of thumb": compute_budget.TOKENS_PER_PARAMETER * size,
            "fit": law.optimal_tokens(size),
        },
        "best for these flops": {
            name: {"parameters": parameters, "tokens": data} for name, (parameters, data) in best.items()
        },
        "expected loss": law.loss(size, tokens),
    }
