"""Finds Python code that a traced step would not repeat: prints, files, clocks, random numbers, lasting writes."""

from __future__ import annotations

import builtins
import contextlib
import dis
import functools
import importlib
import io
import logging
import random
import sys
from collections import defaultdict, deque
from collections.abc import MutableMapping, MutableSequence, MutableSet, Sequence
from types import (
    BuiltinFunctionType,
    ClassMethodDescriptorType,
    CodeType,
    FunctionType,
    MethodDescriptorType,
    ModuleType,
)
from typing import Any

import numpy as np
import tensorflow as tf

from placer.trace.python.code.bytecode import reads_of
from placer.trace.python.code.instructions import codes_within
from placer.trace.python.code.paths import ITEM, Path, Paths
from placer.trace.python.entered_functions import MAKES_ITSELF, Entered, along, member, reached
from placer.trace.python.kinds import EMPTY, STANDARD, UNCHANGING, answers_any_name, is_library

ONCE = "which a traced step would do only once; decorate it with @tf.function if that is meant"
CALLS = frozenset(
    {"print", "open", "input", "exec", "eval", "breakpoint", "setattr", "delattr", "globals", "locals", "__import__"}
)
PURE = frozenset(  # standard modules, without leading underscores, that neither read nor change the outside world
    {
        "abc", "argparse", "array", "ast", "base64", "binascii", "bisect", "builtins", "cmath",
        "collections", "collections_abc", "colorsys", "configparser", "contextlib", "copy", "copyreg", "dataclasses",
        "datetime", "decimal", "difflib", "enum", "errno", "fractions", "functools", "future",
        "graphlib", "hashlib", "heapq", "hmac", "inspect", "itertools", "json", "keyword", "math", "numbers",
        "operator", "platform", "pydatetime", "pydecimal", "py_abc", "re", "sre", "statistics", "string", "struct",
        "sys", "textwrap", "types", "typing", "unicodedata", "weakref", "weakrefset", "zlib",
    }
)  # fmt: skip
LOGGERS = frozenset({"tqdm", "wandb", "mlflow", "tensorboardX", "neptune", "comet_ml", "psutil", "h5py"})
PARTS = (  # impure parts of libraries whose other parts are pure
    "numpy.random", "absl.logging", "absl.app", "tensorflow.python.lib.io", "tensorflow.python.platform",
    "tensorflow.python.profiler", "tensorflow.python.saved_model", "tensorflow.python.checkpoint",
)  # fmt: skip
NAMESPACES = ("summary", "config", "gfile", "logging", "profiler", "saved_model")  # of TensorFlow
FUNCTIONS = {  # first part of a module's name -> functions that use files, or the library's own state
    "numpy": frozenset(
        {
            "load", "loadtxt", "genfromtxt", "fromfile", "fromregex", "memmap", "open_memmap", "save", "savetxt",
            "savez", "savez_compressed", "DataSource", "tofile", "dump", "set_printoptions", "seterr",
        }
    ),
    "configparser": frozenset({"read", "read_file", "write"}),
    "keras": frozenset(
        {
            "clear_session", "set_epsilon", "set_floatx", "set_image_data_format", "set_backend", "get_file",
            "get_value", "eval", "print_msg", "load_model", "save_model", "load_weights", "save_weights",
            "set_random_seed", "set_dtype_policy", "enable_flash_attention", "disable_flash_attention",
        }
    ),
}  # fmt: skip
CLOCKS = frozenset({"now", "today", "utcnow"})
OF_SYS = frozenset({"stdout", "stderr", "stdin", "exit", "modules", "_getframe"})
MUTATORS = frozenset(
    {
        "append", "extend", "insert", "pop", "popitem", "popleft", "appendleft", "extendleft", "rotate", "remove",
        "clear", "sort", "reverse", "update", "setdefault", "add", "discard", "__setitem__", "__delitem__",
        "intersection_update", "difference_update", "symmetric_difference_update", "subtract",
    }
)  # fmt: skip
KERAS_METHODS = frozenset(
    {"fit", "predict", "evaluate", "summary", "train_on_batch", "test_on_batch", "predict_on_batch", "load_weights"}
)
COMPILED = (BuiltinFunctionType, MethodDescriptorType, ClassMethodDescriptorType)  # no code of Python's
COMPILED_BY = frozenset(
    {"cython_function_or_method", "fused_cython_function", "instancemethod", "nb_func", "nb_method"}
)
PURE_COMPILED = frozenset({"tree", "optree", "scipy"})  # other libraries whose compiled functions are pure
NO_CATCH = (None, False)  # what an `__exit__` returns that lets an exception go on
RAISED_IN_A_TRACE = (KeyError, ImportError)  # raised by Python alone, and in the same way while a step is traced
IMPORTERS = (importlib, importlib.import_module)
CONTAINERS = (MutableMapping, MutableSequence, MutableSet, deque, bytearray, np.ndarray)


