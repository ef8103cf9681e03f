"""Cases of ops that move elements, or make them."""

from __future__ import annotations

from itertools import pairwise
from math import prod

import numpy as np

from tests.placer.splits.rules.checker import Case, Fixed
from tests.placer.splits.rules.draw import Draw, makes


def _moved(kind: str, *inputs: object, **attributes: object) -> Case:
    return Case(kind, inputs, attributes, exact=True)


@makes("Reshape")
def reshape(d: Draw, kind: str) -> Case:
    """Some primes, in groups before and in other groups after."""
    primes = [d.pick(1, 2, 2, 3) for _ in range(d.number(1, 5))]
    before, after = _grouped(d, primes), _grouped(d, primes)
    shape = [-1 if after and i == d.number(0, 3) else n for i, n in enumerate(after)]
    return _moved(kind, d.numbers(before), Fixed(np.array(shape if shape.count(-1) < 2 else after, np.int32)))


def _grouped(d: Draw, factors: list[int]) -> list[int]:
    cuts = [0, *(i for i in range(1, len(factors)) if d.flag()), len(factors)]
    return [prod(factors[a:b]) for a, b in pairwise(cuts)]


@makes("Squeeze")
def squeeze(d: Draw, kind: str) -> Case:
    shape = [n for n in d.shape(1, 3) for n in (n, 1)[: d.number(1, 2)]]
    ones = [i if d.flag() else i - len(shape) for i, n in enumerate(shape) if n == 1]
    return _moved(kind, d.numbers(shape), axis=d.pick(ones, ones[1:], []))


@makes("ExpandDims")
def expand(d: Draw, kind: str) -> Case:
    shape = d.shape()
    return _moved(kind, d.numbers(shape), Fixed(np.int32(d.number(-len(shape) - 1, len(shape)))))


@makes("Transpose")
def transpose(d: Draw, kind: str) -> Case:
    shape = d.shape(1, 4)
    return _moved(kind, d.numbers(shape), Fixed(d.random.permutation(len(shape)).astype(np.int32)))


@makes("ConcatV2")
def concat(d: Draw, kind: str) -> Case:
    shape = d.shape()
    axis = d.number(-len(shape), len(shape) - 1)
    values = []
    for _ in range(d.number(2, 3)):
        shape[axis] = d.number()
        values.append(d.numbers(shape))
    return _moved(kind, values, Fixed(np.int32(axis)))


@makes("Split")
def split(d: Draw, kind: str) -> Case:
    shape, count = d.shape(), d.number(1, 3)
    axis = d.number(-len(shape), len(shape) - 1)
    shape[axis] *= count
    return _moved(kind, Fixed(np.int32(axis)), d.numbers(shape), num_split=count)


@makes("SplitV")
def split_v(d: Draw, kind: str) -> Case:
    shape, sizes = d.shape(), [d.number() for _ in range(d.number(1, 3))]
    axis = d.number(-len(shape), len(shape) - 1)
    shape[axis] = sum(sizes)
    sizes[0] = d.pick(sizes[0], -1) if len(sizes) > 1 else sizes[0]
    inputs = [d.numbers(shape), Fixed(np.array(sizes, np.int64)), Fixed(np.int32(axis))]
    return _moved(kind, *inputs, num_split=len(sizes))


@makes("Pack")
def pack(d: Draw, kind: str) -> Case:
    shape = d.shape()
    return _moved(kind, [d.numbers(shape) for _ in range(d.number(1, 3))], axis=d.number(-len(shape) - 1, len(shape)))


@makes("Unpack")
def unpack(d: Draw, kind: str) -> Case:
    shape = d.shape()
    axis = d.number(-len(shape), len(shape) - 1)
    return _moved(kind, d.numbers(shape), num=shape[axis], axis=axis)


@makes("Slice")
def take_slice(d: Draw, kind: str) -> Case:
    shape = d.shape()
    begin = [d.pick(0, d.number(0, n - 1)) for n in shape]
    size = [d.pick(-1, n - b, d.number(1, n - b)) for n, b in zip(shape, begin, strict=True)]
    first = np.array(begin, np.int32)
    return _moved(
        kind, d.numbers(shape), first if -1 not in size and d.flag() else Fixed(first), Fixed(np.array(size, np.int32))
    )


