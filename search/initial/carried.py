"""Mappings carried over from a problem that was searched before to a similar problem."""

from __future__ import annotations

from itertools import product
from math import inf

import numpy as np

from placer.errors import BadInputError
from search.initial.likeness import Ops, Shape, by_name, by_place, devices_by_name, devices_by_speed
from search.list_scheduling.perturbed_heft import HeftVariant, placed_by_variant
from search.problem.memory_fit import fitted
from search.problem.problem import Placement, Problem

KEPT = 0.5  # the least share of the work that must stay where it was carried to when units move for lack of memory


def carried(problem: Problem, target: Shape, source: Shape, placement: Placement) -> Placement | None:
    """Return a placement of `source` carried over to `problem`, whose shape is `target`; None if it does not fit there.

    Ops are matched by name, or all by their places in the step. Devices are matched by name, or by speed. Then new
    units go where HEFT puts them beside the others, which stay where they were found to be good. Of the results, the
    one with the best prediction is returned. With the same graph, ops are matched by name alone; with the same devices,
    devices are.
    """
    ways = [by_name(source, target)]
    if source.fingerprint != target.fingerprint:
        ways.append(by_place(source, target))
    named, ranked = devices_by_name(source, target), devices_by_speed(source, target)
    same = source.devices == target.devices
    lines = [line for line in (named, None if same else ranked) if line is not None]
    found = [_placed(problem, target, source, placement, ops, line) for ops, line in product(ways, lines)]
    valued = [(problem.predict(p), p) for p in dict.fromkeys(found) if p is not None]
    return next((p for value, p in sorted(valued, key=lambda item: item[0]) if value < inf), None)


def _placed(
    problem: Problem, target: Shape, source: Shape, placement: Placement, ops: Ops, line: tuple[int, ...]
) -> Placement | None:
    """Put each unit where most of its work was, or where it costs least if it cannot run there; then make it fit.

    None if no placement fits, or if less than KEPT of the work stays in place.
    """
    work = [[0.0] * len(problem.topology) for _ in problem.units]
    for unit, share, op in zip(target.units, target.work, ops, strict=True):
        work[unit][line[placement[source.units[op]]]] += share or 1e-12
    wanted = problem.moved_where_able([max(range(len(row)), key=row.__getitem__) for row in work])
    try:
        found = fitted(problem, wanted)
    except BadInputError:
        return None
    stayed = sum(sum(row) for row, d, there in zip(work, found, wanted, strict=True) if d == there)
    return _settled(problem, found, _known(target, source, ops)) if stayed >= KEPT * sum(map(sum, work)) else None


def _known(target: Shape, source: Shape, ops: Ops) -> set[int]:
    """Return the units with an op that owns its source op. If several target ops map to a source op, the owner is the
    one of the same name, else the first.
    """
    line = sorted(range(len(ops)), key=lambda i: (target.names[i] == source.names[ops[i]], -i))
    owner = {ops[i]: i for i in line}  # the last one wins
    return {target.units[i] for i in owner.values()}


def _settled(problem: Problem, placement: Placement, known: set[int]) -> Placement:
    """Return the placement with units that are not `known` moved to where HEFT puts them, if that is predicted to be
    faster.
    """
    if len(known) == len(placement):
        return placement
    feasible = problem.limits.feasible.copy()
    for u in known:
        feasible[u] = np.arange(len(problem.topology)) == placement[u]
    return min(placement, placed_by_variant(problem, HeftVariant.unperturbed(problem), feasible), key=problem.predict)
