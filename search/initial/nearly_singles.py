"""Placements with nearly all units on one device, for devices that cannot run or hold all units."""

from __future__ import annotations

from collections.abc import Iterator

from search.problem.problem import Placement, Problem

# The share of a small device's memory that is filled. A fuller device may fail, because TensorFlow copies a sparsely
# updated table to read it.
RELIEVED = 0.5


def nearly_singles(problem: Problem) -> Iterator[Placement]:
    """Yield a placement for each device that cannot run or hold all units, such as a GPU that lacks a kernel or memory.
    The device gets as many units as it can take, and the rest go where they cost least, as users place by hand.
    Nothing if all devices are of one kind.
    """
    if len({device.kind for device in problem.topology.devices}) == 1:
        return
    found: set[Placement] = set()
    for d in range(len(problem.topology)):
        placement = problem.moved_where_able((d,) * len(problem.units))
        if not problem.fits(placement):
            placement = _relieved(problem, placement, d)
        elif set(placement) == {d}:
            continue
        if d in placement and placement not in found and problem.fits(placement):
            found.add(placement)
            yield placement


def _relieved(problem: Problem, placement: Placement, device: int) -> Placement:
    """Move the largest units off a device, until the rest fits into the share RELIEVED of its memory."""
    relieved, held_bytes = list(placement), problem.held_bytes(placement)[device]
    here = [u for u, d in enumerate(placement) if d == device and problem.unit_bytes[u]]
    for u in sorted(here, key=lambda u: -problem.unit_bytes[u]):
        if held_bytes <= RELIEVED * problem.capacity_bytes[device]:
            break
        others = [d for d in problem.feasible[u] if d != device]
        relieved[u] = min(others, key=problem.unit_cost_s[u].__getitem__, default=device)
        held_bytes -= problem.unit_bytes[u] if relieved[u] != device else 0.0
    return tuple(relieved)
