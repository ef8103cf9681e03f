"""The features of mappings: what is true of every mapping, and a small one counted by hand."""

from __future__ import annotations

import subprocess
import sys
from itertools import permutations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from placer.errors import BadInputError
from placer.graph.op_graph import Edge, Op, OpGraph
from placer.graph.topology import CONTENTIONS, Device, Link, Topology
from surrogate.features.mapping_features import MAKESPAN, OF_DEVICE, OF_STEP, MappingFeatures, operations
from surrogate.simulate.simulator import Simulator

LINK = Link("*", "*", 1e-4, 1e9, send_s=1e-5, send_s_per_byte=1e-10, receive_s=2e-5, receive_s_per_byte=2e-10)


def machine(count=3, contention="none", link=LINK):
    return Topology(tuple(Device(f"d{i}", "cpu") for i in range(count)), (link,), contention)


@st.composite
def graphs(draw):
    """Random graphs: a tensor may have many consumers, an op many tensors."""
    n = draw(st.integers(1, 14))
    seconds = draw(st.lists(st.floats(0, 1e-2, allow_subnormal=False), min_size=n, max_size=n))
    ops = tuple(Op(f"op{i}", cost_s={"cpu": s}, memory_bytes=i * 10, flops=i + 1.0) for i, s in enumerate(seconds))
    pairs = [(u, v) for v in range(n) for u in range(v)]
    chosen = draw(st.lists(st.sampled_from(pairs), max_size=24)) if pairs else []
    edges = [Edge(u, v, draw(st.integers(0, 10**6)), draw(st.integers(0, 1))) for u, v in chosen]
    return OpGraph("random", ops, tuple(edges))


@st.composite
def cases(draw):
    """A graph, a topology of equal devices, and three mappings."""
    graph, count = draw(graphs()), draw(st.integers(1, 3))
    row = st.lists(st.integers(0, count - 1), min_size=len(graph), max_size=len(graph))
    return graph, machine(count, draw(st.sampled_from(CONTENTIONS))), [draw(row) for _ in range(3)]


def columns(found, name):
    """The columns of one per-device feature, [mappings, devices]."""
    return np.array([c for n, c in found.items() if n.startswith(f"{name}@")]).T


def of(graph, topology, rows, **more):
    features = MappingFeatures(Simulator(graph, topology), **more)
    return dict(zip(features.names, features.of(rows).T, strict=True))


@given(cases())
@settings(max_examples=60, deadline=None)
def test_what_is_true_of_every_mapping(case):
    graph, topology, rows = case
    found = of(graph, topology, rows)
    exact = 1 + 1e-12
    busy_s, ends_s = columns(found, "busy_s"), columns(found, "ends_s")
    assert (found["path_s"] <= found["makespan_s"] * exact).all()
    assert (found["busy_s.max"] <= found["makespan_s"] * exact).all()
    assert (columns(found, "chain_s") <= found["path_s"][:, None] * exact).all()
    assert (columns(found, "chain_ops") <= columns(found, "ops")).all()
    assert (columns(found, "memory_bytes") <= columns(found, "held_bytes")).all()
    assert (ends_s <= busy_s * exact).all()
    assert (found["imbalance"] >= -1e-12).all() and (found["imbalance"] <= len(topology) - 1 + 1e-12).all()
    np.testing.assert_allclose((busy_s - ends_s).sum(axis=1), sum(op.cost_s["cpu"] for op in graph.ops), atol=1e-12)
    memory_bytes, flops = sum(op.memory_bytes for op in graph.ops), sum(op.flops for op in graph.ops)
    for name, whole in {"ops": len(graph), "memory_bytes": memory_bytes, "operations": flops}.items():
        np.testing.assert_allclose(columns(found, name).sum(axis=1), whole)
    for ways in ("in", "out"):
        np.testing.assert_allclose(columns(found, f"bytes_{ways}").sum(axis=1), found["cut_bytes"])
        np.testing.assert_array_equal(columns(found, f"tensors_{ways}").sum(axis=1), found["cut_tensors"])


@given(cases())
@settings(max_examples=40, deadline=None)
def test_a_tensor_crosses_once_per_device(case):
    graph, topology, rows = case
    found = of(graph, topology, rows)
    for at, cut in zip(rows, found["cut_tensors"], strict=True):
        assert cut == len({(e.src, e.output_index, at[e.dst]) for e in graph.edges if at[e.src] != at[e.dst]})


@given(cases())
@settings(max_examples=40, deadline=None)
def test_equal_devices_that_trade_places_permute_their_columns_and_leave_the_rest(case):
    graph, topology, rows = case
    before = of(graph, topology, rows)
    for trade in permutations(range(len(topology))):
        after = of(graph, topology, np.array(trade)[np.array(rows)])
        for name in before:
            if "@" not in name:
                # Which device is first in a tie may change the simulated schedule, and nothing else.
                if name != "makespan_s" or topology.contention == "none":
                    np.testing.assert_allclose(after[name], before[name], rtol=1e-9, atol=1e-15)
            else:
                part, d = name.split("@d")
                np.testing.assert_allclose(after[f"{part}@d{trade[int(d)]}"], before[name], rtol=1e-9, atol=1e-15)


