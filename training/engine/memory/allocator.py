"""One setting of the C library's memory allocator that makes training on a CPU faster.

glibc asks the operating system for every large block (from 128 KB to 32 MB, as it goes along) and hands it back when it
is freed. So each step takes the same blocks anew, and the kernel clears them page by page: a quarter to a half of the
time of a step that holds full logits, as models of transformers do, and little of one with the chunked loss (see
`benchmarks/results/training_speed.md`). Told to keep what is freed, the process grows to its peak once. The price is
that peak: memory that training has used does not go back to the system before the process ends.
"""

import ctypes
import logging
import os

logger = logging.getLogger(__name__)

# Names and numbers of glibc's <malloc.h>.
M_TRIM_THRESHOLD, M_MMAP_MAX = -1, -4
USER_SETTINGS = ("MALLOC_TRIM_THRESHOLD_", "MALLOC_MMAP_MAX_", "MALLOC_MMAP_THRESHOLD_", "GLIBC_TUNABLES")


def keep_large_buffers() -> bool:
    """Makes this process keep freed memory for its next allocations, where it runs on glibc.

    It lasts for the life of the process. Memory allocated before stays as it is, so call it early. Whoever has
    set the allocator by an environment variable of glibc keeps that setting.

    Returns:
        Whether the setting was made. If not, nothing has changed, and the reason is logged.
    """
    chosen = [name for name in USER_SETTINGS if name in os.environ]
    if chosen:
        logger.info("The allocator stays as it is: the environment sets %s.", ", ".join(chosen))
        return False
    try:
        mallopt = ctypes.CDLL(None).mallopt
    except (AttributeError, OSError, TypeError):  # macOS and musl have no mallopt, Windows no CDLL(None)
        logger.info("The allocator stays as it is: this C library has no mallopt, hence is not glibc.")
        return False
    # No separate mappings for large blocks, and no shrinking of the heap when its end is freed.
    return all(mallopt(option, value) == 1 for option, value in ((M_MMAP_MAX, 0), (M_TRIM_THRESHOLD, -1)))
