"""`paperformer plan`: what a model costs, before it is trained.

The figures come from the configuration alone (see `training/costs.py` and `training/compute_budget.py`). What brings
torch along is imported after the command line is parsed: the help text does not wait for it.
"""

import json
import math
from argparse import ArgumentError
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, fields
from difflib import get_close_matches
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from jsonargparse import ArgumentParser, set_parsing_settings

from .training.input_error import InputError, one_line_errors
from .training.recipe_file import explain

if TYPE_CHECKING:
    from .training.costs import Config

set_parsing_settings(docstring_parse_attribute_docstrings=True)

OVERRIDES = """Every field of the model's configuration is an option too, with the name that it has in Python:
--hidden_size 1024 --num_hidden_layers 24 --vocab_size 8000; the paper's d_model, d_ff, n_heads and n_layers will do.
paperformer train lm --help and paperformer train seq2seq --help explain them."""

NOT_DECODER_ONLY = "The laws were fitted to decoder-only language models; for another family they are a first guess."
TRANSLATION_LENGTH = 128  # tokens of the longest sentence, as in recipes; the models themselves go on beyond it


@dataclass(kw_only=True)
class PlanOptions:
    """What to plan, and for what."""

    preset: str | None = None
    """A published architecture: transformer-base, transformer-big, transformer-iwslt, transformer-tiny; gpt2,
    gpt2-medium, llama-160m, nano; bert-base."""

    model: str | None = None
    """Instead of a preset, a model's folder, of which config.json is read."""

    tokens: float | None = None
    """Tokens to train on, repetitions included, such as 3e9; for translation, target tokens, with as many of the
    source. By default 20 a parameter."""

    hardware: str | None = None
    """Device to train on: P100, V100, T4, RTX3090, RTX4090, L4, A100, H100, H200, or this, whose speed is measured in
    one second."""

    flops: float | None = None
    """Instead of a device of that list, the peak floating-point operations a second of yours, such as 1e14."""

    devices: int = 1
    """How many such devices train together."""

    utilisation: float = 0.4
    """Share of the peak speed that training reaches. A well-fed GPU reaches 0.3 to 0.5 with large models, and less with
    small ones."""

    precision: Literal["fp32", "bf16", "fp16"] = "bf16"
    """Type of matrix products and of cached keys and values; weights and optimizer stay in float32."""

    batch_tokens: int | None = None
    """Tokens of a batch on one device, padding included; for translation, of one side. By default 4096, or one sequence
    if that is longer."""

    sequence_length: int | None = None
    """Tokens of a sequence; for translation, of each side. By default the longest that the model is made for, and 128
    for translation."""

    optimizer: Literal["adamw", "momentum", "sgd"] = "adamw"
    """AdamW keeps two numbers for each parameter, SGD with momentum one, plain SGD none."""

    attention: Literal["sdpa", "eager"] = "sdpa"
    """Implementation of attention: sdpa is torch's, which never holds all scores; eager holds them."""

    gradient_checkpointing: bool = False
    """Compute blocks again in the backward pass instead of keeping what they have computed."""

    json: bool = False
    """Print JSON, with plain numbers, instead of a table."""

    def __post_init__(self) -> None:
        for name in ("tokens", "flops", "devices", "batch_tokens", "sequence_length"):
            value = getattr(self, name)
            if value is not None and not 0 < value < float("inf"):
                raise InputError(f"--{name} is {value:g}; it must be greater than 0 and finite")
        if not 0 < self.utilisation <= 1:
            raise InputError(f"--utilisation is {self.utilisation:g}; it must be greater than 0 and at most 1")
        for one, other in (("preset", "model"), ("hardware", "flops")):
            if getattr(self, one) is not None and getattr(self, other) is not None:
                raise InputError(f"--{one} and --{other} are both given; give one of them")


def main(arguments: list[str]) -> None:
    """Parses the command line and prints the plan; bad input ends in one line and exit code 2."""
    parser = ArgumentParser(
        prog="paperformer plan",
        description="What a model costs before it is trained: parameters, FLOPs, memory, hours, and how much data "
        "suits it.",
        epilog=OVERRIDES,
        exit_on_error=False,
        allow_abbrev=False,
    )
    parser.add_class_arguments(PlanOptions)
    if not {"-h", "--help"}.isdisjoint(arguments):
        parser.print_help()
        return
    with one_line_errors():
        options, overrides = _parse(parser, arguments)
        plan = make_plan(_configuration(options, overrides), options)
        print(json.dumps(plan, indent=2) if options.json else format_plan(plan))


