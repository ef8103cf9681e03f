"""Which operators come from one op: the same op at other batch sizes, and the probes that the profile rescaled from it.

To leave out one of them and fit the others would tell less of unseen shapes than it seems.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from placer.profile.operators.dataset import Operator, OperatorRow

Dims = NDArray[np.int64]
OF_BATCHES = (0.5, 2.0)  # the factors of batches in placer/profile/operators/shapes.py
OF_CHANNELS = (0.75, 1.5)  # and of channels
OF_CONTEXT = ("fused_ops", "absorbed")  # attributes that an op has in its step, and a probe of it has not
UNKNOWN = -1


class _Sizes(NamedTuple):
    """Operators of one type that differ in lengths only. dims: [operators, axes]. leading: [axes], whether a batch may
    be along the axis. batches: [operators], 0 if unknown or if the operator does not depend on it. networks, profiles:
    [operators], the number of the network, and of the network at the batch, in which it was measured. probes:
    [operators], whether it may be a probe, because no step has it.
    """

    names: list[str]
    dims: Dims
    leading: NDArray[np.bool_]
    batches: Dims
    networks: Dims
    profiles: Dims
    probes: NDArray[np.bool_]


def bases_of(rows: Sequence[OperatorRow]) -> list[str]:
    """Return a name for the op that each row's operator comes from, [rows]: the least signature of all that come from
    it.

    Two operators of one network whose leading lengths, and no others, differ by the ratio of their batches are one op
    at two batches, unless the network has them at several batches, as it has those of weights. An operator that no
    step has, and whose lengths are those of another operator in the same profile, except that some are multiplied by
    one of the factors of probes, was rescaled from the other; if it may come from several, from the first, because all
    would else be one op.
    """
    found, rescaled = _Sets(), set[str]()
    for sizes in _alike(rows):
        for one, other in _batch_pairs(sizes):
            found.join(sizes.names[one], sizes.names[other])
        for one, probe in _probe_pairs(sizes):
            if sizes.names[probe] not in rescaled:
                rescaled.add(sizes.names[probe])
                found.join(sizes.names[one], sizes.names[probe])
    return [found.of(row.operator.signature) for row in rows]


class _Sets:
    """Sets of signatures that are joined; the least signature of a set is its name."""

    def __init__(self) -> None:
        self.above: dict[str, str] = {}

    def of(self, name: str) -> str:
        while name in self.above:
            name = self.above[name]
        return name

    def join(self, one: str, other: str) -> None:
        low, high = sorted((self.of(one), self.of(other)))
        if low != high:
            self.above[high] = low


def _alike(rows: Sequence[OperatorRow]) -> list[_Sizes]:
    """Return the operators in sets that differ in lengths only."""
    of_steps = [row for row in rows if row.source == "step" or _has_context(row.operator)]
    in_step = {row.operator.signature for row in of_steps}
    seen = {(row.network, row.batch, row.operator.signature) for row in of_steps}
    at_batches = Counter((network, signature) for network, _, signature in seen)
    sets: dict[str, dict[tuple[Any, ...], OperatorRow]] = {}
    for row in rows:
        key = (row.network, row.batch, row.operator.signature)
        sets.setdefault(_but_lengths(row.operator), {})[key] = row
    found = []
    for unsorted in sets.values():  # sorted, so that what a probe joins does not depend on the order of the rows
        members = dict(sorted(unsorted.items(), key=lambda item: (item[0][2], str(item[0]))))
        of_network, of_profile = ({n: i for i, n in enumerate(dict.fromkeys(k[:m] for k in members))} for m in (1, 2))
        lengths = [_lengths(row.operator) for row in members.values()]
        found.append(
            _Sizes(
                [key[2] for key in members],
                np.array([dims for dims, _ in lengths], np.int64).reshape(len(lengths), -1),
                np.array(lengths[0][1], bool),
                np.array([0 if at_batches[n, name] > 1 else batch or 0 for n, batch, name in members], np.int64),
                np.array([of_network[key[:1]] for key in members], np.int64),
                np.array([of_profile[key[:2]] for key in members], np.int64),
                np.array([key[2] not in in_step for key in members], bool),
            )
        )
    return found


def _batch_pairs(sizes: _Sizes) -> Iterator[tuple[int, int]]:
    """Yield (an operator, it at another batch), by their numbers."""
    for near in _sets_of(np.column_stack([sizes.networks, sizes.dims[:, ~sizes.leading]])):
        for i in near.tolist():
            yield from ((i, j) for j in near[_at_another_batch(sizes, i, near)].tolist())


def _probe_pairs(sizes: _Sizes) -> Iterator[tuple[int, int]]:
    """Yield (an operator, one that may be rescaled from it), by their numbers; operators that a step has come first."""
    for near in _sets_of(sizes.profiles[:, None]):
        probes = near[sizes.probes[near]]
        for i in [*near[~sizes.probes[near]].tolist(), *probes.tolist()]:
            yield from ((i, j) for j in probes[_rescaled(sizes, i, probes)].tolist() if j != i)


def _sets_of(keys: Dims) -> list[NDArray[np.intp]]:
    """Return the numbers of equal rows of `keys`, [rows, numbers], set by set."""
    _, of, counts = np.unique(keys, axis=0, return_inverse=True, return_counts=True)
    order = np.argsort(of.reshape(-1), kind="stable")
    return [np.asarray(some, np.intp) for some in np.split(order, np.cumsum(counts)[:-1])]


def _at_another_batch(sizes: _Sizes, i: int, near: NDArray[np.intp]) -> NDArray[np.bool_]:
    own, batch = sizes.dims[i], sizes.batches[i]
    dims, batches = sizes.dims[near], sizes.batches[near]
    known = (batches > 0) & (batch > 0)
    found: NDArray[np.bool_] = known & ((dims == own) | (dims * batch == own * batches[:, None])).all(axis=1)
    return found


def _rescaled(sizes: _Sizes, i: int, probes: NDArray[np.intp]) -> NDArray[np.bool_]:
    own, dims = sizes.dims[i], sizes.dims[probes]
    found = np.zeros(len(probes), bool)
    for factor in (*OF_BATCHES, *OF_CHANNELS):
        scaled = (dims == _scaled(own, factor)) & (sizes.leading | (factor in OF_CHANNELS))
        found |= ((dims == own) | scaled).all(axis=1)
    return found


def _scaled(own: Dims, factor: float) -> Dims:
    found: Dims = np.where(own > 0, np.maximum(np.rint(own * factor), 1), own).astype(np.int64)
    return found


def _has_context(op: Operator) -> bool:
    return any(name in op.attributes for name in OF_CONTEXT)


def _but_lengths(op: Operator) -> str:
    """Return what two operators share that differ in lengths only."""
    tensors = [(t.dtype, None if t.shape is None else len(t.shape)) for t in (*op.inputs, *op.outputs)]
    kept = {name: value for name, value in op.attributes.items() if name not in OF_CONTEXT}
    plain = {name: len(value) if _is_sizes(name, value) else value for name, value in kept.items()}
    return repr((op.type, len(op.inputs), tensors, sorted(plain.items(), key=lambda item: item[0])))


def _lengths(op: Operator) -> tuple[list[int], list[bool]]:
    """Return all lengths of an operator's tensors and shape constants, and whether a batch may be along each: along the
    first axis, and along any axis of a matrix, which may be turned.
    """
    shapes = [list(t.shape or ()) for t in (*op.inputs, *op.outputs)]
    shapes += [list(value) for name, value in sorted(op.attributes.items()) if _is_sizes(name, value)]
    is_product = "MatMul" in op.type
    dims = [UNKNOWN if dim is None else int(dim) for shape in shapes for dim in shape]
    return dims, [i == 0 or (is_product and len(shape) == 2) for shape in shapes for i in range(len(shape))]


def _is_sizes(name: str, value: Any) -> bool:
    return name.startswith("input") and isinstance(value, list) and all(isinstance(v, int) for v in value)
