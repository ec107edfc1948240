"""Shards done by the actors of a Ray cluster, each with the model, and a GPU of its own where there are any.

Ray Data hands out shards and replaces actors and machines that fail. What is done is known by the marks of the shards,
not by Ray: a cluster that is gone altogether leaves them, and the same command goes on with the others.
"""

import json
import logging
import os
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, TypeVar

from ..training.console.input_error import InputError
from .shard_work import LineWork, Notes, ShardWorker
from .shards import Shard

if TYPE_CHECKING:
    from .preparing import ShardedPreparation

Item = TypeVar("Item")
Result = TypeVar("Result")


class _Actor:
    """A process of the cluster.

    Args:
        make: makes what does an item.
        items: all that there are to do; it is told their numbers.
        threads: that it may use.
    """

    def __init__(self, make: Callable[[], Callable[[Any], Any]], items: Sequence[Any], threads: int):
        os.environ["RAYON_NUM_THREADS"] = str(threads)  # of the tokenizers
        import torch

        torch.set_num_threads(threads)
        self.do, self.items = make(), items

    def __call__(self, batch: dict[str, Any]) -> dict[str, Any]:
        return {"done": [self._do(int(number)) for number in batch["number"]]}

    def _do(self, number: int) -> str:
        """As JSON: Ray's tables have no place for what is in it."""
        try:
            return json.dumps([number, self.do(self.items[number]), None])
        except InputError as error:  # it would be the same on every machine: not for Ray to try again
            return json.dumps([number, None, str(error)])


def do_on_ray(work: LineWork, shards: Sequence[Shard], workers: int) -> Iterator[tuple[Shard, int, Notes]]:
    """Does shards of lines on a cluster; see `Do` and `each_on_ray`."""
    for shard, (count, notes) in each_on_ray(partial(_line_worker, work), shards, workers, uses_gpus=True):
        yield shard, count, [(line, what) for line, what in notes]


def _line_worker(work: LineWork) -> Callable[[Shard], tuple[int, Notes]]:
    return ShardWorker(work).do


def each_on_ray(
    make: Callable[[], Callable[[Item], Result]],
    items: Sequence[Item],
    workers: int,
    *,
    uses_gpus: bool = False,
    stays: bool = False,
) -> Iterator[tuple[Item, Result]]:
    """Does items on the cluster that RAY_ADDRESS names, or on one that is begun here; in any order.

    Args:
        make: makes in each actor what does an item, and returns what JSON can say.
        items: are sent to each machine.
        workers: how many actors; 0: one for each GPU if these are used, or for each processor where there is none.
        uses_gpus: whether each has a GPU, if there are any.
        stays: whether a cluster that is begun here serves later calls too, until this process ends.

    Raises:
        InputError: if ray is not installed, the cluster cannot be reached or ends, or an item cannot be done.
    """
    os.environ.setdefault("RAY_BACKEND_LOG_LEVEL", "fatal")  # what is to be said of a failure is said below
    ray = import_ray()
    logging.getLogger("ray.data").setLevel(logging.ERROR)
    try:
        is_ours = not ray.is_initialized()
        if is_ours:
            ray.init(log_to_driver=False, logging_level="error", include_dashboard=False)
    except (ConnectionError, RuntimeError, ValueError) as error:
        raise InputError(f"there is no Ray cluster at RAY_ADDRESS, nor could one be begun: {_first(error)}") from error
    try:
        yield from _results(ray, make, items, workers, uses_gpus)
    except ray.exceptions.RayError as error:
        raise InputError(f"the Ray cluster failed: {_first(error)}; the same command goes on") from error
    finally:
        if is_ours and not stays:
            ray.shutdown()


def prepare_on_ray(workers: int, shard_lines: int) -> "ShardedPreparation":
    """What prepares a corpus by shards on a Ray cluster.

    Args:
        workers: as `each_on_ray` takes it.
        shard_lines: as `ShardedPreparation` takes it.

    Raises:
        InputError: if one of them is out of range.
    """
    from .preparing import ShardedPreparation  # with all that reads and cleans

    if workers < 0:
        raise InputError(f"processes is {workers}; it must be at least 1, or 0 for one for each processor")
    return ShardedPreparation(partial(each_on_ray, workers=workers, stays=True), shard_lines, begin=import_ray)


def _results(
    ray: Any, make: Callable[[], Callable[[Item], Result]], items: Sequence[Item], workers: int, uses_gpus: bool
) -> Iterator[tuple[Item, Result]]:
    resources = ray.cluster_resources()
    gpus, processors = int(resources.get("GPU", 0)) if uses_gpus else 0, int(resources.get("CPU", 1))
    workers = min(workers or gpus or processors, len(items))
    threads = max(1, processors // workers)
    context = ray.data.DataContext.get_current()
    context.enable_progress_bars = False
    context.execution_options.preserve_order = False  # the order is that of the items' numbers
    # An item is a block, so that an actor that dies loses one of them at the most.
    numbers = [{"number": number} for number in range(len(items))]
    records = ray.data.from_items(numbers, override_num_blocks=len(items))
    done = records.map_batches(
        _Actor,
        fn_constructor_args=(make, items, 1 if gpus else threads),
        compute=ray.data.ActorPoolStrategy(size=workers),
        batch_size=1,
        batch_format="numpy",
        num_cpus=0 if gpus else 1,
        num_gpus=1 if gpus else 0,
    )
    for row in done.iter_rows():
        number, result, refused = json.loads(row["done"])
        if refused is not None:
            raise InputError(refused)
        yield items[number], result


def import_ray() -> Any:
    """The library.

    Raises:
        InputError: if it is not installed.
    """
    try:
        import ray
        import ray.data
    except ImportError as error:
        raise InputError("--on ray needs Ray Data; pip install 'paperformer[ray]'") from error
    return ray


def _first(error: Exception) -> str:
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    return lines[-1].rstrip(".") if lines else type(error).__name__
