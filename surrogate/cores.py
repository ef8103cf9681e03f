"""All cores for what is computed row by row."""

from __future__ import annotations

import os
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

# Below so many steps of work, one core is done before a second has started.
WORTH_A_THREAD = 200_000
# Pieces per core, so that one that is held up leaves its share to the others.
PIECES = 4


def in_pieces(compute: Callable[[slice], None], rows: int, size: int) -> None:
    """`compute` all rows, on all cores where that many rows of `size` steps are worth it; it must let go of the GIL."""
    cores = len(os.sched_getaffinity(0))
    if cores == 1 or rows * size < 2 * WORTH_A_THREAD:
        compute(slice(0, rows))
        return
    pieces = min(rows, cores * PIECES)
    ends = [rows * i // pieces for i in range(pieces + 1)]
    with ThreadPoolExecutor(cores) as pool:
        list(pool.map(compute, map(slice, ends, ends[1:])))
