"""An export beside the model that it was made from: the same numbers, the same tokens, quality, size and time."""

import copy
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from statistics import median

import numpy as np
import torch
from transformers import PreTrainedModel

from ..training.console.input_error import InputError
from .export_file import ExportFile
from .formats.format import TOLERANCE, Engine, Exportable, Ids
from .sample_text import Sample
from .torch_engine import TorchEngine

ACTIVATIONS_TOO = 5.0
"""How much more may differ than by rounding the weights alone, in the root mean square: engines that compute with
integers round what the weights are multiplied with as well."""

ROUNDS = 3
BATCH = 16
"""Sequences that are decoded together when time is taken."""
NEW_TOKENS = 32
"""How far a language model goes on."""


@dataclass(frozen=True, kw_only=True)
class Comparison:
    """What the comparison of an export with its model has found."""

    sample: str
    sequences: int
    tokens: int
    """Whose log-probabilities were compared; of an encoder, whose states."""
    difference: float
    """The largest absolute difference of two values."""
    root_mean_square: float
    """Of all differences."""
    explained: float
    """The same, where our own weights are rounded in the same way: what the quantisation explains."""
    likeliest: float | None
    """The share of tokens in whose place both find the same token the likeliest; None of another engine than torch."""
    identical: dict[str, int]
    """How many sequences are decoded to the same tokens, by the kind of search."""
    quality: dict[str, tuple[float, float]]
    """BLEU, or perplexity a token: of the model, of the export; of text that people wrote."""
    megabytes: tuple[float, float]
    milliseconds: tuple[float, float]
    """A sequence, in the median of some rounds that alternate."""
    threads: int
    num_beams: int


def check_function(ours: TorchEngine, theirs: Engine, sample: Sample, title: str, tolerance: float = TOLERANCE) -> None:
    """Raises InputError if a float32 export is another function than the model, whole or token by token."""
    differences, scale = _differences(ours.values(sample.inputs, sample.outputs), theirs, sample)
    largest = float(np.abs(differences).max(initial=0.0))
    allowed = tolerance * max(1.0, scale)
    if not largest <= allowed:  # nor is NaN
        raise InputError(
            f"the model in {title} is not the same function: its values differ by {largest:.1e}, where the largest is "
            f"{scale:.1e} and rounding explains {allowed:.1e}; nothing is written"
        )
    if ours.facts.family == "encoder":
        return
    settings = {"num_beams": 1, "length_penalty": 1.0, "max_new_tokens": _new_tokens(ours.facts, sample.inputs)}
    pairs = zip(_decode(ours, sample.inputs, settings), _decode(theirs, sample.inputs, settings), strict=True)
    for given, (own, other) in zip(sample.inputs, pairs, strict=True):
        if own != other and not (gap := _gap(ours, given, own, other)) <= 2 * allowed:
            raise InputError(
                f"the model in {title} decodes otherwise: where torch's likeliest token is ahead by {gap:.1e} nats, it "
                "takes another; nothing is written"
            )


def compare(
    ours: TorchEngine,
    theirs: Engine,
    exportable: Exportable,
    sample: Sample,
    *,
    rounded: PreTrainedModel | None,
    megabytes: tuple[float, float],
    num_beams: int,
) -> Comparison:
    """Compares an export with its model.

    Args:
        ours, theirs: both, ready to run.
        exportable: the model and its tokenizers.
        sample: what they are given.
        rounded: the model with its weights rounded as the export's are; None for float32.
        megabytes: of the weights of both.
        num_beams: of the search beside the greedy one, for translations.
    """
    values = ours.values(sample.inputs, sample.outputs)
    differences, _ = _differences(values, theirs, sample)
    explained = 0.0
    if rounded is not None:
        explained = _root_mean_square(_differences(values, TorchEngine(rounded, ours.facts), sample)[0])
    identical, quality = {}, {}
    family = ours.facts.family
    searches = {"encoder": [], "lm": [1], "seq2seq": sorted({1, num_beams})}[family]
    settings = {"length_penalty": 1.0, "max_new_tokens": _new_tokens(ours.facts, sample.inputs)}
    for beams in searches:
        found = [_decode(engine, sample.inputs, settings | {"num_beams": beams}) for engine in (ours, theirs)]
        name = "greedy" if beams == 1 else f"beam {beams}"
        identical[name] = sum(own == other for own, other in zip(*found, strict=True))
        if sample.references is not None and beams == num_beams:
            quality["BLEU"] = tuple(_bleu(exportable, outputs, sample.references) for outputs in found)
    if family == "lm" and sample.is_written:
        other_values = theirs.values(sample.inputs, sample.outputs)
        quality["perplexity"] = tuple(
            float(np.exp(-np.concatenate(each).mean(dtype=np.float64))) for each in (values, other_values)
        )

    def use(engine: Engine) -> None:
        if family == "encoder":
            engine.values(sample.inputs, sample.outputs)
            return
        for rows in _batches(sample.inputs):
            engine.run([sample.inputs[row] for row in rows], **settings | {"num_beams": searches[-1]})  # type: ignore[arg-type]

    return Comparison(
        sample=sample.origin,
        sequences=len(sample.inputs),
        tokens=sum(map(len, values)),
        difference=float(np.abs(differences).max(initial=0.0)),
        root_mean_square=_root_mean_square(differences),
        explained=explained,
        likeliest=_same_likeliest(ours, theirs, sample),
        identical=identical,
        quality=quality,  # type: ignore[arg-type]  # of two engines
        megabytes=megabytes,
        milliseconds=_milliseconds([lambda: use(ours), lambda: use(theirs)], len(sample.inputs)),
        threads=torch.get_num_threads(),
        num_beams=searches[-1] if searches else 1,
    )


