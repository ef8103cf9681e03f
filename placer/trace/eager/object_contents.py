"""Records what the user's objects hold before something is traced, to find what tracing changed in them, and to take
the tensors of the trace out of them again. This runs no code of the user's.
"""

from __future__ import annotations

import array
import inspect
from argparse import Namespace
from collections import OrderedDict, deque
from collections.abc import Collection, Iterable, Iterator
from contextlib import suppress
from functools import partial
from itertools import islice
from types import (
    BuiltinMethodType,
    CellType,
    CodeType,
    FrameType,
    FunctionType,
    MethodType,
    ModuleType,
    SimpleNamespace,
)
from typing import Any, NamedTuple

import numpy as np
import tensorflow as tf

from placer import tf_internals
from placer.trace.python.entered_functions import contents
from placer.trace.python.kinds import (
    EMPTY,
    has_library_base,
    holds_unnamed,
    in_slot,
    is_library,
    is_plain,
    is_user_class,
    own_dict,
    plain_key,
    slots_of,
)

WRAPPED_BY = "placer.train."  # modules whose frames call the user's step
MOST_PLACES = 20_000  # places that are compared
DEPTH = 4  # levels of containers within a value that are searched for a tensor
ROWS = (list, tuple, set, frozenset, deque)
CONTAINERS = (dict, list, set, deque, bytearray, array.array)


class _Held(NamedTuple):
    words: str
    holder: Any
    parts: list[Any]  # what the holder held
    named: dict[Any, Any]  # the same by key for a dict, and by attribute for an object


class Places:
    """A record of what functions hold in their variables, and in the containers and objects there."""

    def __init__(
        self, begin: Iterable[tuple[str, Any]], managed: Collection[str] = (), in_globals: bool = False
    ) -> None:
        """begin: (words, value) of each place to begin with. managed: names that AutoGraph sets. in_globals: whether to
        look also at globals that functions name.
        """
        self._held: list[_Held] = []
        self._seen: set[int] = set()
        self._of_libraries: set[int] = set()  # ids of objects of Keras's classes, and of what they hold
        self._left = deque(begin)
        self._managed, self._in_globals = managed, in_globals
        while self._left and len(self._held) < MOST_PLACES:
            self._look(*self._left.popleft())
        self._overflow = bool(self._left)

    @classmethod
    def around(cls, frame: FrameType) -> Places:
        """A record of what the functions that are running hold, from `frame` outwards to the step."""
        begin: list[tuple[str, Any]] = []
        managed: set[str] = set()
        for at in frames_of(frame):
            managed.update(tf_internals.autograph.managed_names(at))
            if not is_library(at.f_globals.get("__name__")):
                begin += at.f_locals.items()
        return cls(begin, managed)

    def changed(self) -> str | None:
        """The first place that holds something else now, in words; None if there is none."""
        if self._overflow:
            return "more than can be compared"
        for held in self._held:
            now = _parts(held.holder)
            if len(now) != len(held.parts) or not all(map(_same, held.parts, now)):
                return held.words
        return None

    def restore(self) -> str | None:
        """Take the tensors of a trace out of the places where it put them, and put back what was there before.

        Such tensors mean nothing after the trace, and the step as the user wrote it did not put them there. Everything
        else stays, because another thread may have changed it meanwhile, and Keras keeps what it has built. Returns the
        first place that held such a tensor, in words, except places that Keras fills itself; None if none did.
        """
        found = None
        for held in self._held:
            with suppress(Exception):  # an object that refuses must not keep others from it, or hide an error
                if _restore(held) and id(held.holder) not in self._of_libraries:
                    found = found or held.words
        return found

    def _look(self, words: str, value: Any) -> None:
        if id(value) in self._seen or is_plain(value):
            return
        if self._in_globals and isinstance(value, np.ndarray) and not value.dtype.hasobject:
            return  # it cannot hold a tensor, and may be as large as a dataset
        self._seen.add(id(value))
        before = len(self._left)
        self._look_within(words, value)
        if id(value) in self._of_libraries or has_library_base(type(value)):
            self._of_libraries.update((id(value), *(id(part) for _, part in islice(self._left, before, None))))

    def _look_within(self, words: str, value: Any) -> None:
        if isinstance(value, FunctionType):
            if not is_library(value.__module__):
                self._left.extend(zip(value.__code__.co_freevars, value.__closure__ or (), strict=True))
                if self._in_globals:
                    self._left.extend(_globals_of(value))
        elif isinstance(value, MethodType):
            self._left += [(words, value.__self__), (words, value.__func__)]
        elif isinstance(value, BuiltinMethodType):
            self._left.append((words, value.__self__))
        elif isinstance(value, partial):
            self._left += [(words, part) for part in (value.func, value.args, value.keywords)]
        elif isinstance(value, CellType) and words in self._managed:
            self._left.append((words, contents(value)))
        elif isinstance(value, type):
            self._left.extend((words, part) for part in (_of_class(value) if self._in_globals else ()))
        else:
            parts, is_object = _parts(value), _is_object(type(value))
            looked_at = parts[:MOST_PLACES] if self._in_globals else parts  # it may be a dataset
            self._left.extend((words, part) for part in looked_at if not is_plain(part))
            if is_object and self._in_globals:
                inner = (*(own_dict(value) or {}).values(), *_of_class(type(value)))
                self._left.extend((words, part) for part in inner if not is_plain(part))
            if parts or isinstance(value, CONTAINERS) or is_object:  # an empty one may be filled
                self._held.append(_Held(words, value, parts, _named(value)))


