"""All cores, or as many as are allowed, for what is computed row by row."""

from __future__ import annotations

import sys
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import cache
from itertools import pairwise

import numpy as np
from numpy.typing import ArrayLike, NDArray

from placer.devices.host.cores import usable_cores
from placer.errors import BadInputError

Rows = NDArray[np.int32]
Floats = NDArray[np.float64]

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


def by_row(compute: Callable[[Rows, Floats], None], rows: ArrayLike, ops: int, devices: int, size: int) -> Floats:
    """[mappings] the number of each of `rows`, [mappings, ops] device indices; `in_pieces` of `size` steps a row.

    compute: fills in the numbers of some rows, NaN where a device is none. Raises BadInputError for that, and for
    another shape.
    """
    given = np.ascontiguousarray(rows, dtype=np.int32)
    if given.ndim != 2 or given.shape[1] != ops:
        raise BadInputError(f"the mappings have the shape {given.shape}; give [mappings, {ops}].")
    out = np.empty(len(given))
    in_pieces(lambda piece: compute(given[piece], out[piece]), len(given), size)
    if np.isnan(out).any():
        raise BadInputError(f"a mapping names a device outside 0..{devices - 1}.")
    return out


@cache
def _pool(cores: int) -> ThreadPoolExecutor:
    """Threads that wait for work: starting them takes as long as a small batch."""
    return ThreadPoolExecutor(cores, thread_name_prefix="placer-compute")
