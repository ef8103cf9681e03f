"""Parts of divided ops side by side: part i of every op on device i, as in data and tensor parallelism."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from search.initial.expert import rotations
from search.list_scheduling.perturbed_heft import HeftVariant, placed_by_variant
from search.problem.memory_fit import fitted
from search.problem.problem import Placement, Problem


def part_placements(problem: Problem) -> Iterator[Placement]:
    """Yield two placements for each rotation of the devices: with whole units beside part 0, and with whole units where
    HEFT puts them. Nothing if no unit is a part.

    Raises BadInputError if no placement fits into memory.
    """
    parts = _parts(problem)
    if not any(part is not None for part in parts):
        return
    line = problem.fastest_first
    for turn in rotations(len(line)):
        turned = line[turn:] + line[:turn]
        devices = problem.moved_where_able([turned[(part or 0) % len(turned)] for part in parts])
        yield fitted(problem, devices)
        feasible = problem.limits.feasible.copy()
        for u, part in enumerate(parts):
            if part is not None:
                feasible[u] = np.arange(len(line)) == devices[u]
        yield placed_by_variant(problem, HeftVariant.unperturbed(problem), feasible)


def _parts(problem: Problem) -> list[int | None]:
    """Return the part number of each unit; None for a whole unit."""
    ops = problem.graph.ops
    return [next((ops[v].part for v in unit if ops[v].part is not None), None) for unit in problem.units]
