"""Rules for reductions, softmax, losses, and sums over segments."""

from __future__ import annotations

from typing import Any

from placer.splits.rules.linear import ROWS
from placer.splits.rules.way import BATCH, SUM, Cut, Joined, Way, Ways, axis_name, input_dims, static
from placer.trace.op_counts.flops import dims

COMBINED = {"Sum": SUM, "Mean": Joined("sum", mean=True), "Max": Joined("max"), "Min": Joined("min")}
"""How results over parts of a reduced axis are combined."""
SEGMENTS = {"UnsortedSegmentSum": SUM, "UnsortedSegmentMax": Joined("max"), "UnsortedSegmentMin": Joined("min")}


def reduction(op: Any) -> Ways:
    """x, axes -> x without these axes, or with extents of 1 there. Ways are named by the axes of x.

    A kept axis is cut. Parts of a reduced axis are combined as in `COMBINED`. Means of whole numbers are rounded, so
    means over parts cannot be combined.
    """
    taken, reduced = dims(op.inputs[0]), axes(op)
    kept = [axis for axis in range(len(taken)) if axis not in reduced]
    keeps = op.type not in ("ArgMax", "ArgMin") and op.get_attr("keep_dims")
    ways = {
        axis_name(axis): Way((Cut(axis), None), (Cut(axis if keeps else kept.index(axis)),), taken[axis])
        for axis in kept
    }
    if op.type in COMBINED and not (op.type == "Mean" and op.inputs[0].dtype.is_integer):
        ways |= {axis_name(a): Way((Cut(a), None), (COMBINED[op.type],), taken[a]) for a in sorted(reduced)}
    return ways


def along(op: Any) -> Ways:
    """Ops that work along some axes and keep the shape (x, axes -> x): the other axes."""
    taken, used = dims(op.inputs[0]), axes(op)
    return {axis_name(a): Way((Cut(a), None), (Cut(a),), n) for a, n in enumerate(taken) if a not in used}


def softmax(op: Any) -> Ways:
    """Softmax and LogSoftmax: all axes except the last."""
    return {axis_name(a): Way((Cut(a),), (Cut(a),), n) for a, n in enumerate(dims(op.inputs[0])[:-1])}


def sparse_cross_entropy(op: Any) -> Ways:
    """logits [rows, classes] and labels [rows] -> losses [rows], gradients [rows, classes]."""
    return {BATCH: Way((Cut(0), Cut(0)), (Cut(0), Cut(0)), dims(op.inputs[0])[0])}


def cross_entropy(op: Any) -> Ways:
    """logits and labels [rows, classes] -> losses [rows], gradients [rows, classes]; one input may be broadcast."""
    rows = dims(op.outputs[0])[0]
    inputs = tuple(Cut(0) if len(shape) == 2 and shape[0] == rows else None for shape in input_dims(op))
    return {BATCH: Way(inputs, (Cut(0), Cut(0)), rows)} if any(inputs) else {}


def l2_loss(op: Any) -> Ways:
    """L2Loss (half the sum of squares): every axis, with the parts added up."""
    return {axis_name(a): Way((Cut(a),), (SUM,), n) for a, n in enumerate(dims(op.inputs[0]))}


def segments(op: Any) -> Ways:
    """UnsortedSegmentSum and others: data [rows..., inner...], ids [rows...], n -> [n, inner...].

    An empty segment has the neutral value of the combination of parts.
    """
    data, ids = dims(op.inputs[0]), dims(op.inputs[1])
    ways = {}
    if op.type in SEGMENTS:
        ways = {f"{ROWS}{a}": Way((Cut(a), Cut(a), None), (SEGMENTS[op.type],), n) for a, n in enumerate(ids)}
    for a, n in list(enumerate(data))[len(ids) :]:
        after = a - len(ids) + 1
        ways[axis_name(after)] = Way((Cut(a), None, None), (Cut(after),), n)
    return ways


def top_k(op: Any) -> Ways:
    """TopKV2: x [rows..., n], k -> values and indices [rows..., k]."""
    out = dims(op.outputs[0])
    return {axis_name(a): Way((Cut(a), None), (Cut(a), Cut(a)), n) for a, n in enumerate(out[:-1])}


def in_top_k(op: Any) -> Ways:
    """InTopKV2: predictions [rows, classes], targets [rows], k -> [rows]."""
    return {BATCH: Way((Cut(0), Cut(0), None), (Cut(0),), dims(op.outputs[0])[0])}


def axes(op: Any) -> set[int]:
    """Return the axes that data input 1 names. Raises ValueError if they are unknown."""
    rank = len(dims(op.inputs[0]))
    return {int(axis) % rank for axis in static(op, 1).ravel()} if rank else set()
