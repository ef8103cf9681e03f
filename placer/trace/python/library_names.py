"""Tells which attributes Keras and TensorFlow may read of the user's objects whose classes inherit from theirs."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from functools import cache
from types import CodeType
from typing import Any

import tensorflow as tf

from placer.trace.python.kinds import LAYERS, has_base, is_library

KERAS, TENSORFLOW = "keras", "tensorflow"
OUTSIDE_STEPS = frozenset({"callbacks", "saving", "export", "legacy", "wrappers", "datasets"})  # parts of Keras
KNOWN = frozenset(tf.Module.__mro__)  # also the only classes of TensorFlow among the bases of Keras's layers


def is_read_by_libraries(kind: type, name: str) -> bool:
    """Whether Keras's or TensorFlow's code may read the attribute `name` of objects of the class `kind`, other than to
    see whether it holds something to be tracked. Only layers, models and plain kinds of tf.Module are known; of any
    other class the libraries may read everything.
    """
    of_tensorflow = {base for base in kind.__mro__ if is_library(base.__module__) == TENSORFLOW}
    is_layer = has_base(kind, LAYERS)
    if not of_tensorflow <= KNOWN or not (is_layer or issubclass(kind, tf.Module)):
        return True
    names = _names_in(_loaded_of_keras() if is_layer else frozenset(base.__module__ for base in of_tensorflow))
    return names is None or name in names


@cache
def _loaded_of_keras() -> frozenset[str]:
    """Keras's loaded modules whose code a step may run. None of them calls a module that is loaded later."""
    parts = {name: name.split(".") for name in sys.modules}
    return frozenset(name for name, path in parts.items() if path[0] == KERAS and OUTSIDE_STEPS.isdisjoint(path))


@cache
def _names_in(modules: frozenset[str]) -> frozenset[str] | None:
    """The names in the code of modules, and the texts, because `getattr` takes them; None if a module has no code."""
    codes = [_code_of(module) for module in modules]
    return None if None in codes else frozenset(name for code in codes if code for name in _names(code))


def _code_of(module: str) -> CodeType | None:
    loader: Any = getattr(sys.modules[module], "__loader__", None)
    return loader.get_code(module) if hasattr(loader, "get_code") else None


def _names(code: CodeType) -> Iterator[str]:
    yield from code.co_names
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            yield from _names(constant)
        else:
            texts = constant if isinstance(constant, (tuple, frozenset)) else (constant,)
            yield from (text for text in texts if isinstance(text, str))
