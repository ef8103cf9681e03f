"""How Placer compiles: four decorators, so that every kernel is cached on disk, free of the GIL and typed for mypy.

Sums keep their order and nothing is fused, so results agree with plain Python to the last bit. A compiled function may
call one from another file: the cache on disk notices when the source of either changes. If the cache cannot be written
or read, the function is compiled again.
"""

from __future__ import annotations

import logging
import pickle
import re
import sys
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
CONSTANTS = (int, float, str, tuple)  # types of global values that are compiled into the functions that name them
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
            dispatcher._cache = _Cache(dispatcher._cache, cast(FunctionType, function))
            _digest(dispatcher.py_func.__code__.co_filename)  # now, before the file may be replaced under the program
    return cast(F, dispatcher)


class _Cache:
    """numba's cache of one function, with file errors caught so that they never end the program, and with a stamp of
    all that the function depends on.

    numba's own stamp is that of the function's file, so that it would not notice changes in others.
    """

    def __init__(self, cache: Any, function: FunctionType) -> None:
        self._cache, self._function, self._is_stamped = cache, function, False

    def __getattr__(self, name: str) -> Any:
        return getattr(self._cache, name)

    def load_overload(self, *arguments: Any) -> Any:
        """Load as numba does; return None if the files cannot be read."""
        try:
            return self._stamped().load_overload(*arguments)
        except UNREADABLE:
            return None

    def save_overload(self, *arguments: Any) -> None:
        """Save as numba does; keep nothing if the files cannot be written, such as on a full disk."""
        try:
            self._stamped().save_overload(*arguments)
        except UNREADABLE:
            _say_not_kept()

    def _stamped(self) -> Any:
        """Stamp the cache when it is first used: only then is the module complete, in which a function may call one
        that is defined further down. The stamp is also part of the version, because numba compares the version before
        it unpickles anything, and unpickling fails if it names a module that has moved.
        """
        if not self._is_stamped:
            file = self._cache._cache_file
            file._source_stamp = _stamp(self._function)
            file._version = f"{numba.__version__} {file._source_stamp}"
            self._is_stamped = True
        return self._cache


@cache
def _say_not_kept() -> None:
    LOGGER.warning(NOT_KEPT)


def _stamp(function: FunctionType) -> str:
    """Return a digest of all that the compiled function depends on: the files of the function and of all compiled
    functions that it calls, and the constants and the fields of tuples that these name.
    """
    parts, waiting, known = set[str](), list[FunctionType | type]([function]), set[FunctionType | type]()
    while waiting:
        one = waiting.pop()
        if one in known:
            continue
        known.add(one)
        parts.add(
            f"{one.__qualname__}: {one.__annotations__}" if isinstance(one, type) else _digest(one.__code__.co_filename)
        )
        for name, value in _named_by(one).items():
            if isinstance(value, numba.core.registry.CPUDispatcher):
                waiting.append(value.py_func)
            elif isinstance(value, type) and hasattr(value, "_fields"):
                waiting.append(value)
            elif isinstance(value, CONSTANTS):
                parts.add(f"{name} = {value!r}")
    return sha256("\n".join(sorted(parts)).encode()).hexdigest()


def _named_by(one: FunctionType | type) -> dict[str, Any]:
    """Return the global values that are named by the code or annotations of a function, or by the fields of a tuple."""
    space = vars(sys.modules.get(one.__module__, one)) if isinstance(one, type) else one.__globals__
    code = () if isinstance(one, type) else one.__code__.co_names
    named = {*code, *re.findall(r"\w+", " ".join(map(str, one.__annotations__.values())))}
    return {name: space[name] for name in named if name in space}


@cache
def _digest(path: str) -> str:
    return sha256(Path(path).read_bytes()).hexdigest()
