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
TENDING = frozenset({"cache_clear", "cache_info"})  # attributes that change the cache, or tell of it
VARYING = inspect.CO_VARARGS | inspect.CO_VARKEYWORDS
HIDDEN = "whose results functools.lru_cache keeps out of sight, those of a trace, too"
WHAT_TO_DO = "call it outside of the step and pass the result, or decorate the step with @tf.function"


def is_users_cache(found: Any) -> bool:
    """Whether a cached function is the user's. A library's own cached function is in the library under its name. The
    user may also have put a cache around a library's function, which then is not in the library.
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
    """Why the results of a cached function cannot be compared, in words; None if its only result is in the cache.

    Only a function without arguments has just one result. A trace may call any other function with new arguments, and
    would leave its own tensors in the cache. names: the names of attributes that the step's code reads.
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
    """The cached result of a function without arguments, found without a call that the cache would count; EMPTY if
    there is none.

    A cached function shows its contents to CPython's garbage collector: a dict of results by the calls' arguments and,
    if the size of the cache is limited, the arguments of each call, followed by the call's result.
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
