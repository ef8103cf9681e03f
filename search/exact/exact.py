"""Exact search: the best mapping by prediction, with a proof. Small spaces are enumerated, others use branch and bound.

If time or `work` ends before the proof is complete, the results are the best mapping found and a valid bound.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np

from search.exact.bounds import lower_bound, rounding
from search.exact.divided_work import divided_work
from search.initial.starts import starts
from search.local.anneal import two_ops
from search.local.hill_climb import climb, kicked
from search.problem.problem import Placement, Problem
from search.problem.searcher import Searcher, Stop, fitting_placements, never
from surrogate.simulate.kernels.arrays import BANDWIDTH, LATENCY, RECEIVE, RECEIVE_PER_BYTE, SEND, SEND_PER_BYTE

if TYPE_CHECKING:
    from search.exact.tree import Tree

LEAVES = 256  # full placements that one step of the search may find
NEAR = 0.02  # a gap to the bound below this share of the best is closed without further targets
TIE = 5e-10  # a gain below this share of the best is a tie, and not searched for


@dataclass(frozen=True)
class ExactSettings:
    """Settings of how long to search."""

    enumerate: int = 8_192  # spaces of up to this many placements are predicted completely
    work: int = 2_000_000_000  # nodes of the tree, times the ops and edges that each node visits
    at_once: int = 2_000_000  # the work between two checks of the clock
    known: int = 4_096  # how many of the best mappings to remember
    targets: int = 12  # how often to try to raise the bound first
    target_work: int = 20_000_000  # the most work of each such try
    most_bytes: int = 1 << 29  # a tree that takes more memory is not searched
    climbs: int = 4  # climbs before the tree search
    evaluations: int = 2_000  # the most predictions of each climb


class Exact(Searcher):
    """A searcher that asks the best mapping, then the next best ones found, and finally any mapping that fits.

    known: placements to begin from, in place of list schedules and climbs. proven: whether no mapping is better than
    the best by more than TIE. bound_s: a lower bound in seconds for all mappings, which is valid even if time ran out
    before the proof was complete.
    """

    name: ClassVar[str] = "exact"

    def __init__(
        self,
        problem: Problem,
        *,
        seed: int = 0,
        stop: Stop = never,
        settings: ExactSettings | None = None,
        known: Sequence[Placement] = (),
    ) -> None:
        super().__init__(problem, seed=seed, stop=stop)
        self.settings, self.known = settings or ExactSettings(), known
        self.proven = False
        self.bound_s = 0.0
        self.cut = False  # whether time ran out during _solve
        self.ranking: list[tuple[float, Placement]] = []

    @classmethod
    def prepare(cls, objective: str) -> None:
        exact = cls(two_ops(objective))
        exact._start()
        lower_bound(exact.problem, never)
        exact._explore(tree_of(exact.problem), math.inf, 1)

    def bound(self) -> float:
        return self.bound_s

    def _propose(self) -> Placement:
        if not self.ranking or (self.cut and not self.stop()):
            self._solve()
        return next((p for _, p in self.ranking if self.is_new(p)), None) or self.first_new()

    def _solve(self) -> None:
        """Fill the ranking, and prove what time allows."""
        if self.problem.space <= self.settings.enumerate:
            self._enumerate()
        else:
            self._start()
            self._search()
        self.cut = not self.proven and self.stop()
        if self.proven and self._best_s() < math.inf:
            self.bound_s = max(self.bound_s, self._best_s() * (1 - TIE))

    def _enumerate(self) -> None:
        every = fitting_placements(self.problem)
        size = max(1, self.settings.at_once // (8 * self.problem.ops_and_edges))
        while batch := list(islice(every, size)):
            self._learn(batch)
            if self.stop():
                break
        else:
            self.proven = True

    def _start(self) -> None:
        """Learn the known placements. If none is known, learn those of list schedulers and single devices, and climb
        from the best.
        """
        self._learn(self.known)
        if self.known and self.ranking:
            return
        self._learn(starts(self.problem, self.stop))
        for turn in range(self.settings.climbs):
            if self.stop():
                return
            start = self.ranking[0][1]
            start = kicked(self.problem, start, self.rng) if turn else start
            evaluations = min(self.settings.evaluations, self.settings.at_once * 10 // self.problem.ops_and_edges)
            summit = climb(self.problem, start, self.predict, evaluations=evaluations, rng=self.rng, stop=self.stop)
            self._learn([summit.placement])

    def _search(self) -> None:
        """Run branch and bound, first with targets below the best, which raise the bound, then with the best itself."""
        problem = self.problem
        self.bound_s = self.given_bound_s or lower_bound(problem, self.stop)
        if self._tree_bytes() > self.settings.most_bytes:
            size = f"{len(problem.units)} units on {len(problem.topology)} devices"
            self.notes = [f"branch and bound was left out, because {size} would take too much memory."]
            self.proven = self._is_settled()
            return
        tree, left = tree_of(problem), self.settings.work // self.problem.ops_and_edges
        share = 0.5
        for _ in range(self.settings.targets):
            gap_s = self._best_s() - self.bound_s
            if self.stop() or not NEAR * self._best_s() < gap_s < math.inf:
                break
            nodes = min(left // 4, self.settings.target_work // self.problem.ops_and_edges)
            share = 0.5 if self._explore(tree, self.bound_s + share * gap_s, nodes) else share / 2
        self.proven = self._is_settled() or self._explore(tree, math.inf, left)

    def _explore(self, tree: Tree, target_s: float, left: int) -> bool:
        """Explore all nodes that may be below target_s and better than the best. Return whether `left` nodes, and the
        time, were enough.
        """
        from search.exact.branch_and_bound import explore, open_bound, path_from  # numba is slow to import

        slack = 1 - rounding(self.problem)
        path = path_from(self.problem.limits.feasible)
        pairs = len(self.problem.simulator.tables.src) * len(self.problem.topology) ** 2  # that a node's paths compare
        nodes = max(1, self.settings.at_once // (4 * (self.problem.ops_and_edges + pairs)))
        leaves = np.empty((LEAVES, len(self.problem.units)), np.int32)
        while path.depth[0] >= 0 and left > 0 and not self.stop():
            cut_s = min(target_s, self._best_s() * (1 - TIE))
            looked, found = explore(tree, path, cut_s - self.problem.beside_s, min(nodes, left), leaves)
            left -= looked
            self._learn([tuple(leaf) for leaf in leaves[:found].tolist()])
            open_s = min(target_s, self._best_s() * (1 - TIE), self.problem.beside_s + open_bound(path)) * slack
            if open_s < math.inf:
                self.bound_s = max(self.bound_s, float(open_s))
        return bool(path.depth[0] < 0)

    def _tree_bytes(self) -> int:
        """Bytes of the tables of `tree_of` and of a path, which holds the devices left to each unit at each depth."""
        units, devices, tables = len(self.problem.units), len(self.problem.topology), self.problem.simulator.tables
        return units * units * devices + 8 * devices**2 * (len(tables.src) + 3 * tables.tensors)

    def _is_settled(self) -> bool:
        """Whether no mapping can be better than the best."""
        return self.bound_s >= self._best_s() * (1 - 2 * TIE)

    def _learn(self, placements: Iterable[Placement]) -> None:
        """Predict the placements that fit, and keep the best in the ranking."""
        rows = np.array([p for p in placements if self.problem.fits(p)], np.int32)
        if not len(rows):
            return
        self.evaluations += len(rows)
        values = self.problem.predict_many(rows)
        best = np.lexsort((*rows.T[::-1], values))[: self.settings.known]
        new = {tuple(rows[i].tolist()): float(values[i]) for i in best}
        known = {placement: value for value, placement in self.ranking} | new
        self.ranking = sorted((value, placement) for placement, value in known.items())[: self.settings.known]

    def _best_s(self) -> float:
        return self.ranking[0][0] if self.ranking else math.inf

    def _rebase(self) -> None:
        """Solve again, because other costs have another best mapping and other bounds."""
        self.proven, self.bound_s, self.ranking = False, 0.0, []

    def _remember(self) -> dict[str, Any]:
        ranking = [[value if value < math.inf else None, list(placement)] for value, placement in self.ranking]
        return {"ranking": ranking, "proven": self.proven, "bound_s": self.bound_s, "cut": self.cut}

    def _recall(self, memory: dict[str, Any]) -> None:
        self.proven, self.bound_s, self.cut = memory["proven"], memory["bound_s"], memory.get("cut", False)
        self.ranking = [(math.inf if value is None else value, tuple(p)) for value, p in memory["ranking"]]


def tree_of(problem: Problem) -> Tree:
    """Return the problem in the form that branch and bound takes."""
    from search.exact.tree import Tree
    from search.problem.longest_paths import crossings, path_tables

    tables, limits = problem.simulator.tables, problem.limits
    pipeline = problem.objective == "max-load"
    ways = path_tables(tables, limits, problem.graph.order)
    line = np.argsort(tables.tensor, kind="stable")
    first = np.searchsorted(tables.tensor[line], np.arange(tables.tensors + 1)).astype(np.int32)
    size = tables.tensor_bytes[line][first[:-1]][:, None, None]
    send_s, link_s, receive_s = _ports(problem, size) if pipeline else _ends(tables.link, size)
    unit_cost_s = np.array(problem.unit_cost_s)
    devices = unit_cost_s.shape[1]
    weights = np.unique(np.array([divided_work(unit_cost_s)[1], np.full(devices, 1 / devices)]).round(12), axis=0)
    return Tree(
        pipeline=pipeline,
        unit_of=limits.unit_of,
        cost_s=ways.cost_s,
        unit_cost_s=unit_cost_s,
        unit_bytes=limits.unit_bytes,
        capacity_bytes=limits.capacity_bytes,
        alike=np.array(problem.alike, np.int32),
        weights=weights / weights.sum(axis=1, keepdims=True),
        src=ways.src,
        dst=ways.dst,
        cross_s=crossings(ways),
        first_user=first,
        user=tables.dst[line],
        maker=tables.src[line][first[:-1]],
        send_s=np.ascontiguousarray(send_s),
        link_s=np.ascontiguousarray(link_s),
        receive_s=np.ascontiguousarray(receive_s),
        works=tables.ends_work,
    )


def _ends(link: Any, size: Any) -> tuple[Any, Any, Any]:
    """Seconds of sending, on the way, and of receiving, each [tensors, src, dst]."""
    send_s = link[SEND] + size * link[SEND_PER_BYTE]
    return send_s, link[LATENCY] + size / link[BANDWIDTH], link[RECEIVE] + size * link[RECEIVE_PER_BYTE]


def _ports(problem: Problem, size: Any) -> tuple[Any, Any, Any]:
    """Seconds that a tensor loads its sender, 0, and seconds that it loads its receiver, each [tensors, src, dst]."""
    rates = [(device.egress_bytes_per_s, device.ingress_bytes_per_s) for device in problem.topology.devices]
    egress, ingress = np.array([[math.inf if rate is None else rate for rate in pair] for pair in rates]).T
    none = np.zeros((len(size), len(rates), len(rates)))
    return none + size / egress[:, None], none, none + size / ingress
