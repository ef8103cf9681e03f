"""Watches reads of a tensor's shape or value, which are Python numbers eagerly, but not while a step is traced."""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType
from typing import Any

import tensorflow as tf

from placer import tf_internals
from placer.trace.eager.number_use import COUNT
from placer.trace.eager.patching import replaced
from placer.trace.python.kinds import is_library, is_tensor

patching = threading.RLock()  # held while a trace is watched, because watching replaces attributes that all threads use
AUTOGRAPH = "tensorflow.python.autograph."
BODIES = ("if_body", "else_body", "loop_body", "loop_test")  # functions that AutoGraph makes within a converted one
EXACT = (tf.bool, tf.int8, tf.uint8, tf.int16, tf.uint16, tf.int32)  # types whose values int32 holds
NUMBERS = {"int": ("an int", "int32"), "float": ("a float", "float32")}  # and the tensor that AutoGraph makes instead
TEXTS = ("__str__", "__repr__")  # of a tensor, also called when it is formatted
WHOLE = (  # attributes of a shape that read all its dimensions
    "__iter__", "__eq__", "__ne__", "__str__", "__repr__", "as_list", "as_proto", "dims", "num_elements",
    "is_fully_defined", "assert_is_fully_defined", "is_compatible_with", "is_subtype_of", "assert_is_compatible_with",
    "concatenate", "merge_with", "most_specific_compatible_shape", "assert_has_rank", "with_rank",
)  # fmt: skip


@contextmanager
def watched_shapes(note: Callable[[str], None]) -> Iterator[None]:
    """Call `note` with the reason, in words, when the user's own code reads an unknown dimension, in this thread and
    block. Eagerly, each dimension is a number; the condition of `if kept.shape[0] == 0` is false in any trace.
    """
    thread = threading.get_ident()

    def read(tensor: Any, shape: tf.TensorShape, frame: FrameType) -> tf.TensorShape:
        frame = _asker(frame)
        if shape.is_fully_defined() or threading.get_ident() != thread or not is_users(frame):
            return shape
        why = (
            f"it reads the shape of a tensor ({_made_by(tensor)}) in {name_of(frame)}, which is not known while the "
            "step is traced; use tf.shape, or decorate the step with @tf.function"
        )
        if shape.rank is None:
            note(why)
            return shape
        return _partly_known(shape, lambda: note(why))

    with patching:
        kinds = (tf_internals.graphs.symbolic_tensor(), tf.RaggedTensor, tf.SparseTensor)
        with replaced((kind, name, value) for kind in kinds for name, value in _patches(kind, read).items()):
            yield


@contextmanager
def watched_values(note: Callable[[str], None]) -> Iterator[None]:
    """Call `note` with the reason, in words, when a tensor is read as follows in this thread and block: `float` is
    called with a tensor, or `int` with a tensor whose values int32 may not hold, or the user's own code asks whether a
    tensor has `numpy` or makes text of a tensor. Eagerly, `float` and `int` give Python numbers (a float of 64 bits, an
    int of any size) without a gradient, a tensor has `numpy`, and its text shows the value.
    """
    thread = threading.get_ident()
    tensor_kind: Any = tf_internals.graphs.symbolic_tensor()
    overloads = tf_internals.autograph.autograph_overloads()

    def counted(overload: Callable[..., Any]) -> Callable[..., Any]:
        def count(*args: Any, **kwargs: Any) -> Any:
            made = overload(*args, **kwargs)
            return tf.identity(made, name=COUNT) if is_tensor(made) else made

        return count

    def converted(name: str, overload: Callable[..., Any]) -> Callable[..., Any]:
        number, kind = NUMBERS[name]

        def convert(*args: Any, **kwargs: Any) -> Any:
            taken: Any = args[0] if args else None
            is_exact = name == "int" and is_tensor(taken) and taken.dtype in EXACT
            if is_tensor(taken) and not is_exact and threading.get_ident() == thread:
                where = name_of(caller_of(sys._getframe(1)))
                note(
                    f"it makes {number} of a tensor in {where}, which is a tensor of {kind} once the step is traced; "
                    "use tf.cast, or decorate the step with @tf.function"
                )
            made = overload(*args, **kwargs)
            return tf.identity(made, name=COUNT) if is_exact and is_tensor(made) else made

        return convert

    def asked(tensor: Any, asks: str, lacks: str) -> None:
        caller = caller_of(sys._getframe(2))
        if threading.get_ident() == thread and is_users(caller):
            note(
                f"it {asks.format(_made_by(tensor))} in {name_of(caller)}, which {lacks} while the step is traced; "
                "decorate it with @tf.function if that is meant"
            )

    def numpy(tensor: Any) -> Any:
        asked(tensor, "asks a tensor ({}) for its value (`numpy`)", "has none")
        raise AttributeError(f"{type(tensor).__name__!r} object has no attribute 'numpy'")

    def shown(make: Callable[[Any], str]) -> Callable[[Any], str]:
        def text(tensor: Any) -> str:
            asked(tensor, "makes text of a tensor ({})", "shows no value")
            return make(tensor)

        return text

    with patching:
        before = {name: overloads[name] for name in (*NUMBERS, "len")}
        overloads.update({name: converted(name, before[name]) for name in NUMBERS})
        overloads["len"] = counted(before["len"])
        texts = {name: shown(getattr(tensor_kind, name)) for name in TEXTS}
        answers = {"numpy": property(numpy), **texts}
        try:
            with replaced((tensor_kind, name, value) for name, value in answers.items()):
                yield
        finally:
            overloads.update(before)


