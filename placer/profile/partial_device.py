"""Profiling a device that cannot run the whole step: what runs elsewhere meanwhile, and estimates of its cost here."""

from __future__ import annotations

import math
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import replace
from statistics import median

from placer.graph.coarsen import coarsen
from placer.graph.defaults import GROUPS
from placer.graph.held_memory import Lack, lack_in_order
from placer.graph.op_graph import Op, OpGraph
from placer.graph.topology import Device, Topology

SHARES = (0.5, 0.25, 0.1, 0.0)  # of a device's memory that variables may take, in the order tried
Times = Mapping[str, Mapping[str, float]]
"""Op name -> device name -> measured seconds."""


def attempts(graph: OpGraph, topology: Topology, device: int) -> Iterator[tuple[int, ...]]:
    """Assignments (device of each op) for profiling `device`: as much on it as it can run and hold, then less and less.

    Ops without a kernel on it run elsewhere, each colocated unit as a whole. If memory is not enough, the largest
    variables move, with what is expensive to cut from them (the units of placer.graph.coarsen). Assignments that a
    device would not hold, as estimated, are left out, because they may end a process without an error; a GPU tries them
    if nothing else is left.
    """
    found = False
    for one in _candidates(graph, topology, device):
        if len(topology) == 1 or lack_in_order(graph, topology, one) is None:
            found = True
            yield one
    if not found and topology.devices[device].kind != "cpu":
        yield from _candidates(graph, topology, device)


def nearest_lack(graph: OpGraph, topology: Topology, device: int) -> Lack | None:
    """The smallest lack of memory among the assignments that `attempts` leaves out; None if there are none."""
    lacks = (lack_in_order(graph, topology, one) for one in _candidates(graph, topology, device))
    return min((lack for lack in lacks if lack is not None), key=lambda lack: lack.missing_bytes, default=None)


def _candidates(graph: OpGraph, topology: Topology, device: int) -> Iterator[tuple[int, ...]]:
    """The assignments of `attempts`, and those that devices would not hold with all tensors."""
    whole = tuple(alone(graph, topology, device))
    held = sum(op.memory_bytes for op, d in zip(graph.ops, whole, strict=True) if d == device)
    limit = topology.devices[device].memory_bytes
    if limit is None or held <= limit or len(topology) == 1:
        yield whole
    if len(topology) == 1 or not held:
        return
    units, seen = _units(graph, topology), {whole}
    most = held if limit is None else min(held, limit)
    rooms = [share * most for share in SHARES]
    if (even := _even_share(topology, device)) > 0:
        here = [[v for v in members if whole[v] == device] for members in units]
        largest = max(sum(graph.ops[v].memory_bytes for v in members) for members in here)
        rooms += [even * held, even * held + largest / 2]  # units move whole: either may be nearer to an even share
    for room in sorted(rooms, reverse=True):
        assignment = tuple(_relieved(graph, topology, device, whole, units, room))
        if assignment not in seen and device in assignment:
            seen.add(assignment)
            yield assignment


def _even_share(topology: Topology, device: int) -> float:
    """The device's share of the memory of all devices; 0 if not all are limited."""
    limits = [each.memory_bytes for each in topology.devices]
    known = [limit for limit in limits if limit is not None]
    total = float(sum(known))
    return known[device] / total if len(known) == len(limits) and total > 0 else 0.0


def alone(graph: OpGraph, topology: Topology, device: int) -> list[int]:
    """Device of each op: `device` if it can run the op's colocated unit, else the one with most memory that can."""
    places = [device] * len(graph)
    for unit in graph.colocated:
        if not _can(graph, unit, topology.devices[device]):
            place = _elsewhere(graph, topology, device, unit)
            for v in unit:
                places[v] = place
    return places


def without(graph: OpGraph, topology: Topology, barred: Collection[tuple[str, str]]) -> OpGraph:
    """The graph with the (op name, device name) pairs in `barred` ruled out; the same graph if there are none."""
    if not barred:
        return graph
    devices: dict[str, list[str]] = {}
    for name, device in barred:
        op = graph.ops[graph.index[name]]
        left = devices.setdefault(name, [d.name for d in topology.devices if _can_op(op, d)])
        devices[name] = [other for other in left if other != device]
    ops = (replace(op, devices=tuple(devices.get(op.name, ())) or op.devices) for op in graph.ops)
    return replace(graph, ops=tuple(ops))


