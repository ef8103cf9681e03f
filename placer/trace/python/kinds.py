"""Tells which Python values are plain, which classes are the user's own, and what of Keras's objects matters."""

from __future__ import annotations

import datetime
import decimal
import enum
import fractions
import functools
import inspect
import operator
import pathlib
import re
import struct
import sys
import threading
import types
import uuid
import weakref
from collections.abc import Callable, Hashable
from typing import Any, ParamSpec, TypeVar

import numpy as np
import tensorflow as tf
import wrapt

PLACER = frozenset({"placer", "surrogate", "search"})  # Placer's packages that run within a training
LIBRARIES = frozenset({"tensorflow", "keras", "numpy", "absl", "wrapt", "ml_dtypes", "h5py", "builtins"}) | PLACER
LIBRARIES |= frozenset(sys.stdlib_module_names)
VALUES = (int, float, complex, str, bytes)
POINTER = struct.calcsize("P")
PLAIN = (type(None), bool, int, float, complex, str, bytes, range, type(...), tf.DType, np.dtype)
TENSORS = (tf.Tensor, tf.Variable, tf.SparseTensor, tf.IndexedSlices, tf.RaggedTensor)
NO_CODE = frozenset(  # special methods that a step does not call, or that only make the object or the class
    {"__init__", "__new__", "__post_init__", "__init_subclass__", "__set_name__", "__del__", "__setattr__"}
) | frozenset({"__getstate__", "__setstate__", "__reduce__", "__reduce_ex__", "__sizeof__", "__dir__"})
TEXTS = frozenset({"__repr__", "__str__", "__format__"})  # called when code makes text of an object
MAKERS = ("__init__", "__new__", "__post_init__", "__setattr__", "__del__")  # run when a step makes an object
NOT_CALLED = frozenset(  # methods of Keras that a step does not call
    {"get_config", "from_config", "summary", "build", "compute_output_shape", "compute_output_spec", "fit", "test_step"}
) | frozenset({"predict_step", "save", "load", "compile", "get_build_config", "build_from_config"})
CALLED_BY_KERAS = frozenset({"get_initial_state"})  # methods of layers that Keras calls though they override none
KERAS_NOISE = frozenset(
    {
        "_losses", "_loss_ids", "_inbound_nodes", "_outbound_nodes", "_tracker", "_lock", "_auto_config", "build",
        "quantize", "name", "_name", "_path", "_parent_path", "_build_shapes_dict", "_compile_config", "_initializer",
        "train_function", "test_function", "predict_function", "stop_training", "_initial_epoch", "history",
        "_saved_model_inputs_spec", "_saved_model_arg_spec", "_called", "_call_signature", "_nodes", "_nodes_by_depth",
        "_operations_by_depth", "_inputs", "_outputs", "_inputs_struct", "_outputs_struct", "output_names",
        "_compiled_trainable_state", "_convert_input_args", "_allow_non_tensor_positional_args", "_tracked",
        "call_signature_parameters", "_call_context_args", "_call_has_context_arg", "_call_has_training_arg",
        "_call_has_mask_arg", "_epoch_iterator", "_eval_epoch_iterator", "stop_evaluating", "stop_predicting",
        "_seed_generators", "supports_jit", "_input_spec", "_losses_override", "_trainable_variables_indices",
        "_operations", "_variables", "_remat_mode", "_distribution_strategy", "built",
        "_exclude_from_weight_decay_cache",
    }
)  # fmt: skip
KERAS_VARIABLES = frozenset({"KerasVariable", "Variable"})
VARIABLE_SETTINGS = ("_trainable",)  # attributes of a variable that a step's mathematics depends on
KERAS_VARIABLE_SETTINGS = (*VARIABLE_SETTINGS, "_regularizer", "_constraint", "_overwrite_with_gradient", "_autocast")
KERAS_OPAQUE = frozenset({"KerasTensor", "Node", "Tracker"})
COMPILED_METRICS = frozenset({"CompileMetrics"})  # the object in which a compiled model keeps its metrics
GIVEN_METRICS = ("_user_metrics", "_user_weighted_metrics")  # its attributes for what `compile` was given
CALLBACKS = frozenset({"Callback"})
FUNCTIONAL, LAYERS = frozenset({"Functional"}), frozenset({"Layer"})
OPERATIONS = "_operations"  # an attribute of a functional model: its layers, and the other objects that it calls
OF_FILES = frozenset(  # methods of a pathlib.Path that ask or change what is on the disk
    {"exists", "glob", "is_dir", "is_file", "iterdir", "lstat", "mkdir", "open", "read_bytes", "read_text", "rglob"}
) | frozenset({"rmdir", "stat", "touch", "unlink", "write_bytes", "write_text"})
STANDARD = frozenset(sys.stdlib_module_names)
STATELESS = frozenset(  # modules of the standard library whose classes, as bases, keep no values of the user's
    {"abc", "collections.abc", "_collections_abc", "typing", "enum", "contextlib", "builtins", "types", "argparse"}
)
OUT_OF_SIGHT = frozenset(  # modules whose objects keep values that no attribute shows
    {"ctypes", "_ctypes", "multiprocessing", "contextvars", "_contextvars", "mmap", "dbm", "shelve", "sqlite3", "h5py"}
)
HIDING = (memoryview, weakref.ProxyType, weakref.CallableProxyType)  # no attribute shows what they stand for
LOCKS = (type(threading.Lock()), type(threading.RLock()))  # hold no values
UNCHANGING = (  # classes of the standard library whose objects never change, and show no attributes
    slice, type(NotImplemented), re.Pattern, re.Match, datetime.date, datetime.time, datetime.timedelta,
    datetime.timezone, decimal.Decimal, fractions.Fraction, uuid.UUID, pathlib.PurePath, struct.Struct,
    operator.itemgetter, operator.attrgetter, operator.methodcaller, inspect.Signature, inspect.Parameter,
    types.CodeType, types.UnionType, types.MemberDescriptorType, types.GetSetDescriptorType, types.MethodDescriptorType,
    types.WrapperDescriptorType, types.ClassMethodDescriptorType,
    type(vars(inspect.FullArgSpec)["args"]),  # a field of a named tuple's class
)  # fmt: skip