def make_plan(config: "Config", options: PlanOptions) -> dict[str, Any]:
    """All figures, as plain numbers: FLOPs, bytes, hours, tokens.

    Args:
        config: of the model.
        options: `preset` and `model` are only names here.

    Raises:
        InputError: for lengths that the model or the batch cannot have, or an unknown device.
    """
    from .training import compute_budget, costs

    length = _sequence_length(config, options)
    source_length = length if config.is_encoder_decoder else 0
    batch_tokens = options.batch_tokens or max(4096, length)
    if batch_tokens < length:
        raise InputError(f"--batch_tokens is {batch_tokens}; it must be at least the sequence length, {length}")
    batch_size = batch_tokens // length

    parameters = costs.count_parameters(config)
    size = sum(parameters.values())
    forward = costs.forward_flops(config, length, source_length)
    training = costs.training_flops(
        config, length, source_length, gradient_checkpointing=options.gradient_checkpointing
    )
    states = costs.state_bytes(config, options.optimizer)
    activations = costs.activation_bytes(
        config,
        batch_size,
        length,
        source_length,
        precision=options.precision,
        attention=options.attention,
        gradient_checkpointing=options.gradient_checkpointing,
    )
    memory = states | {"activations": activations.kept, "recomputed block": activations.recomputed}
    cache = {"self-attention": costs.cache_bytes(config, 1, precision=options.precision)}
    if config.is_encoder_decoder:
        both = costs.cache_bytes(config, 1, 1, precision=options.precision)
        cache["cross-attention, a source token"] = both - cache["self-attention"]

    tokens = options.tokens or compute_budget.TOKENS_PER_PARAMETER * size
    compute = training / length * tokens
    useful = costs.training_flops(config, length, source_length) / length * tokens  # the laws count nothing twice
    thumb, law = compute_budget.rule_of_thumb(useful), compute_budget.CHINCHILLA
    plan: dict[str, Any] = {
        "model": {"name": options.preset or options.model, "type": config.model_type},
        "parameters": {"total": size, **parameters},
        "base model parameters": sum(costs.count_parameters(config, with_head=False).values()),
        "flops a token": {
            "forward": sum(forward.values()) / length,
            **{part: flops / length for part, flops in forward.items()},
            "training": training / length,
        },
        "memory": {"total": sum(memory.values()), **memory},
        "cache a token": cache,
        "cache of a sequence": costs.cache_bytes(config, length, source_length, precision=options.precision),
        "setting": {
            "batch size": batch_size,
            "sequence length": length,
            "precision": options.precision,
            "optimizer": options.optimizer,
            "attention": options.attention,
            "gradient checkpointing": options.gradient_checkpointing,
        },
        "training": {"tokens": tokens, "tokens are given": options.tokens is not None, "flops": compute},
        "chinchilla": {
            "tokens for this model": {
                "rule of thumb": compute_budget.TOKENS_PER_PARAMETER * size,
                "fit": law.optimal_tokens(size),
            },
            "best for these flops": {
                name: {"parameters": best[0], "tokens": best[1]}
                for name, best in (("rule of thumb", thumb), ("fit", law.optimum(useful)))
            },
            "expected loss": law.loss(size, tokens),
            "is decoder-only": config.model_type == "paperformer-lm",
        },
    }
    if options.hardware is not None or options.flops is not None:
        peak = options.flops or compute_budget.peak_flops(str(options.hardware), options.precision)
        plan["training"] |= {
            "hardware": options.hardware,
            "devices": options.devices,
            "peak flops a second": peak,
            "utilisation": options.utilisation,
            "hours": compute_budget.training_hours(compute, peak, options.utilisation, options.devices),
        }
    return plan


