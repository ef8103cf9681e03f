"""Making placements fit into memory, and saying why none does."""

from __future__ import annotations

import math
from collections.abc import Sequence

from placer.errors import BadInputError
from search.problem import Placement, Problem

PACK_STEPS = 20_000


def fitted(problem: Problem, placement: Sequence[int]) -> Placement:
    """`placement`, changed as little as needed to fit: units move from full devices to where they cost least.

    Raises BadInputError where nothing that fits is found.
    """
    wanted = tuple(placement)
    if problem.fits(wanted):
        return wanted
    repaired = _repaired(problem, wanted)
    return repaired if repaired is not None else packed(problem)


def packed(problem: Problem) -> Placement:
    """Some placement that fits, found by memory alone: best-fit decreasing, then with backtracking.

    Raises BadInputError, with the constraint and by how much it is missed, where none is found.
    """
    _refuse_plain_excess(problem)
    size, feasible = problem.unit_bytes, problem.feasible
    line = sorted(range(len(size)), key=lambda u: (len(feasible[u]) > 1, -size[u], u))
    free = list(problem.capacity_bytes)
    chosen: list[int] = []
    options = [_best_fit(problem, line[0], free)]
    for _ in range(PACK_STEPS + len(line)):
        if options and options[-1]:
            d = options[-1].pop(0)
            free[d] -= size[line[len(chosen)]]
            chosen.append(d)
            if len(chosen) == len(line):
                return tuple(d for _, d in sorted(zip(line, chosen, strict=True)))
            options.append(_best_fit(problem, line[len(chosen)], free))
        elif chosen:
            options.pop()
            d = chosen.pop()
            free[d] += size[line[len(chosen)]]
        else:
            break
    raise _no_packing(problem)


def _repaired(problem: Problem, placement: Placement) -> Placement | None:
    """Empty each full device down to what it holds, first by the moves that cost least per byte they free."""
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
    """(seconds per byte freed, bytes, unit, device) for each unit that could leave `full`."""
    size, cost_s = problem.unit_bytes, problem.unit_cost_s
    return [
        ((cost_s[u][d] - cost_s[u][full]) / min(size[u], excess_bytes), -min(size[u], excess_bytes), u, d)
        for u, at in enumerate(placement)
        if at == full and size[u] > 0
        for d in problem.feasible[u]
        if d != full
    ]


def _best_fit(problem: Problem, u: int, free: Sequence[float]) -> list[int]:
    """The devices with room for unit u, the fullest first; of the empty ones that are alike, one."""
    room = [d for d in problem.feasible[u] if free[d] >= problem.unit_bytes[u]]
    kinds = {(problem.alike[d], free[d]): d for d in reversed(room)}
    return sorted(kinds.values(), key=lambda d: (free[d], d))


def _refuse_plain_excess(problem: Problem) -> None:
    """One unit too big for every device, or all of them for all devices."""
    name, kept = problem.graph.name, f"{problem.headroom:.0%} kept free"
    for u, unit in enumerate(problem.units):
        room = max(problem.capacity_bytes[d] for d in problem.feasible[u])
        excess = problem.unit_bytes[u] - room
        if excess > 0:
            op = problem.graph.ops[unit[0]].name
            with_it = f" with the {len(unit) - 1} colocated with it" if len(unit) > 1 else ""
            raise BadInputError(
                f"graph {name!r} fits no device's memory_bytes: op {op!r}{with_it} needs "
                f"{problem.unit_bytes[u]:.0f} bytes, the roomiest device that can run it holds {room:.0f} "
                f"({kept}), {excess:.0f} too few. Give a device more memory_bytes, or split the op."
            )
    needed, room = sum(problem.unit_bytes), sum(problem.capacity_bytes)
    if needed > room:
        raise BadInputError(
            f"graph {name!r} needs {needed:.0f} memory_bytes and all devices together hold {room:.0f} "
            f"({kept}), {math.ceil(needed - room)} too few. Add a device, or give them more memory_bytes."
        )


def _no_packing(problem: Problem) -> BadInputError:
    needed, room = sum(problem.unit_bytes), sum(problem.capacity_bytes)
    return BadInputError(
        f"graph {problem.graph.name!r} needs {needed:.0f} memory_bytes; the devices hold {room:.0f} together "
        f"({problem.headroom:.0%} kept free), but no way was found to divide the ops among them: "
        "give the devices more memory_bytes, or colocate fewer ops."
    )