# The classes that wrapt puts around a function (as wrapt.decorator does), and around any other object.
WRAPPERS = frozenset({wrapt.FunctionWrapper, wrapt.BoundFunctionWrapper})
PROXIES = WRAPPERS | {wrapt.ObjectProxy}
WRAPPED = "__wrapped__"
OF_WRAPPERS = ("_self_wrapper", "_self_instance", "_self_enabled")  # a wrapper's attributes besides WRAPPED
EMPTY = object()  # stands for no value where None may be a value
P = ParamSpec("P")
T = TypeVar("T")


def _by_type(function: Callable[P, T]) -> Callable[P, T]:
    """Cache the results of a function that takes a class."""
    return functools.lru_cache(maxsize=4096)(function)  # type: ignore[return-value]


def is_plain(value: Any) -> bool:
    """Whether a value cannot change and is compared by value."""
    kind = type(value)  # a proxy's `__class__` is that of another object
    if issubclass(kind, np.void):  # a record of a structured array, which is a part of the array
        return False
    return kind in PLAIN or issubclass(kind, (enum.Enum, np.generic, tf.TensorShape))


def plain_key(value: Any) -> Hashable:
    """A key by type and value; NaN equals itself, and 0.0 is not -0.0."""
    if isinstance(value, (float, complex, np.generic)):
        return (type(value), repr(value))
    return (type(value), str(value)) if isinstance(value, tf.TensorShape) else (type(value), value)