def by_ratio(graph: OpGraph, topology: Topology, times: Times) -> dict[str, dict[str, float]]:
    """`times` completed with an estimate for each op on each profiled device that may run it but did not.

    The estimate is the op's time on another device (of the same kind if possible) times the median ratio between the
    two devices over ops of its type that ran on both, or over all ops.
    """
    devices = {device.name: device for device in topology.devices}
    ratios = _Ratios(graph, times)
    filled: dict[str, dict[str, float]] = {}
    for op in graph.ops:
        known = times.get(op.name, {})
        filled[op.name] = dict(known)
        for name, device in devices.items():
            if name in known or not _can_op(op, device):
                continue
            others = sorted(known, key=lambda n: (devices[n].kind != device.kind, topology.index[n]))
            found = [known[n] * ratio for n in others if (ratio := ratios.of(op.type, name, n)) is not None]
            if found:
                filled[op.name][name] = found[0]
    return filled


class _Ratios:
    """Ratios of the times of ops on one device to those on another."""

    def __init__(self, graph: OpGraph, times: Times) -> None:
        self.rows = [(op.type, times[op.name]) for op in graph.ops if len(times.get(op.name, ())) > 1]
        self.known: dict[tuple[str, str, str], float | None] = {}

    def of(self, kind: str, device: str, other: str) -> float | None:
        """Median of seconds on `device` / seconds on `other` over ops of type `kind`, or over all ops if none of that
        type ran on both; None if no op did.
        """
        key = (kind, device, other)
        if key not in self.known:
            both = [(t, row[device] / row[other]) for t, row in self.rows if row.get(device, 0) and row.get(other, 0)]
            alike = [ratio for t, ratio in both if t == kind] or [ratio for _, ratio in both]
            self.known[key] = median(alike) if alike else None
        return self.known[key]


def _relieved(
    graph: OpGraph,
    topology: Topology,
    device: int,
    whole: Sequence[int],
    units: Sequence[Sequence[int]],
    room: float,
) -> list[int]:
    """`whole` with the largest units moved elsewhere until the remaining variables take at most `room` bytes."""
    places = list(whole)
    here = [[v for v in members if whole[v] == device] for members in units]
    sized = [(sum(graph.ops[v].memory_bytes for v in members), members) for members in here]
    held = [0] * len(topology)
    for op, d in zip(graph.ops, whole, strict=True):
        held[d] += op.memory_bytes
    for size, members in sorted(sized, key=lambda row: row[0], reverse=True):
        if held[device] <= room or not size:
            break
        place = _elsewhere(graph, topology, device, members, held)
        for v in members:
            places[v] = place
        held[device] -= size
        held[place] += size
    return places


def _units(graph: OpGraph, topology: Topology) -> list[list[int]]:
    """Ops that belong together: variables with their slots, gradients and updates."""
    groups = coarsen(graph, GROUPS, topology)
    return [[v for g in unit for v in groups.members[g]] for unit in groups.graph.colocated]


def _elsewhere(
    graph: OpGraph, topology: Topology, device: int, ops: Sequence[int], held: Sequence[int] | None = None
) -> int:
    """The other device with most free memory that can run all of `ops`, preferring CPUs; `device` if there is none.
    held: bytes by device that are no longer free.
    """
    others = [d for d in range(len(topology)) if d != device and _can(graph, ops, topology.devices[d])]
    return max(others, key=lambda d: _room(topology.devices[d], held[d] if held else 0), default=device)


def _room(device: Device, held_bytes: int) -> tuple[float, bool]:
    free = math.inf if device.memory_bytes is None else device.memory_bytes - held_bytes
    return free, device.kind == "cpu"


def _can(graph: OpGraph, ops: Sequence[int], device: Device) -> bool:
    return all(_can_op(graph.ops[v], device) for v in ops)


def _can_op(op: Op, device: Device) -> bool:
    """Whether the op has a kernel there, whatever its known costs."""
    return op.devices is None or device.name in op.devices or device.kind in op.devices
