"""Watches what Python code changes in branches and loops: a trace runs each once, whichever of them is taken."""

from __future__ import annotations

import functools
import inspect
import sys
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from types import FrameType
from typing import Any

import tensorflow as tf

from placer import tf_internals
from placer.trace.eager.number_use import COUNT, NUMBER
from placer.trace.eager.object_contents import Places, frames_of
from placer.trace.eager.patching import replaced
from placer.trace.python.kinds import is_library

# The names of the constants that Python numbers become.
MARKS = {float: NUMBER, int: COUNT, bool: COUNT}


@contextmanager
def watched_branches(note: Callable[[str], None]) -> Iterator[None]:
    """Call `note` with the reason, in words, when a branch, or the condition or body of a loop, that is traced in this
    thread and block changes an object that was there before it (`terms.append(penalty)` in an `if` that depends on a
    tensor), raises an exception, or counts with a Python float. AutoGraph handles names that are assigned there, but
    not changes of objects. The caller holds the lock `patching`.
    """

    def around(function: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(function)
        def traced(*args: Any, **kwargs: Any) -> Any:
            places = Places.around(sys._getframe(1))
            try:
                outputs = function(*args, **kwargs)
            except Exception as error:
                places.restore()
                if _is_raised_by_user(error):
                    note(
                        f"it raises an exception ({type(error).__name__}) in a branch or loop that depends on a "
                        "tensor, which a trace does whichever way is taken; use tf.debugging.Assert and the like, or "
                        "look at the value outside of the step"
                    )
                raise
            changed = places.changed()
            if changed is not None:
                places.restore()
                note(
                    f"it changes `{changed}` in a branch or loop that depends on a tensor, which a traced step would "
                    "do once, whichever way is taken; use tf.where or a tf.TensorArray, or decorate the step with "
                    "@tf.function if that is meant"
                )
            name = _counted(sys._getframe(1), args, outputs)
            if name is not None:
                note(
                    f"it counts with `{name}`, a float of Python's, in a loop that depends on a tensor, where a traced "
                    "step has float32; make it a tensor, or decorate the step with @tf.function if that is meant"
                )
            return _marked(outputs)

        return traced

    with tf_internals.graphs.around_branches(around):
        yield


@contextmanager
def watched_loops(note: Callable[[str], None]) -> Iterator[None]:
    """Call `note` with the reason, in words, when a `tf.while_loop` that is traced in this thread and block counts with
    a Python float, which has 64 bits eagerly. The caller holds the lock `patching`.
    """
    thread, loop = threading.get_ident(), tf.while_loop

    def while_loop(*args: Any, **kwargs: Any) -> Any:
        if threading.get_ident() != thread:
            return loop(*args, **kwargs)
        given = inspect.signature(loop).bind(*args, **kwargs)
        begin, body = tf.nest.flatten(given.arguments["loop_vars"]), given.arguments["body"]

        def watched(*variables: Any) -> Any:
            after = body(*variables)
            before = tf.nest.flatten(variables)
            numbers = {id(one): True for one, leaf in zip(before, begin, strict=False) if type(leaf) is float}
            made = [one for one in tf.nest.flatten(after) if tf.is_symbolic_tensor(one) and id(one) not in numbers]
            if any(made_of(one, numbers) for one in made):
                note(
                    "it counts with a float of Python's in tf.while_loop, where a traced step has float32; make it a "
                    "tensor (tf.constant), or decorate the step with @tf.function if that is meant"
                )
            return after

        given.arguments["body"] = watched
        return loop(*given.args, **given.kwargs)

    with replaced([(tf, "while_loop", tf_internals.autograph.as_tensorflows_own(while_loop))]):
        yield


def _is_raised_by_user(error: Exception) -> bool:
    """Whether the user's own code raises the exception, and not a library that it calls."""
    at = error.__traceback__
    while at is not None and at.tb_next is not None:
        at = at.tb_next
    return at is not None and not is_library(at.tb_frame.f_globals.get("__name__"))


def _marked(outputs: Any) -> Any:
    """The outputs of a branch, with each Python number replaced by a constant of a known name (`number_use`)."""
    if not any(type(leaf) in MARKS for leaf in tf.nest.flatten(outputs)):
        return outputs
    return tf.nest.map_structure(
        lambda leaf: tf.constant(leaf, name=MARKS[type(leaf)]) if type(leaf) in MARKS else leaf, outputs
    )


def _counted(frame: FrameType, args: Sequence[Any], outputs: Any) -> str | None:
    """The name of a variable that counts with a Python float: it holds one before the loop, and the loop's body
    computes its next value only from such floats and constants. None if there is none. frame: the frame that traces the
    body. args, outputs: what the body is given, and what it returns.
    """
    loop = next((at for at in frames_of(frame) if tf_internals.autograph.managed_names(at)), None)
    carried = tf_internals.autograph.carried(loop) if loop is not None else None
    if not carried or not isinstance(outputs, (list, tuple)):
        return None
    first = [value for _, value in carried]
    names = [name for name, value in carried for _ in tf.nest.flatten(value, expand_composites=True)]
    count = len(names)
    if len(args) < count or len(outputs) < count:
        return None  # this is the loop's condition, not its body
    before, after = args[-count:], outputs[-count:]
    are_floats = [type(leaf) is float for leaf in tf.nest.flatten(first, expand_composites=True)]
    numbers = {id(given): True for given, is_float in zip(before, are_floats, strict=True) if is_float}
    for name, given, made, is_float in zip(names, before, after, are_floats, strict=True):
        if is_float and made is not given and tf.is_symbolic_tensor(made) and made_of(made, numbers):
            return name
    return None


def made_of(tensor: Any, known: Mapping[int, bool]) -> bool | None:
    """Whether a tensor is made of numbers and constants (True) or of constants alone (False); None if anything else
    goes into it. known: id of a tensor -> the same answer for it.
    """
    left, seen, met = [tensor], set(), False
    while left:
        one = left.pop()
        if id(one) in known:
            met |= known[id(one)]
            continue
        if one.name in seen or one.op.type == "Const":
            continue
        seen.add(one.name)
        ways = list(_ways(one, known))
        if ways:  # it does not matter which way is taken
            if None in ways and True not in ways:
                return None
            met |= True in ways
        elif one.op.op_def.is_stateful or not one.op.inputs:
            return None
        else:
            left += one.op.inputs
    return met


def _ways(tensor: Any, known: Mapping[int, bool]) -> Iterator[bool | None]:
    """The answer of `made_of` for each way by which a branch or a loop may make a tensor; empty for any other op. A way
    that only hands on its input counts only if all ways do so.
    """
    op, loop = tensor.op, tf_internals.graphs.loop_of(tensor.op)
    graphs, given = ([loop[1]], op.inputs) if loop else (tf_internals.graphs.branches_of(op), op.inputs[1:])
    made = [(graph, graph.outputs[tensor.value_index]) for graph in graphs]
    handed = [_handed_on(graph, output) for graph, output in made]
    if made and all(position is not None for position in handed):
        kinds = [made_of(given[position], known) for position in handed]
        yield from [None] if None in kinds else kinds
        return
    for (graph, output), position in zip(made, handed, strict=True):
        if position is None:
            inner = {id(one): made_of(outer, known) for outer, one in zip(given, graph.inputs, strict=True)}
            yield made_of(output, {key: kind for key, kind in inner.items() if kind is not None})


def _handed_on(graph: Any, output: Any) -> int | None:
    """Which input of a branch or a body this output is; None if the branch or body makes it."""
    while output.op.type == "Identity":
        output = output.op.inputs[0]
    return next((i for i, inner in enumerate(graph.inputs) if inner is output), None)
