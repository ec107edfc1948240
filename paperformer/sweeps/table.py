"""The table of a sweep, as Markdown and as JSON."""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from ..training.atomic_files import replace_file
from ..training.run_folder import nulled
from .results import RunResult, Spread, as_record, compare
from .rows import Row, Sweep, as_text

NOTHING = "–"


class SweepTable:
    """A sweep and what has come of its runs so far.

    Args:
        sweep: what was asked for.
        results: by row and seed.
    """

    def __init__(self, sweep: Sweep, results: dict[tuple[str, int], RunResult]):
        self.sweep, self.results = sweep, results

    @property
    def path(self) -> Path:
        """The Markdown; the JSON is beside it, table.json."""
        return self.sweep.folder / "table.md"

    def write(self) -> None:
        """Writes both files.

        Raises:
            InputError: if they cannot be written.
        """
        self.path.parent.mkdir(parents=True, exist_ok=True)
        replace_file(self.path, self.markdown)
        record = json.dumps(nulled(self.record), indent=2, ensure_ascii=False, default=str) + "\n"
        replace_file(self.path.with_suffix(".json"), record)

    def runs(self, row: Row) -> list[RunResult]:
        """Of a row, in the order of the seeds."""
        return [self.results[row.name, seed] for seed in self.sweep.seeds]

    def values(self, row: Row, split: str = "validation", length: int | None = None) -> dict[int, float]:
        """Seed -> the score that is compared, of the runs that have one.

        Args:
            row: of the table.
            split: validation or test.
            length: a context length that it was scored at, instead of the recipe's.
        """
        name = self.sweep.metric.name
        found = {
            result.seed: result.value(split, name) if length is None else result.at.get(length, {}).get(name)
            for result in self.runs(row)
            if result.state == "finished"
        }
        return {seed: value for seed, value in found.items() if value is not None}

    def difference(self, row: Row) -> Spread | None:
        """To the baseline, seed by seed; None of the baseline, and where no seed has both."""
        baseline = next(each for each in self.sweep.rows if each.name == self.sweep.baseline)
        return None if row is baseline else compare(self.values(row), self.values(baseline))

    @property
    def record(self) -> dict[str, Any]:
        """All of it as plain values."""
        sweep, options = self.sweep, self.sweep.options
        return {
            "name": sweep.name,
            "base": options.base,
            "model": options.model,
            "common": dict(sweep.common),
            "seeds": sweep.seeds,
            "score": sweep.metric.name,
            "baseline": sweep.baseline,
            "rows": [
                {
                    "name": row.name,
                    "fields": dict(row.fields),
                    "validation": _plain(Spread.of(list(self.values(row).values()))),
                    "difference": _plain(self.difference(row)),
                    "runs": [as_record(result) for result in self.runs(row)],
                }
                for row in sweep.rows
            ],
        }

    @property
    def markdown(self) -> str:
        """A heading, the table, a sentence for each comparison, and what went wrong."""
        columns = self._columns()
        lines = [list(columns), ["---"] * len(columns)]
        lines += [[cell(row) for cell in columns.values()] for row in self.sweep.rows]
        table = "\n".join(f"| {' | '.join(cell.replace('|', '/') for cell in line)} |" for line in lines)
        parts = [f"# {self.sweep.name}", self._introduction(), table, *self._conclusions(), *self._failures()]
        return "\n\n".join(parts) + "\n"

    def _columns(self) -> Mapping[str, Any]:
        metric, options = self.sweep.metric, self.sweep.options

        def cell(row: Row, **where: Any) -> str:
            spread = Spread.of(list(self.values(row, **where).values()))
            return NOTHING if spread is None else spread.shown(metric.digits)

        columns: dict[str, Any] = {
            "row": lambda row: row.name,
            "differs in": lambda row: _fields(row.fields) or "nothing: the base",
            "parameters": lambda row: _first(
                f"{result.parameters:,}" for result in self.runs(row) if result.parameters
            ),
            f"validation {metric.name}": cell,
            f"against {self.sweep.baseline}": self._difference_cell,
        }
        for length in options.score_at:
            columns[f"at {length:,} tokens"] = lambda row, length=length: cell(row, length=length)
        if options.test:
            columns[f"test {metric.name}"] = lambda row: cell(row, split="test")
        columns["steps"] = self._progress
        columns["minutes"] = lambda row: _mean_minutes(self.runs(row))
        return columns

    def _difference_cell(self, row: Row) -> str:
        difference = self.difference(row)
        return NOTHING if difference is None else difference.shown(self.sweep.metric.digits, sign="+")

    def _progress(self, row: Row) -> str:
        """The steps of the runs, and what is not finished of them."""
        runs = self.runs(row)
        others = [result.state for result in runs if result.state != "finished"]
        counted = ", ".join(f"{others.count(state)} {state}" for state in dict.fromkeys(others))
        steps = f"{max(result.steps for result in runs):,}"
        return f"{steps} ({counted})" if others else steps

    def _introduction(self) -> str:
        sweep, options, metric = self.sweep, self.sweep.options, self.sweep.metric
        what = f"Model: `{options.model}`" if options.model else f"Recipe: `{options.base}`"
        if isinstance(options.base, dict):
            what = "Recipe: that of the sweep's file"
        common = f", with {_fields(sweep.common)}" if sweep.common else ""
        better = "higher" if metric.higher_is_better else "lower"
        seeds = ", ".join(map(str, sweep.seeds))
        spread = ": mean ± standard deviation over them" if len(sweep.seeds) > 1 else ""
        return f"{what}{common}. Score: {metric.label}, {better} is better. Seeds: {seeds}{spread}."

    def _conclusions(self) -> list[str]:
        """What the differences say, a sentence each."""
        metric, lines = self.sweep.metric, []
        for row in self.sweep.rows:
            difference = self.difference(row)
            if difference is None or (half := difference.interval) is None:
                continue
            figures = f"{difference.mean:+.{metric.digits}f} ± {half:.{metric.digits}f}"
            verdict = "no difference that so few runs can show"
            if abs(difference.mean) > half:
                verdict = "better" if metric.cost(difference.mean) < 0 else "worse"
            lines.append(
                f"- {row.name} against {self.sweep.baseline}: {figures} {metric.name} "
                f"(95 % interval of {difference.count} seeds): {verdict}."
            )
        if lines:
            return ["\n".join(lines)]
        if self.sweep.options.model is None and len(self.sweep.seeds) == 1:
            return ["With one seed a small difference may be chance; `--seeds '[1,2,3]'` shows the spread."]
        return []

    def _failures(self) -> list[str]:
        lines = [
            f"- {row.name}, seed {result.seed} {result.state}: {result.message.split(';')[0]}"
            for row in self.sweep.rows
            for result in self.runs(row)
            if result.message
        ]
        return ["\n".join(lines)] if lines else []


def _fields(fields: Mapping[str, Any]) -> str:
    return ", ".join(f"`{name}` {as_text(value)}" for name, value in fields.items())


def _first(values: Any) -> str:
    return next(iter(values), NOTHING)


def _mean_minutes(runs: list[RunResult]) -> str:
    minutes = [result.minutes for result in runs if result.state == "finished"]
    return f"{sum(minutes) / len(minutes):,.1f}" if minutes else NOTHING


def _plain(spread: Spread | None) -> dict[str, Any] | None:
    return None if spread is None else {"mean": spread.mean, "deviation": spread.deviation, "seeds": spread.count}
