"""The compiled max-load, equal to its definition to the last bit, and the definition by hand."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from placer.errors import BadInputError
from placer.graph.op_graph import Edge, Op, OpGraph
from placer.graph.topology import Device, Topology
from surrogate.costs.cost_matrix import cost_matrix
from surrogate.simulate.max_load import MaxLoad, loads

NUMBER = st.one_of(st.integers(0, 3).map(float), st.floats(1e-3, 10))
RATE = st.one_of(st.none(), st.floats(1e-3, 1e3))


@st.composite
def cases(draw):
    """A graph of up to 20 ops, 1 to 4 or 70 devices, and a few mappings; ops may stand where they cannot run."""
    n = draw(st.integers(1, 20))
    kinds = st.sampled_from(({"cpu": 1}, {"cpu": 1, "gpu": 1}, {"gpu": 1, "cpu": 1}))
    ops = tuple(Op(f"v{i}", cost_s={kind: draw(NUMBER) for kind in draw(kinds)}) for i in range(n))
    pairs = [(u, v) for v in range(n) for u in range(v)]
    chosen = draw(st.lists(st.sampled_from(pairs), max_size=40)) if pairs else []
    names = draw(st.permutations(range(n)))  # file order need not be topological
    sizes = st.sampled_from((0, 1, 7, 1000))
    edges = tuple(Edge(names[u], names[v], draw(sizes), draw(st.integers(0, 2))) for u, v in chosen)
    count = draw(st.sampled_from((1, 2, 3, 4, 70)))
    kind = st.sampled_from(("cpu", "cpu", "gpu"))
    devices = tuple(
        Device(f"d{d}", draw(kind) if d else "cpu", ingress_bytes_per_s=draw(RATE), egress_bytes_per_s=draw(RATE))
        for d in range(min(count, 4))
    )
    devices += tuple(Device(f"d{d}", "cpu", egress_bytes_per_s=float(d)) for d in range(4, count))
    row = st.lists(st.integers(0, count - 1), min_size=n, max_size=n)
    return OpGraph("g", ops, edges), Topology(devices), draw(st.lists(row, min_size=1, max_size=4))


@settings(max_examples=300, deadline=None)
@given(cases())
def test_the_kernel_equals_the_definition_to_the_last_bit(case):
    graph, topology, rows = case
    costs = cost_matrix(graph, topology)
    defined = [max(loads(graph, costs.tolist(), topology, row)) for row in rows]
    compiled = MaxLoad(graph, topology, costs)
    assert compiled.values(rows).tolist() == defined
    assert [compiled.value(row) for row in rows] == defined


def fork():
    """Op a makes 8 bytes for b, c and d, and 4 others for d alone."""
    ops = tuple(Op(name, cost_s={"cpu": 1.0}) for name in "abcd")
    edges = (Edge(0, 1, 8), Edge(0, 2, 8), Edge(0, 3, 8), Edge(0, 3, 4, 1))
    rates = {"ingress_bytes_per_s": 2.0, "egress_bytes_per_s": 4.0}
    return OpGraph("fork", ops, edges), Topology(tuple(Device(f"d{i}", "cpu", **rates) for i in range(3)))


def test_a_tensor_is_sent_once_and_received_once_per_device():
    graph, topology = fork()
    rows = cost_matrix(graph, topology).tolist()
    # b and c share d1: 8 / 2 once; d on d2 takes both tensors; a sends each of them once, for both devices.
    assert loads(graph, rows, topology, (0, 1, 1, 2)) == [1 + 8 / 4 + 4 / 4, 2 + 8 / 2, 1 + 8 / 2 + 4 / 2]
    assert loads(graph, rows, topology, (1, 1, 1, 1)) == [0, 4, 0]


def test_many_rows_on_all_cores_are_those_of_one():
    graph, topology = fork()
    compiled = MaxLoad(graph, topology, cost_matrix(graph, topology))
    rows = np.random.default_rng(0).integers(0, 3, (400_000, 4))
    some = rows[::1000]
    assert compiled.values(rows)[::1000].tolist() == [compiled.value(row) for row in some]


@pytest.mark.parametrize(
    ("rows", "says"), [([[0, 1, 2, 3]], "outside 0..2"), ([[0, 0, 0, -1]], "outside"), ([[0]], "shape")]
)
def test_mappings_that_are_none_are_refused(rows, says):
    graph, topology = fork()
    with pytest.raises(BadInputError, match=says):
        MaxLoad(graph, topology, cost_matrix(graph, topology)).values(rows)


def test_no_mappings_have_no_values():
    graph, topology = fork()
    assert MaxLoad(graph, topology, cost_matrix(graph, topology)).values(np.zeros((0, 4))).tolist() == []