def impurity(entered: Entered) -> str | None:
    """What in a function cannot be traced faithfully, in words; None if nothing was found."""
    reads = reads_of(entered.function.__code__)
    for path in sorted(reads.paths, key=lambda path: (-len(path.attributes), path)):
        found = list(along(path, entered))
        if entered.may_import and len(found) > len(path.attributes) and any(found[-1] is one for one in IMPORTERS):
            continue
        why = _read(path, found)
        if why is not None:
            return f"it {why}{_place(entered)}, {ONCE}"
    for path in reads.writes:
        why = _written(path, entered)
        if why is not None:
            return f"it writes {why}{_place(entered)}, {ONCE}"
    for paths in reads.catches:
        if not all(_is_raised_in_a_trace(path, entered) for path in paths):
            return (
                f"it catches exceptions{_named(paths)}{_place(entered)}, and what ops raise does not come by there "
                "once the step is traced; decorate it with @tf.function if that is meant"
            )
    exits = [code for code in codes_within(entered.function.__code__) if code.co_name == "__exit__"]
    if not all(map(_lets_go_on, exits)):
        return (
            f"it may catch exceptions{_place(entered)}, and what ops raise does not come by there once the step is "
            "traced; have `__exit__` return None, or decorate the step with @tf.function"
        )
    return None


def imports(function: FunctionType) -> bool:
    """Whether a function's own code names `importlib.import_module`, which takes names that are made at run time."""
    paths = reads_of(function.__code__).paths
    return any(reached(path, Entered(function)) is importlib.import_module for path in paths)


def _lets_go_on(code: CodeType) -> bool:
    """Whether a function returns only None or False, as far as its code shows."""
    before = None
    for instruction in dis.get_instructions(code):
        if instruction.opname.startswith("RETURN_") and instruction.opname != "RETURN_GENERATOR":
            at = instruction if instruction.opname == "RETURN_CONST" else before
            if at is None or "CONST" not in at.opname or at.argval not in NO_CATCH:
                return False
            if at is before and instruction.is_jump_target:  # a jump may bring another value to return
                return False
        before = instruction
    return True


def _is_raised_in_a_trace(path: Path, entered: Entered) -> bool:
    *_, found = along(path, entered)
    return isinstance(found, type) and issubclass(found, RAISED_IN_A_TRACE)


def _named(paths: Paths) -> str:
    names = sorted(str(path) for path in paths if path.name)
    return f" (`{names[0]}`)" if names else ""


def _place(entered: Entered) -> str:
    return "" if entered.is_step else f" in {entered.function.__qualname__}"


def _read(path: Path, values: list[Any]) -> str | None:
    """What code does by reading `path` that a traced step would not repeat, in words; None if there is nothing.
    values: the objects on the path, as far as they are known.
    """
    if len(values) <= len(path.attributes) and _changes_item(values[-1], path.attributes[len(values) - 1 :]):
        return f"changes `{path}`"
    for value, attribute in zip(values, (*path.attributes, ""), strict=False):
        if isinstance(value, CONTAINERS) and attribute in MUTATORS:
            return f"changes `{path}`"
        if isinstance(value, np.ndarray) and attribute in FUNCTIONS["numpy"]:
            return f"uses `{path}`"
        if _is_library_object(value) and (attribute in KERAS_METHODS or attribute.startswith("save")):
            return f"calls `{path}`"
        if isinstance(value, type) and value.__module__ == "datetime" and attribute in CLOCKS:
            return f"reads the clock (`{path}`)"
        if isinstance(value, ModuleType) and value.__name__ == "sys" and attribute in OF_SYS:
            return f"uses `{path}`"
        if value is contextlib.suppress:
            return f"catches exceptions (`{path}`)"
        if value is not EMPTY and _is_impure(value):
            return f"uses `{path}`"
    return None


