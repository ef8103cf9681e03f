"""Watches the user's variables: reports each read or write before it happens, so that the variable can be updated.

A watched variable becomes an instance of a subclass of its own class. The subclass reports whenever the variable's
handle is taken, by Python (`handle`) or by TensorFlow's C++ code (`_handle`). `assign` returns another object with the
same handle, so the class of these objects is changed as long as any variable is watched. Functions traced before hold
handles of their own, so calls of functions are watched, too. A function that may write is reported again once it has
ended, because other threads step meanwhile; `assign` and its like need no second report, because they take the handle
again for what they return. Saving, checkpoints, evaluation, learning rate schedules and plain reads all use one of
these ways (docs/decisions/009-coherence.md). TensorFlow's own threads and functions of tf.data read at any time; such
readers are reported as `read_aside`.
"""

from __future__ import annotations

import dis
import sys
import threading
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache, partial
from itertools import count
from operator import is_
from typing import Any, Protocol
from weakref import WeakKeyDictionary

import tensorflow as tf

from placer import tf_internals
from placer.devices.variables import is_elsewhere
from placer.instances import instances_of
from placer.trace.graph_def.access_order import READS
from placer.train.variables.other_threads import note_call

_watches: dict[int, VariableWatch] = {}  # by id of the variable
_by_handle: dict[int, VariableWatch] = {}  # by id of its handle
_here = threading.local()
_uses: WeakKeyDictionary[Any, Uses] = WeakKeyDictionary()  # of functions that were called
_counter = count(1)
_changes = 0  # how often a variable was watched, left, or given another handle


class Watcher(Protocol):
    """The receiver of reports: before variables are used, and after functions that may write them."""

    def will_read(self, variables: Iterable[tf.Variable]) -> None:
        """The user is about to read these variables."""

    def will_write(self, variables: Iterable[tf.Variable]) -> None:
        """The user may be about to read and to write these variables."""

    def after_write(self, variables: Iterable[tf.Variable]) -> None:
        """A function of the user that was reported to `will_write` has ended. Others may have stepped meanwhile."""

    def read_aside(self, variables: Iterable[tf.Variable], reader: str) -> None:
        """A reader may use these variables at any time from now on, even while a step runs. Waiting for the step to end
        may never return. reader: in words.
        """


@dataclass
class VariableWatch:
    """A watched variable, and the watcher that is told of its uses."""

    variable: tf.Variable
    watcher: Watcher
    handle: Any  # the variable's current one


def watch(variable: tf.Variable, watcher: Watcher) -> None:
    """Report every use of `variable` to `watcher` from now on."""
    _changed()
    tf_internals.calls.around_function_calls(_function_called)
    handle = tf_internals.variables.handle_of(variable)
    _watches[id(variable)] = _by_handle[id(handle)] = VariableWatch(variable, watcher, handle)
    _watch_unread(True)
    variable.__class__ = _watched(_plain(type(variable)))


def watched_by(variable: tf.Variable) -> Watcher | None:
    """The watcher of a variable; None if it is not watched. variable: any object that has its handle."""
    found = _watch_of(variable)
    return None if found is None else found.watcher


def _watch_of(variable: Any) -> VariableWatch | None:
    return _by_handle.get(id(vars(variable).get("_handle")))


def _changed() -> None:
    global _changes
    _changes = next(_counter)


def unwatch(variable: tf.Variable) -> None:
    """Stop watching `variable` and restore its class; harmless if it is not watched."""
    _changed()
    left = _watches.pop(id(variable), None)
    if left is not None:
        _by_handle.pop(id(left.handle), None)
        variable.__class__ = _plain(type(variable))
    if not _watches:
        _watch_unread(False)
    if not _watches and not tf_internals.variables.has_former_handles():
        tf_internals.calls.around_function_calls(None)


def renew_all() -> None:
    """Give all variables of this process new storage; call it right after workers were joined.

    TensorFlow 2.21 forgets the names of existing variables when it joins workers. An AssignVariableOp finds a variable
    by its name, so it has no effect from then on: `assign` is lost without an error, also in functions compiled before.
    """
    here: dict[int, list[Any]] = {}  # by id of the handle: what `assign` returned is the same variable
    for variable in instances_of([tf_internals.variables.RESOURCE_VARIABLE]):
        if _is_here(variable):
            here.setdefault(id(tf_internals.variables.handle_of(variable)), []).append(variable)
    replaced = []
    try:
        with unwatched(), tf.init_scope():
            for objects in here.values():
                one, handle = objects[0], tf_internals.variables.handle_of(objects[0])
                with tf.device(handle.device):
                    value = tf_internals.variables.read_variable(handle, one.dtype)
                    fresh = tf_internals.variables.handle_of(
                        tf.Variable(value, trainable=False, shape=one.shape, dtype=one.dtype)
                    )
                replaced.append((handle, fresh))
                _give(objects, fresh)
    finally:  # even if this is cut short, functions need the handles that variables have now
        tf_internals.variables.replace_handles(replaced)
        _uses.clear()  # they hold the former handles, and so the storage behind these
        _changed()
    if here:
        tf_internals.calls.around_function_calls(_function_called)


