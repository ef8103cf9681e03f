"""Variants of HEFT: the same rule on perturbed costs and links, bred towards a shorter step."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from search.list_scheduling.list_scheduler import scheduled
from search.problem.memory_fit import fitted
from search.problem.problem import Placement, Problem
from search.problem.searcher import Stop
from surrogate.costs.cost_matrix import mean_cost_s
from surrogate.parallel import in_pieces
from surrogate.simulate.kernels.arrays import BANDWIDTH, LATENCY, RECEIVE, RECEIVE_PER_BYTE, SEND, SEND_PER_BYTE

Floats = NDArray[np.float64]

BEGIN, LEAST, MOST = 0.1, 0.02, 1.0  # width of the change from parent to child, in logarithms of the costs
UP, DOWN = 1.3, 0.985  # of the width after a gain, and after none: in balance where one child in twenty gains
BROOD = 4  # children of one parent that are judged side by side
TIMES = 10  # a variant takes as long as so many simulations
SHARES = (1.0, 0.3, 0.1, 0.03)  # of the ops whose costs a child changes


@dataclass(frozen=True)
class HeftVariant:
    """How a variant sees the problem; noise and link are logarithms of factors."""

    rank_noise: Floats  # [ops], on the costs that ranks are made of
    device_noise: Floats  # [ops, devices], on the costs that devices are chosen by
    link: float = 0.0  # on what links take
    # How much of the work counts that is bound to a device already, when the first op of a unit is placed. HEFT's own
    # rule counts none: where units begin with variables, which cost nothing, all go to the first device.
    foresight: float = 0.0

    @classmethod
    def unperturbed(cls, problem: Problem) -> HeftVariant:
        """HEFT itself."""
        shape = problem.costs.shape
        return cls(np.zeros(shape[0]), np.zeros(shape))

    @classmethod
    def best(cls, problem: Problem) -> HeftVariant:
        """HEFT itself, or with foresight where that gives a shorter step."""
        heft = cls.unperturbed(problem)
        return min((heft, *with_foresight(problem)), key=lambda variant: _judged(problem, variant)[0])

    def child(self, width: float, rng: np.random.Generator) -> HeftVariant:
        """A variant that differs by about `width` in some of the ops."""
        rank_noise, device_noise, link = self.rank_noise, self.device_noise, self.link
        some = rng.random(len(rank_noise)) < SHARES[int(rng.integers(len(SHARES)))]
        kind = rng.integers(3)
        if kind != 1:
            rank_noise = rank_noise + some * rng.normal(0, width, len(rank_noise))
        if kind != 0:
            device_noise = device_noise + some[:, None] * rng.normal(0, width, device_noise.shape)
        if rng.random() < 1 / 3:
            link = link + rng.normal(0, BEGIN * 3)
        return HeftVariant(rank_noise, device_noise, link, self.foresight)


def with_foresight(problem: Problem) -> list[HeftVariant]:
    """HEFT with foresight; none where each unit is one op, because then it is HEFT itself."""
    if len(problem.units) == len(problem.graph):
        return []
    return [replace(HeftVariant.unperturbed(problem), foresight=1.0)]


def breed(
    problem: Problem, first: HeftVariant, *, rounds: int, rng: np.random.Generator, stop: Stop
) -> list[tuple[float, Placement]]:
    """An evolution strategy with the step size by success (Rechenberg 1973) from `first` on, BROOD children a parent.

    Returns (value, placement) of the first and of each that was no worse than the best before it: the best comes last.
    """
    best, width = first, BEGIN
    value, placement = _judged(problem, first)
    found = [(value, placement)]
    for done in range(0, rounds, BROOD):
        if stop():
            break
        brood = [best.child(width, rng) for _ in range(min(BROOD, rounds - done))]
        for child, (child_value, placement) in zip(brood, _all_judged(problem, brood), strict=True):
            if child_value <= value:
                width = min(MOST, width * UP) if child_value < value else width
                best, value = child, child_value
                found.append((value, placement))
            else:
                width = max(LEAST, width * DOWN)
    return found


def _all_judged(problem: Problem, variants: Sequence[HeftVariant]) -> list[tuple[float, Placement]]:
    """`_judged` of each, on all cores."""
    found: list[tuple[float, Placement]] = [(0.0, ())] * len(variants)

    def judge(part: slice) -> None:
        for i in range(part.start, part.stop):
            found[i] = _judged(problem, variants[i])

    in_pieces(judge, len(variants), TIMES * problem.ops_and_edges)
    return found


def placed_by_variant(problem: Problem, variant: HeftVariant, feasible: NDArray[np.bool_] | None = None) -> Placement:
    """HEFT's mapping of the problem as `variant` sees it, repaired where memory ran out. feasible: [units, devices]."""
    tables = problem.simulator.tables
    tables = tables._replace(
        link=_scaled(tables.link, np.exp(variant.link)), cost_s=tables.cost_s * np.exp(variant.device_noise)
    )
    limits = problem.limits if feasible is None else problem.limits._replace(feasible=feasible)
    ranked = _ranked(problem, variant.rank_noise)
    device, _, _, _ = scheduled(tables, limits, ranked, foresight=variant.foresight)
    return fitted(problem, device[[unit[0] for unit in problem.units]].tolist())


def _ranked(problem: Problem, rank_noise: Floats) -> NDArray[np.int32]:
    """Op indices by upward rank, costs multiplied by exp(rank_noise)."""
    from search.list_scheduling.kernel import rank_all  # numba is slow to import

    tables = problem.simulator.tables
    order = np.array(problem.graph.order, np.int32)
    mean_s = mean_cost_s(problem.costs) * np.exp(rank_noise)
    link = problem.topology.mean_link
    link_s = link.latency_s + tables.tensor_bytes / link.bandwidth_bytes_per_s
    rank_s = np.zeros(len(order))
    rank_all(tables, order, mean_s, link_s, rank_s)
    return order[np.argsort(-rank_s[order], kind="stable")]


def _judged(problem: Problem, variant: HeftVariant) -> tuple[float, Placement]:
    placement = placed_by_variant(problem, variant)
    return problem.predict(placement), placement


def _scaled(link: Floats, factor: float) -> Floats:
    """Links that take `factor` times as long; one that is missing stays missing."""
    scaled = link.copy()
    scaled[[LATENCY, SEND, SEND_PER_BYTE, RECEIVE, RECEIVE_PER_BYTE]] *= factor
    scaled[BANDWIDTH] = link[BANDWIDTH] / factor
    return scaled
