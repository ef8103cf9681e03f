"""Variants of HEFT: HEFT with perturbed costs and links, bred towards a shorter step."""

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
UP, DOWN = 1.3, 0.985  # factors of the width after a gain and after a loss; in balance if one child in twenty gains
BROOD = 4  # children of one parent that are judged side by side
TIMES = 10  # a variant takes as long as this many simulations
SHARES = (1.0, 0.3, 0.1, 0.03)  # shares of the ops whose costs a child changes


@dataclass(frozen=True)
class HeftVariant:
    """The changes of a variant to the problem. Noise and link are logarithms of factors."""

    rank_noise: Floats  # [ops], on the costs from which ranks are computed
    device_noise: Floats  # [ops, devices], on the costs by which devices are chosen
    link: float = 0.0  # on the time of links
    # The share of the work already bound to a device that counts when the first op of a unit is placed. HEFT itself
    # counts none of it: if units begin with variables, which cost nothing, all units go to the first device.
    foresight: float = 0.0

    @classmethod
    def unperturbed(cls, problem: Problem) -> HeftVariant:
        """Return HEFT itself."""
        shape = problem.costs.shape
        return cls(np.zeros(shape[0]), np.zeros(shape))

    @classmethod
    def best(cls, problem: Problem) -> HeftVariant:
        """Return HEFT itself, or HEFT with foresight if that gives a shorter step."""
        heft = cls.unperturbed(problem)
        return min((heft, *with_foresight(problem)), key=lambda variant: _judged(problem, variant)[0])

    def child(self, width: float, rng: np.random.Generator) -> HeftVariant:
        """Return a variant that differs by about `width` in some of the ops."""
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
    """Return HEFT with foresight; nothing if each unit is one op, because then it equals HEFT."""
    if len(problem.units) == len(problem.graph):
        return []
    return [replace(HeftVariant.unperturbed(problem), foresight=1.0)]


def breed(
    problem: Problem, first: HeftVariant, *, rounds: int, rng: np.random.Generator, stop: Stop
) -> list[tuple[float, Placement]]:
    """Run an evolution strategy from `first` on, with BROOD children per parent and a step size that follows success
    (Rechenberg 1973).

    Returns (value, placement) of the first and of each variant that was at least as good as the best before it. The
    best comes last.
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
    """Return `_judged` of each variant, on all cores."""
    found: list[tuple[float, Placement]] = [(0.0, ())] * len(variants)

    def judge(part: slice) -> None:
        for i in range(part.start, part.stop):
            found[i] = _judged(problem, variants[i])

    in_pieces(judge, len(variants), TIMES * problem.ops_and_edges)
    return found


def placed_by_variant(problem: Problem, variant: HeftVariant, feasible: NDArray[np.bool_] | None = None) -> Placement:
    """Return HEFT's mapping of the problem as `variant` changes it, repaired if memory ran out.

    feasible: [units, devices], where each unit may go; None = as in the problem.
    """
    tables = problem.simulator.tables
    tables = tables._replace(
        link=_scaled(tables.link, np.exp(variant.link)), cost_s=tables.cost_s * np.exp(variant.device_noise)
    )
    limits = problem.limits if feasible is None else problem.limits._replace(feasible=feasible)
    ranked = _ranked(problem, variant.rank_noise)
    device, _, _, _ = scheduled(tables, limits, ranked, foresight=variant.foresight)
    return fitted(problem, device[[unit[0] for unit in problem.units]].tolist())


def _ranked(problem: Problem, rank_noise: Floats) -> NDArray[np.int32]:
    """Return op indices by upward rank, with costs multiplied by exp(rank_noise)."""
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
    """Return links that take `factor` times as long. A missing link stays missing."""
    scaled = link.copy()
    scaled[[LATENCY, SEND, SEND_PER_BYTE, RECEIVE, RECEIVE_PER_BYTE]] *= factor
    scaled[BANDWIDTH] = link[BANDWIDTH] / factor
    return scaled
