"""Rules for matrix products and biases."""

from __future__ import annotations

from typing import Any

from placer.splits.rules.way import SUM, Cut, Way, Ways, axis_name, channel_axis, input_dims
from placer.trace.op_counts.flops import dims

ROWS, COLUMNS, INNER = "rows", "columns", "inner"


def matmul(op: Any) -> Ways:
    """[rows, inner] x [inner, columns] -> [rows, columns]; both inputs may be given transposed."""
    a, b = int(op.get_attr("transpose_a")), int(op.get_attr("transpose_b"))
    x, (rows, columns) = dims(op.inputs[0]), dims(op.outputs[0])
    return {
        ROWS: Way((Cut(a), None), (Cut(0),), rows),
        COLUMNS: Way((None, Cut(1 - b)), (Cut(1),), columns),
        INNER: Way((Cut(1 - a), Cut(b)), (SUM,), x[1 - a]),
    }


def batch_matmul(op: Any) -> Ways:
    """[batch..., rows, inner] x [batch..., inner, columns]; both may be given adjoint, and batches are broadcast.

    A batch axis is divided only if both inputs have the same batch, or if one has a single batch axis and the other
    none. Other cuts could lead to one input with the batch [n, 1] and the other with [1], for which oneDNN's kernel in
    TensorFlow 2.21 corrupts memory.
    """
    a, b = int(op.get_attr("adj_x")), int(op.get_attr("adj_y"))
    x, y, out = dims(op.inputs[0]), dims(op.inputs[1]), dims(op.outputs[0])
    last, m, n = len(out) - 2, len(x) - 2, len(y) - 2
    ways = {
        ROWS: Way((Cut(m + a), None), (Cut(last),), out[last]),
        COLUMNS: Way((None, Cut(n + 1 - b)), (Cut(last + 1),), out[last + 1]),
        INNER: Way((Cut(m + 1 - a), Cut(n + b)), (SUM,), x[m + 1 - a]),
    }
    if x[:-2] == y[:-2]:
        ways |= {axis_name(i): Way((Cut(i), Cut(i)), (Cut(i),), out[i]) for i in range(last)}
    elif sorted((m, n)) == [0, 1]:
        ways[axis_name(0)] = Way((Cut(0) if m else None, Cut(0) if n else None), (Cut(0),), out[0])
    return ways


def einsum(op: Any) -> Ways:
    """Einsum: every label. A label of the output is cut there; another label is summed over.

    An equation with `...`, or in which a tensor repeats a label, is not divided.
    """
    taken, _, left = op.get_attr("equation").decode().replace(" ", "").partition("->")
    labels, shapes = taken.split(","), input_dims(op)
    if "." in taken + left or any(len(set(one)) < len(one) for one in (*labels, left)):
        return {}
    extents = {label: n for one, shape in zip(labels, shapes, strict=True) for label, n in zip(one, shape, strict=True)}
    return {
        label: Way(
            tuple(Cut(one.index(label)) if label in one else None for one in labels),
            (Cut(left.index(label)) if label in left else SUM,),
            extent,
        )
        for label, extent in extents.items()
    }


def bias_add(op: Any) -> Ways:
    """BiasAdd: every axis. Parts along the channel axis take their part of the bias, other parts the whole bias."""
    out = dims(op.outputs[0])
    channel = channel_axis(op, len(out))
    return {axis_name(i): Way((Cut(i), Cut(0) if i == channel else None), (Cut(i),), n) for i, n in enumerate(out)}


def bias_add_grad(op: Any) -> Ways:
    """BiasAddGrad: every axis. The channel axis is kept; parts along other axes are added up."""
    taken = dims(op.inputs[0])
    channel = channel_axis(op, len(taken))
    return {axis_name(i): Way((Cut(i),), (Cut(0) if i == channel else SUM,), extent) for i, extent in enumerate(taken)}
