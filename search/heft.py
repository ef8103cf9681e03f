"""HEFT: each op in turn, by upward rank, to the device where it would finish first."""

from __future__ import annotations

import math
from bisect import bisect_right, insort
from dataclasses import dataclass
from typing import ClassVar, NamedTuple

from search.base import Searcher
from search.memory import fitted
from search.problem import Placement, Problem
from surrogate.priority import upward_rank


@dataclass(frozen=True)
class Schedule:
    """HEFT's own plan, per op: its device, when it starts and when it finishes.

    complete: whether every unit found room in memory; where not, `devices` breaks a limit and must be
    repaired.
    """

    devices: tuple[int, ...]
    start_s: tuple[float, ...]
    finish_s: tuple[float, ...]
    complete: bool

    @property
    def makespan_s(self) -> float:
        """Seconds until the last op finishes."""
        return max(self.finish_s)


class Slot(NamedTuple):
    """Where an op would go on one device: it receives its inputs from receive_at_s, runs from start_s."""

    finish_s: float
    device: int
    receive_at_s: float
    start_s: float


class Heft(Searcher):
    """Asks the one mapping that HEFT gives."""

    name: ClassVar[str] = "heft"

    def _propose(self) -> Placement:
        placement = heft_placement(self.problem)
        if not self.is_new(placement):
            raise self.exhausted("HEFT gives one mapping, and it was asked or told.")
        return placement


def heft_placement(problem: Problem) -> Placement:
    """HEFT's mapping, repaired where memory ran out. Raises BadInputError where nothing fits."""
    devices = heft(problem).devices
    return fitted(problem, tuple(devices[unit[0]] for unit in problem.units))


def heft(problem: Problem) -> Schedule:
    """Schedule `problem.graph` by HEFT (Topcuoglu, Hariri, Wu 2002), insertion-based.

    Departures: a tensor crosses to a device once; sending and receiving occupy the devices at both ends;
    colocated ops follow the first of them, for which memory for the whole unit must be left.
    """
    return _Heft(problem).schedule()


class _Heft:
    """The state of one HEFT run: when each device is busy, and when each tensor is where."""

    def __init__(self, problem: Problem) -> None:
        self.problem = problem
        n, devices = len(problem.graph), len(problem.topology)
        self.cost_s = problem.simulator.cost_s
        self.links = problem.simulator.reference.links
        self.size = problem.graph.tensor_bytes
        self.busy: list[list[tuple[float, float]]] = [[] for _ in range(devices)]
        self.there_s: dict[tuple[int, int, int], float] = {}
        self.device = [-1] * n
        self.start_s = [0.0] * n
        self.finish_s = [0.0] * n
        self.unit_device: dict[int, int] = {}
        self.free = list(problem.capacity_bytes)
        self.complete = True

    def schedule(self) -> Schedule:
        """Every op in the order of its rank; of equal ranks, producers first."""
        graph = self.problem.graph
        rank = upward_rank(graph, self.problem.costs, self.problem.topology)
        place = {v: i for i, v in enumerate(graph.order)}
        for v in sorted(range(len(graph)), key=lambda v: (-rank[v], place[v])):
            slots = [self._slot(v, d) for d in self._choices(v)]
            self._commit(v, min(slots))
        return Schedule(tuple(self.device), tuple(self.start_s), tuple(self.finish_s), self.complete)

    def _choices(self, v: int) -> list[int]:
        """Where v may go: its unit's device, or those with room for the whole unit."""
        u = self.problem.unit_of[v]
        if u in self.unit_device:
            return [self.unit_device[u]]
        feasible = self.problem.feasible[u]
        room = [d for d in feasible if self.free[d] >= self.problem.unit_bytes[u]]
        if not room:
            self.complete = False
            room = [max(feasible, key=lambda d: self.free[d])]
        return room

    def _slot(self, v: int, d: int) -> Slot:
        """EST and EFT of v on d, eqs. 6 and 7, with the work of receiving placed right before it."""
        ready_s, receive_s = 0.0, 0.0
        seen = set()
        for e in self.problem.graph.in_edges[v]:
            key = (e.src, e.output_index)
            if (*key, d) in self.there_s:
                ready_s = max(ready_s, self.there_s[(*key, d)])
            elif key not in seen:
                seen.add(key)
                link = self.links[self.device[e.src]][d]
                sent_s = self._gap(self.device[e.src], self.finish_s[e.src], link.send_busy_s(self.size[key]))[1]
                ready_s = max(ready_s, sent_s + link.transfer_s(self.size[key]))
                receive_s += link.receive_busy_s(self.size[key])
        begin_s, end_s = self._gap(d, ready_s, receive_s + self.cost_s[v][d])
        return Slot(end_s, d, begin_s, begin_s + receive_s)

    def _commit(self, v: int, slot: Slot) -> None:
        u, d = self.problem.unit_of[v], slot.device
        if u not in self.unit_device:
            self.unit_device[u] = d
            self.free[d] -= self.problem.unit_bytes[u]
        for e in self.problem.graph.in_edges[v]:
            key = (e.src, e.output_index)
            if (*key, d) not in self.there_s:
                src = self.device[e.src]
                busy_s = self.links[src][d].send_busy_s(self.size[key])
                self._occupy(src, *self._gap(src, self.finish_s[e.src], busy_s))
                self.there_s[(*key, d)] = slot.start_s
        self._occupy(d, slot.receive_at_s, slot.finish_s)
        self.device[v], self.start_s[v], self.finish_s[v] = d, slot.start_s, slot.finish_s
        for e in self.problem.graph.out_edges[v]:
            self.there_s[(v, e.output_index, d)] = slot.finish_s

    def _gap(self, d: int, after_s: float, length_s: float) -> tuple[float, float]:
        """The earliest time from after_s on when d is free for length_s."""
        if length_s == 0 or math.isinf(after_s):
            return after_s, after_s
        busy = self.busy[d]
        i = bisect_right(busy, (after_s, math.inf))
        begin_s = max(after_s, busy[i - 1][1]) if i else after_s
        while i < len(busy) and busy[i][0] < begin_s + length_s:
            begin_s = max(begin_s, busy[i][1])
            i += 1
        return begin_s, begin_s + length_s

    def _occupy(self, d: int, begin_s: float, end_s: float) -> None:
        if begin_s < end_s < math.inf:
            insort(self.busy[d], (begin_s, end_s))