@given(graphs())
@settings(max_examples=40, deadline=None)
def test_on_a_single_device_nothing_is_cut_and_the_step_is_its_load(graph):
    found = of(graph, machine(), [[d] * len(graph) for d in range(3)])
    for name in (
        "cut_tensors",
        "cut_bytes",
        "way_s",
        "path_crossings",
        "ends_s.max",
        "bytes_in.max",
        "tensors_out.max",
    ):
        assert (found[name] == 0).all()
    np.testing.assert_allclose(found["makespan_s"], found["busy_s.max"])
    idle = not found["busy_s.max"].any()
    np.testing.assert_allclose(found["imbalance"], 0 if idle else 2)


def test_a_small_mapping_counted_by_hand():
    """a and c on x, b and d on y: a's tensor crosses once for both b and d, b's crosses back to c."""
    ops = tuple(Op("abcd"[i], cost_s={"cpu": 2.0**i}, memory_bytes=2**i) for i in range(4))
    edges = (Edge(0, 1, 3), Edge(0, 3, 3), Edge(0, 2, 3), Edge(1, 2, 5))
    slow = Link("*", "*", latency_s=0.5, bandwidth_bytes_per_s=2, send_s=0.25, receive_s=0.125)
    found = of(OpGraph("abcd", ops, edges), machine(2, link=slow), [[0, 1, 0, 1]], base_s=10.0)
    row = {name: column[0] for name, column in found.items()}
    away_s, back_s = 0.25 + 0.5 + 3 / 2 + 0.125, 0.25 + 0.5 + 5 / 2 + 0.125
    expected = {
        "cut_tensors": 2, "cut_bytes": 8, "way_s": 0.5 + 1.5 + 0.5 + 2.5, "path_crossings": 2,
        "path_s": max(1 + away_s + 2 + back_s + 4, 1 + away_s + 8),
        "busy_s@d0": 5 + 0.25 + 0.125, "busy_s@d1": 10 + 0.25 + 0.125, "ends_s@d0": 0.375,
        "bytes_in@d0": 5, "bytes_out@d0": 3, "tensors_in@d1": 1, "ops@d1": 2,
        "memory_bytes@d0": 5, "held_bytes@d0": 5 + 3 + 5, "held_bytes@d1": 10 + 3 + 5,
        "chain_ops@d0": 2, "chain_s@d0": 5, "chain_ops@d1": 1, "chain_s@d1": 8,
        "operations@d1": 10, "imbalance": 10.375 / (15.75 / 2) - 1,
    }  # fmt: skip
    assert {name: row[name] for name in expected} == pytest.approx(expected)
    assert row["makespan_s"] >= 10 + row["path_s"]


def test_the_first_column_is_what_the_simulator_says():
    graph = OpGraph("two", (Op("a", cost_s={"cpu": 1.0}), Op("b", cost_s={"cpu": 2.0})), (Edge(0, 1, 8),))
    features = MappingFeatures(Simulator(graph, machine()), base_s=0.5)
    rows = [[0, 0], [0, 1], [2, 1]]
    expected = features.simulator.makespans(rows) + 0.5
    np.testing.assert_array_equal(features.of(rows)[:, MAKESPAN], expected)


def test_every_column_is_named_once_with_unit_and_meaning():
    features = MappingFeatures(Simulator(OpGraph("one", (Op("a", cost_s={"cpu": 1.0}),), ()), machine(2)))
    assert len(features.names) == len(set(features.names)) == len(OF_STEP) + len(OF_DEVICE) * 5
    assert features.of([[0]]).shape == (1, len(features.names))
    assert all(feature.unit and feature.meaning for feature in features.features)
    assert features.of(np.zeros((0, 1), int)).shape == (0, len(features.names))


def test_where_an_op_cannot_run_or_a_link_is_missing_the_step_is_infinite_and_nothing_is_nan():
    ops = (Op("a", cost_s={"d0": 1.0}), Op("b", cost_s={"cpu": 1.0}))
    one_way = Topology(machine(2).devices, (Link("d0", "d1", 1e-4, 1e9),))
    found = MappingFeatures(Simulator(OpGraph("g", ops, (Edge(0, 1, 4),)), one_way)).of([[1, 1], [1, 0], [0, 1]])
    assert not np.isnan(found).any()
    assert np.isinf(found[:, MAKESPAN]).tolist() == [True, True, False]


def test_unknown_operations_are_filled_in_from_the_work():
    known = OpGraph("k", (Op("a", cost_s={"cpu": 2.0}, flops=6.0), Op("b", cost_s={"cpu": 1.0})), ())
    unknown = OpGraph("u", (Op("a", cost_s={"cpu": 2.0}), Op("b", cost_s={"cpu": 1.0})), ())
    costs = np.array([[2.0, np.inf], [1.0, 1.0]])
    assert operations(known, costs).tolist() == [6.0, 3.0]
    assert operations(unknown, costs).tolist() == [2.0, 1.0]


def test_a_wrong_shape_and_a_device_that_is_none_are_refused():
    features = MappingFeatures(Simulator(OpGraph("one", (Op("a", cost_s={"cpu": 1.0}),), ()), machine(2)))
    with pytest.raises(BadInputError, match="shape"):
        features.of([0])
    with pytest.raises(BadInputError, match="outside"):
        features.of([[2]])


def test_numba_is_loaded_with_the_first_features_only():
    code = "import sys, surrogate.features.mapping_features; sys.exit('numba' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
