"""Functions under functools.lru_cache, whose results are kept where no attribute shows them."""

from __future__ import annotations

import functools
import gc
import inspect
import sys
import types
from collections.abc import Collection
from itertools import pairwise
from typing import Any

from placer.trace.python.impure import is_known_compiled
from placer.trace.python.kinds import EMPTY, is_library, own_dict

CACHED = type(functools.lru_cache(maxsize=None)(len))
TENDING = frozenset({"cache_clear", "cache_info"})  # what a cached function has that changes the cache, or tells of it
VARYING = inspect.CO_VARARGS | inspect.CO_VARKEYWORDS
HIDDEN = "whose results functools.lru_cache keeps out of sight, those of a trace, too"
WHAT_TO_DO = "call it outside of the step and pass the result, or decorate the step with @tf.function"


def is_users_cache(found: Any) -> bool:
    """Whether a cached function is none that a library has made for itself, which stands there under its name. The user
    may have wrapped a library's function, too.
    """
    held = own_dict(found) or {}
    module = str(held.get("__module__") or "")
    if not is_library(module):
        return not is_known_compiled(module)
    at: Any = sys.modules.get(module, EMPTY)
    for name in str(held.get("__qualname__") or "?").split("."):
        at = inspect.getattr_static(at, name, EMPTY)
    return at is not found


def why_hidden(found: Any, names: Collection[str]) -> str | None:
    """Why what a cached function returns cannot be compared, in words; None where its one result is there.

    Only a function without arguments has one: any other is called for more by a trace, perhaps, which would leave
    tensors of its own in the cache. names: of attributes that the step's code reads.
    """
    function = (own_dict(found) or {}).get("__wrapped__")
    if not isinstance(function, types.FunctionType) or _takes_arguments(function) or TENDING & set(names):
        return f"{HIDDEN}; {WHAT_TO_DO}"
    if kept_result(found) is EMPTY and found.cache_parameters()["maxsize"] == 0:  # it keeps nothing
        return f"{HIDDEN}; {WHAT_TO_DO}"
    if kept_result(found) is EMPTY:
        return f"{HIDDEN}; call it once before the first step, or {WHAT_TO_DO}"
    return None


def kept_result(found: Any) -> Any:
    """What a cached function without arguments returned, without a call that the cache would count; EMPTY for nothing.

    CPython's garbage collector is shown the cache, as a dict by the calls' arguments, and where its size is limited,
    each call's arguments with the result behind them.
    """
    held = gc.get_referents(found)
    for arguments, result in pairwise(held):
        if type(arguments) is tuple and not arguments:
            return result
    has_size = found.cache_parameters()["maxsize"] is not None
    cached = () if has_size else (one for one in held if type(one) is dict and () in one)
    return next((one[()] for one in cached), EMPTY)


def _takes_arguments(function: types.FunctionType) -> bool:
    code = function.__code__
    return bool(code.co_argcount or code.co_kwonlyargcount or code.co_flags & VARYING)