def _give(objects: Sequence[Any], handle: Any) -> None:
    """Give all objects of one variable another handle, by which the variable is watched from now on."""
    found = _watch_of(objects[0])
    if found is not None:
        former, found.handle = found.handle, handle
        _by_handle[id(handle)] = found
    for variable in objects:
        variable._handle = handle
    if found is not None:
        del _by_handle[id(former)]


def _is_here(variable: Any) -> bool:
    """Whether a variable holds a value in this process."""
    if is_elsewhere(variable):
        return False
    handle = vars(variable).get("_handle")
    if not tf_internals.variables.is_eager(handle) or "/job:localhost" not in handle.device:
        return False
    return tf_internals.variables.is_initialized(handle)


@contextmanager
def unwatched(watcher: Watcher | None = None) -> Iterator[None]:
    """In the block, report nothing of this thread to `watcher` (None = to any), because the uses are Placer's own."""
    before: tuple[Watcher | None, ...] = getattr(_here, "silent", ())
    _here.silent = (*before, watcher)
    try:
        yield
    finally:
        _here.silent = before


class _Watched:
    """The hooks that are mixed into a variable's class."""

    @property
    def handle(self) -> Any:
        """The handle. Taking it is reported as a write, because the caller may do anything with it."""
        found = _to_tell(self)
        if found is not None:
            found.watcher.will_write([found.variable])
        return tf_internals.variables.handle_of(self)

    @property
    def _handle(self) -> Any:
        """The handle as TensorFlow's C++ code takes it, to read a variable that is an argument of an op."""
        try:
            found = _to_tell(self)
            if found is not None:
                (found.watcher.will_read if _called_by_tensorflow() else found.watcher.will_write)([found.variable])
        except BaseException as error:
            if _named_by_caller():
                raise
            _here.raised = error
            return None  # C++ code would crash; without a handle it uses _read_variable_op, which raises this
        return tf_internals.variables.handle_of(self)

    @_handle.setter
    def _handle(self, handle: Any) -> None:
        vars(self)["_handle"] = handle

    def _read_variable_op(self, *args: Any, **kwargs: Any) -> Any:
        raised, _here.raised = getattr(_here, "raised", None), None
        if raised is not None:
            raise raised
        found = _to_tell(self)
        if found is not None:
            found.watcher.will_read([found.variable])
        with unwatched():
            return _plain_read(type(self))(self, *args, **kwargs)  # of the current class, which may be unwatched


_HOOKS = {name: vars(_Watched)[name] for name in ("handle", "_handle", "_read_variable_op")}


@cache
def _watched(plain: type) -> type:
    return type(plain.__name__, (_Watched, plain), {"_placer_plain": plain, "_placer_read": _plain_read(plain)})


def _plain(kind: type) -> type:
    found: type = getattr(kind, "_placer_plain", kind)
    return found


def _plain_read(kind: Any) -> Any:
    """The function by which a class reads variables without a report."""
    return getattr(kind, "_placer_read", kind._read_variable_op)


def _watch_unread(watched: bool) -> None:
    """Start (`watched`) or stop reporting uses of the objects that `assign` returns, whenever these were made."""
    kind: Any = tf_internals.variables.UNREAD_VARIABLE
    if watched == hasattr(kind, "_placer_read"):
        return
    if watched:
        kind._placer_read = kind._read_variable_op
        for name, hook in _HOOKS.items():
            setattr(kind, name, hook)
    else:
        kind._read_variable_op = kind._placer_read
        for name in {*_HOOKS, "_placer_read"} - {"_read_variable_op"}:
            delattr(kind, name)


def _called_by_tensorflow() -> bool:
    """Whether TensorFlow's code takes the `_handle` of a variable, rather than the user's."""
    return str(sys._getframe(2).f_globals.get("__name__", "")).startswith("tensorflow.")


def _named_by_caller() -> bool:
    """Whether Python code takes the `_handle` of a variable, rather than C++ code that it has called."""
    frame = sys._getframe(2)
    return dis.opname[frame.f_code.co_code[frame.f_lasti]] == "LOAD_ATTR"


