"""Rules for ops that move elements, or make them: reshape, transpose, concatenate, slice, pad, tile, gather, fill."""

from __future__ import annotations

from collections.abc import Iterator
from math import gcd
from typing import Any

import tensorflow as tf

from placer.splits.rules.way import SUM, Cut, Size, Way, Ways, axis_name, static
from placer.trace.op_counts.flops import dims


def reshape(op: Any) -> Ways:
    """Reshape: the first axes of each group of axes that is merged or divided.

    A group of n elements begins with axis i before the reshape and with axis j after it. It is cut as [g, n / g] along
    g, the greatest common divisor of the extents of i and j. So the result of [6, 2] -> [12] is cut at multiples of 2,
    and [4, 3] -> [6, 2] in the middle.
    """
    taken, out = dims(op.inputs[0]), dims(op.outputs[0])
    ways = {}
    for i, j in _majors(taken, out):
        extent = gcd(taken[i], out[j])
        before, after = taken[i] // extent, out[j] // extent
        ways[axis_name(j)] = Way((Cut(i, before), None), (Cut(j, after),), extent, (Size(1, j, after),))
    return ways


def _majors(taken: list[int], out: list[int]) -> Iterator[tuple[int, int]]:
    """Yield (first axis before, first axis after) of each smallest group of axes with equal products. Axes of extent 1
    are left out.
    """
    if 0 in taken:
        return
    a = [i for i, n in enumerate(taken) if n != 1]
    b = [j for j, n in enumerate(out) if n != 1]
    while a and b:
        i, j = a.pop(0), b.pop(0)
        yield i, j
        left, right = taken[i], out[j]
        while left != right:
            if left < right:
                left *= taken[a.pop(0)]
            else:
                right *= out[b.pop(0)]


def squeezed(op: Any) -> Ways:
    """Squeeze and ExpandDims: each axis that stays, in its new place.

    A Squeeze that names no axes removes all axes of extent 1. So each part needs two elements, or it would lose the
    axis along which it is cut.
    """
    taken, out = dims(op.inputs[0]), dims(op.outputs[0])
    least = 2 if op.type == "Squeeze" and not op.get_attr("squeeze_dims") else 1
    more = [None] * (len(op.inputs) - 1)
    places = _new_places(op, len(taken), len(out))
    return {axis_name(j): Way((Cut(i), *more), (Cut(j),), taken[i], least=least) for i, j in places.items()}


def _new_places(op: Any, rank: int, new_rank: int) -> dict[int, int]:
    """Return axis before -> axis after."""
    if op.type == "ExpandDims":
        axis = int(static(op, 1).ravel()[0]) % new_rank
        return {i: i + (i >= axis) for i in range(rank)}
    gone = {a % rank for a in op.get_attr("squeeze_dims")} or {i for i, n in enumerate(dims(op.inputs[0])) if n == 1}
    left = [i for i in range(rank) if i not in gone]
    return {i: j for j, i in enumerate(left)}


def transpose(op: Any) -> Ways:
    """Transpose: every axis, in the place to which the permutation moves it."""
    taken = dims(op.inputs[0])
    return {axis_name(j): Way((Cut(int(i)), None), (Cut(j),), taken[int(i)]) for j, i in enumerate(static(op, 1))}


def concat(op: Any) -> Ways:
    """ConcatV2: every axis except the concatenated one."""
    out = dims(op.outputs[0])
    own = int(static(op, len(op.inputs) - 1)) % len(out)
    cuts = len(op.inputs) - 1
    return {axis_name(a): Way((*[Cut(a)] * cuts, None), (Cut(a),), n) for a, n in enumerate(out) if a != own}


def split(op: Any) -> Ways:
    """Split (axis, value) and SplitV (value, sizes, axis): every axis except the split one."""
    value, axis = (1, 0) if op.type == "Split" else (0, 2)
    taken = dims(op.inputs[value])
    own = int(static(op, axis)) % len(taken)
    return {
        axis_name(a): Way(tuple(Cut(a) if i == value else None for i in range(len(op.inputs))), _all(op, a), n)
        for a, n in enumerate(taken)
        if a != own
    }


