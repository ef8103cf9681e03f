"""Earliest finish: the compiled list scheduling against plain Python, and what Donf adds."""

import math
from bisect import bisect_right, insort
from itertools import pairwise
from typing import NamedTuple

from hypothesis import given, settings
from hypothesis import strategies as st

from placer.errors import BadInputError
from placer.graph.op_graph import Edge, Op, OpGraph
from placer.graph.topology import Device, Link, Topology
from search.list_scheduling.cpop import cpop
from search.list_scheduling.donf import donf
from search.list_scheduling.heft import heft
from search.list_scheduling.list_scheduler import Schedule, repaired
from search.list_scheduling.peft import peft
from search.problem.problem import Problem
from surrogate.simulate.priority import upward_rank, weighted_out_degree


class Slot(NamedTuple):
    """Where an op would go on one device: it receives its inputs from receive_at_s, runs from start_s."""

    finish_s: float
    device: int
    receive_at_s: float
    start_s: float


class PlainHeft:
    """HEFT in plain Python, the definition: when each device is busy, and when each tensor is where."""

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
                _, sent_s = self._sent(e.src, link.send_busy_s(self.size[key]))
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
                link = self.links[self.device[e.src]][d]
                sending = self._sent(e.src, link.send_busy_s(self.size[key]))
                self._occupy(self.device[e.src], *sending)
                arrival_s = sending[1] + link.transfer_s(self.size[key])
                self.there_s[(*key, d)] = slot.start_s if link.receive_busy_s(self.size[key]) else arrival_s
        self._occupy(d, slot.receive_at_s, slot.finish_s)
        self.device[v], self.start_s[v], self.finish_s[v] = d, slot.start_s, slot.finish_s
        for e in self.problem.graph.out_edges[v]:
            self.there_s[(v, e.output_index, d)] = slot.finish_s

    def _sent(self, v: int, busy_s: float) -> tuple[float, float]:
        """From when to when its device sends a tensor of v; one that costs no work does not wait."""
        done_s = self.finish_s[v]
        return self._gap(self.device[v], done_s, busy_s) if busy_s else (done_s, done_s)

    def _gap(self, d: int, after_s: float, length_s: float) -> tuple[float, float]:
        """The earliest time from after_s on when d is free for length_s; at all, if that is 0."""
        if math.isinf(after_s):
            return after_s, after_s
        busy = self.busy[d]
        i = bisect_right(busy, (after_s, math.inf))
        begin_s = max(after_s, busy[i - 1][1]) if i else after_s
        while i < len(busy) and (busy[i][0] < begin_s + length_s or busy[i][0] == begin_s):
            begin_s = max(begin_s, busy[i][1])
            i += 1
        return begin_s, begin_s + length_s

    def _occupy(self, d: int, begin_s: float, end_s: float) -> None:
        if begin_s < end_s < math.inf:
            insort(self.busy[d], (begin_s, end_s))


NUMBER = st.one_of(st.integers(0, 3).map(float), st.floats(1e-3, 10))


@st.composite
def problems(draw):
    """Random graphs with colocation, on devices that may be too small, over links that may cost their ends."""
    n, count = draw(st.integers(1, 20)), draw(st.integers(1, 4))
    pairs = st.one_of(st.none(), st.sampled_from(("a", "b", "c")))
    ops = tuple(
        Op(
            f"v{i}",
            cost_s={f"d{i % count}": draw(NUMBER), "cpu": draw(NUMBER)},
            memory_bytes=i % 4,
            colocate=draw(pairs),
        )
        for i in range(n)
    )
    ways = [(u, v) for v in range(n) for u in range(v)]
    chosen = draw(st.lists(st.sampled_from(ways), max_size=40)) if ways else []
    edges = tuple(Edge(u, v, draw(st.sampled_from((0, 1, 2, 1000))), draw(st.integers(0, 1))) for u, v in chosen)
    limits = st.sampled_from((None, 3, 10, 30))
    devices = tuple(Device(f"d{d}", draw(st.sampled_from(("cpu", "cpu", "gpu"))), draw(limits)) for d in range(count))
    busy = ("send_s", "send_s_per_byte", "receive_s", "receive_s_per_byte")
    ends = {name: draw(NUMBER) for name in busy} if draw(st.booleans()) else {}
    links = (Link("*", "*", draw(NUMBER), draw(st.sampled_from((1.0, 3.0))), **ends),) * draw(st.integers(0, 4))
    try:
        return Problem(OpGraph("g", ops, edges), Topology(devices, links[:1]))
    except BadInputError:  # an op that no device can run
        return None


