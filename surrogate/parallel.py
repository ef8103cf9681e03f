"""All cores, or as many as are allowed, for what is computed row by row."""

from __future__ import annotations

import sys
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import cache
from itertools import pairwise

from placer.devices.host.cores import usable_cores

# Below so many steps of work, one core is done before a second has started.
WORTH_A_THREAD = 15_000
# Pieces per core, so that one that is held up leaves its share to the others; fewer where there is little to share.
PIECES = 4

_most_cores: int | None = None  # that this process may use; None: all it has


def use_cores(most: int) -> None:
    """Compute on at most so many cores from now on, in a process that has others like it beside it."""
    global _most_cores
    _most_cores = most


def in_pieces(compute: Callable[[slice], None], rows: int, size: int) -> None:
    """`compute` all rows, on all cores where that many rows of `size` steps are worth it; it must let go of the GIL."""
    cores = min(_most_cores or sys.maxsize, len(usable_cores()))
    pieces = min(rows, cores * PIECES, rows * size // WORTH_A_THREAD)
    if cores == 1 or pieces < 2:
        compute(slice(0, rows))
        return
    if pieces < cores * PIECES:
        pieces = min(pieces, cores)
    ends = [rows * i // pieces for i in range(pieces + 1)]
    others = [_pool(cores).submit(compute, slice(a, b)) for a, b in pairwise(ends[1:])]
    compute(slice(0, ends[1]))
    for other in others:
        other.result()


@cache
def _pool(cores: int) -> ThreadPoolExecutor:
    """Threads that wait for work: starting them takes as long as a small batch."""
    return ThreadPoolExecutor(cores, thread_name_prefix="placer")