def frames_of(frame: FrameType | None) -> Iterator[FrameType]:
    """The frames that are running, from `frame` outwards to the step's."""
    while frame is not None and not str(frame.f_globals.get("__name__")).startswith(WRAPPED_BY):
        yield frame
        frame = frame.f_back


def _globals_of(function: FunctionType) -> Iterator[tuple[str, Any]]:
    """(name, value) of what a function's code may take from its module, and from the user's modules that it names."""
    names = list(_names(function.__code__))
    for name in names:
        value = function.__globals__.get(name)
        if isinstance(value, ModuleType):
            if not is_library(value.__name__):
                yield from ((inner, vars(value)[inner]) for inner in names if inner in vars(value))
        elif value is not None:
            yield name, value


def _names(code: CodeType) -> Iterator[str]:
    yield from code.co_names
    for inner in code.co_consts:
        if isinstance(inner, CodeType):
            yield from _names(inner)


def _of_class(kind: type) -> Iterator[Any]:
    """The functions and the containers that a class and its bases hold, without classes of libraries."""
    for base in kind.__mro__:
        if not is_library(base.__module__):
            for value in vars(base).values():
                if type(value) is property:
                    value = value.fget
                elif type(value) in (staticmethod, classmethod):
                    value = value.__func__
                if issubclass(type(value), (FunctionType, *CONTAINERS)):
                    yield value


def _parts(value: Any) -> list[Any]:
    """The contents of a container, an array, a closure's cell, or an object of a class of the user's own."""
    stored, _ = tf_internals.containers.tracked_container(value)
    if issubclass(type(stored), dict):
        return [*dict.keys(stored), *dict.values(stored)]
    row: Any = next((kind for kind in ROWS if issubclass(type(stored), kind)), None)
    if row is not None:
        return list(row.__iter__(stored))
    if isinstance(value, (bytearray, array.array)):
        return [bytes(value)]
    if isinstance(value, np.ndarray):
        held = value.ravel().tolist() if value.dtype.hasobject else [value.tobytes()]
        return [str(value.shape), *held]
    if isinstance(value, CellType):
        return [contents(value)]
    kind = type(value)
    if isinstance(value, type) or not is_user_class(kind) or has_library_base(kind):
        return []
    return [*(own_dict(value) or {}).values(), *(in_slot(slot, value) for slot in _slots_of(kind).values())]


def _named(value: Any) -> dict[Any, Any]:
    """The contents of a dict by key, or of an object by attribute; empty for anything else."""
    stored, _ = tf_internals.containers.tracked_container(value)
    if issubclass(type(stored), dict):
        return dict(dict.items(stored))
    if not _is_object(type(value)):
        return {}
    slots = _slots_of(type(value))
    return {**(own_dict(value) or {}), **{name: in_slot(slot, value) for name, slot in slots.items()}}


