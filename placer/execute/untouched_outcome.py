"""Runs the untouched step on variables of its own in this process. Placed steps are compared with its outcome."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from typing import Any

import numpy as np
import tensorflow as tf

from placer import tf_internals
from placer.execute.agreement import Array, Outcome, eps_of, may_round
from placer.execute.outputs import returned
from placer.trace.capture import Captured
from placer.trace.graph_def.as_function import as_function
from placer.trace.graph_def.node_def import rename_functions

_serial = itertools.count()


Unpack = Callable[[Sequence[Any]], AbstractContextManager[Sequence[Any]]]
"""A batch -> the flat inputs that were traced, which are good until the block ends."""
unpacked: Unpack = nullcontext


def untouched_outcome(
    captured: Captured,
    start: Mapping[str, Any],
    batches: Sequence[Sequence[Any]],
    unpack: Unpack = unpacked,
) -> Outcome:
    """The outcome of the untouched step on flat `batches`, one after another, from `start`. The user's variables are
    not touched. The step draws the random numbers that a placed step draws first.

    start: node name of each variable -> its value. unpack: for a step that was captured to take a batch in place of an
    iterator.
    """
    variables = own_variables(captured, start)
    before = {name: tf_internals.variables.array_of(variable) for name, variable in variables.items()}
    run = _untouched(captured, captures(captured, variables))
    steps = []
    for batch in batches:
        with unpack(batch) as inputs:
            steps.append(returned(run(inputs)))
    return Outcome(
        steps, before, {name: tf_internals.variables.array_of(variable) for name, variable in variables.items()}
    )


def own_variables(captured: Captured, start: Mapping[str, Any]) -> dict[str, tf.Variable]:
    """Node name -> new variable with its value of `start`, on the device of the user's variable."""
    found = {}
    for name, value in start.items():
        user = captured.variables[name]
        with tf.device(tf_internals.variables.handle_of(user).device):  # `user.device` would be reported as a use
            found[name] = tf.Variable(value, trainable=False, dtype=user.dtype, shape=user.shape)
    return found


def captures(captured: Captured, variables: Mapping[str, tf.Variable]) -> list[Any]:
    """The tensors that the traced function captured, with the handles of these variables in place of the user's."""
    return [
        tf_internals.variables.handle_of(variables[name]) if name in variables else tensor
        for name, tensor in captured.traced.captures.items()
    ]


def perturbed(start: Mapping[str, Any]) -> dict[str, Array]:
    """`start` with each float moved by one rounding error, up or down, to see what such an error grows to."""
    rng = np.random.default_rng(0)
    return {name: _perturbed(np.asarray(value), rng) for name, value in start.items()}


def _perturbed(value: Array, rng: np.random.Generator) -> Array:
    if not may_round(value):
        return value
    errors = eps_of(value) * (rng.integers(0, 2, value.shape, np.int8) * 2 - 1)
    return np.asarray(value + value * errors.astype(value.dtype), value.dtype)


def _untouched(captured: Captured, handles: Sequence[Any]) -> Callable[[Sequence[Any]], Any]:
    if captured.traced.seeded is None:
        return lambda inputs: captured.traced.call(inputs, handles)
    function = _seeded_function(captured)
    return lambda inputs: function(*captured.traced.ordered(inputs), *handles)


def _seeded_function(captured: Captured) -> Any:
    """The traced graph with known seeds, as a function of inputs and captures. A new one draws from the beginning."""
    traced = captured.traced
    graph_def = _renamed_functions(traced.seeded)
    types = {node.name: tf.as_dtype(node.attr["dtype"].type) for node in graph_def.node if node.op == "Placeholder"}
    arguments = {name: types[name] for name in (*traced.inputs, *traced.captures)}
    return as_function(graph_def, arguments, traced.outputs, traced.writes)


def _renamed_functions(graph_def: Any) -> Any:
    """A copy whose functions have new names. TensorFlow keeps the first definition of a name, so a new function under
    an old name would continue the random streams of the first.
    """
    renamed = type(graph_def)()
    renamed.CopyFrom(graph_def)
    made = next(_serial)
    rename_functions(
        renamed, {f.signature.name: f"{f.signature.name}_reference_{made}" for f in renamed.library.function}
    )
    return renamed
