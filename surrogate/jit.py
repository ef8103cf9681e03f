"""How Placer compiles: four decorators, so that every kernel is cached on disk, free of the GIL and typed for mypy.

Sums keep their order and nothing is fused, so results agree with plain Python to the last bit. A compiled function may
call one from another file: the cache on disk notices when the source of either changes.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from hashlib import sha256
from pathlib import Path
from types import FunctionType
from typing import Any, TypeVar, cast

import numba

# What only compiled functions call gets no entry for Python, whose compilation took a third of the time.
INNER = {"no_cpython_wrapper": True, "no_cfunc_wrapper": True}

F = TypeVar("F", bound=Callable[..., object])


def jit(function: F) -> F:
    """`function` as machine code, compiled at its first call with each set of argument types."""
    return _compiled(function)


def inlined(function: F) -> F:
    """A part of a jitted function that is copied to where it is called: passing its arrays would take longer."""
    return _compiled(function, forceinline=True, **INNER)


def kernel(function: F) -> F:
    """As `jit`, where nothing is allocated: no references are counted, which made loops over arrays in tuples up to
    seven times faster. Call it from a jitted function, which keeps the arrays alive.
    """
    return _compiled(function, _nrt=False, **INNER)


def part(function: F) -> F:
    """A part of a kernel, copied to where it is called."""
    return _compiled(function, forceinline=True, _nrt=False, **INNER)


def _compiled(function: F, **options: bool) -> F:
    dispatcher = numba.njit(cache=True, nogil=True, error_model="numpy", **options)(function)
    if dispatcher is not function:  # it is where the user set NUMBA_DISABLE_JIT
        # numba stamps a cached function with its own file only, and would go on using what others have since changed.
        # The version is compared before anything is unpickled, which fails where it names a module that has moved.
        file = dispatcher._cache._cache_file
        file._source_stamp = _stamp(cast(FunctionType, function))
        file._version = f"{numba.__version__} {file._source_stamp}"
    return cast(F, dispatcher)


def _stamp(function: FunctionType) -> str:
    """A digest of the function's file, and of the compiled functions and numbers of other files that it names."""
    digest = sha256(_source(function.__code__.co_filename))
    for name in function.__code__.co_names:
        value: Any = function.__globals__.get(name)
        if isinstance(value, numba.core.registry.CPUDispatcher):
            digest.update(value._cache._cache_file._source_stamp.encode())
        elif isinstance(value, int | float):
            digest.update(f"{name}={value!r}".encode())
    return digest.hexdigest()


@cache
def _source(path: str) -> bytes:
    return Path(path).read_bytes()
