"""Watches gradients that are something else eagerly than in a trace, because of the step's branches and loops.

If a branch is not taken or a loop does not run, a gradient through it is None eagerly, and zeros once the step is
traced. Optimizers leave a variable alone if its gradient is None; if it is zeros, momentum and weight decay go on
moving the variable. The gradient of rows that are gathered in a branch or a loop is tf.IndexedSlices eagerly, in which
a row may occur twice, and dense in a trace, so that norms, and gradients that are clipped by norms, differ.
"""

from __future__ import annotations

import inspect
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from types import MappingProxyType
from typing import Any

import tensorflow as tf

from placer import tf_internals
from placer.errors import short

COUNTS = frozenset(  # ops that may compute a loop's condition from constants
    {"Less", "LessEqual", "Greater", "GreaterEqual", "Equal", "NotEqual", "LogicalAnd", "LogicalOr", "LogicalNot"}
    | {"Identity", "Cast", "AddV2", "Sub", "Mul", "FloorDiv", "Max", "Min", "Maximum", "Minimum", "StridedSlice"}
)
GATHERS = frozenset({"ResourceGather", "Gather"})
ROWS = "rows"  # the type that `_reads` gives for an op that gathers rows
SHAPES = frozenset({"VariableShape", "Shape", "ShapeN"})
SOMETIMES_NONE = (
    "the gradient of {} is None where a branch is not taken, or a loop does not run, and zeros once the step is "
    "traced, which momentum and weight decay tell apart; decorate it with @tf.function if zeros are meant"
)
DENSE = (
    "the gradient of {}, of which it gathers rows in a branch or a loop, is tf.IndexedSlices eagerly, and dense once "
    "the step is traced, which norms and optimizers tell apart; gather the rows outside, or decorate the step with "
    "@tf.function if that is meant"
)


@contextmanager
def watched_gradients(note: Callable[[str], None]) -> Iterator[None]:
    """Call `note` with the reason, in words, when code asks in this thread and block for a gradient that is None on
    some ways through the branches and loops of the step, but not on all, or that is of rows eagerly and dense in a
    trace. The caller holds the lock `patching`.
    """
    thread, gradient = threading.get_ident(), tf.GradientTape.gradient

    def noted(tape: Any, target: Any, sources: Any, *args: Any, **kwargs: Any) -> Any:
        if threading.get_ident() != thread:
            return gradient(tape, target, sources, *args, **kwargs)
        targets = [one for one in tf.nest.flatten(target) if tf.is_symbolic_tensor(one)]
        gathered = _only_gathered(targets, tf.nest.flatten(sources))
        found = gradient(tape, target, sources, *args, **kwargs)
        pairs = list(zip(tf.nest.flatten(sources), tf.nest.flatten(found), strict=False))
        dense = [gathered[id(source)] for source, value in pairs if id(source) in gathered and _is_dense(value)]
        if dense:
            note(DENSE.format(short(dense[0])))
        if not any(_is_zero(argument) for argument in (*args, *kwargs.values())):
            name = _sometimes_none(targets, [source for source, value in pairs if value is not None])
            if name is not None:
                note(SOMETIMES_NONE.format(short(name)))
        return found

    tf.GradientTape.gradient = tf.autograph.experimental.do_not_convert(noted)
    try:
        yield
    finally:
        tf.GradientTape.gradient = gradient


def _is_dense(value: Any) -> bool:
    return isinstance(value, tf.Tensor)  # tf.IndexedSlices are none


def _is_zero(argument: Any) -> bool:
    """Whether an argument, which may be a tensor, asks for zeros instead of None for what is not connected."""
    return argument is tf.UnconnectedGradients.ZERO or (isinstance(argument, str) and argument == "zero")


def _only_gathered(targets: list[Any], sources: list[Any]) -> dict[int, str]:
    """id -> name of each source that the step reads only by rows, at least once in a branch or a loop."""
    if not targets or not tf_internals.graphs.is_step_graph(targets[0].graph):
        return {}
    graph, found = targets[0].graph, {}
    captured = {id(outer): inner for outer, inner in graph.captures}
    for source in sources:
        tensor = tf_internals.variables.handle_of(source) if hasattr(source, "assign") else source
        held = captured.get(id(tensor), tensor)
        if not tf.is_symbolic_tensor(held) or held.graph is not graph:
            continue
        reads = {(kind, within is not graph) for kind, within in _reads(graph, held) if kind not in SHAPES}
        if any(nested for _, nested in reads) and all(kind == ROWS for kind, _ in reads):
            found[id(source)] = str(getattr(source, "path", source.name))
    return found


def _bodies(op: Any) -> list[Any]:
    """The graphs of an op's branches, of its loop's body, or of the function that TensorFlow puts around these. The
    inputs of the graphs are the op's last inputs.
    """
    loop, wrapped = tf_internals.graphs.loop_of(op), tf_internals.graphs.wrapped_graph(op)
    if wrapped is not None:
        return [wrapped]
    return [loop[1]] if loop else tf_internals.graphs.branches_of(op)