@makes("StridedSlice", "StridedSliceGrad")
def strided_slice(d: Draw, kind: str) -> Case:
    """Each entry takes all, some, one or none of an axis, or is `...`; there may be fewer than axes."""
    shape, masks = d.shape(1, 4), dict.fromkeys(("begin", "end", "ellipsis", "new_axis", "shrink_axis"), 0)
    rows: list[tuple[int, int, int]] = []
    result, axis, skipped = [], 0, 0
    ellipsis = d.pick(None, d.number(0, len(shape)))
    taken = d.number(0, len(shape))
    entries = ["axis"] * taken + ["new"] * d.number(0, 1)
    d.random.shuffle(entries)
    if ellipsis is not None:
        entries.insert(ellipsis, "...")
        skipped = len(shape) - taken
    for entry in entries:
        bit = 1 << len(rows)
        if entry == "...":
            masks["ellipsis"] |= bit
            rows.append((0, 0, 1))
            result += shape[axis : axis + skipped]
            axis += skipped
            continue
        if entry == "new":
            masks["new_axis"] |= bit
            rows.append((0, 1, 1))
            result.append(1)
            continue
        n = shape[axis]
        axis += 1
        how = d.pick("all", "all", "masked", "some", "one", "reversed", "negative", "stride")
        if how == "one":
            masks["shrink_axis"] |= bit
            at = d.number(-n, n - 1)
            rows.append((at, at + 1, 1))
            continue
        if how == "masked":
            masks["begin"] |= bit
            masks["end"] |= bit
        begin, end, stride = {
            "all": (0, n + d.number(0, 2), 1),
            "masked": (1, 1, 1),
            "some": (0, d.number(1, n), 1),
            "reversed": (n - 1, -n - 1, -1),
            "negative": (-n, d.pick(-1, n), 1),
            "stride": (0, n, 2),
        }[how]
        rows.append((begin, end, stride))
        result.append(len(range(n)[None if how == "masked" else begin : None if how == "masked" else end : stride]))
    result += shape[axis:]
    begin, end, strides = (np.array([row[i] for row in rows], np.int32) for i in range(3))
    attributes = {f"{name}_mask": value for name, value in masks.items()}
    arguments = [Fixed(begin), Fixed(end), Fixed(strides)]
    if kind == "StridedSlice":
        return _moved(kind, d.numbers(shape), *arguments, **attributes)
    return _moved(kind, Fixed(np.array(shape, np.int32)), *arguments, d.numbers(result), **attributes)


@makes("Pad", "PadV2", "MirrorPad", "MirrorPadGrad")
def pad(d: Draw, kind: str) -> Case:
    shape = d.shape(1, 4)
    mode = d.pick("REFLECT", "SYMMETRIC")
    most = [min(2, n - (mode == "REFLECT")) if "Mirror" in kind else 2 for n in shape]
    padding = np.array([[d.pick(0, d.number(0, n)), d.pick(0, d.number(0, n))] if d.flag() else [0, 0] for n in most])
    if kind == "MirrorPadGrad":
        shape = [n + int(p.sum()) for n, p in zip(shape, padding, strict=True)]
    more = {"mode": mode} if "Mirror" in kind else {}
    value = [Fixed(np.float32(1.5))] if kind == "PadV2" else []
    return _moved(kind, d.numbers(shape), Fixed(padding.astype(np.int32)), *value, **more)


@makes("Roll")
def roll(d: Draw, kind: str) -> Case:
    shape = d.shape()
    axis = d.number(-len(shape), len(shape) - 1)
    shift, axes = (
        (np.int32(2), np.int32(axis)) if d.flag() else (np.array([1, 2], np.int32), np.array([axis, 0], np.int32))
    )
    return _moved(kind, d.numbers(shape), shift, Fixed(axes))


@makes("MatrixBandPart")
def band(d: Draw, kind: str) -> Case:
    shape = d.shape(2, 4)  # TensorFlow refuses a band beyond the matrix
    rows, columns = (np.int64(d.number(-1, min(2, n))) for n in shape[-2:])
    return _moved(kind, d.numbers(shape), rows, columns)


@makes("Tile")
def tile(d: Draw, kind: str) -> Case:
    shape = d.shape()
    return _moved(kind, d.numbers(shape), Fixed(np.array([d.pick(1, d.number(1, 3)) for _ in shape], np.int32)))


@makes("BroadcastTo")
def broadcast(d: Draw, kind: str) -> Case:
    shape = d.shape(1, 4)
    taken = [d.pick(n, n, 1) for n in shape][d.number(0, len(shape)) :]
    return _moved(kind, d.numbers(taken), Fixed(np.array(shape, np.int32)))


@makes("Fill")
def fill(d: Draw, kind: str) -> Case:
    return _moved(kind, Fixed(np.array(d.shape(), np.int32)), np.float32(3.0))


@makes("GatherV2")
def gather(d: Draw, kind: str) -> Case:
    values = d.shape(1, 4)
    batch = d.number(0, len(values) - 1)
    axis = d.number(batch, len(values) - 1)
    indices = [*values[:batch], *d.shape(0, 2)]
    named = axis if d.flag() else axis - len(values)
    counted = batch if d.flag() or batch == len(indices) else batch - len(indices)
    return _moved(
        kind,
        d.numbers(values),
        d.indices(indices, values[axis]),
        Fixed(np.int32(named)),
        batch_dims=counted if batch else 0,
    )


@makes("GatherNd")
def gather_nd(d: Draw, kind: str) -> Case:
    values, rows = d.shape(1, 4), d.shape(0, 2)
    indexed = d.number(1, len(values))
    return _moved(kind, d.numbers(values), _indices(d, rows, values[:indexed]))


def _indices(d: Draw, rows: list[int], shape: list[int]) -> np.ndarray:
    return np.stack([d.indices(rows, n) for n in shape], -1)


@makes("ScatterNd")
def scatter_nd(d: Draw, kind: str) -> Case:
    out, rows = d.shape(1, 4), d.shape(1, 2)
    indexed = d.number(1, len(out))
    updates = d.numbers([*rows, *out[indexed:]], d.pick("float32", "int32", "bool"))
    return Case(kind, [_indices(d, rows, out[:indexed]), updates, Fixed(np.array(out, np.int32))])


@makes("OneHot")
def one_hot(d: Draw, kind: str) -> Case:
    shape = d.shape()
    inputs = [d.indices(shape, 4) - 1, Fixed(np.int32(3)), np.float32(2.0), np.float32(-1.0)]
    return _moved(kind, *inputs, axis=d.number(-1, len(shape)))
