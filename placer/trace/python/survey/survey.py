"""Finds everything in Python's state that a step may read, from its code and values, as tokens to compare."""

from __future__ import annotations

import array
import enum
import functools
import io
import logging
import random
import types
import weakref
from collections import deque
from collections.abc import Callable, Hashable, Iterable
from functools import partial
from typing import Any

import numpy as np
import tensorflow as tf

from placer.trace.python.arguments import Subjects
from placer.trace.python.attribute_names import Sought, sought_by
from placer.trace.python.code.bytecode import reads_of
from placer.trace.python.code.instructions import codes_within
from placer.trace.python.entered_functions import Entered
from placer.trace.python.impure import ONCE, is_known_compiled
from placer.trace.python.kinds import (
    CALLBACKS,
    KERAS_OPAQUE,
    KERAS_VARIABLES,
    OF_FILES,
    PLACER,
    PROXIES,
    TENSORS,
    has_base,
    hides_fields,
    is_function_of_tensorflow,
    is_library,
    is_message,
    is_out_of_sight,
    is_tensor,
    is_unchanging,
    is_user_class,
    own_dict,
    shown_class,
)
from placer.trace.python.settings import settings
from placer.trace.python.survey.caches import CACHED, is_users_cache
from placer.trace.python.survey.callbacks import called_of_callback, calls_callback
from placer.trace.python.survey.classes import visit_class
from placer.trace.python.survey.containers import (
    visit_bytes,
    visit_dict,
    visit_list,
    visit_message,
    visit_set,
    visit_tuple,
)
from placer.trace.python.survey.functions import (
    visit_cache,
    visit_cached,
    visit_function,
    visit_getter,
    visit_method,
    visit_partial,
    visit_property,
    visit_stand_in,
    visit_wrapped,
)
from placer.trace.python.survey.getters import GETTERS
from placer.trace.python.survey.modules import visit_module
from placer.trace.python.survey.objects import (
    visit_function_of_tensorflow,
    visit_keras_variable,
    visit_named,
    visit_object,
    visit_referred,
    visit_variable,
    visit_weak,
    visit_whole_object,
)
from placer.trace.python.survey.proxies import visit_proxy
from placer.trace.python.survey.stand_ins import own_attribute_read
from placer.trace.python.survey.walk import Role, UnguardableError, Visit, Walk
from placer.wrapped import Wrapped

VISITS: tuple[tuple[Any, Visit], ...] = (
    (types.ModuleType, visit_module),
    (type, visit_class),
    ((types.MethodType, types.BuiltinMethodType, types.MethodWrapperType), visit_method),
    ((functools.partial, functools.partialmethod), visit_partial),
    (GETTERS, visit_getter),
    ((property, types.DynamicClassAttribute), visit_property),
    ((staticmethod, classmethod), visit_wrapped),
    ((functools.cached_property, functools.singledispatchmethod), visit_cached),
    (weakref.ReferenceType, visit_weak),
    ((dict, types.MappingProxyType), visit_dict),
    ((list, deque), visit_list),
    (tuple, visit_tuple),
    ((set, frozenset), visit_set),
    ((bytearray, array.array), visit_bytes),
)
"""The visits, by the classes of the values that they look into."""
WITH_ROLE: tuple[tuple[Any, Callable[..., None]], ...] = (
    (types.FunctionType, visit_function),
    (tuple(PROXIES), visit_proxy),
)
"""The visits that need to know how code calls the value that they look into."""
DRAWING = (io.IOBase, logging.Logger, random.Random, np.random.Generator, np.random.RandomState)


