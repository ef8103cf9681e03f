"""Everything in Python's state that a step may read, found from its code and values, as tokens to compare.

One class, because the visit of each kind of value may lead to any other.
"""

from __future__ import annotations

import array
import enum
import functools
import inspect
import io
import logging
import pathlib
import random
import sys
import types
import weakref
from collections import deque
from collections.abc import Callable, Hashable, Iterable, Mapping
from functools import partial
from typing import Any

import numpy as np
import tensorflow as tf

from placer.trace.python.arguments import Subjects
from placer.trace.python.caches import CACHED, is_users_cache, kept_result, why_hidden
from placer.trace.python.callbacks import called_of_callback, methods_of_keras
from placer.trace.python.code import is_for_super, reads_of
from placer.trace.python.containers import (
    UnguardableError,
    array_token,
    visit_bytes,
    visit_dict,
    visit_list,
    visit_message,
    visit_set,
    visit_tuple,
)
from placer.trace.python.getters import ANYTHING, GETTERS, is_renamed, parts_of_getter, sought_by_partial
from placer.trace.python.guard import Guard
from placer.trace.python.impure import (
    ONCE,
    Entered,
    acts_unnamed,
    contents,
    imported,
    imports,
    impurity,
    is_compiled_elsewhere,
    is_known_compiled,
)
from placer.trace.python.kinds import (
    CALLBACKS,
    CALLED_BY_KERAS,
    COMPILED_METRICS,
    EMPTY,
    FUNCTIONAL,
    GIVEN_METRICS,
    KERAS_OPAQUE,
    KERAS_VARIABLE_SETTINGS,
    KERAS_VARIABLES,
    LAYERS,
    MAKERS,
    NO_CODE,
    NOT_CALLED,
    OF_FILES,
    OF_WRAPPERS,
    OPERATIONS,
    PLACER,
    PROXIES,
    TENSORS,
    TEXTS,
    UNCHANGING,
    VARIABLE_SETTINGS,
    WRAPPED,
    WRAPPERS,
    has_base,
    has_library_base,
    hides_fields,
    holds_unnamed,
    in_slot,
    is_function_of_tensorflow,
    is_library,
    is_made_by_library,
    is_message,
    is_noise,
    is_of_library,
    is_out_of_sight,
    is_plain,
    is_public_tensor,
    is_tensor,
    is_unchanging,
    is_user_class,
    is_users_own,
    of_proxy,
    own_dict,
    plain_base,
    plain_key,
    shown_class,
    slots_of,
    unproxied,
    unwrapped,
)
from placer.trace.python.settings import settings
from placer.trace.python.sought import Sought, passed_on, sought_by
from placer.trace.python.source_text import codes_within
from placer.trace.python.stand_ins import own_attribute_read
from placer.trace.signature import Same
from placer.wrapped import Wrapped

MOST_ENTRIES = 30_000  # places that are compared before each call
MOST_FUNCTIONS = 2_000
SPECIAL = (  # what a method of a class may be that Python itself calls
    types.FunctionType, property, staticmethod, classmethod, functools.partialmethod, CACHED,
)  # fmt: skip


