"""Watches the user's variables: every read or write is reported first, so that the variable can be made true in time.

A watched variable becomes an instance of a subclass of its own class, whose handle cannot be taken unseen. Functions
traced before hold handles of their own, so calls of functions are watched, too. Saving, checkpoints, evaluation,
learning rate schedules and plain reads all go one of these two ways (docs/decisions/009-coherence.md).
"""

from __future__ import annotations

import gc
import threading
import weakref
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from functools import cache
from typing import Any, Protocol
from weakref import WeakKeyDictionary

import tensorflow as tf

from placer import tf_internals
from placer.devices.variables import is_elsewhere
from placer.trace.capture import READS

_watchers: dict[int, tuple[tf.Variable, Watcher]] = {}
_here = threading.local()
_renewed: dict[int, tuple[weakref.ref[Any], weakref.ref[tf.Variable]]] = {}  # id -> (a former handle, its variable)
_touched_by: WeakKeyDictionary[Any, tuple[tuple[tf.Variable, bool], ...]] = WeakKeyDictionary()


class Watcher(Protocol):
    """Is called before variables are used."""

    def will_read(self, variables: Iterable[tf.Variable]) -> None:
        """The user is about to read these variables."""

    def will_write(self, variables: Iterable[tf.Variable]) -> None:
        """The user may be about to read and to write these variables."""

    def within_step(self) -> None:
        """A Python function that a step calls uses a variable. Waiting for the step to end would never return."""


def watch(variable: tf.Variable, watcher: Watcher) -> None:
    """Report every use of `variable` to `watcher` from now on."""
    tf_internals.before_function_calls(_function_called)
    _watchers[id(variable)] = (variable, watcher)
    variable.__class__ = _watched(_plain(type(variable)))


def unwatch(variable: tf.Variable) -> None:
    """Leave `variable` as it was; harmless where it is not watched."""
    if _watchers.pop(id(variable), None) is not None:
        variable.__class__ = _plain(type(variable))
    if not _watchers and not _renewed:
        tf_internals.before_function_calls(None)


def renew_all() -> None:
    """Give all variables of this process new storage; call it right after workers were joined.

    When it joins workers, TensorFlow 2.21 forgets the names of existing variables, and an AssignVariableOp, which goes
    by the name, has no effect from then on: `assign` is lost without an error, in functions compiled before, too.
    """
    kinds = _kinds(tf_internals.RESOURCE_VARIABLE)
    here = [v for v in gc.get_objects() if type(v) in kinds and _is_here(v)]
    with unwatched(), tf.init_scope():
        for variable in here:
            with tf.device(variable._handle.device):
                value = tf_internals.read_variable(variable._handle, variable.dtype)
                fresh = tf.Variable(value, trainable=False, shape=variable.shape, dtype=variable.dtype)
            _remember(variable)
            variable._handle = fresh._handle
    if here:
        tf_internals.before_function_calls(_function_called)


def _remember(variable: tf.Variable) -> None:
    """Remember the handle that a variable is about to lose, because functions may hold it."""
    key = id(variable._handle)
    gone = weakref.ref(variable._handle, lambda _: _renewed.pop(key, None))
    _renewed[key] = (gone, weakref.ref(variable))


def _present(handle: Any) -> tf.Variable | None:
    """The variable whose handle this was before workers were joined."""
    former = _renewed.get(id(handle))
    return former[1]() if former is not None and former[0]() is handle else None


def _kinds(kind: type) -> set[type]:
    """A class and all its subclasses."""
    return {kind}.union(*map(_kinds, kind.__subclasses__()))


def _is_here(variable: Any) -> bool:
    """Whether a variable holds a value in this process."""
    if is_elsewhere(variable):
        return False
    handle: Any = getattr(variable, "_handle", None)
    if not tf_internals.is_eager(handle) or "/job:localhost" not in handle.device:
        return False
    return tf_internals.is_initialized(handle)


@contextmanager
def unwatched() -> Iterator[None]:
    """Report nothing that this thread does inside: it is Placer's own use."""
    before = getattr(_here, "silent", False)
    _here.silent = True
    try:
        yield
    finally:
        _here.silent = before


class _Watched:
    """Mixed into a variable's class."""

    _handle: Any

    @property
    def handle(self) -> Any:
        """The handle, with which anything may be done."""
        watcher = _watcher(self)
        if watcher is not None:
            watcher.will_write([self])
        return self._handle

    def _read_variable_op(self, *args: Any, **kwargs: Any) -> Any:
        watcher = _watcher(self)
        if watcher is not None:
            watcher.will_read([self])
        with unwatched():
            return super()._read_variable_op(*args, **kwargs)  # type: ignore[misc]


@cache
def _watched(plain: type) -> type:
    return type(plain.__name__, (_Watched, plain), {"_placer_plain": plain})


def _plain(kind: type) -> type:
    found: type = getattr(kind, "_placer_plain", kind)
    return found


def _watcher(variable: Any) -> Watcher | None:
    """The variable's watcher; None while a function is traced, because tracing reads nothing yet."""
    if getattr(_here, "silent", False) or tf.inside_function():
        return None
    entry = _watchers.get(id(variable))
    if entry is not None and isinstance(threading.current_thread(), threading._DummyThread):
        entry[1].within_step()
        return None
    return entry[1] if entry is not None else None


def _function_called(concrete: Any, captured: Sequence[Any]) -> Sequence[Any]:
    """Before a function that holds handles runs: report what it uses, and return the handles of now."""
    _report_use(concrete)
    if not _renewed:
        return captured
    found = []
    for tensor in captured:
        variable = _present(tensor) if tensor.dtype == tf.resource else None
        found.append(tensor if variable is None else variable._handle)
    return found


def _report_use(concrete: Any) -> None:
    if getattr(_here, "silent", False) or tf.inside_function():
        return
    touched = _touched_by.get(concrete)
    if touched is None:
        touched = _touched_by[concrete] = tuple(_touched(concrete.graph))
    for variable, writes in touched:
        watcher = _watcher(variable)
        if watcher is not None:
            (watcher.will_write if writes else watcher.will_read)([variable])


def _touched(graph: Any) -> Iterator[tuple[tf.Variable, bool]]:
    """The variables that a function uses, and whether it may write each: all but plain reads may."""
    by_handle = {id(variable._handle): variable for variable in graph.variables}
    for outer, inner in graph.captures:
        variable = _present(outer)
        variable = by_handle.get(id(outer)) if variable is None else variable
        if variable is not None:
            yield variable, any(op.type not in READS for op in inner.consumers())
