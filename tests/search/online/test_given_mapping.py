"""A mapping given as a `Mapping`, not as a file: it is for the step's own graph, or matched by name on request."""

from __future__ import annotations

from typing import Any

import pytest

from placer.errors import BadInputError
from placer.graph.mapping import Mapping
from placer.graph.op_graph import Edge, Op, OpGraph
from placer.graph.topology import Device, Link, Topology
from search.online.given_mapping import GIVEN, given

TWO = Topology((Device("d0", "d"), Device("d1", "d")), (Link("*", "*", 1e-5, 1e9),))


def chain(*names: str) -> OpGraph:
    ops = tuple(Op(name, cost_s={"d": 1.0}, memory_bytes=10) for name in names)
    return OpGraph("chain", ops, tuple(Edge(v, v + 1, 4) for v in range(len(names) - 1)))


def taken(mapping: Mapping, graph: OpGraph, topology: Topology = TWO, **how: Any) -> Any:
    return given(mapping, graph, topology, 0, **{"match_by_name": False, "limited": False, **how})


def test_one_of_the_same_graph_is_taken_as_it_is():
    graph, again = chain("a", "b", "c"), chain("a", "b", "c")
    wanted = taken(Mapping(again, TWO, (0, 1, 1)), graph)
    assert (wanted.op_devices, wanted.order, wanted.name) == ((0, 1, 1), (), GIVEN)


def test_one_of_another_graph_is_refused_with_both_fingerprints_though_its_names_are_the_same():
    graph, other = chain("a", "b", "c"), OpGraph("other", chain("a", "b", "c").ops, (Edge(0, 2, 4),))
    with pytest.raises(BadInputError) as raised:
        taken(Mapping(other, TWO, (0, 1, 1)), graph)
    line = str(raised.value)
    assert line.startswith(f"the mapping given was made for graph {other.fingerprint[:4]} (3 ops); this model is ")
    assert graph.fingerprint[:4] in line and "match_by_name=True" in line


def test_one_of_another_graph_is_matched_by_name_on_request():
    mapping = Mapping(chain("a", "gone"), TWO, (1, 0))
    assert taken(mapping, chain("a", "b", "c"), match_by_name=True).op_devices == (1, 1, 1)  # new ops follow neighbours
    with pytest.raises(BadInputError, match=r"the mapping given: .* has no op of graph 'chain'"):
        taken(mapping, chain("x", "y"), match_by_name=True)


def test_one_that_exceeds_the_limits_is_refused():
    limited = Topology((Device("d0", "d", memory_bytes=1000), Device("d1", "d", memory_bytes=25)), TWO.links)
    graph = chain("a", "b", "c")
    assert taken(Mapping(graph, TWO, (0, 0, 0)), graph, limited, limited=True).op_devices == (0, 0, 0)
    with pytest.raises(BadInputError, match="d1"):
        taken(Mapping(graph, TWO, (1, 1, 1)), graph, limited, limited=True)
