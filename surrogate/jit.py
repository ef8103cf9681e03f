"""How Placer compiles: two decorators, so that every kernel is cached on disk, free of the GIL and typed for mypy."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar, cast

import numba

F = TypeVar("F", bound=Callable[..., object])


def jit(function: F) -> F:
    """`function` as machine code, compiled at its first call with each set of argument types.

    Sums keep their order and nothing is fused, so results agree with plain Python to the last bit. A kernel and the
    helpers it calls must share a file: the cache on disk notices changes of that file only. Kernels unpack tuples of
    arrays once, at the top: each look into such a tuple counts references, which takes longer than what is looked up.
    """
    return cast(F, numba.njit(cache=True, nogil=True, error_model="numpy")(function))


def inlined(function: F) -> F:
    """A part of a kernel that is copied to where it is called, for passing its many arrays would take longer."""
    return cast(F, numba.njit(cache=True, nogil=True, error_model="numpy", forceinline=True)(function))
