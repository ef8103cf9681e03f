"""What runs elsewhere while a device is profiled that cannot run the whole step, and what is estimated then."""

from __future__ import annotations

import pytest

from placer.graph.op_graph import Edge, Op, OpGraph
from placer.graph.topology import Device, Topology
from placer.profile.partial_device import SHARES, alone, attempts, by_ratio, nearest_lack, without

BOTH = ("cpu", "gpu")


def op(name, kind="X", memory_bytes=0, colocate=None, devices=BOTH):
    return Op(name, kind, memory_bytes=memory_bytes, colocate=colocate, devices=devices)


def chained(*ops):
    return OpGraph("g", ops, tuple(Edge(i, i + 1, 4096) for i in range(len(ops) - 1)))


def topology(gpu_bytes, *gpus):
    gpus = gpus or ("gpu:0",)
    return Topology((*(Device(name, "gpu", gpu_bytes) for name in gpus), Device("cpu:0", "cpu", 10**9)))


TABLES = chained(
    op("small", memory_bytes=100, colocate="small"), op("small_read", colocate="small"), op("mul"),
    op("big", memory_bytes=900, colocate="big"), op("big_read", colocate="big"), op("add"),
)  # fmt: skip


def test_what_fits_is_profiled_whole_first():
    first = next(attempts(TABLES, topology(1000), 0))
    assert first == (0,) * 6


def test_on_the_only_device_there_is_nothing_else_to_try():
    assert list(attempts(TABLES, Topology((Device("gpu:0", "gpu", 10),)), 0)) == [(0,) * 6]


def test_what_does_not_fit_loses_its_largest_variables_first():
    tried = list(attempts(TABLES, topology(600), 0))
    assert tried
    held = [sum(o.memory_bytes for o, d in zip(TABLES.ops, places, strict=True) if d == 0) for places in tried]
    assert held[0] == 100
    assert held == sorted(held, reverse=True)
    assert all(held <= max(SHARES) * 600 for held in held)
    for places in tried:
        assert 0 in places
        for unit in TABLES.colocated:
            assert len({places[v] for v in unit}) == 1


def test_the_roomiest_other_device_takes_over():
    devices = topology(600, "gpu:0", "gpu:1")
    places = next(attempts(TABLES, devices, 0))
    assert set(places) == {0, devices.index["cpu:0"]}


def test_what_has_no_kernel_runs_elsewhere_with_all_that_is_colocated():
    graph = chained(op("a"), op("v", colocate="v"), op("string", colocate="v", devices=("cpu",)), op("b"))
    assert alone(graph, topology(None), 0) == [0, 1, 1, 0]
    assert alone(graph, topology(None), 1) == [1, 1, 1, 1]


def test_what_was_found_to_have_no_kernel_runs_there_no_more():
    devices = topology(None, "gpu:0", "gpu:1")
    graph = without(TABLES, devices, [("mul", "gpu:0"), ("mul", "gpu:1"), ("add", "gpu:0")])
    assert graph.ops[2].devices == ("cpu:0",)
    assert set(graph.ops[5].devices) == {"gpu:1", "cpu:0"}
    assert alone(graph, devices, 0) == [0, 0, 2, 0, 0, 1]
    assert graph.fingerprint == TABLES.fingerprint
    assert without(TABLES, devices, []) is TABLES


def test_an_estimate_is_the_ratio_of_its_type():
    graph = chained(op("m1", "MatMul"), op("m2", "MatMul"), op("r1", "Relu"), op("r2", "Relu"), op("s", "Sum"))
    times = {
        "m1": {"gpu:0": 1.0, "cpu:0": 10.0}, "m2": {"cpu:0": 20.0},
        "r1": {"gpu:0": 3.0, "cpu:0": 6.0}, "r2": {"cpu:0": 1.0}, "s": {"cpu:0": 10.0},
    }  # fmt: skip
    filled = by_ratio(graph, topology(None), times)
    assert filled["m2"] == {"cpu:0": 20.0, "gpu:0": pytest.approx(2.0)}
    assert filled["r2"]["gpu:0"] == pytest.approx(0.5)
    assert filled["s"]["gpu:0"] == pytest.approx(10.0 * (0.1 + 0.5) / 2)
    assert {name: filled[name] for name in ("m1", "r1")} == {name: times[name] for name in ("m1", "r1")}