def _to_tell(variable: Any) -> VariableWatch | None:
    """The watch to report a use to; None if there is nothing more to report. Tracing a function uses nothing yet. A use
    by tf.data or by one of TensorFlow's threads is reported here, to `read_aside`.
    """
    found = _watch_of(variable)
    if found is None or _is_silent(found.watcher):
        return None
    if not tf.executing_eagerly():  # `tf.init_scope` is eager, even while a function is traced
        if tf_internals.resources.traces_dataset():
            found.watcher.read_aside([found.variable], "a function of a tf.data pipeline")
        return None
    if _is_tensorflows_thread():
        found.watcher.read_aside([found.variable], "a Python function in one of TensorFlow's threads")
        return None
    return found


def trains_here() -> None:
    """Note that this thread calls steps. So no step runs while it uses variables, even if Python did not start it."""
    _here.trains = True


def _is_tensorflows_thread() -> bool:
    """Whether Python did not start this thread, so that it may read while a step runs and waits for it."""
    return isinstance(threading.current_thread(), threading._DummyThread) and not getattr(_here, "trains", False)


def _is_silent(watcher: Watcher) -> bool:
    silent = getattr(_here, "silent", ())
    return bool(silent) and (None in silent or any(watcher is one for one in silent))


@dataclass(frozen=True)
class Uses:
    """The uses of variables by a function that captured handles; valid while `_changes` equals `changes`.

    captured: the tensors that the function captured. current: the same with current handles. watched: for each watcher,
    the variables that the function only reads, and those that it may write.
    """

    changes: int
    captured: tuple[Any, ...]
    current: Sequence[Any]
    watched: tuple[tuple[Watcher, list[tf.Variable], list[tf.Variable]], ...]

    def holds(self, captured: Sequence[Any]) -> bool:
        """Whether `captured` are the very tensors that the function captured."""
        return len(captured) == len(self.captured) and all(map(is_, captured, self.captured))


Writes = Sequence[tuple[Watcher, list[tf.Variable]]]


def _function_called(concrete: Any, captured: Sequence[Any]) -> tuple[Sequence[Any], Callable[[], None] | None]:
    """Report what a function that captured handles uses, before it runs. Returns its captured tensors with current
    handles, and what to call once it has run.
    """
    if not (getattr(_here, "trains", False) or None in getattr(_here, "silent", ())) and tf.executing_eagerly():
        note_call(concrete)
    uses, writes = _uses_of(concrete, captured), None
    if uses.watched:
        writes = _report(uses)
        uses = _uses_of(concrete, captured)  # fetching variables may have shown a loss, and joined other devices
    return uses.current, partial(_report_written, writes) if writes else None


def _uses_of(concrete: Any, captured: Sequence[Any]) -> Uses:
    uses, changes = _uses.get(concrete), _changes
    if uses is None or uses.changes != changes or not uses.holds(captured):
        held, current = tuple(captured), [_current(tensor) for tensor in captured]
        uses = _uses[concrete] = Uses(changes, held, current, tuple(_by_watcher(concrete.graph, current)))
    return uses


def _report(uses: Uses) -> Writes:
    """Report the uses before the function runs. Returns what was reported to `will_write`, to be reported again after
    the function, because another thread's step may copy a variable before it is written.
    """
    silent, writes = getattr(_here, "silent", ()), []
    if None in silent or not tf.executing_eagerly():
        return ()
    for watcher, read, written in uses.watched:
        if _is_silent(watcher):
            continue
        if _is_tensorflows_thread():
            watcher.read_aside([*read, *written], "a Python function in one of TensorFlow's threads")
            continue
        if written:
            watcher.will_write(written)
            writes.append((watcher, written))
        if read:
            watcher.will_read(read)
    return writes


def _report_written(writes: Writes) -> None:
    for watcher, written in writes:
        watcher.after_write(written)


def _current(tensor: Any) -> Any:
    """A captured tensor; if it is a former handle of a variable, the variable's current handle."""
    return tf_internals.variables.current_handle(tensor) if tensor.dtype == tf.resource else tensor


def _by_watcher(graph: Any, current: Sequence[Any]) -> Iterator[tuple[Watcher, list[tf.Variable], list[tf.Variable]]]:
    """For each watcher, the variables that a function only reads, and those that it may write: any op may write, except
    plain reads.

    current: its captured tensors with current handles. They are used because TensorFlow does not list in
    `graph.variables` a variable that a function reaches by its handle alone, as `assign(..., read_value=False)` does.
    """
    found: dict[int, tuple[Watcher, list[tf.Variable], list[tf.Variable]]] = {}
    for tensor, inner in zip(current, graph.inputs[len(graph.inputs) - len(current) :], strict=True):
        one = _by_handle.get(id(tensor))
        if one is not None:
            _, read, written = found.setdefault(id(one.watcher), (one.watcher, [], []))
            writes = any(op.type not in READS for op in inner.consumers())
            (written if writes else read).append(one.variable)
    yield from found.values()
