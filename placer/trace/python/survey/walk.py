"""A walk through Python's state: what was found so far, and what is still to be visited."""

from __future__ import annotations

import enum
import functools
import inspect
import pathlib
import weakref
from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Callable, Hashable, Iterable, Mapping
from types import FunctionType, MappingProxyType, MethodType, ModuleType
from typing import Any, ClassVar, NamedTuple

import numpy as np

from placer.trace.python.attribute_names import Sought, passed_on
from placer.trace.python.code.names import attributes_shown
from placer.trace.python.entered_functions import Entered
from placer.trace.python.guard import Guard
from placer.trace.python.impure import ONCE, acts_as_module, acts_unnamed
from placer.trace.python.kinds import (
    UNCHANGING,
    is_plain,
    is_user_class,
    plain_base,
    plain_key,
    shown_class,
    unproxied,
    unwrapped,
)
from placer.trace.python.survey.getters import ANYTHING, COMPARERS, COMPARING, is_renamed
from placer.trace.signature import Same
from placer.wrapped import Wrapped

MOST_ENTRIES = 30_000  # places that are compared before each call
MOST_ARRAY_BYTES = 64 * 2**10


class UnguardableError(Exception):
    """The step reads something that cannot be watched; the message is the reason, in words."""


class Role(NamedTuple):
    """The known facts about the calls of a function, from the place where code reaches it."""

    owner: Any = None  # the object of which it is a method
    is_method: bool = False
    arguments: Mapping[str, Any] = MappingProxyType({})  # the arguments that outlive its call, by name
    is_judged: bool = True  # as in `Entered`


FREE = Role()


