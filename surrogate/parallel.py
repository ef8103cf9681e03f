"""Computing row by row on all cores, or on a given number of cores."""

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

# The least number of steps of work for a second core; with less work the first core is done before a second starts.
WORTH_A_THREAD = 15_000
# Pieces per core, so that the other cores take over the work of a core that is held up; fewer if there is little work.
PIECES = 4

_most_cores: int | None = None  # the most cores that this process may use; None: all it has


def use_cores(most: int) -> None:
    """Compute on at most `most` cores from now on. For processes that run side by side with others of their kind."""
    global _most_cores
    _most_cores = most


def in_pieces(compute: Callable[[slice], None], rows: int, size: int) -> None:
    """Call `compute`, which must release the GIL, on slices of all `rows`; on all cores if the work is worth it.

    size: steps of work per row.
    """
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
    """Return one number for each row of `rows`, [mappings, ops] device indices, computed `in_pieces`.

    compute: fills in the numbers of some rows, NaN for a row with an invalid device index. size: steps of work per row.
    Raises BadInputError for an invalid device index and for a wrong shape.
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
    """Return a pool of threads that is kept, because starting threads takes as long as a small batch."""
    return ThreadPoolExecutor(cores, thread_name_prefix="placer-compute")
