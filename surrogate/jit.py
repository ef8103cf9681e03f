"""How Placer compiles: four decorators, so that every kernel is cached on disk, free of the GIL and typed for mypy."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar, cast

import numba

F = TypeVar("F", bound=Callable[..., object])


def jit(function: F) -> F:
    """`function` as machine code, compiled at its first call with each set of argument types.

    Sums keep their order and nothing is fused, so results agree with plain Python to the last bit. A kernel and the
    helpers it calls must share a file: the cache on disk notices changes of that file only.
    """
    return cast(F, numba.njit(cache=True, nogil=True, error_model="numpy")(function))


def inlined(function: F) -> F:
    """A part of a jitted function that is copied to where it is called: passing its arrays would take longer."""
    return cast(F, numba.njit(cache=True, nogil=True, error_model="numpy", forceinline=True)(function))


def kernel(function: F) -> F:
    """As `jit`, for what allocates nothing: no references are counted, which made loops over arrays in tuples up to
    seven times faster. To be called from a jitted function, which keeps the arrays alive.
    """
    return cast(F, numba.njit(cache=True, nogil=True, error_model="numpy", _nrt=False)(function))


def part(function: F) -> F:
    """A part of a kernel, copied to where it is called."""
    options = {"cache": True, "nogil": True, "error_model": "numpy", "forceinline": True, "_nrt": False}
    return cast(F, numba.njit(**options)(function))