def _changes_item(value: Any, attributes: Sequence[str]) -> bool:
    """Whether code changes a container within the container `value`, or within an object there:
    `log["norms"].append`, `meters["loss"].values.append`. A container that is filled later is judged again.
    attributes: the rest of the path, from `value` on.
    """
    reached = [value]
    for attribute in attributes:
        if attribute in MUTATORS and any(isinstance(one, CONTAINERS) for one in reached):
            return True
        if attribute == ITEM and any(isinstance(one, defaultdict) for one in reached):
            return not MUTATORS.isdisjoint(attributes)
        reached = [found for one in reached for found in _reached(one, attribute)]
    return False


def _reached(value: Any, attribute: str) -> list[Any]:
    """The attribute of an object, or all items of a container for ITEM, found without running code of the user's."""
    found = _items(value) if attribute == ITEM else [member(value, attribute)]
    return [one for one in found if one is not EMPTY]


def _items(value: Any) -> list[Any]:
    """The values in a dict, a list, a deque or a tuple, found without running code of a class of the user's."""
    if isinstance(value, dict):
        return list(dict.values(value))
    kind: Any = next((kind for kind in (list, tuple, deque) if isinstance(value, kind)), None)
    return [] if kind is None else list(kind.__iter__(value))


def _is_impure(value: Any) -> bool:
    while type(value) is functools.partial:
        value = value.func
    if isinstance(value, (io.IOBase, logging.Logger, random.Random, np.random.RandomState, np.random.Generator)):
        return True
    if _is_standard_impure(type(value).__module__) and not isinstance(value, UNCHANGING):  # a lock, a queue, a writer
        return True
    if isinstance(value, ModuleType):
        return _is_module_impure(value.__name__) or _is_tensorflow(value.__name__, *NAMESPACES)
    if value in _questions() or value is sys.exit or _ends_the_program(value):
        return True
    if not callable(value) and not isinstance(value, type):
        return False
    if answers_any_name(type(value)):
        return _is_module_impure(type(value).__module__)
    owner = getattr(value, "__self__", None)
    if owner is builtins:
        return value.__name__ in CALLS
    if owner is not None and (isinstance(owner, ModuleType) or not callable(owner)) and _is_owner_impure(owner):
        return True
    module = str(getattr(value, "__module__", None) or "")
    name = getattr(value, "__name__", None)
    return _is_module_impure(module) or name in FUNCTIONS.get(_top(module), ()) or is_compiled_elsewhere(value)


def acts_unnamed(function: Any, label: str) -> bool:
    """Whether a function reads or changes the outside world, and code has it as an item, a default or an argument
    (`log=print`), or under a name other than its own, so that no path in the code shows what is called.
    """
    while type(function) is functools.partial:
        function = function.func
    if type(function) not in (FunctionType, BuiltinFunctionType) or is_compiled_elsewhere(function):
        return False
    owner = getattr(function, "__self__", None)  # an owner that is an object is visited itself
    is_free = owner is None or isinstance(owner, ModuleType)
    return is_free and function.__name__ != label.rpartition(".")[2] and _is_impure(function)


def acts_as_module(value: Any) -> bool:
    """Whether a value is a module whose functions read or change the outside world."""
    return issubclass(type(value), ModuleType) and _is_impure(value)


def _ends_the_program(value: Any) -> bool:
    """Whether a value is an exception that no `except Exception` catches. A trace runs a branch that raises it even if
    the step would not, and the exception would end the program.
    """
    return isinstance(value, type) and issubclass(value, BaseException) and not issubclass(value, Exception)


def is_compiled_elsewhere(function: Any) -> bool:
    """Whether a function belongs to a library that is not known here, and has no Python code to look through."""
    if not isinstance(function, COMPILED) and type(function).__name__ not in COMPILED_BY:
        return False
    name = str(getattr(function, "__module__", None) or _module_of_its_owner(function))
    return bool(name) and not is_library(name) and not is_known_compiled(name)


