"""The single devices of a search: in which order they are measured, and what is said of those that are not."""

from __future__ import annotations

from collections.abc import Sequence
from math import inf

from placer.errors import listed
from placer.graph.topology import Topology
from search.initial.nearly_singles import nearly_singles
from search.problem.problem import Placement, Problem
from search.session.prediction import Prediction


def single_placements(problem: Problem, prediction: Prediction) -> list[Placement]:
    """The placements on one device, and then those on nearly one. Devices of the kind that is predicted to be the
    fastest come first, because a search that ends early compares with the best of those that it has measured.
    """
    alone, devices = list(problem.of_variables.singles()), problem.topology.devices
    kinds = {placement: devices[placement[0]].kind for placement in alone}
    least_s = dict.fromkeys(kinds.values(), inf)
    for placement, kind in kinds.items() if len(least_s) > 1 else ():
        least_s[kind] = min(least_s[kind], prediction.step_s(problem.mapping(placement)))
    return [*sorted(alone, key=lambda placement: least_s[kinds[placement]]), *nearly_singles(problem)]


def left_out(topology: Topology, placements: Sequence[Placement], why: str) -> str:
    """That single devices were not measured. placements: all units, or nearly all, on one of them."""
    names = [topology.names[max(set(placement), key=placement.count)] for placement in placements]
    return f"single: {listed(names)} not tried, because {why}; one that was not tried may be faster than all here."
