"""Shards done by the actors of a Ray cluster, each with the model, and a GPU of its own where there are any.

Ray Data hands out shards and replaces actors and machines that fail. What is done is known by the marks of the shards,
not by Ray: a cluster that is gone altogether leaves them, and the same command goes on with the others.
"""

import json
import logging
import os
from collections.abc import Iterator, Sequence
from dataclasses import asdict
from typing import Any

from ..training.console.input_error import InputError
from .shard_work import LineWork, Notes, ShardWorker
from .shards import Shard


class _Actor:
    """A process of the cluster."""

    def __init__(self, work: LineWork, threads: int):
        import torch

        torch.set_num_threads(threads)
        self.worker = ShardWorker(work)

    def __call__(self, batch: dict[str, Any]) -> dict[str, Any]:
        return {"done": [self._do(shard) for shard in batch["shard"]]}

    def _do(self, written: str) -> str:
        """Both as JSON: Ray's tables have no place for what is in it."""
        shard = json.loads(written)
        try:
            count, notes = self.worker.do(_shard_of(shard))
        except InputError as error:  # it would be the same on every machine: not for Ray to try again
            return json.dumps({"refused": str(error)})
        return json.dumps({"shard": shard, "count": count, "notes": notes})


def do_on_ray(work: LineWork, shards: Sequence[Shard], workers: int) -> Iterator[tuple[Shard, int, Notes]]:
    """Does shards on the cluster that RAY_ADDRESS names, or on one that is begun here; see `Do`.

    Args:
        workers: how many actors; 0: one for each GPU, or for each processor where there is none.

    Raises:
        InputError: if ray is not installed, the cluster cannot be reached or ends, or a shard cannot be done.
    """
    os.environ.setdefault("RAY_BACKEND_LOG_LEVEL", "fatal")  # what is to be said of a failure is said below
    ray = _import_ray()
    logging.getLogger("ray.data").setLevel(logging.ERROR)
    try:
        is_ours = not ray.is_initialized()
        if is_ours:
            ray.init(log_to_driver=False, logging_level="error", include_dashboard=False)
    except (ConnectionError, RuntimeError, ValueError) as error:
        raise InputError(f"there is no Ray cluster at RAY_ADDRESS, nor could one be begun: {_first(error)}") from error
    try:
        yield from _results(ray, work, shards, workers)
    except ray.exceptions.RayError as error:
        raise InputError(f"the Ray cluster failed: {_first(error)}; the same command goes on") from error
    finally:
        if is_ours:
            ray.shutdown()


def _results(ray: Any, work: LineWork, shards: Sequence[Shard], workers: int) -> Iterator[tuple[Shard, int, Notes]]:
    resources = ray.cluster_resources()
    gpus, processors = int(resources.get("GPU", 0)), int(resources.get("CPU", 1))
    workers = min(workers or gpus or processors, len(shards))
    threads = max(1, processors // workers)
    context = ray.data.DataContext.get_current()
    context.enable_progress_bars = False
    context.execution_options.preserve_order = False  # the order is that of the shards' numbers
    # A shard is a block, so that an actor that dies loses one of them at the most.
    records = ray.data.from_items(
        [{"shard": json.dumps(asdict(shard))} for shard in shards], override_num_blocks=len(shards)
    )
    done = records.map_batches(
        _Actor,
        fn_constructor_args=(work, 1 if gpus else threads),
        compute=ray.data.ActorPoolStrategy(size=workers),
        batch_size=1,
        batch_format="numpy",
        num_cpus=0 if gpus else 1,
        num_gpus=1 if gpus else 0,
    )
    for row in done.iter_rows():
        done = json.loads(row["done"])
        if "refused" in done:
            raise InputError(done["refused"])
        yield _shard_of(done["shard"]), done["count"], [(number, what) for number, what in done["notes"]]


def _shard_of(record: dict[str, Any]) -> Shard:
    return Shard(**record | {"places": tuple((start, end) for start, end in record["places"])})


def _import_ray() -> Any:
    try:
        import ray
        import ray.data
    except ImportError as error:
        raise InputError("--on ray needs Ray Data; pip install 'paperformer[ray]'") from error
    return ray


def _first(error: Exception) -> str:
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    return lines[-1].rstrip(".") if lines else type(error).__name__
