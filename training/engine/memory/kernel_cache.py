"""A bound for the memory in which a CPU's library of matrix products keeps the code that it has made.

In bfloat16 and float16, torch leaves products on a CPU to oneDNN, which makes machine code for each shape. It keeps its
last 1,024 primitives, and the layer through which torch calls it keeps 1,024 of its own. In training nearly every batch
has another shape, so that a process grows by gigabytes: for code that hardly ever runs again, and for the holes that
such long-lived pieces leave in the heap (see `benchmarks/results/kernel_cache.md`). What runs again soon is the code
of one step, for its layers have equal shapes: as many primitives as a step needs are worth keeping.
"""

import logging
import os

logger = logging.getLogger(__name__)

CAPACITY = 64
"""Primitives that are kept. A step of an encoder-decoder needs about 30, however many layers it has."""

SETTINGS = ("ONEDNN_PRIMITIVE_CACHE_CAPACITY", "LRU_CACHE_CAPACITY")
"""Environment variables: oneDNN's own, and that of ideep, the layer through which torch calls it."""


def bound_kernel_cache() -> bool:
    """Makes oneDNN keep the code of a step's shapes, instead of all shapes'; for the life of the process.

    The libraries read their settings at their first product in this process, so call it before that; later it has no
    effect. Whoever has set one of the environment variables keeps those settings.

    Returns:
        Whether the setting was made.
    """
    chosen = [name for name in SETTINGS if name in os.environ]
    if chosen:
        logger.info("The cache of oneDNN stays as it is: the environment sets %s.", ", ".join(chosen))
        return False
    os.environ.update(dict.fromkeys(SETTINGS, str(CAPACITY)))
    return True
