"""How Placer compiles: four decorators, so that every kernel is cached on disk, free of the GIL and typed for mypy.

Sums keep their order and nothing is fused, so results agree with plain Python to the last bit. A compiled function may
call one from another file: the cache on disk notices when the source of either changes. If the cache cannot be written
or read, the function is compiled again.
"""

from __future__ import annotations

import logging
import pickle
from collections.abc import Callable
from functools import cache
from hashlib import sha256
from pathlib import Path
from types import FunctionType
from typing import Any, TypeVar, cast

import numba

# Functions that only compiled functions call get no entry point for Python, which took a third of the compile time.
UNWRAPPED = {"no_cpython_wrapper": True, "no_cfunc_wrapper": True}

# The errors of reading a cache file that another user wrote, or that a power cut left incomplete.
UNREADABLE = (OSError, EOFError, ValueError, AttributeError, ImportError, pickle.UnpicklingError)
NOT_KEPT = (
    "placer: compiled functions cannot be kept on disk, neither beside Placer's modules nor in your cache folder, so "
    "each run compiles them anew, for up to a minute; set NUMBA_CACHE_DIR to a folder of yours that has room."
)
LOGGER = logging.getLogger("placer")

F = TypeVar("F", bound=Callable[..., object])


def jit(function: F) -> F:
    """Compile `function` to machine code, at its first call with each set of argument types."""
    return _compiled(function)


def inlined(function: F) -> F:
    """Compile a function that jitted functions call. It is copied into its callers: passing its arrays takes longer."""
    return _compiled(function, forceinline=True, **UNWRAPPED)


def kernel(function: F) -> F:
    """Compile a function that allocates nothing. Unlike `jit` this counts no references, which made loops over arrays
    in tuples up to seven times faster. Call the kernel from a jitted function, which keeps the arrays alive.
    """
    return _compiled(function, _nrt=False, **UNWRAPPED)


def inner(function: F) -> F:
    """Compile a function that kernels call. It is copied into its callers."""
    return _compiled(function, forceinline=True, _nrt=False, **UNWRAPPED)


def _compiled(function: F, **options: bool) -> F:
    dispatcher = numba.njit(nogil=True, error_model="numpy", **options)(function)
    if dispatcher is not function:  # they are the same if the user set NUMBA_DISABLE_JIT
        try:
            dispatcher.enable_caching()
        except RuntimeError:  # no cache folder is writable
            _say_not_kept()
        else:
            _stamp_cache(dispatcher, cast(FunctionType, function))
            dispatcher._cache = _Cache(dispatcher._cache)
    return cast(F, dispatcher)


def _stamp_cache(dispatcher: Any, function: FunctionType) -> None:
    """Stamp the cached function with all files that it depends on. numba stamps it with its own file only, and would
    not notice changes in the others. The stamp is also part of the version, because numba compares the version before
    it unpickles anything, and unpickling fails if it names a module that has moved.
    """
    file = dispatcher._cache._cache_file
    file._source_stamp = _stamp(function)
    file._version = f"{numba.__version__} {file._source_stamp}"


class _Cache:
    """numba's cache of one function, with file errors caught so that they never end the program."""

    def __init__(self, cache: Any) -> None:
        self._cache = cache

    def __getattr__(self, name: str) -> Any:
        return getattr(self._cache, name)

    def load_overload(self, *arguments: Any) -> Any:
        """Load as numba does; return None if the files cannot be read."""
        try:
            return self._cache.load_overload(*arguments)
        except UNREADABLE:
            return None

    def save_overload(self, *arguments: Any) -> None:
        """Save as numba does; keep nothing if the files cannot be written, such as on a full disk."""
        try:
            self._cache.save_overload(*arguments)
        except UNREADABLE:
            _say_not_kept()


@cache
def _say_not_kept() -> None:
    LOGGER.warning(NOT_KEPT)


def _stamp(function: FunctionType) -> str:
    """Return a digest of the function's file and of the global compiled functions and numbers that it uses."""
    digest = sha256(_source(function.__code__.co_filename))
    for name in function.__code__.co_names:
        value: Any = function.__globals__.get(name)
        if isinstance(value, numba.core.registry.CPUDispatcher) and isinstance(value._cache, _Cache):
            digest.update(value._cache._cache_file._source_stamp.encode())
        elif isinstance(value, int | float):
            digest.update(f"{name}={value!r}".encode())
    return digest.hexdigest()


@cache
def _source(path: str) -> bytes:
    return Path(path).read_bytes()