def _is_object(kind: type) -> bool:
    """Whether objects of a class have attributes of the user's."""
    return is_user_class(kind) or holds_unnamed(kind) or issubclass(kind, (SimpleNamespace, Namespace))


def _slots_of(kind: type) -> dict[str, Any]:
    """Attribute -> slot in which a class of the user's own, or a base of it, keeps the attribute's value."""
    if not is_user_class(kind):
        return {}
    slots = {name: vars(base).get(name) for base in kind.__mro__ for name in slots_of(base)}
    return {name: slot for name, slot in slots.items() if inspect.ismemberdescriptor(slot)}


def _same(one: Any, other: Any) -> bool:
    return one is other or (is_plain(one) and is_plain(other) and plain_key(one) == plain_key(other))


# Undoing.


def _restore(held: _Held) -> bool:
    """Take the tensors of a trace out of one holder; return whether it held any."""
    holder, note = tf_internals.containers.tracked_container(held.holder)
    kind, done = type(holder), False
    if issubclass(kind, dict):
        done = _restore_named(holder, held.named)
    elif issubclass(kind, (list, deque)):
        done = _restore_row(holder, held.parts)
    elif issubclass(kind, np.ndarray):
        return _restore_array(holder, held.parts)
    elif kind is CellType:
        return _restore_cell(holder, held.parts[0])
    elif _is_object(kind):
        return _restore_object(holder, held.named)
    if done:
        note()
    return done


def _restore_named(now: dict[Any, Any], before: dict[Any, Any]) -> bool:
    """Take the tensors of a trace out of a dict; return whether it held any."""
    kind = OrderedDict if isinstance(now, OrderedDict) else dict
    made = [key for key, value in list(kind.items(now)) if _is_made(before.get(key, EMPTY), value)]
    for key in made:
        if key in before:
            kind.__setitem__(now, key, before[key])
        else:
            kind.__delitem__(now, key)
    return bool(made)


def _restore_object(now: Any, before: dict[str, Any]) -> bool:
    """Take the tensors of a trace out of an object; return whether it held any."""
    slots, attributes = _slots_of(type(now)), own_dict(now)
    undone = attributes is not None and _restore_named(
        attributes, {name: was for name, was in before.items() if name not in slots}
    )
    for name, slot in slots.items():
        if _is_made(was := before.get(name, EMPTY), in_slot(slot, now)):
            slot.__delete__(now) if was is EMPTY else slot.__set__(now, was)
            undone = True
    return undone


def _restore_row(now: list[Any] | deque[Any], before: list[Any]) -> bool:
    """Take the tensors of a trace out of a list or a deque; return whether it held any. Values that another thread has
    put there meanwhile stay.
    """
    kind: Any = deque if issubclass(type(now), deque) else list
    values = list(kind.__iter__(now))
    known = {id(value) for value in before}
    made = [id(value) not in known and _holds_tensor(value) for value in values]
    if not any(made):
        return False
    own = [value for value, is_made in zip(values, made, strict=True) if not is_made]
    kind.clear(now)
    kind.extend(now, before if all(id(value) in known for value in own) else own)
    return True


def _restore_cell(cell: CellType, before: Any) -> bool:
    if not _is_made(before, contents(cell)):
        return False
    if before is EMPTY:
        del cell.cell_contents
    else:
        cell.cell_contents = before
    return True


def _restore_array(now: Any, before: list[Any]) -> bool:
    """Take the tensors of a trace out of an array of objects whose shape has not changed; return whether it held any.
    before: what `_parts` gave for the array.
    """
    if not now.dtype.hasobject or before[0] != str(now.shape):
        return False
    undone = False
    for i, (was, value) in enumerate(zip(before[1:], list(now.flat), strict=True)):
        if _is_made(was, value):
            now.flat[i], undone = was, True
    return undone


def _is_made(before: Any, now: Any) -> bool:
    """Whether a trace put `now` in the place of `before`."""
    return now is not before and _holds_tensor(now)


def _holds_tensor(value: Any, depth: int = DEPTH) -> bool:
    """Whether a value is a tensor of a trace, or holds one, at most `depth` containers deep."""
    kind = type(value)
    if depth and kind in (tuple, list, dict):
        return any(_holds_tensor(one, depth - 1) for one in (value.values() if kind is dict else value))
    return bool(tf.is_symbolic_tensor(value))