def is_known_compiled(module: str) -> bool:
    """Whether compiled code of another library neither reads nor changes the outside world, and does not change."""
    return _top(module) in PURE_COMPILED


def _module_of_its_owner(function: Any) -> str:
    """The module of the class that defines a method, or of the module that holds a function."""
    owner = getattr(function, "__objclass__", None) or getattr(function, "__self__", None)
    if owner is None or isinstance(owner, ModuleType):
        return getattr(owner, "__name__", "")
    classes = (owner if isinstance(owner, type) else type(owner)).__mro__
    return next((kind.__module__ for kind in classes if function.__name__ in vars(kind)), "")


def _is_owner_impure(owner: Any) -> bool:
    drawing = (random.Random, np.random.RandomState, np.random.Generator, io.IOBase)
    return isinstance(owner, drawing) or (isinstance(owner, ModuleType) and _is_module_impure(owner.__name__))


def _is_module_impure(name: str) -> bool:
    return _is_standard_impure(name) or _top(name) in LOGGERS or name.startswith(PARTS)


def _is_standard_impure(module: str) -> bool:
    top = _top(module)
    return top in STANDARD and top.strip("_") not in PURE


class _Questions:
    """A set, by identity, of TensorFlow's functions that answer differently while a function is traced."""

    def __init__(self) -> None:
        found = [
            tf.executing_eagerly,
            tf.inside_function,
            tf.init_scope,
            tf.random.set_seed,
            tf.random.set_global_generator,
            tf.is_symbolic_tensor,
            tf.get_static_value,
        ]
        self._ids = {id(function) for function in [*found, tf.keras.utils.set_random_seed]}

    def __contains__(self, value: Any) -> bool:
        return id(value) in self._ids


_asked: list[_Questions] = []


def _questions() -> _Questions:
    if not _asked:
        _asked.append(_Questions())
    return _asked[0]


def _is_tensorflow(name: str, *ends: str) -> bool:
    return _top(name) == "tensorflow" and name.rpartition(".")[2] in ends


def _is_library_object(value: Any) -> bool:
    """Whether a value is an object of a class of Keras or TensorFlow, or of one that inherits from such a class."""
    if isinstance(value, (type, ModuleType, FunctionType)) or value is EMPTY:
        return False
    return any(_top(kind.__module__) in ("keras", "tensorflow") for kind in type(value).__mro__)


def _written(path: Path, entered: Entered) -> str | None:
    """What a write changes that outlives the call, in words; None if there is nothing."""
    if path.root == "unknown":
        return f"`{path.attributes[-1]}` of something that it did not make"
    if not path.attributes:
        return f"`{path}` (a {'global' if path.root == 'global' else 'nonlocal'})"
    owners = list(along(path._replace(attributes=path.attributes[:-1]), entered))
    if _is_given_anew(path, owners):
        return None
    if path.attributes[-1] == "learning_rate" and len(owners) == len(path.attributes) and _is_optimizer(owners[-1]):
        return None  # Keras assigns it to a variable
    if path.root != "argument":
        return f"`{path}`"
    code = entered.function.__code__
    arguments = code.co_varnames[: code.co_argcount + code.co_kwonlyargcount]
    own = entered.is_method and path.name in arguments[:1] and entered.function.__name__ not in MAKES_ITSELF
    lasts = path.name in (arguments if entered.is_step else entered.arguments)
    return f"`{path}`" if own or lasts else None


def _is_given_anew(path: Path, owners: Sequence[Any]) -> bool:
    """Whether a path goes on from the result of a `get` that belongs to no container (`keras.losses.get`). owners: the
    objects on the path, as far as they are known.
    """
    if owners[-1] is EMPTY or len(owners) >= len(path.attributes):
        return False
    return path.attributes[len(owners) - 1] == ITEM and not hasattr(type(owners[-1]), "__getitem__")


def _is_optimizer(value: Any) -> bool:
    return isinstance(value, tf.keras.optimizers.Optimizer)


def _top(module: str) -> str:
    return module.partition(".")[0]