class Walk(ABC):
    """A walk in which visits note what they find, and what to visit next."""

    whole: ClassVar[frozenset[Visit]] = frozenset()  # visits to objects that no other of the class may stand for

    def __init__(self, step: Any, sought: Sought) -> None:
        self.sought = sought
        self.names, self.reflects = sought.names, sought.reflects
        self.tokens: list[tuple[str, Hashable]] = []  # the place in words, and what is there
        self.entered: list[Entered] = []
        self.guard = Guard(lambda a, b: is_plain(a) and is_plain(b) and plain_key(a) == plain_key(b))
        self.members: set[tuple[int, str]] = set()  # (id of a class or a module, name) of members that were visited
        self.shapes: set[tuple[int, frozenset[tuple[str, Same | type]]]] = set()  # of objects, with their classes' ids
        self.unshown: set[Sought] = set()  # what objects read that no code shows
        self.functions: set[int] = set()  # ids of functions that were entered
        self.importers: set[int] = set()  # ids of functions that may import, as in `Entered`
        self.stand_ins: list[tuple[str, Wrapped]] = []  # wrapped steps, with the name under which code reaches them
        self.callbacks: list[tuple[str, Any]] = []  # of Keras's classes, in the same way
        self.paths: list[str] = []  # to files, in the same way
        self.weak: list[tuple[str, weakref.ReferenceType[Any]]] = []  # references, in the same way
        self._step = step
        self._number: dict[int, int] = {}  # id of each object met -> its number
        self._held: list[Any] = []  # these objects, so that no other gets their ids
        self._queue: deque[tuple[Visit, Any, str]] = deque()

    @abstractmethod
    def visit_of(self, value: Any, label: str, role: Role) -> Visit | None:
        """The visit that looks into a value; None if only its identity counts. Raises UnguardableError if the value
        cannot be watched.
        """

    def run(self) -> None:
        """Visit everything that was noted, and everything that it leads to. Raises UnguardableError if something cannot
        be watched, or if there is too much to compare.
        """
        while self._queue:
            visit, value, label = self._queue.popleft()
            visit(self, value, label)
            if len(self.guard) > MOST_ENTRIES:
                raise UnguardableError(
                    f"it reads more of Python's state than can be compared before each call (`{label}` and more)"
                )

    def child(self, label: str, value: Any, by_name: bool = False, role: Role = FREE) -> None:
        """Note the value at a place; what the value itself holds is visited later. by_name: whether only code that
        names it in a function, or as an attribute of a module, reaches it there.
        """
        if not by_name and issubclass(type(value), ModuleType):
            self.unshown.add(passed_on(value))
        if is_renamed(value, label):
            self.unshown.add(ANYTHING)
        if id(value) in COMPARERS:
            self.unshown.add(COMPARING)
        last = label.rpartition(".")[2]  # an attribute that no code names, as a Keras layer may have, is not called
        is_item = not last.isidentifier() or " " in label
        acts = (last == label or is_item or self.is_read(last)) and acts_unnamed(value, label)
        if acts or (is_item and not by_name and acts_as_module(value)):
            raise UnguardableError(f"it uses `{label}`, {ONCE}")
        if issubclass(type(value), pathlib.Path):
            self.paths.append(label)
        if type(value) is str and (shown := attributes_shown(value)):
            self.unshown.add(Sought(shown))
        self.tokens.append((label, self._token(label, value, role)))

    def entries(self, held: Mapping[str, Any], names: Iterable[str], label: str, by_name: bool = False) -> None:
        """Note what a namespace holds under these names. by_name: as in `child`."""
        names = list(names)
        self.guard.named(held, names)
        for name in names:
            self.child(f"{label}{name}", held[name], by_name)

    def own(self, held: dict[str, Any], label: str) -> None:
        """Note what code reads of an object's own `__dict__`."""
        self.guard.size(held)
        self.entries(held, filter(self.is_read, held), label)

    def enter(self, function: FunctionType, role: Role) -> None:
        """Note code that the step may run."""
        self.functions.add(id(function))
        is_step, may_import = _is_of_step(function, self._step), id(function) in self.importers
        self.entered.append(
            Entered(function, role.owner, role.is_method, is_step, role.arguments, may_import, role.is_judged)
        )

    def later(self, visit: Visit, value: Any, label: str) -> None:
        """Queue a visit to a value, although code does not reach the value there."""
        self._queue.append((visit, value, label))

    def is_known(self, value: Any) -> bool:
        """Whether a value was met before."""
        return id(value) in self._number

    def is_read(self, name: str) -> bool:
        """Whether code may read attributes of this name of any object."""
        return self.reflects or name in self.names

    def _token(self, label: str, value: Any, role: Role) -> Hashable:
        known = self._number.get(id(value))
        if is_plain(value):
            if known is None and isinstance(value, enum.Enum) and is_user_class(type(value)):  # may have methods
                self._visited_later(value, label, role)
            return plain_key(value)
        if known is not None:
            return ("as", known)
        if issubclass(shown_class(value), np.ndarray):
            self._meet(value)
            return _array_token(self.guard, value, label)
        visit = self._visited_later(value, label, role)
        if visit is None:
            return Same(value)
        whole = visit in self.whole or isinstance(value, UNCHANGING)
        base = plain_base(type(value))
        return Same(value if whole else type(value)) if base is None else (Same(type(value)), base.__repr__(value))

    def _visited_later(self, value: Any, label: str, role: Role) -> Visit | None:
        self._meet(value)
        visit = self.visit_of(value, label, role)
        if visit is not None:
            self._queue.append((visit, value, label))
        return visit

    def _meet(self, value: Any) -> None:
        self._number[id(value)] = len(self._number)
        self._held.append(value)


Visit = Callable[[Walk, Any, str], None]
"""A function that looks into a value that code reaches at a place, which it is given in words."""


def _is_of_step(function: FunctionType, step: Any) -> bool:
    """Whether a function is the step's own, which may be given as a partial, a method or an object that is called."""
    while isinstance(step, functools.partial):
        step = step.func
    step = unproxied(unwrapped(unproxied(step)))
    called = inspect.getattr_static(type(step), "__call__", None)
    return function in (step, step.__func__ if inspect.ismethod(step) else None) or (
        function is called and not isinstance(step, (FunctionType, MethodType))
    )


def _array_token(guard: Guard, found: np.ndarray[Any, Any], label: str) -> Hashable:
    """The shape, type and values of an array. Raises UnguardableError for a large array, and for one of objects."""
    if found.nbytes > MOST_ARRAY_BYTES or found.dtype.hasobject:
        raise UnguardableError(
            f"it reads `{label}`, an array of {found.nbytes:,} bytes, too many to compare before each call; "
            "make it a tf.constant or a tf.Variable"
        )
    saved = (found.shape, found.dtype.str, found.tobytes())
    guard.check(lambda: (found.shape, found.dtype.str, found.tobytes()) == saved)
    return saved
