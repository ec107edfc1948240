"""The report of a run: one HTML page with its scores, curves, events, samples and costs, for people.

The page is in `report.html.jinja`; here the run's records become what fills it. It needs nothing beside itself and
asks nobody for anything; without scripts its curves stand still. It can be made at any time: what is not there yet is
left out, or said to be missing.
"""

import json
import math
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from ..atomic_files import replace_file
from ..evaluation.scored_split import read_scored_split
from ..recipe.run import RunOptions
from ..run_folder import RunFolder
from .comparison import DAMAGE, read_run
from .curves import collect_charts, collect_points, describe_charts, is_finite, keep_records, pick_evenly, read_clock
from .sentences import Sentences, find_extremes
from .templates import load_template

REPORT_FILE = "report.html"
"""The report, in the run's folder."""

COLUMNS = 60
"""At most so many columns of the map of gradient norms."""

OUTPUTS = 10
"""At most so many outputs for one and the same sample input."""


def write_report(path: Path) -> Path:
    """Writes report.html into the folder of a run, whole or not at all, and returns its path.

    Whatever the run has not written yet is said to be missing, and a damaged file is named.

    Raises:
        InputError: if it cannot be written.
    """
    report = path / REPORT_FILE
    replace_file(report, build_report(path))
    return report


def build_report(path: Path) -> str:
    """The report of a run as HTML.

    Args:
        path: the folder of the run.
    """
    folder = RunFolder(RunOptions(name=path.resolve().name, output_dir=str(path.resolve().parent)))
    run = read_run(path)
    damaged: list[str] = []

    def read(file: Path, reader: Callable[[], Any], empty: Any) -> Any:
        try:
            return reader() if file.exists() else empty
        except (OSError, ValueError):  # not JSON, or not UTF-8
            damaged.append(file.name)
            return empty

    records = keep_records(read(folder.metrics_path, folder.metrics, []))
    samples = keep_records(read(folder.samples_path, folder.samples, []))
    test_samples_path = folder.evaluation_path / "samples.jsonl"
    charts = collect_charts({run.name: records})
    clock = read_clock(records)
    return load_template("report.html.jinja").render(
        run=run,
        problem=run.problem,
        charts=charts,
        data_of_charts=describe_charts(charts, {run.name: records}),
        sentences=_find_sentences(folder, damaged) if run.test else None,
        heat_map=_map_norms(records),
        starts=[record for record in records if "hardware" in record],
        events=[record for record in records if "event" in record],
        sample_histories=follow_samples(samples),
        test_samples=[s for s in read(test_samples_path, lambda: _read_lines(test_samples_path), []) if _is_sample(s)],
        data=_summarise_data(read(folder.data_path, lambda: json.loads(folder.data_path.read_text("utf-8")), {})),
        tokens=clock[-1][2] if clock else 0.0,
        memory=max((value for _, value in collect_points(records, "memory")), default=None),
        recipe=read(folder.recipe_path, lambda: folder.recipe_path.read_text("utf-8"), ""),
        damaged=damaged,
    )


def _find_sentences(folder: RunFolder, damaged: list[str]) -> Sentences | None:
    """The sentences or passages that tell most of a scored run; what is damaged is added to the names."""
    try:
        return find_extremes(read_scored_split(folder.evaluation_path))
    except DAMAGE:
        damaged.append(folder.evaluation_path.name)
        return None


# --- records ---


def _read_lines(path: Path) -> list[Any]:
    return [json.loads(line) for line in path.read_text("utf-8").splitlines() if line]


def _is_sample(sample: Any) -> bool:
    """Whether it has the form of all samples: texts, of which the last is what the model put out."""
    return isinstance(sample, list) and len(sample) in (2, 3)


def _summarise_data(data: Any) -> list[dict[str, Any]]:
    """Of each split: its sources, the rows read and kept, and why the others were left out."""
    rows = []
    for split, report in data.items() if isinstance(data, dict) else ():
        try:
            reasons = {reason: count for reason, count in report["cleaning"]["dropped"].items() if count}
            for source in report["sources"]:
                reasons |= {reason: reasons.get(reason, 0) + count for reason, count in source["bad_lines"].items()}
            rows.append(
                {
                    "split": split,
                    "sources": [source["name"] for source in report["sources"]],
                    "rows": int(report["cleaning"]["rows"]),
                    "kept": int(report["cleaning"]["kept"]),
                    "left_out": ", ".join(f"{int(count):,} {reason}" for reason, count in reasons.items()),
                }
            )
        except (KeyError, TypeError, AttributeError, ValueError):  # a report of another version
            continue
    return rows


@dataclass(frozen=True)
class SampleHistory:
    """What the model has made of one input, validation by validation."""

    given: tuple[str, ...]
    """(source, reference) of a translation, (prompt,) of a language model."""

    outputs: list[tuple[int, str]]
    """(step, output)."""


def follow_samples(records: Iterable[Mapping[str, Any]]) -> list[SampleHistory]:
    """What the model has made of each input, from the records of samples.jsonl."""
    histories: dict[tuple[str, ...], dict[int, str]] = {}
    for record in records:
        samples = record.get("samples")
        for sample in samples if isinstance(samples, list) else ():
            if _is_sample(sample):
                *given, output = map(str, sample)
                histories.setdefault(tuple(given), {})[record["step"]] = output
    return [SampleHistory(given, pick_evenly(list(outputs.items()), OUTPUTS)) for given, outputs in histories.items()]


# --- the map of gradient norms ---


@dataclass(frozen=True)
class HeatMap:
    """The largest gradient norm of each layer in each stretch of steps."""

    steps: list[int]
    """The last step of each column."""

    rows: dict[str, list[tuple[float, float] | None]]
    """Layer -> norm and shade of each column, from 0 (the smallest norm of all) to 1, on a logarithmic scale."""

    extremes: tuple[float, float]


def _map_norms(records: Iterable[Mapping[str, Any]]) -> HeatMap | None:
    by_step = {
        record["step"]: record["gradient_norm_by_layer"]
        for record in records
        if isinstance(record.get("gradient_norm_by_layer"), dict)
    }
    steps = sorted(by_step)
    layers = list(dict.fromkeys(layer for step in steps for layer in by_step[step]))
    starts = range(0, len(steps), max(1, math.ceil(len(steps) / COLUMNS)))

    def read(norm: Any) -> float:
        return float(norm) if is_finite(norm) and norm > 0 else math.nan

    norms = np.array([[read(by_step[step].get(layer)) for step in steps] for layer in layers])
    if len(starts) < 2 or np.isnan(norms).all():
        return None
    largest = np.fmax.reduceat(norms, starts, axis=1)  # (layers, columns), NaN where there is none
    low, high = float(np.nanmin(largest)), float(np.nanmax(largest))
    shades = (np.log(largest) - math.log(low)) / (math.log(high) - math.log(low) or 1.0)
    rows = {
        layer: [None if math.isnan(norm) else (norm, shade) for norm, shade in zip(*pair, strict=True)]
        for layer, *pair in zip(layers, largest.tolist(), shades.tolist(), strict=True)
    }
    return HeatMap([steps[end - 1] for end in [*starts[1:], len(steps)]], rows, (low, high))