def check_rounding(comparison: Comparison, title: str, quantization: str) -> None:
    """Raises InputError if an export differs by more than its quantisation explains."""
    allowed = ACTIVATIONS_TOO * comparison.explained + TOLERANCE
    if not comparison.root_mean_square <= allowed:
        raise InputError(
            f"the model in {title} with {quantization} differs by {comparison.root_mean_square:.1e} (root mean "
            f"square), where rounding its weights explains {comparison.explained:.1e}; nothing is written: take "
            "another --quantization"
        )


def round_weights(model: PreTrainedModel, round_tensor: Callable[[torch.Tensor], torch.Tensor]) -> PreTrainedModel:
    """A copy of a model whose weights have been rounded."""
    rounded = copy.deepcopy(model)
    with torch.no_grad():
        for parameter in rounded.parameters():
            parameter.copy_(round_tensor(parameter))
    return rounded


def _differences(values: list[np.ndarray], theirs: Engine, sample: Sample) -> tuple[np.ndarray, float]:
    """Of all values, and the largest of them."""
    others = theirs.values(sample.inputs, sample.outputs)
    pairs = list(zip(values, others, strict=True))
    differences = np.concatenate([(own - other).ravel() for own, other in pairs])
    return differences, max(float(np.abs(own).max(initial=0.0)) for own in values)


def _root_mean_square(differences: np.ndarray) -> float:
    return float(np.sqrt((differences.astype(np.float64) ** 2).mean())) if differences.size else 0.0


def _same_likeliest(ours: TorchEngine, theirs: Engine, sample: Sample) -> float | None:
    """In what share of the places both find the same token the likeliest."""
    if not isinstance(theirs, TorchEngine):
        return None
    own, other = (engine.likeliest(sample.inputs, sample.outputs) for engine in (ours, theirs))
    return float((np.concatenate(own) == np.concatenate(other)).mean()) if own else None


def _gap(ours: TorchEngine, given: list[int], own: list[int], other: list[int]) -> float:
    """By how much torch prefers its token at the place where two greedy outputs part, in nats."""
    ends = ours.facts.end_ids[:1]
    first, second = [*own, *ends], [*other, *ends]
    place = next((n for n, pair in enumerate(zip(first, second, strict=False)) if pair[0] != pair[1]), None)
    if place is None:  # one ends where the longest length is reached
        return 0.0
    log_probs = [ours.values([given], [each[: place + 1]])[0][place] for each in (first, second)]
    return float(log_probs[0] - log_probs[1])


def _decode(engine: Engine, inputs: Ids, settings: dict[str, int | float]) -> list[list[int]]:
    """Outputs in the order of the inputs, which are decoded with others of their length."""
    outputs: list[list[int]] = [[] for _ in inputs]
    for rows in _batches(inputs):
        decoded = engine.decode([inputs[row] for row in rows], **settings)  # type: ignore[arg-type]
        for row, ids in zip(rows, decoded, strict=True):
            outputs[row] = ids
    return outputs


def _batches(inputs: Ids) -> Iterator[list[int]]:
    order = sorted(range(len(inputs)), key=lambda row: len(inputs[row]))
    return (order[start : start + BATCH] for start in range(0, len(order), BATCH))


def _new_tokens(facts: ExportFile, inputs: Ids) -> int:
    """How many tokens are decoded, so that none is past the longest that the model was made for."""
    if facts.family == "lm":
        return max(1, min(NEW_TOKENS, facts.longest - max(map(len, inputs))))
    return min(2 * max(map(len, inputs)) + 20, facts.longest - 1)


def _bleu(exportable: Exportable, outputs: list[list[int]], references: list[str]) -> float:
    from ..training.evaluation.metrics import score_outputs

    texts = exportable.output_tokenizer.batch_decode(outputs, skip_special_tokens=True)
    return next(score.value for score in score_outputs(texts, [references], resamples=0) if score.metric.name == "bleu")


def _milliseconds(uses: list[Callable[[], None]], sequences: int) -> tuple[float, float]:
    """Of each, a sequence: medians of rounds that alternate, after the uses that came before this."""
    seconds: list[list[float]] = [[] for _ in uses]
    for _ in range(ROUNDS):
        for own, use in zip(seconds, uses, strict=True):
            start = time.perf_counter()
            use()
            own.append(time.perf_counter() - start)
    ours, theirs = (1000 * median(own) / sequences for own in seconds)
    return ours, theirs
