"""Nearly all on one device: what to try beside single devices where one cannot run or hold everything."""

from __future__ import annotations

from collections.abc import Iterator

from search.problem.problem import Placement, Problem

# The share of a small device's memory that is filled. TensorFlow copies a table that is updated sparsely in order to
# read it, so that a fuller device may fail.
RELIEVED = 0.5


def nearly_singles(problem: Problem) -> Iterator[Placement]:
    """For each device that cannot run or hold all, such as a GPU without a kernel, or with little memory: as much of it
    as it can, the rest where that costs least, as is done by hand. Only where devices are of several kinds.
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
    """The placement without the largest units of a device, so that RELIEVED of its memory suffices for the rest."""
    relieved, held_bytes = list(placement), problem.held_bytes(placement)[device]
    here = [u for u, d in enumerate(placement) if d == device and problem.unit_bytes[u]]
    for u in sorted(here, key=lambda u: -problem.unit_bytes[u]):
        if held_bytes <= RELIEVED * problem.capacity_bytes[device]:
            break
        others = [d for d in problem.feasible[u] if d != device]
        relieved[u] = min(others, key=problem.unit_cost_s[u].__getitem__, default=device)
        held_bytes -= problem.unit_bytes[u] if relieved[u] != device else 0.0
    return tuple(relieved)
