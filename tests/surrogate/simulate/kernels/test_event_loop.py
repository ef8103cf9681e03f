"""The compiled event loop and the screening: the former equal to the definition to the last bit."""

from dataclasses import replace
from itertools import product

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from placer.errors import BadInputError
from placer.graph.op_graph import Edge, Op, OpGraph
from placer.graph.schedules import SCHEDULES
from placer.graph.topology import CONTENTIONS, Device, Link, Topology
from surrogate.simulate.kernels.arrays import needs_of
from surrogate.simulate.priority import topological
from surrogate.simulate.simulator import Simulator

# Small whole numbers make many events of one instant; the others try the rounding.
NUMBER = st.one_of(st.integers(0, 3).map(float), st.floats(1e-3, 10))


@st.composite
def graphs(draw):
    n = draw(st.integers(1, 20))
    kinds = st.sampled_from(({"cpu": 1}, {"cpu": 1, "gpu": 1}, {"gpu": 1, "cpu": 1}))
    ops = tuple(Op(f"v{i}", cost_s={kind: draw(NUMBER) for kind in draw(kinds)}) for i in range(n))
    pairs = [(u, v) for v in range(n) for u in range(v)]
    chosen = draw(st.lists(st.sampled_from(pairs), max_size=40)) if pairs else []
    sizes = st.sampled_from((0, 1, 2, 1000))
    names = draw(st.permutations(range(n)))  # file order need not be topological
    edges = tuple(Edge(names[u], names[v], draw(sizes), draw(st.integers(0, 1))) for u, v in chosen)
    return OpGraph("g", ops, edges)


@st.composite
def topologies(draw):
    count = draw(st.integers(1, 4))
    devices = tuple(Device(f"d{d}", draw(st.sampled_from(("cpu", "cpu", "gpu")))) for d in range(count))
    devices = (replace(devices[0], kind="cpu"), *devices[1:])
    busy = ("send_s", "send_s_per_byte", "receive_s", "receive_s_per_byte")
    ends = {name: draw(NUMBER) for name in busy} if draw(st.booleans()) else {}
    rate = st.sampled_from((1.0, 3.0, float("inf")))
    links = [Link("*", "*", draw(NUMBER), draw(rate), **ends)]
    if draw(st.booleans()):
        links.append(Link("d0", "*", draw(NUMBER), draw(rate)))
    if draw(st.integers(0, 5)) == 0:
        links = links[1:]  # some or all links are missing
    return Topology(devices, tuple(links), draw(st.sampled_from(CONTENTIONS)))


@st.composite
def cases(draw):
    """A simulator and a few mappings; ops may stand where they cannot run."""
    graph = draw(graphs())
    topology = draw(topologies())
    row = st.lists(st.integers(0, len(topology) - 1), min_size=len(graph), max_size=len(graph))
    rows = np.array(draw(st.lists(row, min_size=1, max_size=4)))
    return Simulator(graph, topology, draw(st.sampled_from(SCHEDULES))), rows


@settings(max_examples=300, deadline=None)
@given(cases())
def test_the_engine_equals_the_definition_to_the_last_bit(case):
    simulator, rows = case
    defined = [simulator.reference.makespan(row) for row in rows.tolist()]
    assert simulator.makespans(rows).tolist() == defined
    assert [simulator.makespan(row) for row in rows.tolist()] == defined


@settings(max_examples=100, deadline=None)
@given(cases(), topologies(), st.floats(0.1, 10))
def test_a_revalued_simulator_is_one_made_anew(case, topology, factor):
    simulator, rows = case
    simulator.makespans(rows)
    topology = Topology(simulator.topology.devices, topology.links[:1], topology.contention)
    costs = simulator.costs * factor
    for other in (None, replace(topology, links=tuple(replace(x, src="*", dst="*") for x in topology.links))):
        new = Simulator(simulator.graph, other or simulator.topology, simulator.schedule, costs)
        assert simulator.revalued(costs, other).makespans(rows).tolist() == new.makespans(rows).tolist()


