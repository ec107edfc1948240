"""A sweep carried out: run after run, with a table that is written anew after each."""

import time
from collections.abc import Sequence

from ..api.recipes import objective_of
from ..api.runs import Run
from ..training.console.input_error import InputError
from ..training.console.progress import say
from ..training.engine.guard import TrainingDivergedError
from ..training.path_lock import hold_lock
from ..training.run import run
from .results import RunResult, read_results, read_trained
from .rows import Row, Sweep
from .scoring_again import score_again
from .table import SweepTable


def carry_out(sweep: Sweep) -> SweepTable:
    """Trains, or scores again, what has not been before; writes the table; returns it.

    All rows get their first seed before any gets its second, so that there is soon a whole table. A run that cannot be
    trained, or diverges, is told of in the table, and the next one begins. One that diverged is not repeated: it would
    again.

    Raises:
        InputError: if another process carries out the same sweep, the table cannot be written, or the runs do not have
            the score that is to be compared.
        TrainingStopped, KeyboardInterrupt: if it was interrupted; the table is written before.
    """
    with hold_lock(sweep.folder):
        known = read_results(sweep.folder / "table.json")
        runs = [(row, seed) for seed in sweep.seeds for row in sweep.rows]
        table = SweepTable(sweep, {(row.name, seed): _look(sweep, row, seed, known) for row, seed in runs})
        table.write()
        waiting = [(row, seed) for row, seed in runs if not _is_done(sweep, table.results[row.name, seed])]
        if len(waiting) < len(runs):
            say(f"{sweep.name}: {len(runs) - len(waiting)} of {len(runs)} runs are done already")
        seconds: list[float] = []
        for number, (row, seed) in enumerate(waiting, start=len(runs) - len(waiting) + 1):
            left = _say_left(seconds, table, len(runs) - number + 1)
            say(f"{sweep.name}: run {number} of {len(runs)}, {row.name} with seed {seed}{left}")
            started = time.perf_counter()
            try:
                result = _carry_out_one(sweep, row, seed)
            except BaseException:
                result = _look(sweep, row, seed, known)
                raise
            finally:
                table.results[row.name, seed] = result
                table.write()
            seconds.append(time.perf_counter() - started)
            _check_score(table, row, seed)
    return table


def _look(sweep: Sweep, row: Row, seed: int, known: dict[tuple[str, int], RunResult]) -> RunResult:
    """What there is of a run already."""
    before = known.get((row.name, seed))
    folder = sweep.run_folder(row, seed)
    if sweep.options.model is not None:
        is_same = before is not None and before.folder == str(folder) and before.fields == dict(row.fields)
        return before if before and is_same else RunResult(seed=seed, folder=str(folder), fields=dict(row.fields))
    result = read_trained(folder, seed)
    result.fields = dict(row.fields)
    if before is not None and before.folder == str(folder):
        if result.state == "finished":
            result.at = before.at
        elif result.state == "interrupted" and before.state == "diverged":
            result.state, result.message = before.state, before.message
    return result


def _is_done(sweep: Sweep, result: RunResult) -> bool:
    return result.state == "diverged" or (
        result.state == "finished" and set(result.at) >= set(sweep.options.score_at) and _has_splits(sweep, result)
    )


def _has_splits(sweep: Sweep, result: RunResult) -> bool:
    return all(split in result.scores for split in _splits(sweep))


def _splits(sweep: Sweep) -> Sequence[str]:
    return ("validation", "test") if sweep.options.test else ("validation",)


def _carry_out_one(sweep: Sweep, row: Row, seed: int) -> RunResult:
    """One run; what it ended with if not well, but for an interruption."""
    folder = sweep.run_folder(row, seed)
    try:
        if sweep.options.model is not None:
            return _score_model(sweep, row, seed)
        result = read_trained(folder, seed)
        if result.state != "finished":
            recipe = sweep.recipe_of(row, seed)
            objective = objective_of(recipe)
            run(objective, recipe, objective.command(recipe.arguments))
            result = read_trained(folder, seed)
        for length in sweep.options.score_at:
            say(f"scoring {row.name} with a context of {length} tokens")
            result.at[length] = score_again(Run(folder), {"data.context_length": length}, "validation")
    except (TrainingDivergedError, InputError) as error:
        result = read_trained(folder, seed) if sweep.options.model is None else RunResult(seed=seed, folder=str(folder))
        result.state = "diverged" if isinstance(error, TrainingDivergedError) else "failed"
        result.message = str(error)
        say(f"{sweep.name}: {row.name}, seed {seed} {result.state}: {error}")
    result.fields = dict(row.fields)
    return result


def _score_model(sweep: Sweep, row: Row, seed: int) -> RunResult:
    """The scores of a model that was trained before."""
    folder = sweep.run_folder(row, seed)
    result, started = read_trained(folder, seed), time.perf_counter()
    fields = {**sweep.common, **row.fields}
    result.scores = {split: score_again(Run(folder), fields, split) for split in _splits(sweep)}
    result.minutes, result.fields = (time.perf_counter() - started) / 60, dict(row.fields)
    return result


def _say_left(seconds: Sequence[float], table: SweepTable, runs: int) -> str:
    """How long the rest takes, by what those that are done took."""
    past = seconds or [result.minutes * 60 for result in table.results.values() if result.state == "finished"]
    if not past:
        return ""
    return f"; about {max(1, round(runs * sum(past) / len(past) / 60)):,} min left"


def _check_score(table: SweepTable, row: Row, seed: int) -> None:
    """Raises InputError if a finished run does not have the score that is compared."""
    result, wanted = table.results[row.name, seed], table.sweep.metric.name
    if result.state == "finished" and result.value("validation", wanted) is None:
        raise InputError(f"score is {wanted}; on validation these runs have {', '.join(result.scores['validation'])}")
