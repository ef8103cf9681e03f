"""Small problems that the search tests share."""

import random
from itertools import product
from types import SimpleNamespace

import pytest
from hypothesis import strategies as st

from placer.errors import BadInputError
from placer.graph.op_graph import Edge, Op, OpGraph
from placer.graph.topology import CONTENTIONS, Device, Link, Topology
from search.problem.problem import Problem


def two_towers(length=4):
    """A fork, two chains of `length` heavy ops, a join."""
    ops = [Op("fork", cost_s={"cpu": 0.01})]
    edges = []
    for t in range(2):
        first = len(ops)
        ops += [Op(f"tower{t}/{i}", cost_s={"cpu": 1.0}, memory_bytes=10) for i in range(length)]
        edges += [Edge(0, first, 1), *(Edge(v, v + 1, 1) for v in range(first, first + length - 1))]
    ops.append(Op("join", cost_s={"cpu": 0.01}))
    edges += [Edge(length, len(ops) - 1, 1), Edge(2 * length, len(ops) - 1, 1)]
    return OpGraph("towers", tuple(ops), tuple(edges))


def layered(seed, layers=5, width=3):
    """A random layered graph with colocated pairs and some ops that only a gpu runs."""
    rng = random.Random(seed)
    ops, edges = [], []
    for i in range(layers * width):
        cost_s = {"gpu": rng.uniform(1, 5), "cpu": rng.uniform(5, 20)}
        if rng.random() < 0.2:
            del cost_s["cpu"]
        pair = f"pair{i // 5}" if rng.random() < 0.3 else None
        ops.append(Op(f"v{i}", cost_s=cost_s, memory_bytes=rng.randrange(1, 10), colocate=pair))
        if i >= width:
            producers = rng.sample(range(i // width * width - width, i // width * width), 2)
            edges += [Edge(u, i, rng.randrange(100)) for u in sorted(producers)]
    return OpGraph(f"layered{seed}", tuple(ops), tuple(edges))


def machine(*kinds, memory_bytes=(None,) * 4, **link):
    """Devices of these kinds, joined by links of one byte a second times 100."""
    rates = {"ingress_bytes_per_s": 50.0, "egress_bytes_per_s": 50.0}
    both = enumerate(zip(kinds, memory_bytes, strict=False))
    devices = tuple(Device(f"{kind}:{i}", kind, limit, **rates) for i, (kind, limit) in both)
    fields = {"latency_s": 0.01, "bandwidth_bytes_per_s": 100.0, **link}
    return Topology(devices, (Link("*", "*", **fields),))


# Bytes per device: three of them just hold the 68 of layered(2), whose units have up to 9.
TIGHT = 24

PROBLEMS = {
    "towers": lambda: Problem(two_towers(), machine("cpu", "cpu")),
    "mixed": lambda: Problem(layered(1), machine("gpu", "gpu", "cpu", send_s=0.1, receive_s=0.1)),
    "uneven": lambda: Problem(layered(2), machine("gpu", "gpu", "gpu", memory_bytes=(20, 100, 30))),
    "pipeline": lambda: Problem(layered(3), machine("gpu", "gpu", "gpu"), "max-load"),
}


QUICK = ("towers", "mixed")


@pytest.fixture(
    params=[kind if kind in QUICK else pytest.param(kind, marks=pytest.mark.slow) for kind in PROBLEMS],
    scope="module",
)
def problem(request):
    """Each of the small problems in turn."""
    return PROBLEMS[request.param]()


@pytest.fixture(scope="module")
def towers():
    """Two equal towers on two equal devices: best side by side."""
    return PROBLEMS["towers"]()


@pytest.fixture(scope="module")
def tight():
    """Three devices that the graph fills nearly to the last byte."""
    return Problem(layered(2), machine("gpu", "gpu", "gpu", memory_bytes=(TIGHT,) * 3))


@pytest.fixture(scope="module")
def tiny():
    """Three ops on two devices, one of which holds two of them: seven of eight placements fit."""
    ops = tuple(Op(name, cost_s={"cpu": 1.0}, memory_bytes=1) for name in "abc")
    devices = (Device("x", "cpu", 2), Device("y", "cpu", 3))
    graph = OpGraph("tiny", ops, (Edge(0, 1, 1), Edge(0, 2, 1)))
    return Problem(graph, Topology(devices, (Link("*", "*", 0.1, 100.0),)))


# Topcuoglu, Hariri, Wu 2002, figure 2 and table 1: ten tasks on three processors.
COSTS = [
    (14, 16, 9), (13, 19, 18), (11, 13, 19), (13, 8, 17), (12, 13, 10),
    (13, 16, 9), (7, 15, 11), (5, 11, 14), (18, 12, 20), (21, 7, 16),
]  # fmt: skip
EDGES = [
    (1, 2, 18), (1, 3, 12), (1, 4, 9), (1, 5, 11), (1, 6, 14), (2, 8, 19), (2, 9, 16), (3, 7, 23),
    (4, 8, 27), (4, 9, 23), (5, 9, 13), (6, 8, 15), (7, 10, 17), (8, 10, 11), (9, 10, 13),
]  # fmt: skip


@pytest.fixture(scope="module")
def published():
    """A byte takes a second. Each edge is a tensor of its own, as in the paper."""
    ops = tuple(Op(f"n{i}", cost_s=dict(zip(("p1", "p2", "p3"), c, strict=True))) for i, c in enumerate(COSTS, 1))
    edges = tuple(Edge(u - 1, v - 1, c, i) for i, (u, v, c) in enumerate(EDGES))
    devices = tuple(Device(f"p{i}", "p") for i in (1, 2, 3))
    return Problem(OpGraph("heft", ops, edges), Topology(devices, (Link("*", "*", 0, 1),)))


NUMBER = st.one_of(st.integers(0, 3).map(float), st.floats(1e-3, 10))


@st.composite
def enumerable_problems(draw):
    """At most 4,096 placements: uneven costs, colocation, memory limits, missing links, work at the ends."""
    count = draw(st.sampled_from((1, 2, 2, 3, 4)))
    n = draw(st.integers(1, {1: 8, 2: 8, 3: 6, 4: 5}[count]))
    devices = tuple(
        Device(
            f"d{d}",
            draw(st.sampled_from(("cpu", "gpu"))),
            draw(st.sampled_from((None, None, 3, 6))),
            speed=draw(st.sampled_from((1.0, 1.0, 3.0))),
            ingress_bytes_per_s=draw(st.sampled_from((None, 1.0, 7.0))),
            egress_bytes_per_s=draw(st.sampled_from((None, 1.0, 7.0))),
        )
        for d in range(count)
    )
    kinds = st.sampled_from((("cpu", "gpu"), ("cpu", "gpu"), ("cpu",), ("gpu",), ("d0",)))
    colocate = st.sampled_from((None, None, None, "a", "b"))
    ops = tuple(
        Op(f"v{i}", cost_s={k: draw(NUMBER) for k in draw(kinds)}, memory_bytes=i % 4, colocate=draw(colocate))
        for i in range(n)
    )
    ways = [(u, v) for v in range(n) for u in range(v)]
    chosen = draw(st.lists(st.sampled_from(ways), max_size=16)) if ways else []
    edges = tuple(Edge(u, v, draw(st.sampled_from((0, 1, 2, 20))), draw(st.integers(0, 2))) for u, v in chosen)
    ends = st.sampled_from((0.0, 0.0, 0.1, 2.0))
    busy = ("send_s", "send_s_per_byte", "receive_s", "receive_s_per_byte")
    pairs = [("*", "*"), *((f"d{s}", f"d{d}") for s, d in product(range(count), repeat=2) if s != d)]
    given = draw(st.lists(st.sampled_from(pairs), max_size=4))
    if draw(st.booleans()):
        given.insert(0, ("*", "*"))
    links = tuple(
        Link(s, d, draw(NUMBER), draw(st.sampled_from((1.0, 9.0))), **{name: draw(ends) for name in busy})
        for s, d in given
    )
    try:
        return Problem(
            OpGraph("g", ops, edges),
            Topology(devices, links, draw(st.sampled_from(CONTENTIONS))),
            draw(st.sampled_from(("makespan", "makespan", "max-load"))),
            draw(st.sampled_from(("rank", "donf", "fifo"))),
            headroom=draw(st.sampled_from((0.0, 0.1))),
            base_s=draw(st.sampled_from((0.0, 0.5))),
        )
    except BadInputError:  # an op that no device can run
        return None


@pytest.fixture(scope="session")
def enumerable():
    """A strategy: problems small enough to try every mapping; None for one that cannot be posed."""
    return enumerable_problems()


@pytest.fixture(scope="session")
def build():
    """The makers of the small problems, for tests that need their own."""
    return SimpleNamespace(two_towers=two_towers, layered=layered, machine=machine)


HARD = {
    "four": lambda graph: Problem(graph, machine("gpu", "gpu", "cpu", "gpu")),
    "slow links": lambda graph: Problem(graph, machine("gpu", "cpu", latency_s=3.0)),
    "tight": lambda graph: Problem(
        graph, machine("gpu", "gpu", "gpu", memory_bytes=(50, 60, 70), send_s=0.2, receive_s=0.2)
    ),
    "pipeline": lambda graph: Problem(graph, machine("gpu", "gpu", "cpu"), "max-load"),
}


@pytest.fixture(params=[(kind, seed) for kind in HARD for seed in range(3)], ids=str)
def hard(request):
    """Problems of 24 ops that are too large to enumerate."""
    kind, seed = request.param
    return HARD[kind](layered(seed, layers=8))
