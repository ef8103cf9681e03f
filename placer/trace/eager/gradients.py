"""Gradients that are None eagerly where a branch is not taken or a loop does not run, and zeros once a step is traced.

Optimizers leave a variable alone whose gradient is None; of zeros, momentum and weight decay go on moving it.
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

COUNTS = frozenset(  # ops that make a loop's condition of constants
    {"Less", "LessEqual", "Greater", "GreaterEqual", "Equal", "NotEqual", "LogicalAnd", "LogicalOr", "LogicalNot"}
    | {"Identity", "Cast", "AddV2", "Sub", "Mul", "FloorDiv", "Max", "Min", "Maximum", "Minimum", "StridedSlice"}
)


@contextmanager
def watched_gradients(note: Callable[[str], None]) -> Iterator[None]:
    """Call `note` with the reason, in words, where a gradient is asked for in this block that is None on some way
    through the branches and loops of the step, but not on all. Only this thread's count. Under the lock `patching`.
    """
    thread, gradient = threading.get_ident(), tf.GradientTape.gradient

    def noted(tape: Any, target: Any, sources: Any, *args: Any, **kwargs: Any) -> Any:
        found = gradient(tape, target, sources, *args, **kwargs)
        gives_zeros = tf.UnconnectedGradients.ZERO in map(_kind, (*args, *kwargs.values()))
        if not gives_zeros and threading.get_ident() == thread:
            targets = [one for one in tf.nest.flatten(target) if tf.is_symbolic_tensor(one)]
            pairs = zip(tf.nest.flatten(sources), tf.nest.flatten(found), strict=False)
            name = _sometimes_none(targets, [source for source, value in pairs if value is not None])
            if name is not None:
                note(
                    f"the gradient of {short(name)} is None where a branch is not taken, or a loop does not run, and "
                    "zeros once the step is traced, which momentum and weight decay tell apart; decorate it with "
                    "@tf.function if zeros are meant"
                )
        return found

    tf.GradientTape.gradient = tf.autograph.experimental.do_not_convert(noted)
    try:
        yield
    finally:
        tf.GradientTape.gradient = gradient


def _kind(argument: Any) -> Any:
    return tf.UnconnectedGradients.ZERO if argument == "zero" else argument


def _sometimes_none(targets: list[Any], sources: list[Any]) -> str | None:
    """The name of a source that is connected to the targets only by branches that may not be taken."""
    if not targets or not tf_internals.is_step_graph(targets[0].graph):
        return None
    possible = _Reach(sure=False)
    connected = possible.of(targets)
    if not possible.met_branches:
        return None
    sometimes = connected - _Reach(sure=True).of(targets)
    for source in sources:
        tensor = tf_internals.handle_of(source) if hasattr(source, "assign") else source
        if isinstance(tensor, tf.Tensor) and targets[0].graph.capture(tensor).name in sometimes:
            return str(getattr(source, "path", source.name))
    return None


class _Reach:
    """The tensors from which a gradient flows to others: by some way through branches and loops, or by each."""

    def __init__(self, *, sure: bool) -> None:
        self.sure, self.met_branches = sure, False

    def of(self, tensors: list[Any]) -> set[str]:
        """The names of those behind these, in their graph; these included."""
        found: set[str] = set()
        left = list(tensors)
        while left:
            tensor = left.pop()
            if tensor.name not in found and _may_carry(tensor.dtype):
                found.add(tensor.name)
                left += self._behind(tensor.op, tensor.value_index)
        return found

    def _behind(self, op: Any, output: int) -> list[Any]:
        branches, loop = tf_internals.branches_of(op), tf_internals.loop_of(op)
        if branches:
            self.met_branches = True
            ways = [self._inputs(graph, output) for graph in branches]
            through = set.intersection(*ways) if self.sure else set.union(*ways)
            return [op.inputs[1 + i] for i in through]
        if loop:
            self.met_branches = True
            return [op.inputs[i] for i in self._through_loop(op, *loop, output)]
        return list(op.inputs) if tf_internals.has_gradient(op) else []

    def _through_loop(self, op: Any, condition: Any, body: Any, output: int) -> set[int]:
        """The inputs of a loop that reach an output of it: after no run the same, after any number those that reach
        themselves, too.
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
        return kept if _holds(condition, op.inputs) else kept & {output}

    def _inputs(self, graph: Any, output: int) -> set[int]:
        """The inputs of a branch or body that reach an output."""
        reached = self.of([graph.outputs[output]])
        return {i for i, given in enumerate(graph.inputs) if given.name in reached}


def _may_carry(kind: tf.DType) -> bool:
    return bool(kind.is_floating or kind.is_complex or kind in (tf.resource, tf.variant))


def _holds(condition: Any, inputs: Any) -> bool:
    """Whether constants tell that a loop with these inputs runs at least once."""
    known = {given.name: taken for given, taken in zip(condition.inputs, inputs, strict=True)}
    with tf.init_scope(), tf.device("CPU:0"):
        return bool(_value(condition.outputs[0], known))


def _value(tensor: Any, known: Mapping[str, Any] = MappingProxyType({})) -> Any:
    """What a tensor of a trace is, as an eager one, where constants tell; else None. known: what is given by name."""
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
