"""The single devices of a search: in which order they are measured, and what is said of those that are not."""

from __future__ import annotations

from collections.abc import Sequence
from math import inf

from placer.errors import listed
from placer.graph.topology import Topology
from search.initial.nearly_singles import nearly_singles
from search.problem.problem import Placement, Problem
from search.session.prediction import Prediction

CLEARLY = 1.5  # times as fast: a smaller difference between profiles of small networks may be noise


def single_placements(
    problem: Problem, prediction: Prediction, most: int | None, minutes: float | None
) -> list[Placement]:
    """The placements on one device, in the topology's order, and then those on nearly one.

    If `most` or `minutes` (None = no limit) may leave some out, devices of the kind that is predicted to be the fastest
    come first, because the search compares with the best of those that it has measured. They do so only if this kind is
    CLEARLY faster than the first device's: the first that runs is the anchor, and results in a store are compared with
    the same anchor only, so that it must not change from run to run.
    """
    alone, devices = list(problem.of_variables.singles()), problem.topology.devices
    kinds = {placement: devices[placement[0]].kind for placement in alone}
    least_s = dict.fromkeys(kinds.values(), inf)
    limited = minutes is not None or (most is not None and most < len(alone))
    if limited and len(least_s) > 1:
        for placement, kind in kinds.items():
            least_s[kind] = min(least_s[kind], prediction.step_s(problem.mapping(placement)))
        if CLEARLY * min(least_s.values()) < least_s[kinds[alone[0]]]:
            alone.sort(key=lambda placement: least_s[kinds[placement]])
    return [*alone, *nearly_singles(problem)]


def left_out(topology: Topology, placements: Sequence[Placement], why: str) -> str:
    """That single devices were not measured. placements: all units, or nearly all, on one of them."""
    names = [topology.names[max(set(placement), key=placement.count)] for placement in placements]
    return f"single: {listed(names)} not tried, because {why}; one that was not tried may be faster than all here."
