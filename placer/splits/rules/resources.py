"""Rules for variables: a divided variable is one variable per part, and every op on its handle is divided with it."""

from __future__ import annotations

from typing import Any

import tensorflow as tf

from placer.splits.rules.way import Cut, Way, Ways, axis_name
from placer.trace.op_counts.flops import dims

# fmt: off
UPDATES = [
    "AssignVariableOp", "AssignAddVariableOp", "AssignSubVariableOp", "ResourceApplyGradientDescent",
    "ResourceApplyMomentum", "ResourceApplyKerasMomentum", "ResourceApplyAdam", "ResourceApplyAdamWithAmsgrad",
    "ResourceApplyAdaMax", "ResourceApplyAdagrad", "ResourceApplyAdagradV2", "ResourceApplyAdadelta",
    "ResourceApplyRMSProp", "ResourceApplyCenteredRMSProp", "ResourceApplyFtrl", "ResourceApplyFtrlV2",
    "ResourceApplyProximalGradientDescent", "ResourceApplyProximalAdagrad", "ResourceApplyAddSign",
    "ResourceApplyPowerSign",
]
"""Each element of the variable is updated from the same elements of the other tensors."""
SPARSE_UPDATES = [
    "ResourceSparseApplyMomentum", "ResourceSparseApplyKerasMomentum", "ResourceSparseApplyAdagrad",
    "ResourceSparseApplyAdagradV2", "ResourceSparseApplyAdadelta", "ResourceSparseApplyRMSProp",
    "ResourceSparseApplyCenteredRMSProp", "ResourceSparseApplyFtrl", "ResourceSparseApplyFtrlV2",
    "ResourceSparseApplyProximalGradientDescent", "ResourceSparseApplyProximalAdagrad",
]
"""Rows of the variable, named by indices, are updated element by element."""
SCATTERS = [f"ResourceScatter{what}" for what in ("Add", "Sub", "Update", "Mul", "Div", "Max", "Min")]
# fmt: on
ON_VARIABLES = frozenset({"ReadVariableOp", "ResourceGather", *UPDATES, *SPARSE_UPDATES, *SCATTERS})
"""Ops whose only state is that of the variables whose handles they take."""


def variable(op: Any) -> Ways:
    """VarHandleOp: every axis of the variable."""
    return {axis_name(a): Way((), (Cut(a),), n) for a, n in enumerate(_variable_shape(op.outputs[0]))}


def read(op: Any) -> Ways:
    """ReadVariableOp: every axis of the variable."""
    return {axis_name(a): Way((Cut(a),), (Cut(a),), n) for a, n in enumerate(_variable_shape(op.inputs[0]))}


def update(op: Any) -> Ways:
    """Ops that update element by element: handles and tensors of the variable's shape are cut, scalars are whole."""
    shapes = [_variable_shape(t) if t.dtype == tf.resource else dims(t) for t in op.inputs]
    shape = shapes[0]
    if any(one not in (shape, []) for one in shapes):
        return {}
    return {axis_name(a): Way(tuple(Cut(a) if one else None for one in shapes), (), n) for a, n in enumerate(shape)}


def sparse_update(op: Any) -> Ways:
    """Ops that update rows: handles [rows, inner...], scalars, gradient [n, inner...], indices [n]: the inner axes."""
    shapes = [_variable_shape(t) if t.dtype == tf.resource else dims(t) for t in op.inputs]
    shape = shapes[0]
    return {
        axis_name(a): Way(tuple(Cut(a) if len(one) == len(shape) else None for one in shapes), (), n)
        for a, n in list(enumerate(shape))[1:]
        if all(one == [] or len(one) == 1 or one[1:] == shape[1:] for one in shapes)
    }


def gather(op: Any) -> Ways:
    """ResourceGather: variable [rows, inner...], indices -> [indices..., inner...]: every axis of the output."""
    if op.get_attr("batch_dims"):
        return {}
    shape, indices = _variable_shape(op.inputs[0]), dims(op.inputs[1])
    ways = {axis_name(a): Way((None, Cut(a)), (Cut(a),), n) for a, n in enumerate(indices)}
    for a, n in list(enumerate(shape))[1:]:
        after = a - 1 + len(indices)
        ways[axis_name(after)] = Way((Cut(a), None), (Cut(after),), n)
    return ways


def scatter(op: Any) -> Ways:
    """ResourceScatterAdd and others: variable [rows, inner...], indices, updates [indices..., inner...] or one number
    for all: the inner axes.
    """
    shape, indices, updates = _variable_shape(op.inputs[0]), dims(op.inputs[1]), dims(op.inputs[2])
    return {
        axis_name(a): Way((Cut(a), None, Cut(a - 1 + len(indices)) if updates else None), (), n)
        for a, n in list(enumerate(shape))[1:]
    }


def _variable_shape(handle: Any) -> list[int]:
    """Return the shape of the variable behind a handle. Raises ValueError if it is unknown."""
    if handle.op.type != "VarHandleOp":
        raise ValueError("not a variable of the step")
    found = [int(d.size) for d in handle.op.get_attr("shape").dim]
    if any(n < 0 for n in found):
        raise ValueError("unknown dimension")
    return found
