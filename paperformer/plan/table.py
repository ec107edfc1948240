"""A plan as a table of names, numbers and remarks."""

import math
from collections.abc import Iterator, Mapping
from itertools import islice
from typing import Any

from ..training.console.tables import align_rows

Plan = Mapping[str, Any]
Row = tuple[str, str, str]

NOT_DECODER_ONLY = "The laws were fitted to decoder-only language models; for another family they are a first guess."


def format_plan(plan: Plan) -> str:
    """The plan in sections, the columns of all below one another."""
    setting = plan["setting"]
    unit = (
        "pair of a source and a target token" if "cross-attention, a source token" in plan["cache a token"] else "token"
    )
    sections = {
        "Parameters": [*_parameters(plan)],
        f"FLOPs a {unit}, in sequences of {setting['sequence length']:,}": [*_flops(plan)],
        "Memory in training, on one device without sharding": [*_memory(plan)],
        f"Cache of keys and values in generation, {setting['precision']}": [*_cache(plan)],
        "Training": [*_training(plan)],
        "Compute-optimal size and data (Hoffmann et al. 2022)": [*_scaling_laws(plan)],
    }
    lines = iter(align_rows([("", *row) for rows in sections.values() for row in rows], right=[2]).splitlines())
    parts = [f"{plan['model']['name']} ({plan['model']['type']})"]
    parts += ["\n".join([title, *islice(lines, len(rows))]) for title, rows in sections.items() if rows]
    return "\n\n".join(parts if plan["chinchilla"]["is decoder-only"] else [*parts, NOT_DECODER_ONLY])


def _parameters(plan: Plan) -> Iterator[Row]:
    counts, base = plan["parameters"], plan["base model parameters"]
    for part, count in counts.items():
        if part != "total" and count:
            yield part, f"{count:,}", f"{count / counts['total']:.1%}"
    yield "total", f"{counts['total']:,}", "" if counts["output layer"] else "output layer is tied to the embeddings"
    if base != counts["total"]:
        yield "base model", f"{base:,}", "what AutoModel loads: without the output layer"


def _flops(plan: Plan) -> Iterator[Row]:
    flops = plan["flops a token"]
    for part, count in flops.items():
        if part not in ("forward", "training") and count:
            yield part, _scale(count, "FLOP"), f"{count / flops['forward']:.1%}"
    yield "forward", _scale(flops["forward"], "FLOP"), ""
    passes = "forward and backward"
    if plan["setting"]["gradient checkpointing"]:
        passes += ", blocks once more"
    if plan["model"]["type"] == "paperformer-encoder":
        passes += ", logits of masked tokens only"
    yield "training", _scale(flops["training"], "FLOP"), f"{passes}: {flops['training'] / flops['forward']:.2f} x"


def _memory(plan: Plan) -> Iterator[Row]:
    setting = plan["setting"]
    kept = ", of checkpoints only" if setting["gradient checkpointing"] else ""
    tokens = f"{setting['batch size']:,} x {setting['sequence length']:,} tokens"
    remarks = {
        "weights": "float32",
        "gradients": "float32",
        "optimizer states": setting["optimizer"],
        "activations": f"{tokens}, {setting['precision']}, {setting['attention']}{kept}",
        "recomputed block": "one at a time, in the backward pass",
        "total": "without the allocator's reserve and the libraries",
    }
    for part, remark in remarks.items():
        if plan["memory"][part]:
            yield part, _scale(plan["memory"][part], "B"), remark


def _cache(plan: Plan) -> Iterator[Row]:
    if plan["cache of a sequence"]:
        for part, count in plan["cache a token"].items():
            yield part, _scale(count, "B"), "a token"
        yield "a whole sequence", _scale(plan["cache of a sequence"], "B"), ""


def _training(plan: Plan) -> Iterator[Row]:
    training = plan["training"]
    yield "tokens", _round(training["tokens"]), "" if training["tokens are given"] else "20 a parameter"
    yield "compute", f"{training['flops']:.3g} FLOP", ""
    if "hours" in training:
        devices = f"{training['devices']} x {training['hardware'] or 'device'}"
        speed = f"{_scale(training['peak flops a second'], 'FLOP/s')} each, of which {training['utilisation']:.0%}"
        yield "time", _format_hours(training["hours"]), f"{devices}, {speed}"


def _scaling_laws(plan: Plan) -> Iterator[Row]:
    laws = plan["chinchilla"]
    remarks = {
        "rule of thumb": "20 tokens a parameter",
        "fit": "their approach 3, constants of Besiroglu et al. 2024",
    }
    for name, remark in remarks.items():
        yield f"data for this model, {name}", _round(laws["tokens for this model"][name]), remark
    for name, best in laws["best for these flops"].items():
        remark = f"parameters on {_round(best['tokens'])} tokens"
        yield f"best for this compute, {name}", _round(best["parameters"]), remark
    if laws["is decoder-only"]:
        remark = "nats a token of its data and tokenizer, each text seen once"
        yield "loss of the fit", f"{laws['expected loss']:.2f}", remark


def _scale(value: float, unit: str) -> str:
    """With a decimal prefix and four digits: 248.9 MB."""
    thousands = min(5, int(math.log10(value) / 3)) if value >= 1 else 0
    return f"{value / 1000**thousands:.4g} {('', 'k', 'M', 'G', 'T', 'P')[thousands]}{unit}"


def _round(count: float) -> str:
    """To three digits, as is fit for an estimate: 2,490,000,000."""
    return f"{float(f'{count:.3g}'):,.0f}"


def _format_hours(hours: float) -> str:
    if hours < 1:
        return f"{60 * hours:.2g} minutes"
    return f"{hours:,.1f} hours" if hours < 72 else f"{hours / 24:,.1f} days"