def format_plan(plan: Mapping[str, Any]) -> str:
    """The plan as a table of names, numbers and remarks."""
    setting, training, laws = plan["setting"], plan["training"], plan["chinchilla"]
    is_pair = "cross-attention, a source token" in plan["cache a token"]
    size, flops, memory = plan["parameters"], plan["flops a token"], plan["memory"]
    precision = setting["precision"]
    rows: list[tuple[str, ...]] = [(f"{plan['model']['name']} ({plan['model']['type']})",)]

    def section(title: str) -> None:
        rows.extend([(), (title,)])

    section("Parameters")
    rows += [
        (part, f"{count:,}", f"{count / size['total']:.1%}")
        for part, count in size.items()
        if part != "total" and count
    ]
    remark = "output layer is tied to the embeddings" if not size["output layer"] else ""
    rows.append(("total", f"{size['total']:,}", remark))
    if plan["base model parameters"] != size["total"]:
        rows.append(
            ("base model", f"{plan['base model parameters']:,}", "what AutoModel loads: without the output layer")
        )

    section(
        f"FLOPs a {'pair of a source and a target token' if is_pair else 'token'}, in sequences of "
        f"{setting['sequence length']:,}"
    )
    rows += [
        (part, _scaled(flops[part], "FLOP"), f"{flops[part] / flops['forward']:.1%}")
        for part in flops
        if part not in ("forward", "training") and flops[part]
    ]
    rows.append(("forward", _scaled(flops["forward"], "FLOP")))
    passes = "forward and backward"
    if setting["gradient checkpointing"]:
        passes += ", blocks once more"
    if plan["model"]["type"] == "paperformer-encoder":
        passes += ", logits of masked tokens only"
    rows.append(
        ("training", _scaled(flops["training"], "FLOP"), f"{passes}: {flops['training'] / flops['forward']:.2f} x")
    )

    section("Memory in training, on one device without sharding")
    remarks = {
        "weights": "float32",
        "gradients": "float32",
        "optimizer states": setting["optimizer"],
        "activations": f"{setting['batch size']:,} x {setting['sequence length']:,} tokens, {precision}, "
        f"{setting['attention']}{', of checkpoints only' if setting['gradient checkpointing'] else ''}",
        "recomputed block": "one at a time, in the backward pass",
        "total": "without the allocator's reserve and the libraries",
    }
    rows += [(name, _scaled(memory[name], "B"), remarks[name]) for name in remarks if memory[name]]

    if plan["cache of a sequence"]:
        section(f"Cache of keys and values in generation, {precision}")
        rows += [(name, _scaled(count, "B"), "a token") for name, count in plan["cache a token"].items()]
        rows.append(("a whole sequence", _scaled(plan["cache of a sequence"], "B")))

    section("Training")
    rows.append(("tokens", _rounded(training["tokens"]), "" if training["tokens are given"] else "20 a parameter"))
    rows.append(("compute", f"{training['flops']:.3g} FLOP"))
    if "hours" in training:
        devices = f"{training['devices']} x {training['hardware'] or 'device'}"
        speed = f"{_scaled(training['peak flops a second'], 'FLOP/s')} each, of which {training['utilisation']:.0%}"
        rows.append(("time", _duration(training["hours"]), f"{devices}, {speed}"))

    section("Compute-optimal size and data (Hoffmann et al. 2022)")
    fit = "their approach 3, constants of Besiroglu et al. 2024"
    for name, remark in (("rule of thumb", "20 tokens a parameter"), ("fit", fit)):
        rows.append((f"data for this model, {name}", _rounded(laws["tokens for this model"][name]), remark))
    for name, best in laws["best for these flops"].items():
        sizes = f"parameters on {_rounded(best['tokens'])} tokens"
        rows.append((f"best for this compute, {name}", _rounded(best["parameters"]), sizes))
    if laws["is decoder-only"]:
        rows.append(
            (
                "loss of the fit",
                f"{laws['expected loss']:.2f}",
                "nats a token of its data and tokenizer, each text seen once",
            )
        )
    return "\n".join([*_aligned(rows), *([] if laws["is decoder-only"] else ["", NOT_DECODER_ONLY])])


def _aligned(rows: Iterable[tuple[str, ...]]) -> Iterable[str]:
    """Rows of a name, a number and a remark, in columns; a row of one is a title."""
    rows = list(rows)
    first, second = (max(len(row[column]) for row in rows if len(row) > 1) for column in (0, 1))
    for row in rows:
        if len(row) > 1:
            yield f"  {row[0]:<{first}}  {row[1]:>{second}}  {''.join(row[2:])}".rstrip()
        else:
            yield "".join(row)


def _scaled(value: float, unit: str) -> str:
    """With a decimal prefix and four digits: 248.9 MB."""
    thousands = min(5, int(math.log10(value) / 3)) if value >= 1 else 0
    return f"{value / 1000**thousands:.4g} {('', 'k', 'M', 'G', 'T', 'P')[thousands]}{unit}"


def _rounded(count: float) -> str:
    """To three digits, as is fit for an estimate: 2,490,000,000."""
    return f"{float(f'{count:.3g}'):,.0f}"


def _duration(hours: float) -> str:
    if hours < 1:
        return f"{60 * hours:.2g} minutes"
    return f"{hours:,.1f} hours" if hours < 72 else f"{hours / 24:,.1f} days"