def pack(op: Any) -> Ways:
    """Pack: every axis except the new one."""
    out = dims(op.outputs[0])
    own = op.get_attr("axis") % len(out)
    return {
        axis_name(a): Way(tuple(Cut(a - (a > own)) for _ in op.inputs), (Cut(a),), n)
        for a, n in enumerate(out)
        if a != own
    }


def unpack(op: Any) -> Ways:
    """Unpack: every axis except the removed one."""
    taken = dims(op.inputs[0])
    own = op.get_attr("axis") % len(taken)
    return {axis_name(a): Way((Cut(a),), _all(op, a - (a > own)), n) for a, n in enumerate(taken) if a != own}


def take_slice(op: Any) -> Ways:
    """Slice (x, begin, size): axes that are taken completely. A size of -1 means all remaining elements."""
    taken, out, size = dims(op.inputs[0]), dims(op.outputs[0]), static(op, 2)
    return {
        axis_name(a): Way((Cut(a), None, None), (Cut(a),), n, () if size[a] < 0 else (Size(2, a),))
        for a, n in enumerate(taken)
        if out[a] == n
    }


def strided_slice(op: Any) -> Ways:
    """StridedSlice (x, begin, end, strides): axes taken completely with stride 1. An end beyond a part is clipped."""
    taken = dims(op.inputs[0])
    return {
        axis_name(j): Way((Cut(i), None, None, None), (Cut(j),), taken[i]) for i, j in _whole_axes(op, taken, 1).items()
    }


def strided_slice_gradient(op: Any) -> Ways:
    """StridedSliceGrad (shape, begin, end, strides, gradient): the same axes; the shape is that of the part."""
    out = dims(op.outputs[0])
    return {
        axis_name(i): Way((None, None, None, None, Cut(j)), (Cut(i),), out[i], (Size(0, i),))
        for i, j in _whole_axes(op, out, 1).items()
    }


def _whole_axes(op: Any, shape: list[int], first: int) -> dict[int, int]:
    """Return axis of the whole -> axis of the slice, for axes that are taken completely.

    first: the input that is begin; end and strides follow it. Bit n of each mask belongs to entry n of these inputs.
    """
    begin, end, strides = (static(op, first + i) for i in range(3))
    new, shrunk = op.get_attr("new_axis_mask"), op.get_attr("shrink_axis_mask")
    ellipsis, from_start, to_end = (op.get_attr(f"{mask}_mask") for mask in ("ellipsis", "begin", "end"))
    used = sum(not (new | ellipsis) >> n & 1 for n in range(len(begin)))
    found: dict[int, int] = {}
    i = j = 0
    for n in range(len(begin)):
        if ellipsis >> n & 1:
            skipped = len(shape) - used
            found |= {i + k: j + k for k in range(skipped)}
            i, j = i + skipped, j + skipped
        elif new >> n & 1:
            j += 1
        elif shrunk >> n & 1:
            i += 1
        else:
            is_first, is_last = from_start >> n & 1 or begin[n] == 0, to_end >> n & 1 or end[n] >= shape[i]
            if is_first and is_last and strides[n] == 1:
                found[i] = j
            i, j = i + 1, j + 1
    return found | {i + k: j + k for k in range(len(shape) - i)}


def pad(op: Any) -> Ways:
    """Pad, PadV2, MirrorPad and its gradient: axes without padding."""
    taken, padding = dims(op.inputs[0]), static(op, 1)
    more = [None] * (len(op.inputs) - 1)
    return {axis_name(a): Way((Cut(a), *more), (Cut(a),), n) for a, n in enumerate(taken) if not padding[a].any()}


def tile(op: Any) -> Ways:
    """Tile: axes that are not repeated, and axes that are made from one element."""
    taken, times = dims(op.inputs[0]), static(op, 1)
    return {
        axis_name(a): Way((Cut(a), None), (Cut(a),), n)
        if times[a] == 1
        else Way((None, None), (Cut(a),), int(times[a]), (Size(1, a),))
        for a, n in enumerate(taken)
        if times[a] == 1 or n == 1
    }