def test_an_estimate_prefers_a_device_of_the_same_kind():
    graph = chained(op("a"), op("b"))
    times = {"a": {"gpu:0": 1.0, "gpu:1": 1.0, "cpu:0": 50.0}, "b": {"gpu:1": 3.0, "cpu:0": 7.0}}
    assert by_ratio(graph, topology(None, "gpu:0", "gpu:1"), times)["b"]["gpu:0"] == pytest.approx(3.0)


def test_nothing_is_estimated_for_a_device_that_was_not_profiled_or_has_no_kernel():
    graph = chained(op("a"), op("b", devices=("cpu",)), op("c"))
    times = {"a": {"cpu:0": 1.0}, "b": {"cpu:0": 1.0}, "c": {"cpu:0": 1.0}}
    assert by_ratio(graph, topology(None), times) == times
    measured = {**times, "a": {"cpu:0": 1.0, "gpu:0": 0.5}}
    filled = by_ratio(graph, topology(None), measured)
    assert filled["b"] == {"cpu:0": 1.0}
    assert filled["c"] == {"cpu:0": 1.0, "gpu:0": 0.5}


def test_cpus_try_nothing_that_one_of_them_would_not_hold():
    """Two devices that together hold four layers of 100 bytes, and what crosses; neither holds three."""
    layers = [
        op(f"{i}/{what}", kind, 100 * (what == "variable"), colocate=f"{i}")
        for i in range(4)
        for what, kind in (("variable", "VarHandleOp"), ("read", "ReadVariableOp"), ("use", "MatMul"))
    ]
    edges = [Edge(v, v + 1, 8) for v in range(len(layers) - 1)]
    graph = OpGraph("layers", tuple(layers), tuple(edges))
    small = Topology(tuple(Device(f"worker:{i}", "cpu", 260) for i in range(2)))
    for device in range(2):
        tried = list(attempts(graph, small, device))
        assert tried
        for places in tried:
            placed = list(zip(graph.ops, places, strict=True))
            assert [sum(o.memory_bytes for o, d in placed if d == w) for w in (0, 1)] == [200, 200]
        assert nearest_lack(graph, small, device) is not None  # of what was left out
    scarce = Topology(tuple(Device(f"worker:{i}", "cpu", 150) for i in range(2)))
    assert list(attempts(graph, scarce, 0)) == []
    lack = nearest_lack(graph, scarce, 0)
    assert lack is not None and lack.limit_bytes == 150 and lack.missing_bytes >= 50


def test_small_variables_do_not_tip_what_fits_in_equal_shares():
    sizes = [100] * 4 + [1] * 3
    ops = [op(f"{i}", "VarHandleOp", size, colocate=f"{i}") for i, size in enumerate(sizes)]
    pair = Topology(tuple(Device(f"worker:{i}", "cpu", 210) for i in range(2)))
    for device in range(2):
        tried = list(attempts(OpGraph("layers", tuple(ops), ()), pair, device))
        assert tried and all(sum(places[:4]) == 2 for places in tried)


def test_a_large_variable_and_small_ones_are_divided_as_well():
    ops = [op(f"{i}", "VarHandleOp", size, colocate=f"{i}") for i, size in enumerate((100, 60, 60, 60))]
    pair = Topology(tuple(Device(f"worker:{i}", "cpu", 165) for i in range(2)))
    for device in range(2):
        assert list(attempts(OpGraph("layers", tuple(ops), ()), pair, device))


def test_a_gpu_tries_what_it_may_not_hold_where_nothing_else_is_left():
    """Its memory running out is an error that can be dealt with."""
    scarce = Topology((Device("gpu:0", "gpu", 50), Device("cpu:0", "cpu", 50)))
    assert list(attempts(TABLES, scarce, 0)) and not list(attempts(TABLES, scarce, 1))