@settings(max_examples=100, deadline=None)
@given(cases())
def test_makespan_and_screening_lie_between_the_critical_path_and_everything_in_a_row(case):
    simulator, rows = case
    graph, link = simulator.graph, simulator.tables.link
    for row, makespan_s, screened_s in zip(rows, simulator.makespans(rows), simulator.screen(rows), strict=True):
        cost_s = simulator.costs[np.arange(len(graph)), row]
        end_s = np.zeros(len(graph))
        for v in graph.order:
            end_s[v] = cost_s[v] + max((end_s[e.src] for e in graph.in_edges[v]), default=0.0)
        ways = [(e, link[:, row[e.src], row[e.dst]]) for e in graph.edges if row[e.src] != row[e.dst]]
        size = graph.tensor_bytes
        crossings_s = sum(
            way[0] + way[2] + way[4] + size[e.src, e.output_index] * (1 / way[1] + way[3] + way[5]) for e, way in ways
        )
        in_a_row_s = (cost_s.sum() + crossings_s) * (1 + 1e-9)
        assert end_s.max() <= makespan_s * (1 + 1e-9) and makespan_s <= in_a_row_s
        assert end_s.max() <= screened_s * (1 + 1e-9) and screened_s <= in_a_row_s


def chains(count=300):
    """Two chains side by side, and 2 devices."""
    ops = tuple(Op(f"v{i}", cost_s={"cpu": 1.0 + i % 3}) for i in range(count))
    graph = OpGraph("chains", ops, tuple(Edge(i, i + 2, 1) for i in range(count - 2)))
    return Simulator(graph, Topology((Device("x", "cpu"), Device("y", "cpu")), (Link("*", "*", 0.5, 1.0),)))


def test_a_batch_that_is_shared_among_cores_equals_one_by_one():
    simulator = chains()
    rows = np.random.default_rng(0).integers(0, 2, (1500, 300))
    together = simulator.makespans(rows)
    assert [simulator.makespan(row) for row in rows[::100]] == together[::100].tolist()
    assert len(simulator.makespans(rows[:0])) == 0


def test_screening_is_exact_where_the_order_is_no_choice():
    simulator = chains(2)
    rows = list(product((0, 1), repeat=2))
    assert simulator.screen(rows).tolist() == simulator.makespans(rows).tolist()


@pytest.mark.parametrize("wrong", [[[0, 2, 0]], [[0, -1, 0]], [[0, 1]], [0, 1, 0]])
def test_mappings_that_are_none_are_refused(wrong):
    graph = OpGraph("g", tuple(Op(name, cost_s={"cpu": 1.0}) for name in "abc"), ())
    simulator = Simulator(graph, chains(2).topology)
    for method in (simulator.makespans, simulator.screen):
        with pytest.raises(BadInputError, match=r"0\.\.1|\[mappings, 3\]"):
            method(wrong)


@settings(max_examples=100, deadline=None)
@given(graphs())
def test_needs_are_the_distinct_tensors_of_distinct_consumers(graph):
    needs = needs_of(graph)
    made = {(e.src, e.output_index) for e in graph.edges}
    assert needs.tensors == len(made)
    assert len(needs.dst) == len({(e.src, e.output_index, e.dst) for e in graph.edges})
    assert sorted(needs.by_dst.tolist()) == list(range(len(needs.dst)))
    assert (np.diff(needs.dst[needs.by_dst]) >= 0).all() and (np.diff(needs.src) >= 0).all()
    sizes = {(needs.src[k], b) for k, b in enumerate(needs.tensor_bytes.tolist())}
    assert sizes == {(u, b) for (u, _), b in graph.tensor_bytes.items()}


@settings(max_examples=50, deadline=None)
@given(graphs(), st.randoms(use_true_random=False))
def test_a_topological_order_takes_the_first_in_line_of_those_that_may_come(graph, chance):
    place = list(range(len(graph)))
    chance.shuffle(place)
    order = topological(graph, np.array(place)).tolist()
    come = set()
    for v in order:
        may = [w for w in range(len(graph)) if w not in come and all(e.src in come for e in graph.in_edges[w])]
        assert v == min(may, key=place.__getitem__)
        come.add(v)
    assert len(come) == len(graph)
