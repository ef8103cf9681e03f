"""Watches questions for the type of an argument that is eagerly an array or a number, and in a trace a tensor."""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from types import FrameType, ModuleType
from typing import Any

import numpy as np
import tensorflow as tf

from placer import tf_internals
from placer.trace.eager.branches import made_of
from placer.trace.eager.patching import replaced
from placer.trace.eager.tensor_reads import caller_of, is_users, name_of, patching
from placer.trace.python.kinds import is_library

NUMBERS = (int, float)
Eager = Mapping[int, type]
"""The id of a tensor that stands for an argument -> the type of the value that the user's step gets there eagerly."""


@contextmanager
def watched_types(note: Callable[[str], None], eager: Eager) -> Iterator[None]:
    """Call `note` with the reason, in words, when the user's own code asks, in this thread and block, for the type of
    an argument in `eager`, or of a value that is made only of such arguments, and would get another answer eagerly. It
    may ask by `isinstance`, `hasattr`, `tf.is_tensor`, `keras.ops.is_tensor` or `np.isscalar`, and by `type` in code
    that AutoGraph converts.
    """
    thread, known = threading.get_ident(), dict.fromkeys(eager, True)
    is_tensor, np_isscalar = tf.is_tensor, np.isscalar
    kinds = {*eager.values(), *(NUMBERS if {*NUMBERS} & {*eager.values()} else ())}  # of values made of them

    def differs(value: Any, answer: Callable[[type], bool], traced: bool) -> bool:
        """Whether the eager answer to a question for the type of `value` differs. answer: the answer for a type.
        traced: the answer in the trace.
        """
        if threading.get_ident() != thread or not eager or not tf.is_symbolic_tensor(value):
            return False
        kind = eager.get(id(value))
        if kind is not None:
            return answer(kind) != traced
        # A value made of arrays and numbers is one itself, unless an op made it; then code asks only for tensors.
        return not traced and any(map(answer, kinds)) and made_of(value, known) is True

    def asked(question: str) -> None:
        frame = caller_of(_past_keras(caller_of(sys._getframe(2))))
        if is_users(frame):
            note(
                f"it asks for the type of an argument (`{question}`) in {name_of(frame)}, which is a tensor once the "
                "step is traced; pass a tensor, or decorate the step with @tf.function"
            )

    def is_instance(value: Any, classes: Any) -> bool:
        found = isinstance(value, classes)
        try:
            is_other = differs(value, lambda kind: issubclass(kind, classes), found)
        except TypeError:  # a protocol with attributes judges objects, but not classes
            is_other = True
        if is_other:
            asked("isinstance")
        return found

    def has(value: Any, name: str) -> bool:
        found = hasattr(value, name)
        if differs(value, lambda kind: hasattr(kind, name), found):
            asked("hasattr")
        return found

    def is_scalar(element: Any) -> bool:
        if differs(element, lambda kind: issubclass(kind, NUMBERS), False):
            asked("np.isscalar")
        return bool(np_isscalar(element))

    def type_of(*args: Any, **kwargs: Any) -> Any:
        if len(args) == 1 and differs(args[0], lambda _: True, False):
            asked("type")
        return type(*args, **kwargs)

    def is_any_tensor(x: Any) -> Any:
        if differs(x, lambda _: False, True):
            asked("tf.is_tensor")
        return is_tensor(x)

    as_it_is = tf.autograph.experimental.do_not_convert
    asking = [(tf, "is_tensor", as_it_is(is_any_tensor)), (np, "isscalar", as_it_is(is_scalar))]
    if eager:  # AutoGraph does not see what Keras calls, such as a layer's `call`, nor functions that are not converted
        for module in _users_modules():
            names = {"isinstance": is_instance, "hasattr": has}.items()
            asking += [(module, name, as_it_is(own)) for name, own in names if name not in module.__dict__]
    with patching, tf_internals.autograph.autograph_calls({isinstance: is_instance, type: type_of}), replaced(asking):
        yield


def _users_modules() -> list[ModuleType]:
    """The modules of the user's program that are loaded."""
    modules = [module for module in list(sys.modules.values()) if type(module) is ModuleType]
    return [module for module in modules if not is_library(module.__dict__.get("__name__"))]


def _past_keras(frame: FrameType) -> FrameType:
    """The frame that asks, where Keras asks TensorFlow for it."""
    at: FrameType = frame
    while at.f_back is not None and at.f_code.co_name == "is_tensor" and is_library(at.f_globals.get("__name__")):
        at = at.f_back
    return at
