"""Cases of ops on variables."""

from __future__ import annotations

import inspect

import numpy as np
import tensorflow as tf

from placer.splits.rules.resources import SCATTERS, SPARSE_UPDATES, UPDATES
from tests.placer.splits.rules.checker import Case, Stored
from tests.placer.splits.rules.draw import Draw, makes

SLOTS = {"var", "m", "v", "vhat", "accum", "accum_update", "linear", "ms", "mg", "mom"}
GRADIENTS = {"grad", "delta"}


@makes("VarHandleOp", "ReadVariableOp")
def read(d: Draw, kind: str) -> Case:
    """A handle is divided with what reads it."""
    value = d.numbers(d.shape(), d.pick("float32", "int64", "bool"))
    return Case("ReadVariableOp", [Stored(value)], {"dtype": value.dtype}, exact=True)


@makes(*[kind for kind in UPDATES if "Apply" not in kind])
def assign(d: Draw, kind: str) -> Case:
    shape, dtype = d.shape(), d.pick("float32", "int64")
    return Case(kind, [Stored(d.numbers(shape, dtype)), d.numbers(shape, dtype)], exact=True)


@makes(*[kind for kind in UPDATES if "Apply" in kind])
def apply(d: Draw, kind: str) -> Case:
    """Slots are above 0, because some are roots' arguments, and other numbers are shares."""
    return _update(d, kind, d.shape(d.pick(1, 1, 0), 3), None)


@makes(*SPARSE_UPDATES)
def sparse_apply(d: Draw, kind: str) -> Case:
    shape = d.shape(d.pick(2, 2, 1), 3)
    rows = d.number(1, shape[0])
    return _update(d, kind, shape, d.random.permutation(shape[0])[:rows].astype(np.int32))


def _update(d: Draw, kind: str, shape: list[int], rows: np.ndarray | None) -> Case:
    inputs: list[object] = []
    for name, parameter in inspect.signature(getattr(tf.raw_ops, kind)).parameters.items():
        if parameter.default is not inspect.Parameter.empty:
            break
        if name in SLOTS:
            inputs.append(Stored(np.abs(d.numbers(shape)) + 0.5))
        elif name in GRADIENTS:
            inputs.append(d.numbers(shape if rows is None else [len(rows), *shape[1:]]))
        elif name == "indices":
            inputs.append(rows)
        else:
            inputs.append(np.float32(-0.5 if name == "lr_power" else d.pick(0.1, 0.5)))
    flags = [
        f for f in ("use_nesterov", "update_slots") if f in inspect.signature(getattr(tf.raw_ops, kind)).parameters
    ]
    return Case(kind, inputs, {flag: d.flag() for flag in flags})


@makes("ResourceGather")
def gather(d: Draw, kind: str) -> Case:
    shape = d.shape()
    return Case(kind, [Stored(d.numbers(shape)), d.indices(d.shape(0, 2), shape[0])], {"dtype": np.float32}, exact=True)


@makes(*SCATTERS)
def scatter(d: Draw, kind: str) -> Case:
    """Duplicate indices accumulate; which of them an Update leaves is not said, so it has none."""
    shape = d.shape(1, 3)
    rows = d.shape(0, 2)
    indices = d.indices(rows, shape[0])
    if kind == "ResourceScatterUpdate":
        indices = d.random.permutation(shape[0])[: d.number(1, shape[0])].astype(np.int32)
    updates = np.abs(d.numbers([] if d.flag() else [*indices.shape, *shape[1:]])) + 0.5
    return Case(kind, [Stored(d.numbers(shape)), indices, np.asarray(updates, np.float32)])