@settings(max_examples=200, deadline=None)
@given(problems())
def test_compiled_heft_equals_plain_python(problem):
    if problem is not None:
        assert heft(problem) == PlainHeft(problem).schedule()


@settings(max_examples=100, deadline=None)
@given(problems())
def test_a_schedule_keeps_the_rules(problem):
    if problem is None:
        return
    for schedule in (heft(problem), donf(problem), peft(problem), cpop(problem)):
        graph, devices = problem.graph, schedule.devices
        assert all(d in problem.feasible[problem.unit_of[v]] for v, d in enumerate(devices))
        for unit in graph.colocated:
            assert len({devices[v] for v in unit}) == 1
        for e in graph.edges:
            assert schedule.finish_s[e.src] <= schedule.start_s[e.dst] * (1 + 1e-9)
        for d in range(len(problem.topology)):
            spans = sorted(zip(schedule.start_s, schedule.finish_s, devices, strict=True))
            spans = [(begin, end) for begin, end, at in spans if at == d and begin < end < math.inf]
            assert all(a[1] <= b[0] * (1 + 1e-9) for a, b in pairwise(spans))


def test_a_tensor_is_on_a_device_when_it_arrives_and_not_when_its_first_reader_starts():
    """
    d1  |B|C?   ...|AAAA...      d0  u, then C
    d2  ppppp                    A waits for p; B uses the gap before it, for which u's tensor is there at 1.
    """
    ops = (
        Op("u", cost_s={"d0": 1.0}), Op("p", cost_s={"d2": 5.0}), Op("A", cost_s={"d1": 20.0}),
        Op("B", cost_s={"d1": 1.0, "d0": 20.0}), Op("C", cost_s={"d0": 9.0}),
    )  # fmt: skip
    graph = OpGraph("g", ops, (Edge(0, 2, 0), Edge(0, 3, 0), Edge(1, 2, 0), Edge(3, 4, 0)))
    devices = tuple(Device(f"d{i}", "cpu") for i in range(3))
    schedule = heft(Problem(graph, Topology(devices, (Link("*", "*", 0.0, 1.0),))))
    assert schedule.devices[3] == 1 and schedule.start_s[3] == 1.0
    assert max(schedule.finish_s) == 25.0


def test_an_op_of_no_seconds_waits_for_a_busy_device():
    ops = (Op("a", cost_s={"x": 1.0}), Op("b", cost_s={"y": 4.0}), Op("c", cost_s={"y": 0.0}))
    graph = OpGraph("g", ops, (Edge(0, 2, 0),))
    devices = (Device("x", "x"), Device("y", "y"))
    schedule = heft(Problem(graph, Topology(devices, (Link("*", "*", 0.0, 1.0),))))
    assert schedule.start_s == (0.0, 0.0, 4.0)


def test_donf_puts_first_what_sets_most_free():
    # b sets two ops free and goes first, to the faster device; by rank a would, which has the longer way.
    ops = [Op("a", cost_s={"x": 2.0, "y": 3.0}), Op("b", cost_s={"x": 2.0, "y": 3.0})]
    ops += [Op(name, cost_s={"x": cost_s, "y": cost_s}) for name, cost_s in (("c", 9.0), ("d", 1.0), ("e", 1.0))]
    graph = OpGraph("g", tuple(ops), (Edge(0, 2, 0), Edge(1, 3, 0), Edge(1, 4, 0)))
    problem = Problem(graph, Topology((Device("x", "x"), Device("y", "y")), (Link("*", "*", 0, 1),)))
    assert weighted_out_degree(graph) == [1, 2, 0, 0, 0]
    assert donf(problem).devices[:2] == (1, 0)
    assert heft(problem).devices[:2] == (0, 1)


def test_donf_keeps_to_memory(tight):
    mapping = tight.mapping(repaired(tight, donf(tight)))
    assert all(mapping.memory_bytes[d] <= 24 for d in range(3))


def test_predicting_many_is_predicting_each(problem):
    placements = [*problem.singles(), repaired(problem, donf(problem))]
    assert problem.predict_many(placements).tolist() == [problem.predict(p) for p in placements]
