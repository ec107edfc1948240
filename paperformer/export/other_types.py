"""A model computed in another type by torch, beside itself: what that changes, before it is used."""

import copy
from dataclasses import replace
from pathlib import Path

import torch
from transformers import PreTrainedModel

from ..commands.loading import Dtype, check_dtype, compute_in, load_model, load_target_tokenizer, load_tokenizer
from ..modeling.decoding.packed_weights import memory_of_copies
from ..training.console.input_error import InputError
from ..training.console.progress import say
from .comparison import ACTIVATIONS_TOO, Comparison, compare, round_weights
from .export_file import ExportFile
from .formats.format import TOLERANCE, Exportable
from .sample_text import sample_of
from .torch_engine import TorchEngine


def compare_dtype(
    model: str, dtype: Dtype, *, text: Path | None = None, sequences: int = 100
) -> tuple[ExportFile, Comparison]:
    """Computes the same in float32 and in another type: log-probabilities, tokens, perplexity, memory and time.

    Args:
        model: its folder, or its name on the Hub.
        dtype: the other type.
        text: what is computed, see `sample_text.sample_of`.
        sequences: how many of its sentences, or windows of running text, at the most.

    Returns:
        What was compared, and what was found.

    Raises:
        InputError: if the model cannot be loaded or computed so, or int8 differs by more than rounding explains.
    """
    check_dtype(dtype)
    if dtype == "float32":
        raise InputError("dtype is float32, which others are compared with; give bfloat16 or int8")
    if sequences < 1:
        raise InputError(f"sequences is {sequences}; it must be at least 1")
    ours = load_model(model, device_map="cpu", dtype=torch.float32)
    if not hasattr(ours, "pack_weights"):
        raise InputError(f"{model} holds a {ours.config.model_type}; only paperformer's own models are compared")
    theirs = compute_in(copy.deepcopy(ours), dtype, model)
    exportable = Exportable(ours, load_tokenizer(model), load_target_tokenizer(ours))
    facts = ExportFile.of(exportable.config, format="torch", quantization=dtype, model=model, compared="logits")
    sample = sample_of(exportable, facts, model, text, None, of_test=True).first(sequences)
    say(f"comparing {dtype} with float32 on {len(sample.inputs):,} sequences ({sample.origin})")
    found = compare(
        TorchEngine(ours, facts),
        TorchEngine(theirs, facts),
        exportable,
        sample,
        rounded=round_weights(ours, _round_to_int8) if dtype == "int8" else None,
        megabytes=(0.0, 0.0),
        num_beams=5,
    )
    allowed = ACTIVATIONS_TOO * found.explained + TOLERANCE
    if dtype == "int8" and not found.root_mean_square <= allowed:  # bfloat16 rounds at every operation
        raise InputError(
            f"{model} in int8 differs by {found.root_mean_square:.1e} (root mean square), where rounding its weights "
            f"explains {found.explained:.1e}; use bfloat16 or float32"
        )
    return facts, replace(found, megabytes=(_megabytes_of(ours), _megabytes_of(theirs)))  # after copies were made


def _round_to_int8(weight: torch.Tensor) -> torch.Tensor:
    """What is left of a matrix: whole numbers of 1/127 of the largest value of its row."""
    if weight.dim() < 2:
        return weight
    units = weight.abs().amax(-1, keepdim=True).clamp(min=1e-30) / 127
    return (weight / units).round() * units


def _megabytes_of(model: PreTrainedModel) -> float:
    """In memory: the weights, and the copies that are multiplied with."""
    return (sum(weight.nbytes for weight in model.parameters()) + memory_of_copies(model)) / 1e6