@functools.lru_cache(maxsize=4096)
def is_library(module: str | None) -> str:
    """The library that a module belongs to, whose code is not looked into; "" for the user's own."""
    top = (module or "").partition(".")[0]
    return top if top in LIBRARIES else ""


def is_of_library(function: types.FunctionType) -> bool:
    """Whether a function is a library's own. A function that wraps another one, and took over its name, is a library's
    own only if both are.
    """
    names = [name for name in (function.__module__, function.__globals__.get("__name__")) if name]
    return bool(names) and all(map(is_library, names))


def is_made_by_library(method: Any) -> bool:
    """Whether a method of a class of the user's is a function that a library has made for the class."""
    return type(method) is types.FunctionType and bool(is_library(method.__globals__.get("__name__")))


@_by_type
def is_user_class(kind: type) -> bool:
    """Whether a class is the user's own, or one of its bases is."""
    return any(not is_library(base.__module__) for base in kind.__mro__)


def shown_class(value: Any) -> type:
    """The class of a value, whatever a proxy's `__class__` says. For an object that TensorFlow puts in the place of a
    dict or a tuple, it is the class that the object shows, because its items are all that it holds.
    """
    kind = type(value)
    return value.__class__ if is_library(kind.__module__) == "tensorflow" else kind


def is_users_own(value: Any) -> bool:
    """Whether a value is a function of the user's own, a method or a partial of one, or an object of a class of the
    user's own or of Keras.
    """
    while isinstance(value, (functools.partial, types.MethodType)):
        value = value.func if isinstance(value, functools.partial) else value.__func__
    if isinstance(value, types.FunctionType):
        return not is_of_library(value)
    kind = type(value)
    return not isinstance(value, type) and (is_user_class(kind) or is_library(kind.__module__) == "keras")


@_by_type
def has_library_base(kind: type) -> bool:
    """Whether a class of TensorFlow or Keras, which runs its own code on objects, is among the bases of a class."""
    return any(is_library(base.__module__) in ("keras", "tensorflow") for base in kind.__mro__)


@_by_type
def holds_unnamed(kind: type) -> bool:
    """Whether a library keeps values in attributes that the user's code need not name, as in a collections.UserDict, a
    ChainMap, a ConfigParser, an Event, and absl's flags. A namespace has only attributes that the user named.
    """
    if any(is_library(base.__module__) == "absl" for base in kind.__mro__):
        return True
    own = [base for base in kind.__mro__ if is_standard(base) and base.__module__ not in STATELESS]
    return any(not is_user_class(kind) or hasattr(base, "__getitem__") for base in own)


@_by_type
def is_out_of_sight(kind: type) -> bool:
    """Whether the contents of objects of a class cannot be compared."""
    return kind in HIDING or any(base.__module__.partition(".")[0] in OUT_OF_SIGHT for base in kind.__mro__)


@_by_type
def is_tensor_class(kind: type) -> bool:
    """Whether TensorFlow or Keras takes objects of a class for tensors, Keras's variables among them."""
    return issubclass(kind, TENSORS) or has_base(kind, KERAS_VARIABLES)


def is_tensor(value: Any) -> bool:
    """Whether a value is a tensor. Unlike `tf.is_tensor`, this asks no object of the user's for attributes, to which it
    may answer anything.
    """
    return is_tensor_class(type(value))


def is_public_tensor(name: str, value: Any) -> bool:
    """Whether an attribute is public and holds a tensor or an array, so that a program may have put it there."""
    return not name.startswith("_") and (isinstance(value, np.ndarray) or is_tensor(value))