def _parse(parser: ArgumentParser, arguments: list[str]) -> tuple[PlanOptions, dict[str, str]]:
    """Options of the plan, and the other options, which are fields of a configuration still to be found."""
    own, overrides, known = [], {}, {field.name: field.type for field in fields(PlanOptions)}
    rest = iter([*arguments, "--"])
    argument = next(rest)
    while argument != "--":
        option, equals, value = argument.partition("=")
        if not option.startswith("--"):
            raise InputError(f"'{argument}' belongs to no option; options are written --FIELD VALUE")
        argument = next(rest)
        if not equals:
            value = "true"  # a flag
            if not argument.startswith("--"):
                value, argument = argument, next(rest)
        name = option.removeprefix("--")
        if name in known:
            own.append(f"--{name}={value}")
        else:
            overrides[name] = value
    try:
        return PlanOptions(**vars(parser.parse_args(own))), overrides
    except InputError:
        raise
    except (ArgumentError, TypeError, ValueError) as error:
        raise explain(error, own, [], known) from error


def _configuration(options: PlanOptions, overrides: Mapping[str, str]) -> "Config":
    """The configuration of the preset or the model's folder, with fields set differently.

    Raises:
        InputError: for an unknown preset or field, a folder without a model, or fields that contradict each other.
    """
    from huggingface_hub.errors import StrictDataclassError

    from .configuration.configuration_encoder import PaperformerEncoderConfig
    from .configuration.configuration_lm import PaperformerLMConfig
    from .configuration.configuration_seq2seq import PaperformerSeq2SeqConfig
    from .configuration.configuration_transformer import TransformerConfig

    families = (PaperformerSeq2SeqConfig, PaperformerLMConfig, PaperformerEncoderConfig)
    family: type[Config]
    if options.preset is not None:
        presets = {name: family for family in families for name in family.presets}
        if options.preset not in presets:
            near = get_close_matches(options.preset, presets, n=1)
            hint = f"did you mean {near[0]}?" if near else f"there are {', '.join(presets)}"
            raise InputError(f"--preset is {options.preset}; {hint}")
        family = presets[options.preset]
        make: Callable[..., Config] = partial(family.from_preset, options.preset)
    elif options.model is not None:
        saved, types = _saved_fields(Path(options.model)), {family.model_type: family for family in families}
        model_type = saved.get("model_type")
        if model_type not in types:
            raise InputError(f"--model: {options.model} holds a {model_type}; it must be a {' or a '.join(types)}")
        family = types[model_type]
        make = partial(family, **{name: saved[name] for name in saved.keys() & _own_fields(family)})
    else:
        raise InputError("there is no model to plan; give --preset NAME or --model FOLDER")

    allowed = [*_own_fields(family), *TransformerConfig.attribute_map]
    for name in overrides:
        if name not in allowed:
            near = get_close_matches(name, [*(field.name for field in fields(PlanOptions)), *allowed], n=1)
            hint = f"did you mean --{near[0]}?" if near else "paperformer plan --help explains which there are"
            raise InputError(f"there is no option --{name}; {hint}")
    try:
        return make(**{name: _value(text) for name, text in overrides.items()})
    except StrictDataclassError as error:  # wraps what the configuration's own check has raised
        raise InputError(str(error.__cause__ or error).splitlines()[-1]) from error


def _own_fields(family: "type[Config]") -> set[str]:
    """The fields of a family, without those that all configurations of transformers have."""
    from transformers import PreTrainedConfig

    return {field.name for field in fields(family)} - {field.name for field in fields(PreTrainedConfig)}


def _saved_fields(folder: Path) -> dict[str, Any]:
    """What config.json of a model's folder says."""
    path = folder / "config.json"
    try:
        saved = json.loads(path.read_text("utf-8"))
    except OSError as error:
        raise InputError(f"--model: {path} cannot be read: {error.strerror}") from error
    except ValueError as error:
        raise InputError(f"--model: {path} is not JSON: {error}") from error
    return saved if isinstance(saved, dict) else {}


def _value(text: str) -> Any:
    """A number, true, false, null, a list or a mapping as JSON writes them; any other text is itself."""
    try:
        return json.loads(text)
    except ValueError:
        return text


def _sequence_length(config: "Config", options: PlanOptions) -> int:
    longest = config.max_position_embeddings
    if options.sequence_length is None:
        return min(TRANSLATION_LENGTH, longest) if config.is_encoder_decoder else longest
    if options.sequence_length > longest and config.position_embedding_type == "learned":
        raise InputError(
            f"--sequence_length is {options.sequence_length}; it must be at most {longest}, the learned positions that "
            "there are (--max_position_embeddings)"
        )
    return options.sequence_length