def _reads(graph: Any, tensor: Any) -> Iterator[tuple[str, Any]]:
    """(type, graph) of each op that reads a tensor of `graph`, also within branches and loops. The type is ROWS for an
    op that gathers rows.
    """
    for op in tensor.consumers():
        bodies = _bodies(op)
        for body in bodies:
            given = op.inputs[len(op.inputs) - len(body.inputs) :]
            for inner in [inner for one, inner in zip(given, body.inputs, strict=True) if one is tensor]:
                yield from _reads(body, inner)
        if op.type in ("Identity", "ReadVariableOp"):
            yield from _reads(graph, op.outputs[0])
        elif not bodies:
            yield ROWS if _takes_rows(op) else op.type, graph


def _takes_rows(op: Any) -> bool:
    """Whether an op gathers along the first axis, so that its gradient is of rows."""
    return op.type in GATHERS or (op.type == "GatherV2" and _is_zero_constant(op.inputs[2]))


def _is_zero_constant(tensor: Any) -> bool:
    value = tf.get_static_value(tensor)
    return value is not None and int(value) == 0


def _sometimes_none(targets: list[Any], sources: list[Any]) -> str | None:
    """The name of a source that is connected to the targets only by branches and loops that may not run; None if there
    is none.
    """
    if not targets or not tf_internals.graphs.is_step_graph(targets[0].graph):
        return None
    possible = _Reach(sure=False)
    connected = possible.of(targets)
    if not possible.met_branches:
        return None
    sometimes = connected - _Reach(sure=True).of(targets)
    for source in sources:
        tensor = tf_internals.variables.handle_of(source) if hasattr(source, "assign") else source
        if isinstance(tensor, tf.Tensor) and targets[0].graph.capture(tensor).name in sometimes:
            return str(getattr(source, "path", source.name))
    return None


class _Reach:
    """A search for the tensors to which gradients of others flow: on some way through branches and loops, or, if
    `sure`, on every way.
    """

    def __init__(self, *, sure: bool) -> None:
        self.sure, self.met_branches = sure, False
        self._outer: dict[int, Any] = {}  # id of an input of the function around a branch or loop -> what it is given

    def of(self, tensors: list[Any]) -> set[str]:
        """The names of the tensors in the same graph to which gradients of `tensors` flow, these included."""
        found: set[str] = set()
        left = list(tensors)
        while left:
            tensor = left.pop()
            if tensor.name not in found and _may_carry(tensor.dtype):
                found.add(tensor.name)
                left += self._behind(tensor.op, tensor.value_index)
        return found

    def _behind(self, op: Any, output: int) -> list[Any]:
        branches, loop, wrapped = (
            tf_internals.graphs.branches_of(op),
            tf_internals.graphs.loop_of(op),
            tf_internals.graphs.wrapped_graph(op),
        )
        if wrapped is not None:
            self._outer.update((id(inner), outer) for inner, outer in zip(wrapped.inputs, op.inputs, strict=True))
            return [op.inputs[i] for i in self._inputs(wrapped, output)]
        if branches:
            self.met_branches = True
            ways = [self._inputs(graph, output) for graph in branches]
            through = set.intersection(*ways) if self.sure else set.union(*ways)
            return [op.inputs[1 + i] for i in through]
        if loop:
            self.met_branches = True
            return [op.inputs[i] for i in self._through_loop(op, *loop, output)]
        return list(op.inputs) if tf_internals.graphs.has_gradient(op) else []

    def _through_loop(self, op: Any, condition: Any, body: Any, output: int) -> set[int]:
        """The inputs of a loop that reach its output `output`. After no run, this is the input at the same position;
        after more runs, it is the inputs that reach it through the body. If `sure`, only inputs count that reach it
        after any number of runs.
        """
        once = self._inputs(body, output)
        if not self.sure:
            found, left = {output}, [*once]
            while left:
                i = left.pop()
                if i not in found:
                    found.add(i)
                    left += self._inputs(body, i)
            return found
        kept = {i for i in once if i in self._inputs(body, i)}
        given = [self._outer.get(id(one), one) for one in op.inputs]
        return kept if _holds(condition, given) else kept & {output}

    def _inputs(self, graph: Any, output: int) -> set[int]:
        """The inputs of a branch or body that reach an output."""
        reached = self.of([graph.outputs[output]])
        return {i for i, given in enumerate(graph.inputs) if given.name in reached}


def _may_carry(kind: tf.DType) -> bool:
    return bool(kind.is_floating or kind.is_complex or kind in (tf.resource, tf.variant))


def _holds(condition: Any, inputs: Any) -> bool:
    """Whether constants show that a loop with these inputs runs at least once."""
    known = {given.name: taken for given, taken in zip(condition.inputs, inputs, strict=True)}
    with tf.init_scope(), tf.device("CPU:0"):
        return bool(_value(condition.outputs[0], known))


def _value(tensor: Any, known: Mapping[str, Any] = MappingProxyType({})) -> Any:
    """The eager value of a tensor of a trace, if constants determine it; else None. known: name of an input of its
    graph -> the tensor outside of the graph that is given for it.
    """
    if tensor.name in known:
        return _value(known[tensor.name])
    op = tensor.op
    if op.type not in COUNTS:
        return tf.get_static_value(tensor)
    values = [_value(one, known) for one in op.inputs]
    if any(value is None for value in values):
        return None
    make = getattr(tf.raw_ops, op.type)
    names = list(inspect.signature(make).parameters)  # its inputs, then its attributes
    attributes = {name: op.get_attr(name) for name in names[len(values) :] if name in op.node_def.attr}
    return make(**dict(zip(names, values, strict=False)), **attributes)