@_by_type
def hides_fields(kind: type) -> bool:
    """Whether objects of a class of the user's have fields in C that no attribute shows: they are larger than their
    slots, their dict and their weak references. Fields of plain values, and of objects that never change, do not count.
    """
    if not is_user_class(kind):
        return False
    for base in kind.__mro__:
        own = base.__base__
        if own is None or base in VALUES or issubclass(base, (*UNCHANGING, *LOCKS)):
            continue
        known = [name for name in slots_of(base) if name not in ("__dict__", "__weakref__")]
        has_weak = base.__weakrefoffset__ > 0 == own.__weakrefoffset__
        # A dict is among the fields, or in front of an object that has a fixed size; then its offset is below 0.
        has_dict = own.__dictoffset__ == 0 and (base.__dictoffset__ > 0 or base.__itemsize__ > 0)
        if base.__basicsize__ - own.__basicsize__ > POINTER * (len(known) + has_weak + has_dict):
            return True
    return False


@_by_type
def answers_any_name(kind: type) -> bool:
    """Whether code of the user's decides what attributes objects of a class have."""
    asked = ("__getattr__", "__getattribute__")
    return any(name in vars(base) for base in kind.__mro__ if not is_library(base.__module__) for name in asked)


def own_dict(value: Any) -> dict[str, Any] | None:
    """The `__dict__` of an object, found without running code of the user's; None if it has none."""
    try:
        held = object.__getattribute__(value, "__dict__")
    except AttributeError:
        return None
    return held if isinstance(held, dict) else None


def unwrapped(function: Any) -> Any:
    """As `inspect.unwrap`, but without running code of the user's."""
    while "__wrapped__" in (held := own_dict(function) or {}):
        function = held["__wrapped__"]
    return function


def of_proxy(proxy: Any, name: str = WRAPPED) -> Any:
    """An attribute of a proxy of wrapt's itself, found without running code of the object that it wraps."""
    return object.__getattribute__(proxy, name)


def unproxied(value: Any) -> Any:
    """A value without the proxies of wrapt's around it."""
    while type(value) in PROXIES:
        value = of_proxy(value)
    return value


def in_slot(slot: Any, value: Any) -> Any:
    """The value in a slot of an object; EMPTY if there is none."""
    try:
        return slot.__get__(value)
    except AttributeError:
        return EMPTY


@_by_type
def is_message(kind: type) -> bool:
    """Whether a class is a protobuf message."""
    return any(base.__module__ == "google.protobuf.message" for base in kind.__mro__)


@_by_type
def is_function_of_tensorflow(kind: type) -> bool:
    """Whether objects of a class are made by tf.function, which freezes their Python state when it traces them."""
    return any("get_concrete_function" in vars(base) and is_library(base.__module__) for base in kind.__mro__)


def plain_base(kind: type) -> Any:
    """The plain class from which a class of the user's inherits its value; None if there is none."""
    return next((base for base in kind.__mro__ if base in VALUES), None)


@_by_type
def is_unchanging(kind: type) -> bool:
    """Whether an object of a library that has no `__dict__` may be compared by identity. An object of one of Python's
    own classes may hold anything, unless the class is known.
    """
    known = issubclass(kind, (*UNCHANGING, *LOCKS)) or kind.__module__ == "_abc"  # what each abstract class keeps
    return known or kind is object or not is_standard(kind)


def is_standard(kind: type) -> bool:
    """Whether a class is Python's own, or the standard library's."""
    return kind.__module__.partition(".")[0] in STANDARD


def is_noise(name: str) -> bool:
    """Whether an attribute of Keras's objects changes without changing what a step computes."""
    return name in KERAS_NOISE or name.startswith(("_self_", "_obj_reference")) or name.endswith("_initializer")


@_by_type
def has_base(kind: type, names: frozenset[str]) -> bool:
    """Whether a class of Keras with one of these names is among the bases of a class, itself included."""
    return any(base.__name__ in names and is_library(base.__module__) == "keras" for base in kind.__mro__)


@_by_type
def slots_of(kind: type) -> list[str]:
    """The attributes that a class itself, without its bases, keeps in slots."""
    found = vars(kind).get("__slots__", ())
    names = [found] if isinstance(found, str) else list(found)
    return [f"_{kind.__name__.lstrip('_')}{n}" if n.startswith("__") and not n.endswith("__") else n for n in names]