class Survey(Walk):
    """One walk through all that a step may read. Equal tokens mean an equal state."""

    whole = frozenset(
        {
            visit_module, visit_class, visit_variable, visit_keras_variable, visit_named, visit_whole_object,
            visit_function_of_tensorflow,
        }
    )  # fmt: skip

    def __init__(self, step: Any, sought: Sought, subjects: Subjects = ()) -> None:
        """subjects: objects among the arguments of a call.

        Raises UnguardableError if the step reads something that cannot be compared, or does something only once.
        """
        super().__init__(step, sought)
        self.subjects = subjects
        saved = settings()
        self.tokens.append(("a setting of Keras or TensorFlow", saved))
        self.guard.check(lambda: settings() == saved)
        self.child("step", step)
        self.run()
        for name, thing in subjects:
            self.child(name, thing)
        self.run()
        for label, reference in self.weak:
            visit_referred(self, reference, label)
        if (read := own_attribute_read(self.stand_ins, [at.function.__code__ for at in self.entered])) is not None:
            raise UnguardableError(f"it reads `{read}`, which a traced step would read only once")
        if self.paths and (used := sorted(OF_FILES & self._in_code())) and not self._shows(self.paths, used):
            raise UnguardableError(f"it reads `{self.paths[0]}`, and uses `{used[0]}` of a file, {ONCE}")
        if (called := called_of_callback(self.callbacks, self.entered)) is not None:
            raise UnguardableError(calls_callback(called))

    @property
    def found(self) -> Sought:
        """What the code that the walk found seeks, joined with what was sought before."""
        return self.sought.joined([*map(sought_by, self.entered), *self.unshown])

    @property
    def key(self) -> list[Hashable]:
        """The tokens that are compared: values and the places where they are, because the step may ask for a place."""
        return list(self.tokens)

    @property
    def compares(self) -> bool:
        """Whether code compares by `is` two values that may be arguments of the step."""
        return any(reads_of(one.function.__code__).compares(_own(one)) for one in self.entered)

    @property
    def asks(self) -> bool:
        """Whether code compares by `is` a value that may be an argument of the step with another value."""
        return any(reads_of(one.function.__code__).asks(_own(one)) for one in self.entered)

    def visit_of(self, value: Any, label: str, role: Role) -> Visit | None:
        """The visit that looks into a value, as in `Walk`."""
        if issubclass(type(value), enum.Enum):
            return visit_object
        if has_base(type(value), KERAS_VARIABLES):
            return visit_keras_variable
        kind = shown_class(value)
        if issubclass(kind, TENSORS) and own_dict(value) is not None:
            return visit_variable
        if is_tensor(value) or has_base(type(value), KERAS_OPAQUE):
            return None
        for kinds, looks in WITH_ROLE:
            if issubclass(kind, kinds):
                return partial(looks, role=role)
        for kinds, visit in VISITS:
            if issubclass(kind, kinds):
                return visit
        if issubclass(kind, DRAWING):
            raise UnguardableError(f"it uses `{label}` (a {type(value).__name__}), whose state a traced step ignores")
        if is_out_of_sight(type(value)):
            raise UnguardableError(f"it reads `{label}`, and Placer cannot see into a {type(value).__name__}")
        if hasattr(type(value), "__next__") and not isinstance(value, tf.data.Iterator):
            raise UnguardableError(
                f"it reads `{label}` (a {type(value).__name__}), which a traced step would read only once"
            )
        return self._visit_of_object(value, label)

    def _visit_of_object(self, value: Any, label: str) -> Visit | None:
        kind = type(value)
        if kind is CACHED:
            return visit_cache if is_users_cache(value) else visit_object
        if isinstance(value, Wrapped):
            return visit_stand_in
        if has_base(kind, CALLBACKS):
            self.callbacks.append((label, value))
            if is_library(kind.__module__) in PLACER:
                return None
        if isinstance(value, np.void):
            raise UnguardableError(f"it reads `{label}`, a record of a structured array, which may change in its place")
        if is_function_of_tensorflow(kind):
            return visit_function_of_tensorflow
        if is_message(kind):
            return visit_message
        if hides_fields(kind):
            if is_known_compiled(kind.__module__):
                return None
            raise UnguardableError(f"it reads `{label}`, and Placer cannot see into a {kind.__name__}")
        if is_user_class(kind) or is_library(kind.__module__) == "keras":
            return visit_object
        if own_dict(value) is None:
            if is_library(kind.__module__) and is_unchanging(kind):
                return None
            raise UnguardableError(f"it reads `{label}`, and Placer cannot see into a {kind.__name__}")
        if is_library(kind.__module__) == "numpy":
            return visit_whole_object
        return visit_named if is_library(kind.__module__) in ("tensorflow", *PLACER) else visit_object

    def _in_code(self) -> set[str]:
        """The globals and attributes that code names; no constants."""
        return {name for one in self.entered for code in codes_within(one.function.__code__) for name in code.co_names}

    def _shows(self, labels: Iterable[str], names: Iterable[str]) -> bool:
        """Whether a path in the code leads to one of these names of one of these objects; then `impure` judges it."""
        paths = {str(path) for one in self.entered for path in reads_of(one.function.__code__).paths}
        return any(f"{label}.{name}" in paths for label in labels for name in names)


def _own(entered: Entered) -> str:
    """The first parameter of a method; "" for any other function."""
    return "".join(entered.function.__code__.co_varnames[:1]) if entered.is_method else ""