def broadcast(op: Any) -> Ways:
    """BroadcastTo: every axis. If an axis is made from one element, each part takes the whole input."""
    taken, out = dims(op.inputs[0]), dims(op.outputs[0])
    static(op, 1)
    more = len(out) - len(taken)
    return {
        axis_name(a): Way(
            (Cut(a - more) if a >= more and taken[a - more] == n else None, None), (Cut(a),), n, (Size(1, a),)
        )
        for a, n in enumerate(out)
    }


def fill(op: Any) -> Ways:
    """Fill: every axis."""
    return {axis_name(a): Way((None, None), (Cut(a),), n, (Size(0, a),)) for a, n in enumerate(dims(op.outputs[0]))}


def gather(op: Any) -> Ways:
    """GatherV2: values [batch..., before..., own, after...], indices [batch..., more...] -> [batch..., before...,
    more..., after...]: every axis except the one gathered along.
    """
    values, indices = dims(op.inputs[0]), dims(op.inputs[1])
    own, batch = int(static(op, 2)) % len(values), op.get_attr("batch_dims")
    batch += len(indices) if batch < 0 else 0
    more = len(indices) - batch
    ways = {
        axis_name(own + k): Way((None, Cut(batch + k), None), (Cut(own + k),), indices[batch + k]) for k in range(more)
    }
    for a, n in enumerate(values):
        if a != own:
            after = a if a < own else a - 1 + more
            ways[axis_name(after)] = Way((Cut(a), Cut(a) if a < batch else None, None), (Cut(after),), n)
    return ways


def gather_nd(op: Any) -> Ways:
    """GatherNd: values [indexed..., inner...], indices [rows..., indexed axes] -> [rows..., inner...]."""
    values, (*rows, indexed) = dims(op.inputs[0]), dims(op.inputs[1])
    ways = {axis_name(a): Way((None, Cut(a)), (Cut(a),), n) for a, n in enumerate(rows)}
    for a, n in list(enumerate(values))[indexed:]:
        after = a - indexed + len(rows)
        ways[axis_name(after)] = Way((Cut(a), None), (Cut(after),), n)
    return ways


def scatter_nd(op: Any) -> Ways:
    """ScatterNd: indices [rows..., indexed axes], updates [rows..., inner...], shape -> [indexed..., inner...].

    Duplicate indices add up. So the results over parts of the rows add up, too, except for bools and texts.
    """
    out, (*rows, indexed) = dims(op.outputs[0]), dims(op.inputs[0])
    may_add = op.outputs[0].dtype not in (tf.bool, tf.string)
    ways = {f"rows{a}": Way((Cut(a), Cut(a), None), (SUM,), n) for a, n in enumerate(rows) if may_add}
    for a, n in list(enumerate(out))[indexed:]:
        ways[axis_name(a)] = Way((None, Cut(a - indexed + len(rows)), None), (Cut(a),), n, (Size(2, a),))
    return ways


def roll(op: Any) -> Ways:
    """Roll (x, shift, axis): the axes that are not rolled."""
    taken = dims(op.inputs[0])
    used = {int(axis) % len(taken) for axis in static(op, 2).ravel()}
    return {axis_name(a): Way((Cut(a), None, None), (Cut(a),), n) for a, n in enumerate(taken) if a not in used}


def band(op: Any) -> Ways:
    """MatrixBandPart (x, lower, upper): all axes except the last two."""
    return {axis_name(a): Way((Cut(a), None, None), (Cut(a),), n) for a, n in enumerate(dims(op.inputs[0])[:-2])}


def one_hot(op: Any) -> Ways:
    """OneHot (indices, depth, on, off): axes of the indices."""
    indices = dims(op.inputs[0])
    own = op.get_attr("axis") % (len(indices) + 1)
    places = {i: i + (i >= own) for i in range(len(indices))}
    return {axis_name(j): Way((Cut(i), None, None, None), (Cut(j),), indices[i]) for i, j in places.items()}


def _all(op: Any, axis: int) -> tuple[Cut, ...]:
    return tuple(Cut(axis) for _ in op.outputs)
