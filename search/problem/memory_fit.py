"""Functions that make placements fit into memory, and explain why no placement fits."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from weakref import WeakKeyDictionary

from placer.errors import BadInputError, listed, short
from placer.graph.held_memory import Lack, may_lack_memory
from placer.graph.op_graph import OpGraph
from placer.graph.topology import Topology
from search.problem.problem import Placement, Problem

PACK_STEPS = 20_000  # the most steps of the search with backtracking
MOST_UNIONS = 4096  # the most sets of devices whose memory is compared with the units that can run nowhere else
_PACKED: WeakKeyDictionary[Problem, Placement] = WeakKeyDictionary()  # thousands of variants may need the same result


def fitted(problem: Problem, placement: Sequence[int]) -> Placement:
    """Return `placement`, changed little so that it fits: units move from full devices to where they cost least.

    Raises BadInputError if no placement that fits is found.
    """
    wanted = tuple(placement)
    if problem.fits(wanted):
        return wanted
    repaired = _repaired(problem, wanted)
    return repaired if repaired is not None else packed(problem)


def packed(problem: Problem) -> Placement:
    """Return any placement that fits, found by memory alone: best-fit decreasing, then with backtracking.

    Raises BadInputError, with the violated constraint and the missing bytes, if no placement is found.
    """
    known = _PACKED.get(problem)
    if known is not None:
        return known
    _refuse_big_units(problem)
    _refuse_full_devices(problem)
    placement, all_tried = _packing(problem)
    if placement is None:
        raise _no_packing(problem, all_tried)
    _PACKED[problem] = placement
    return placement


def with_tensors(problem: Problem, kept_bytes: tuple[float, ...]) -> Problem:
    """Return `problem` with `kept_bytes`, [ops], added to the memory of its units, so that searchers leave room for
    tensors (docs/decisions/026). If no placement fits then, return `problem` unchanged, because this is an estimate.
    """
    found = replace(problem, kept_bytes=kept_bytes)
    try:
        packed(found)
    except BadInputError:
        return problem
    return found


def with_more_tensors(problem: Problem, placement: Placement, lack: Lack) -> Problem:
    """Return `with_tensors` with all `kept_bytes` scaled up by one factor, so that the estimate for the device that
    lacks memory equals the simulated bytes of tensors. Return `problem` itself if the device has no `kept_bytes`, if
    the estimate was not too low, or if no placement would fit.
    """
    if problem.kept_bytes is None:
        return problem
    full = problem.topology.index[lack.device]
    here = [v for v, d in enumerate(problem.devices(placement)) if d == full]
    counted = sum(problem.kept_bytes[v] for v in here)
    held = lack.peak_bytes - sum(problem.graph.ops[v].memory_bytes for v in here)
    if not 0 < counted < held:
        return problem
    return with_tensors(problem, tuple(kept * held / counted for kept in problem.kept_bytes))


def refuse_too_large(graph: OpGraph, topology: Topology, headroom: float) -> None:
    """Raise BadInputError, as `packed`, if no mapping of the graph has room for the bytes that its ops hold for the
    whole step. The ops need no costs yet. headroom: as in Problem.
    """
    if not may_lack_memory(graph, topology, headroom):
        return
    able = (
        replace(op, cost_s={device.name: 1.0 for device in topology.devices if op.runs_on(device)}) for op in graph.ops
    )
    packed(Problem(OpGraph(graph.name, tuple(able), graph.edges), topology, headroom=headroom))


def _packing(problem: Problem) -> tuple[Placement | None, bool]:
    """Return (a placement that fits, or None; whether all were tried). No state of free memory is searched twice."""
    size, feasible = problem.unit_bytes, problem.feasible
    line = sorted(range(len(size)), key=lambda u: (len(feasible[u]) > 1, -size[u], u))
    free = list(problem.capacity_bytes)
    chosen: list[tuple[int, float]] = []  # each unit's device, and what was free there before
    options = [_best_fit(problem, line[0], free)]
    dead = set()
    for _ in range(PACK_STEPS + len(line)):
        if options[-1]:
            d = options[-1].pop(0)
            chosen.append((d, free[d]))
            free[d] -= size[line[len(chosen) - 1]]
            if len(chosen) == len(line):
                return tuple(d for _, (d, _) in sorted(zip(line, chosen, strict=True))), False
            known = _left(problem, free, len(chosen)) in dead
            options.append([] if known else _best_fit(problem, line[len(chosen)], free))
        elif chosen:
            dead.add(_left(problem, free, len(chosen)))
            options.pop()
            d, before = chosen.pop()
            free[d] = before
        else:
            return None, True
    return None, False


def _left(problem: Problem, free: Sequence[float], done: int) -> tuple[int, tuple[tuple[int, float], ...]]:
    """Return the state that decides whether the units after the first `done` find room. The order of alike devices
    does not change it.
    """
    return done, tuple(sorted(zip(problem.alike, free, strict=True)))


def _repaired(problem: Problem, placement: Placement) -> Placement | None:
    """Move units off each overfull device until the rest fits, starting with the least cost per freed byte.

    None if the result does not fit.
    """
    repaired = list(placement)
    size = problem.unit_bytes
    free = [c - h for c, h in zip(problem.capacity_bytes, problem.held_bytes(placement), strict=True)]
    for full in range(len(free)):
        if free[full] >= 0:
            continue
        for _, _, u, d in sorted(_ways_out(problem, placement, full, -free[full])):
            if free[full] >= 0:
                break
            if repaired[u] == full and free[d] >= size[u]:
                repaired[u] = d
                free[full] += size[u]
                free[d] -= size[u]
    return tuple(repaired) if problem.fits(tuple(repaired)) else None


def _ways_out(
    problem: Problem, placement: Placement, full: int, excess_bytes: float
) -> list[tuple[float, float, int, int]]:
    """Return (seconds per freed byte, -freed bytes, unit, device) for each unit that could leave the device `full`."""
    size, cost_s = problem.unit_bytes, problem.unit_cost_s
    return [
        ((cost_s[u][d] - cost_s[u][full]) / min(size[u], excess_bytes), -min(size[u], excess_bytes), u, d)
        for u, at in enumerate(placement)
        if at == full and size[u] > 0
        for d in problem.feasible[u]
        if d != full
    ]


def _best_fit(problem: Problem, u: int, free: Sequence[float]) -> list[int]:
    """Return the devices with room for unit u, the fullest first. Of alike devices with equal room, only one."""
    room = [d for d in problem.feasible[u] if free[d] >= problem.unit_bytes[u]]
    kinds = {(problem.alike[d], free[d]): d for d in reversed(room)}
    return sorted(kinds.values(), key=lambda d: (free[d], d))


def _refuse_big_units(problem: Problem) -> None:
    """Raise BadInputError for a unit that is too big for every device that can run it."""
    for u, unit in enumerate(problem.units):
        roomiest = max(problem.feasible[u], key=lambda d: problem.capacity_bytes[d])
        needed, room = problem.unit_bytes[u], problem.capacity_bytes[roomiest]
        if needed > room:
            op = short(problem.graph.ops[unit[0]].name)
            with_it = f" with the {len(unit) - 1} colocated with it" if len(unit) > 1 else ""
            raise BadInputError(
                f"graph {short(problem.graph.name)} fits no device's memory_bytes: op {op}{with_it} needs {needed:.0f} "
                f"bytes, {short(problem.topology.names[roomiest])}, the roomiest that can run it, holds {room:.0f} "
                f"({_kept(problem)}), {_missing(needed, room)} too few. Give it more memory_bytes, or split the op."
            )


def _refuse_full_devices(problem: Problem) -> None:
    """Raise BadInputError for the smallest set of devices whose memory is too small for the units that can run only on
    these devices.

    If units could be divided at will, such a set would exist whenever they do not fit (Hall 1935). So a problem that
    passes this check can fail only because units are whole.
    """
    everywhere = frozenset(range(len(problem.topology)))
    bytes_on: dict[frozenset[int], float] = {}
    for can, held in zip(problem.feasible, problem.unit_bytes, strict=True):
        bytes_on[frozenset(can)] = bytes_on.get(frozenset(can), 0.0) + held
    full = []
    for devices in {everywhere, *_unions([devices for devices, held in bytes_on.items() if held])}:
        needed = sum(held for only, held in bytes_on.items() if only <= devices)
        room = sum(problem.capacity_bytes[d] for d in devices)
        if needed > room:
            full.append((len(devices), room - needed, sorted(devices)))
    if full:
        raise _too_full(problem, min(full)[2])


def _unions(sets: Sequence[frozenset[int]]) -> set[frozenset[int]]:
    """Return all unions of some of `sets`; about MOST_UNIONS of them if there are more."""
    unions: set[frozenset[int]] = set()
    for one in sorted(sets, key=lambda s: (len(s), sorted(s))):
        unions |= {one, *(one | other for other in unions)}
        if len(unions) > MOST_UNIONS:
            break
    return unions


def _too_full(problem: Problem, devices: Sequence[int]) -> BadInputError:
    """Return the error for units that only `devices` can run and that do not fit there."""
    units = [u for u, can in enumerate(problem.feasible) if set(can) <= set(devices)]
    needed = sum(problem.unit_bytes[u] for u in units)
    room = sum(problem.capacity_bytes[d] for d in devices)
    graph, short_of = short(problem.graph.name), f"({_kept(problem)}), {_missing(needed, room)} too few"
    if len(devices) == len(problem.topology):
        return BadInputError(
            f"graph {graph} needs {needed:.0f} memory_bytes and all devices together hold {room:.0f} {short_of}. "
            "Add a device, or give them more memory_bytes."
        )
    names = listed([problem.topology.names[d] for d in devices])
    held = [problem.graph.ops[v].name for u in units if problem.unit_bytes[u] for v in problem.units[u]]
    they = "it holds" if len(devices) == 1 else "together they hold"
    return BadInputError(
        f"graph {graph}: the ops that are pinned to {names}, or can run nowhere else, need {needed:.0f} bytes, {they} "
        f"{room:.0f} {short_of}: {listed(held)}. Let some of them run elsewhere, or give {names} more memory_bytes."
    )


def _no_packing(problem: Problem, all_tried: bool) -> BadInputError:
    limited = [can for can in problem.capacity_bytes if can < math.inf]
    some = "" if len(limited) == len(problem.topology) else ", where memory is limited,"
    free = {d for d, can in enumerate(problem.capacity_bytes) if can == math.inf}
    needed = sum(b for b, can in zip(problem.unit_bytes, problem.feasible, strict=True) if free.isdisjoint(can))
    why = (
        "but every way to divide the ops among them leaves one too full"
        if all_tried
        else f"but no way to divide the ops among them was found in {PACK_STEPS} steps, and there may be none"
    )
    return BadInputError(
        f"graph {short(problem.graph.name)}{some} needs {needed:.0f} memory_bytes; the devices hold {sum(limited):.0f} "
        f"together ({_kept(problem)}), {why}: give the devices more memory_bytes, or pin or colocate fewer ops."
    )


def _kept(problem: Problem) -> str:
    return f"{problem.headroom:.0%} kept free"


def _missing(needed: float, room: float) -> int:
    return math.ceil(needed - room)
