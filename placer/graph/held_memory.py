"""Estimates what a step holds in memory while its ops run one after another; needs no costs and no clock."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import lru_cache
from typing import NamedTuple

import numpy as np

from placer.graph.defaults import HEADROOM
from placer.graph.op_graph import Op, OpGraph
from placer.graph.topology import Topology
from placer.number_format import mib

SHARING = ("ReadVariableOp",)  # on the variable's device, TensorFlow hands out the variable's buffer without a copy


class Lack(NamedTuple):
    """A device that would hold more bytes at once than it may."""

    device: str
    peak_bytes: float
    limit_bytes: float

    @property
    def missing_bytes(self) -> float:
        return self.peak_bytes - self.limit_bytes

    def __str__(self) -> str:
        return (
            f"{self.device} would hold {mib(self.peak_bytes)} at once and may hold {mib(self.limit_bytes)}, "
            f"{mib(self.missing_bytes)} too few"
        )


def own_bytes(op: Op, tensor_bytes: float) -> float:
    """The bytes that a tensor made by `op` takes on the op's own device, in addition to what is held there anyway."""
    return 0.0 if op.type in SHARING else tensor_bytes


def most_bytes(graph: OpGraph) -> float:
    """The bytes of every variable and every tensor of a step: no device ever holds more at once."""
    return float(sum(op.memory_bytes for op in graph.ops) + sum(graph.tensor_bytes.values()))


def may_lack_memory(graph: OpGraph, topology: Topology, headroom: float) -> bool:
    """Whether some device could not hold all variables of a step. headroom: the share of its memory that stays free."""
    return sum(op.memory_bytes for op in graph.ops) > topology.least_memory_bytes * (1 - headroom)


def peaks_in_order(graph: OpGraph, devices: Sequence[int], count: int) -> tuple[float, ...]:
    """The most bytes that each of `count` devices holds at once if ops run in `graph.order`, op i on devices[i].

    A tensor is held on the device where it was made, and on each device where it is used, from its making until its
    last consumer on that device has run.
    """
    held = np.zeros((count, len(graph) + 1))
    for stay in _stays(graph, devices):
        held[stay.device, stay.first] += stay.held_bytes
        held[stay.device, stay.last + 1] -= stay.held_bytes
    peaks = held.cumsum(axis=1).max(axis=1)
    np.add.at(peaks, list(devices), [op.memory_bytes for op in graph.ops])
    return tuple(peaks.tolist())


def worst_lack(topology: Topology, peaks_bytes: Sequence[float], headroom: float = 0.0) -> Lack | None:
    """The device whose peak exceeds its memory most; None if no peak does. headroom: the share of each device's memory
    that stays free.
    """
    lacks = (
        Lack(device.name, peak, device.memory_bytes * (1 - headroom))
        for device, peak in zip(topology.devices, peaks_bytes, strict=True)
        if device.memory_bytes is not None and peak > device.memory_bytes * (1 - headroom)
    )
    return max(lacks, key=lambda lack: lack.missing_bytes, default=None)


def lack_in_order(graph: OpGraph, topology: Topology, devices: Sequence[int]) -> Lack | None:
    """The worst lack of memory if ops run in `graph.order`, op i on devices[i]; None if memory is enough."""
    if most_bytes(graph) <= topology.least_memory_bytes:
        return None
    return worst_lack(topology, peaks_in_order(graph, devices, len(topology)))


def has_room_for_trials(graph: OpGraph, topology: Topology) -> bool:
    """Whether each device could hold the variables of a step three times (the program's, replicas that train, and those
    of trials) and all its tensors twice, so that trials during a training need not save memory.
    """
    held = sum(op.memory_bytes for op in graph.ops)
    return 2 * most_bytes(graph) + held <= topology.least_memory_bytes


def is_tight(graph: OpGraph, topology: Topology) -> bool:
    """Whether some device might be too small for the whole step, so that the order of its ops matters for memory. An
    order that leaves updates to the end holds all gradients in addition to what `graph.order` holds, about as many
    bytes as there are variables. HEADROOM of each device counts as taken, because searches leave it free. False if the
    topology's limits do not count tensors.
    """
    if not topology.counts_tensors:
        return False
    least_bytes = (1 - HEADROOM) * topology.least_memory_bytes
    if most_bytes(graph) <= least_bytes:
        return False
    return _whole_peak_bytes(graph) + sum(op.memory_bytes for op in graph.ops) > least_bytes


@lru_cache(maxsize=8)
def _whole_peak_bytes(graph: OpGraph) -> float:
    return peaks_in_order(graph, [0] * len(graph), 1)[0]


def fullest_bytes(graph: OpGraph) -> tuple[float, ...]:
    """For each op, the bytes of its tensors that are held when one device, which runs all ops in `graph.order`, holds
    the most tensor bytes.
    """
    stays = list(_stays(graph, [0] * len(graph)))
    held = np.zeros(len(graph) + 1)
    for stay in stays:
        held[stay.first] += stay.held_bytes
        held[stay.last + 1] -= stay.held_bytes
    fullest = int(held.cumsum().argmax())
    found = [0.0] * len(graph)
    for stay in stays:
        if stay.first <= fullest <= stay.last:
            found[stay.op] += stay.held_bytes
    return tuple(found)


class _Stay(NamedTuple):
    """A tensor of op `op` is held on `device` from position `first` of the graph's order to `last`, both included."""

    op: int
    device: int
    held_bytes: float
    first: int
    last: int


def _stays(graph: OpGraph, devices: Sequence[int]) -> Iterator[_Stay]:
    place = {v: i for i, v in enumerate(graph.order)}
    last: dict[tuple[int, int, int], int] = {}
    for e in graph.edges:
        last.setdefault((e.src, e.output_index, devices[e.src]), place[e.src])
        there = e.src, e.output_index, devices[e.dst]
        last[there] = max(last.get(there, 0), place[e.dst])
    for (src, output, device), until in last.items():
        size = float(graph.tensor_bytes[src, output])
        held_bytes = own_bytes(graph.ops[src], size) if device == devices[src] else size
        yield _Stay(src, device, held_bytes, place[src], until)