class Survey:
    """One walk through all that a step may read. Equal `tokens` mean an equal state."""

    def __init__(self, step: Any, sought: Sought, subjects: Subjects = ()) -> None:
        """subjects: objects among the arguments of a call.

        Raises UnguardableError.
        """
        self.sought = sought
        self.names, self.reflects = sought.names, sought.reflects
        self.tokens: list[tuple[str, Hashable]] = []  # the place in words, and what is there
        self.entered: list[Entered] = []
        self.guard = Guard(lambda a, b: is_plain(a) and is_plain(b) and plain_key(a) == plain_key(b))
        self._number: dict[int, int] = {}
        self._held: list[Any] = []
        self._queue: deque[tuple[Callable[[Any, str], None], Any, str]] = deque()
        self._members: set[tuple[int, str]] = set()  # of classes, that were visited
        self._unshown: set[Sought] = set()  # what objects read that no code shows
        self._importers: set[int] = set()  # functions that may import, as in `Entered`
        self._step = step
        self._stand_ins: list[tuple[str, Wrapped]] = []  # by the name under which code reaches them
        self._callbacks: list[tuple[str, Any]] = []  # of Keras's classes, in the same way
        self._paths: list[str] = []  # to files, in the same way
        self.subjects = subjects
        saved = settings()
        self.tokens.append(("a setting of Keras or TensorFlow", saved))
        self.guard.check(lambda: settings() == saved)
        self.child("step", step)
        self._walk()
        for name, thing in subjects:
            self.child(name, thing)
        self._walk()
        if (read := own_attribute_read(self._stand_ins, [at.function.__code__ for at in self.entered])) is not None:
            raise UnguardableError(f"it reads `{read}`, which a traced step would read only once")
        if self._paths and (used := sorted(OF_FILES & self._in_code())) and not self._shows(self._paths, used):
            raise UnguardableError(f"it reads `{self._paths[0]}`, and uses `{used[0]}` of a file, {ONCE}")
        if (called := called_of_callback(self._callbacks, self.entered)) is not None:
            raise UnguardableError(_calls_callback(called))

    def _walk(self) -> None:
        while self._queue:
            visit, value, label = self._queue.popleft()
            visit(value, label)
            if len(self.guard) > MOST_ENTRIES:
                raise UnguardableError(
                    f"it reads more of Python's state than can be compared before each call (`{label}` and more)"
                )

    @property
    def found(self) -> Sought:
        """What the code that was found reads, and what was sought before."""
        return self.sought.joined([*map(sought_by, self.entered), *self._unshown])

    def _in_code(self) -> set[str]:
        """The globals and attributes that code names; no constants."""
        return {name for one in self.entered for code in codes_within(one.function.__code__) for name in code.co_names}

    def _shows(self, labels: Iterable[str], names: Iterable[str]) -> bool:
        """Whether a path in the code leads to one of these names of one of these objects, where it is judged."""
        paths = {str(path) for one in self.entered for path in reads_of(one.function.__code__).paths}
        return any(f"{label}.{name}" in paths for label in labels for name in names)

    @property
    def compares(self) -> bool:
        """Whether code asks by `is` whether two values, which may be arguments of the step, are one."""
        return any(reads_of(one.function.__code__).compares(_own(one)) for one in self.entered)

    @property
    def asks(self) -> bool:
        """Whether code asks by `is` whether what may be an argument of the step is another object."""
        return any(reads_of(one.function.__code__).asks(_own(one)) for one in self.entered)

    @property
    def key(self) -> list[Hashable]:
        """What is compared."""
        return [token for _, token in self.tokens]

    def child(self, label: str, value: Any, by_name: bool = False) -> None:
        """Note what is at a place; what it holds in turn is visited later. by_name: whether only code that names it in
        a function, or as an attribute of a module, reaches it there.
        """
        if not by_name and issubclass(type(value), types.ModuleType):
            self._unshown.add(passed_on(value))
        if is_renamed(value, label):
            self._unshown.add(ANYTHING)
        last = label.rpartition(".")[2]  # an attribute that no code names, as a Keras layer may have, is not called
        if (last == label or not last.isidentifier() or self._is_read(last)) and acts_unnamed(value, label):
            raise UnguardableError(f"it uses `{label}`, {ONCE}")
        if issubclass(type(value), pathlib.Path):
            self._paths.append(label)
        self.tokens.append((label, self._token(label, value)))

    def is_known(self, value: Any) -> bool:
        """Whether a value was met before."""
        return id(value) in self._number

    def rest(self, found: Any, plain: type, label: str) -> None:
        """Visit the attributes of an object that is a container of the class `plain`, too."""
        if type(found) is not plain and is_user_class(type(found)):
            self._object(found, label)

    def _token(self, label: str, value: Any) -> Hashable:
        known = self._number.get(id(value))
        if is_plain(value):
            if known is None and isinstance(value, enum.Enum) and is_user_class(type(value)):  # may have methods
                self._number[id(value)] = len(self._number)
                self._held.append(value)
                self._queue.append((self._object, value, label))
            return plain_key(value)
        if known is not None:
            return ("as", known)
        self._number[id(value)] = len(self._number)
        self._held.append(value)
        if issubclass(shown_class(value), np.ndarray):
            return array_token(self, value, label)
        visit = self._visitor(value, label)
        if visit is None:
            return Same(value)
        self._queue.append((visit, value, label))
        whole = visit in self._whole or isinstance(value, UNCHANGING)
        base = plain_base(type(value))
        return Same(value if whole else type(value)) if base is None else (Same(type(value)), base.__repr__(value))

    def _visitor(self, value: Any, label: str) -> Callable[[Any, str], None] | None:
        """What looks into a value; None where its identity is all."""
        if has_base(type(value), KERAS_VARIABLES):
            return self._keras_variable
        kind = shown_class(value)
        if issubclass(kind, TENSORS) and own_dict(value) is not None:
            return self._variable
        if is_tensor(value) or has_base(type(value), KERAS_OPAQUE):
            return None
        for kinds, visit in self._visits:
            if issubclass(kind, kinds):
                return visit
        if issubclass(kind, (io.IOBase, logging.Logger, random.Random, np.random.Generator, np.random.RandomState)):
            raise UnguardableError(f"it uses `{label}` (a {type(value).__name__}), whose state a traced step ignores")
        if hasattr(type(value), "__next__") and not isinstance(value, tf.data.Iterator):
            raise UnguardableError(
                f"it reads `{label}` (a {type(value).__name__}), which a traced step would read only once"
            )
        return self._object_visitor(value, label)

    @functools.cached_property
    def _whole(self) -> tuple[Callable[[Any, str], None], ...]:
        """The visits to objects that no other of their class may stand for."""
        return (
            self._module, self._class, self._variable, self._keras_variable, self._named, self._whole_object,
            self._function_of_tensorflow,
        )  # fmt: skip

    @functools.cached_property
    def _visits(self) -> tuple[tuple[Any, Callable[[Any, str], None]], ...]:
        return (
            (types.ModuleType, self._module),
            (type, self._class),
            (types.FunctionType, self._function),
            ((types.MethodType, types.BuiltinMethodType, types.MethodWrapperType), self._method),
            ((functools.partial, functools.partialmethod), self._partial),
            (GETTERS, self._getter),
            (tuple(PROXIES), self._proxy),
            (property, self._property),
            ((staticmethod, classmethod), self._wrapped),
            ((functools.cached_property, functools.singledispatchmethod), self._cached),
            (weakref.ReferenceType, self._weak),
            ((dict, types.MappingProxyType), partial(visit_dict, self)),
            ((list, deque), partial(visit_list, self)),
            (tuple, partial(visit_tuple, self)),
            ((set, frozenset), partial(visit_set, self)),
            ((bytearray, array.array), partial(visit_bytes, self)),
        )

    def _object_visitor(self, value: Any, label: str) -> Callable[[Any, str], None] | None:
        kind = type(value)
        if kind is CACHED:
            return self._cache if is_users_cache(value) else self._object
        if is_out_of_sight(kind):
            raise UnguardableError(f"it reads `{label}`, and Placer cannot see into a {kind.__name__}")
        if isinstance(value, Wrapped):
            return self._stand_in
        if has_base(kind, CALLBACKS):
            self._callbacks.append((label, value))
            if is_library(kind.__module__) in PLACER:
                return None
        if isinstance(value, np.void):
            raise UnguardableError(f"it reads `{label}`, a record of a structured array, which may change in its place")
        if is_function_of_tensorflow(kind):
            return self._function_of_tensorflow
        if is_message(kind):
            return partial(visit_message, self)
        if hides_fields(kind):
            if is_known_compiled(kind.__module__):
                return None
            raise UnguardableError(f"it reads `{label}`, and Placer cannot see into a {kind.__name__}")
        if is_user_class(kind) or is_library(kind.__module__) == "keras":
            return self._object
        if own_dict(value) is None:
            if is_library(kind.__module__) and is_unchanging(kind):
                return None
            raise UnguardableError(f"it reads `{label}`, and Placer cannot see into a {kind.__name__}")
        if is_library(kind.__module__) == "numpy":
            return self._whole_object
        return self._named if is_library(kind.__module__) in ("tensorflow", *PLACER) else self._object

    # Code.

    def _function(
        self, function: types.FunctionType, label: str, owner: Any = None, is_method: bool = False,
        arguments: Mapping[str, Any] = types.MappingProxyType({}), is_judged: bool = True,
    ) -> None:  # fmt: skip
        if is_of_library(function):
            self.tokens.append((label, Same(function)))
            return
        if len(self.entered) >= MOST_FUNCTIONS:
            raise UnguardableError(f"it calls more functions than can be looked through (`{label}` and more)")
        may_import = id(function) in self._importers
        is_step = self._is_step(function)
        self.entered.append(Entered(function, owner, is_method, is_step, arguments, may_import, is_judged))
        reads = reads_of(function.__code__)
        label = label if self.entered[1:] else ""
        self.tokens.append((label, Same(function.__code__)))
        self.guard.attributes(function, ["__code__", "__defaults__", "__kwdefaults__"])
        self._own(vars(function), f"{function.__name__}.")
        if "dispatch" in vars(function) and "registry" in vars(function):  # of functools.singledispatch
            self.child(f"{function.__name__}.registry", vars(function)["registry"])
        held = function.__globals__
        present = [name for name in sorted(reads.globals) if name in held]
        self._holder(held, present, "" if not label else f"{function.__module__}.", by_name=True)
        missing = frozenset(name for name in reads.globals if name not in held)
        if missing:
            self.guard.check(lambda: held.keys().isdisjoint(missing))
            self.tokens.append((label, missing))
        for name, cell in zip(function.__code__.co_freevars, function.__closure__ or (), strict=True):
            self.guard.cell(cell)
            if name == "__class__" and is_for_super(function.__code__):
                self._base(contents(cell), name)
            else:
                self.child(name, contents(cell), by_name=True)
        for part in (function.__defaults__, function.__kwdefaults__):
            if part:
                self.child(f"{function.__name__}'s default arguments", part)
        for name in sorted({imported(path, function) for path in reads.paths if path.root == "import"}):
            self.child(name, sys.modules.get(name), by_name=True)
            self._guard_module(name)

    def _base(self, kind: Any, label: str) -> None:
        """A class that a method names only by `super()`: its objects are not made there."""
        self.tokens.append((label, Same(kind)))
        if isinstance(kind, type):
            self._queue.append((lambda kind, _: self._class_code(kind, None), kind, label))

    def _guard_module(self, name: str) -> None:
        module = sys.modules.get(name)
        self.guard.check(lambda: sys.modules.get(name) is module)

    def _is_step(self, function: types.FunctionType) -> bool:
        step = self._step
        while isinstance(step, functools.partial):
            step = step.func
        step = unproxied(unwrapped(unproxied(step)))
        called = inspect.getattr_static(type(step), "__call__", None)
        return function in (step, step.__func__ if inspect.ismethod(step) else None) or (
            function is called and not isinstance(step, (types.FunctionType, types.MethodType))
        )

    def _method(self, method: Any, label: str) -> None:
        function, owner = getattr(method, "__func__", None), method.__self__
        if is_compiled_elsewhere(method):
            raise UnguardableError(f"it reads `{label}`, a compiled function, which Placer cannot look through")
        if has_base(type(owner), CALLBACKS) and method.__name__ in methods_of_keras(type(owner)):
            raise UnguardableError(_calls_callback(label))
        if isinstance(function, types.FunctionType):
            self._function(function, label, owner, True)
        else:
            self.tokens.append((label, getattr(method, "__name__", None)))
        if isinstance(owner, types.ModuleType):
            self.tokens.append((label, Same(owner)))
        else:
            self.child("self" if label == "step" else f"{label}.__self__", owner)

    def _partial(self, partial: Any, label: str) -> None:
        sought = sought_by_partial(partial)
        if sought is not None:
            self._unshown.add(sought)
        self.child(label if sought is None else partial.func.__name__, partial.func)
        for i, value in enumerate(partial.args):
            self.child(f"{label}'s argument {i}", value)
        self.child(f"{label}'s arguments", partial.keywords)
        self._own(own_dict(partial) or {}, f"{label}.")

    def _getter(self, getter: Any, label: str) -> None:
        """An operator.attrgetter or methodcaller, which may have been made where no code of the step's shows it."""
        sought, given = parts_of_getter(getter)
        self._unshown.add(sought)
        for i, value in enumerate(given):
            self.child(f"{label}'s argument {i}", value)

    def _cache(self, cached: Any, label: str) -> None:
        """A function under functools.lru_cache: what it has returned."""
        why = why_hidden(cached, self.names)
        if why is not None:
            raise UnguardableError(f"it calls `{label}`, {why}")
        result = kept_result(cached)
        self.guard.check(lambda: kept_result(cached) is result)
        self.child(f"{label}()", result)

    def _property(self, found: property, label: str) -> None:
        self.child(label, found.fget)

    def _proxy(self, found: Any, label: str, owner: Any = None, is_method: bool = False) -> None:
        """A proxy of wrapt's, and the function that wrapt.decorator has made a wrapper of. owner, is_method: of a
        method that is wrapped.
        """
        if type(found) not in PROXIES or any(name.startswith("_self_") for name in self.names):
            raise UnguardableError(f"it reads `{label}`, and Placer cannot see into a {type(found).__name__}")
        names = (WRAPPED, *(OF_WRAPPERS if type(found) in WRAPPERS else ()))
        held = [of_proxy(found, name) for name in names]
        if any(type(one) is types.FunctionType and is_of_library(one) for one in held[1:2]):  # which may keep anything
            raise UnguardableError(f"it calls `{label}`, and Placer cannot see into what wrapt keeps for it")
        self.guard.check(lambda: all(of_proxy(found, name) is one for name, one in zip(names, held, strict=True)))
        for name, value in zip(names, held, strict=True):
            if name == WRAPPED and is_method:
                self._member(label, value, owner)
            elif name == "_self_wrapper" and type(value) is types.FunctionType and not self.is_known(value):
                instance = owner if is_method else of_proxy(found, "_self_instance")
                self._wrapper(value, instance, is_method or instance is not None, label)
            else:
                self.child(label if name == WRAPPED else f"{label}.{name}", value)

    def _wrapper(self, function: types.FunctionType, instance: Any, has_instance: bool, label: str) -> None:
        """A function that is called with what it wraps, the object of which that is a method, and the arguments."""
        given = function.__code__.co_varnames[: function.__code__.co_argcount][1:2] if has_instance else ()
        self._number[id(function)] = len(self._number)
        self._held.append(function)
        self.tokens.append((label, types.FunctionType))
        arguments = dict.fromkeys(given, EMPTY if instance is None else instance)
        self._queue.append((lambda f, text: self._function(f, text, arguments=arguments), function, label))

    def _wrapped(self, found: Any, label: str) -> None:
        self.child(label, found.__func__)

    def _stand_in(self, found: Wrapped, label: str) -> None:
        """A step that Placer has wrapped: a trace calls the user's function, whose public attributes it has."""
        self._stand_ins.append((label.rpartition(".")[2], found))
        self.child(label, found.__wrapped__)

    def _cached(self, found: Any, label: str) -> None:
        self.child(label, getattr(found, "func", None))
        if isinstance(found, functools.singledispatchmethod):
            self.child(f"{label}.registry", found.dispatcher.registry)

    def _weak(self, reference: Any, label: str) -> None:
        held = reference()
        self.child(label, held)
        address = id(held)
        self.guard.check(lambda: id(reference()) == address)

    # Modules, classes, objects.

    def _module(self, module: types.ModuleType, label: str) -> None:
        if not is_library(module.__name__):
            held = vars(module)
            self.guard.size(held)
            names = [name for name in held if name in self.names or self.sought.asks(module, name)]
            lacked = self.sought.lacked_by(module)
            if lacked and "__getattr__" in held and not is_known_compiled(module.__name__):
                self._made(module, lacked, label)
                names.append("__getattr__")
            self._holder(held, sorted(set(names)), f"{label}.", by_name=None not in lacked)
            if is_user_class(type(module)):  # one that has properties, say
                is_asked = any(type(of.held) is type(module) for of, _ in self.sought.lacked)
                self._class_code(type(module), module, but=() if is_asked else ("__getattr__",))

    def _made(self, module: types.ModuleType, lacked: frozenset[str | None], label: str) -> None:
        """What a module's own `__getattr__` gives under names that the module does not hold. What it finds in the
        modules that it imports no code shows, and is compared, if it does nothing else.
        """
        make, held = vars(module)["__getattr__"], vars(module)
        names = [name for name in lacked if name is not None]
        self.guard.check(lambda: held.keys().isdisjoint(names))
        if None in lacked or type(make) is not types.FunctionType:
            return
        if imports(make) and impurity(Entered(make, may_import=True)) is None:
            self._importers.add(id(make))
            for name in sorted(names):
                value = getattr(module, name, EMPTY)
                self.guard.check(partial(_still_has, module, name, value))
                self.child(f"{label}.{name}", value)

    def _class(self, kind: type, label: str) -> None:
        self._class_code(kind, None, MAKERS)
        self._metaclass(kind, is_called=True)

    def _metaclass(self, kind: type, is_called: bool) -> None:
        """What a class's own class decides of it: properties, and what a call of it does, where code reaches the class
        itself and so may call it. It may be the class of others, too, so that no class is named as the one whose
        methods its functions are.
        """
        meta = type(kind)
        is_called = is_called or "__class__" in self.names
        if is_user_class(meta) and (id(meta), f"metaclass {is_called}") not in self._members:
            self._members.add((id(meta), f"metaclass {is_called}"))
            self._class_code(meta, None, but=() if is_called else ("__call__",))

    def _object(self, value: Any, label: str) -> None:
        held = own_dict(value)
        if held is not None:
            self._own(held, f"{label}.", self._attributes(value, held))
            if has_base(type(value), FUNCTIONAL):
                self._operations(held.get(OPERATIONS) or (), label)
        slots = [(name, vars(kind).get(name)) for kind in type(value).__mro__ for name in slots_of(kind)]
        slots = [(name, slot) for name, slot in slots if self._is_read(name) and inspect.ismemberdescriptor(slot)]
        present = [(name, slot) for name, slot in slots if in_slot(slot, value) is not EMPTY]
        self.guard.attributes(value, [name for name, _ in present])
        for name, slot in present:
            self.child(f"{label}.{name}", in_slot(slot, value))
        absent = [slot for name, slot in slots if (name, slot) not in present]
        if absent:
            self.guard.check(lambda: all(in_slot(slot, value) is EMPTY for slot in absent))
        self._class_code(type(value), value)

    def _operations(self, operations: Iterable[Any], label: str) -> None:
        """Those of the user's own classes in a functional model; its layers are among its attributes, too."""
        for operation in operations:
            if is_user_class(type(operation)) and not has_base(type(operation), LAYERS):
                self.child(f"{label}.{type(operation).__name__}", operation)

    def _own(self, held: dict[str, Any], label: str, names: Iterable[str] | None = None) -> None:
        """What an object itself has in its `__dict__`; names: that are read."""
        self.guard.size(held)
        self._holder(held, [name for name in held if self._is_read(name)] if names is None else list(names), label)

    def _whole_object(self, value: Any, label: str) -> None:
        """Of an object of NumPy's, a polynomial say, all, because NumPy's code reads it."""
        held = own_dict(value) or {}
        self._own(held, f"{label}.", held)

    def _function_of_tensorflow(self, function: Any, label: str) -> None:
        """What the user has put on a tf.function, whose own Python state is frozen in any program."""
        held = own_dict(function) or {}
        names = {name for name in self.names if not name.startswith("_")}
        self._holder(held, sorted(names & held.keys()), f"{label}.")
        absent = names - held.keys()
        self.guard.check(lambda: held.keys().isdisjoint(absent))

    def _named(self, value: Any, label: str) -> None:
        """Of an object of TensorFlow's, what the user's code reads by name and cannot be TensorFlow's own: plain
        values, public tensors and arrays, and all that a bare tf.Module holds; and what of the user's own it holds
        under any name, which TensorFlow calls: the function of a tf.custom_gradient, a rate that is a function, a
        checkpoint's model.
        """
        held = own_dict(value)
        if held is not None:
            is_bare = type(value) is tf.Module
            if is_bare:
                self.guard.size(held)
            named = (
                name for name in held
                if name in self.names and (is_bare or is_plain(held[name]) or is_public_tensor(name, held[name]))
            )  # fmt: skip
            is_placers = is_library(type(value).__module__) in PLACER
            theirs = (name for name in held if not is_placers and is_users_own(held[name]))
            self._holder(held, sorted({*named, *theirs}), f"{label}.")

    def _attributes(self, value: Any, held: Mapping[str, Any]) -> Iterable[str]:
        """The attributes that matter: all of those that a library may read, else those that the code names.

        Keras calls a callback of the user's outside of steps, and what it keeps as `_model` is read as `model`.
        """
        if has_base(type(value), CALLBACKS):
            return [name for name in held if self._is_read(name) or self._is_read(name.lstrip("_"))]
        if has_base(type(value), COMPILED_METRICS):  # the rest Keras makes of these
            return [name for name in GIVEN_METRICS if name in held]
        if holds_unnamed(type(value)) or self.sought.shows_all(type(value)):
            return list(held)
        if has_library_base(type(value)):
            return [name for name in held if not is_noise(name) or name in self.names]
        return [name for name in held if self._is_read(name)]

    def _is_read(self, name: str) -> bool:
        return self.reflects or name in self.names

    def _variable(self, variable: Any, label: str, settings: Iterable[str] = VARIABLE_SETTINGS) -> None:
        """What decides how a variable is trained, and what the user has put on it, or on a tensor; not its value."""
        found = own_dict(variable)
        held = {} if found is None else found  # a tensor's own dict, which is empty until something is put on it
        self.guard.size(held)
        own = (name for name in held if not name.startswith("_") and self._is_read(name))
        self._holder(held, [*(name for name in settings if name in held), *own], f"{label}.")

    def _keras_variable(self, variable: Any, label: str) -> None:
        self._variable(variable, label, KERAS_VARIABLE_SETTINGS)

    def _class_code(self, kind: type, owner: Any, more: Iterable[str] = (), but: Iterable[str] = ()) -> None:
        """The methods of the user's classes that may be called, and their attributes that are read."""
        if (id(kind), "") in self._members and not more:
            return
        if owner is not None:
            self._members.add((id(kind), ""))
        self._metaclass(kind, is_called=False)
        for base in kind.__mro__:
            if is_library(base.__module__):
                continue
            held = vars(base)
            self.guard.size(held)
            names = sorted(name for name in held if name in more or self._is_used(kind, base, name))
            names = [name for name in names if (id(base), name) not in self._members and name not in but]
            if owner is not None:
                self._members.update((id(base), name) for name in names)
            self.guard.named(held, names)
            if any(isinstance(held[name], classmethod) for name in names):  # which may call the class
                self._metaclass(kind, is_called=True)
            for name in names:
                found = _of_the_user(held[name]) if name in TEXTS else held[name]
                is_judged = name not in TEXTS or self.sought.is_shown(base)
                self._member(f"{base.__name__}.{name}", found, owner, is_judged)

    def _member(self, label: str, value: Any, owner: Any, is_judged: bool = True) -> None:
        if type(value) in WRAPPERS:
            self.tokens.append((label, Same(value)))
            self._queue.append((lambda f, text: self._proxy(f, text, owner, True), value, label))
        elif type(value) is types.FunctionType and id(value) not in self._number:
            self._number[id(value)] = len(self._number)
            self._held.append(value)
            self.tokens.append((label, types.FunctionType))
            self._queue.append(
                (lambda f, text: self._function(f, text, owner, True, is_judged=is_judged), value, label)
            )
        else:
            self.child(label, value)

    def _is_used(self, kind: type, base: type, name: str) -> bool:
        if name in TEXTS:
            return self.sought.shows(kind, vars(base)[name])
        if name.startswith("__") and name.endswith("__"):
            held = vars(base)[name]
            return name not in NO_CODE and (name in self.names or isinstance(held, SPECIAL) or is_users_own(held))
        if name in self.names or self.sought.asks(base, name):
            return True
        if name in CALLED_BY_KERAS and has_base(kind, LAYERS):
            return True
        overrides = any(name in vars(other) for other in kind.__mro__ if is_library(other.__module__))
        return overrides and name not in NOT_CALLED

    def _holder(self, held: Mapping[str, Any], names: list[str], label: str, by_name: bool = False) -> None:
        self.guard.named(held, names)
        for name in names:
            self.child(f"{label}{name}", held[name], by_name)


def _own(entered: Entered) -> str:
    """The first parameter of a method; "" of any other function."""
    return "".join(entered.function.__code__.co_varnames[:1]) if entered.is_method else ""


def _calls_callback(called: str) -> str:
    return f"it calls `{called}` of a Keras callback, which a traced step would do only once; call it after the step"


def _still_has(module: types.ModuleType, name: str, value: Any) -> bool:
    """Whether a module's `__getattr__` gives under a name what it gave."""
    now = getattr(module, name, EMPTY)
    return now is value or (is_plain(now) and is_plain(value) and plain_key(now) == plain_key(value))


def _of_the_user(method: Any) -> Any:
    """What a library has put another function around: a dataclass's `__repr__`, which looks whether it runs already."""
    return unwrapped(method) if is_made_by_library(method) else method