def _patches(kind: Any, read: Callable[[Any, tf.TensorShape, FrameType], tf.TensorShape]) -> dict[str, Any]:
    true_shape = kind.shape.fget

    def shape(tensor: Any) -> Any:
        return read(tensor, true_shape(tensor), sys._getframe(1))

    def get_shape(tensor: Any) -> Any:
        found = read(tensor, true_shape(tensor), sys._getframe(1))
        return lambda: found

    def ndim(tensor: Any) -> Any:
        return read(tensor, true_shape(tensor), sys._getframe(1)).rank

    found = {"shape": shape, "get_shape": get_shape, "ndim": ndim}
    return {name: property(get) for name, get in found.items() if hasattr(kind, name)}


def _partly_known(shape: tf.TensorShape, note: Callable[[], None]) -> tf.TensorShape:
    """A copy of `shape` that calls `note` when an unknown dimension is read."""

    def whole(name: str) -> Any:
        true: Any = getattr(tf.TensorShape, name)

        def called(_: Any, *args: Any, **kwargs: Any) -> Any:
            note()
            found = getattr(shape, name)
            return found if isinstance(true, property) else found(*args, **kwargs)

        return property(called) if isinstance(true, property) else called

    def item(_: Any, key: Any) -> Any:
        found = shape[key]
        if found is None or (isinstance(found, tf.TensorShape) and not found.is_fully_defined()):
            note()
        return found

    held = {name: whole(name) for name in WHOLE if hasattr(tf.TensorShape, name)}
    held |= {"__getitem__": item, "__hash__": tf.TensorShape.__hash__, "__slots__": ()}
    return type("TensorShape", (tf.TensorShape,), held)(shape)


def caller_of(frame: FrameType) -> FrameType:
    """The nearest frame, from `frame` outwards, that is not AutoGraph's own."""
    at: FrameType | None = frame
    while at is not None and str(at.f_globals.get("__name__")).startswith(AUTOGRAPH):
        at = at.f_back
    return at or frame


def _asker(frame: FrameType) -> FrameType:
    """The frame that asks for a shape: NumPy's functions and Keras's `int_shape` read shapes for their callers."""
    at: FrameType = frame
    while at.f_back is not None and (
        is_library(at.f_globals.get("__name__")) == "numpy" or at.f_code.co_name == "int_shape"
    ):
        at = at.f_back
    return at if at is frame else caller_of(at)


def is_users(frame: FrameType) -> bool:
    return not is_library(frame.f_globals.get("__name__"))


def name_of(frame: FrameType) -> str:
    """The name of the user's function that a frame runs. AutoGraph turns it into another function (tf__step), and puts
    its branches and loops into functions within that one (if_body).
    """
    at: FrameType | None = frame
    while at is not None and at.f_code.co_name in BODIES:
        at = caller_of(at.f_back) if at.f_back is not None else None
    return (at or frame).f_code.co_name.removeprefix("tf__")


def _made_by(tensor: Any) -> str:
    return tensor.op.type if isinstance(tensor, tf.Tensor) else type(tensor).__name__
