"""What a step holds while its ops run one after another."""

from __future__ import annotations

from placer.graph.held_memory import (
    Lack,
    fullest_bytes,
    has_room_for_trials,
    lack_in_order,
    may_lack_memory,
    most_bytes,
    peaks_in_order,
)
from placer.graph.op_graph import Edge, Op, OpGraph
from placer.graph.topology import Device, Topology


def training(variable=100, activation=10):
    """Two layers: each reads its variable, and goes forward and back; what goes forward is kept for the way back."""
    cost = {"cost_s": {"cpu": 1.0}}
    ops = (
        Op("w0", "VarHandleOp", memory_bytes=variable, **cost), Op("read0", "ReadVariableOp", **cost),
        Op("forward0", "MatMul", **cost), Op("w1", "VarHandleOp", memory_bytes=variable, **cost),
        Op("read1", "ReadVariableOp", **cost), Op("forward1", "MatMul", **cost), Op("backward1", "MatMul", **cost),
        Op("backward0", "MatMul", **cost),
    )  # fmt: skip
    edges = (
        Edge(0, 1, 0), Edge(1, 2, variable), Edge(3, 4, 0), Edge(4, 5, variable), Edge(2, 5, activation),
        Edge(5, 6, activation), Edge(2, 6, activation), Edge(4, 6, variable), Edge(6, 7, activation),
        Edge(1, 7, variable), Edge(2, 7, activation),
    )  # fmt: skip
    return OpGraph("training", ops, edges)


def machine(*limits):
    return Topology(tuple(Device(f"d{i}", "cpu", limit) for i, limit in enumerate(limits)))


def test_a_tensor_is_held_until_its_last_use_and_a_variable_read_at_home_is_not_held_twice():
    # At backward1: forward0 (waits for backward0), forward1, and what it makes itself.
    assert peaks_in_order(training(), [0] * 8, 1) == (200 + 3 * 10,)


def test_what_crosses_is_held_at_both_ends():
    graph = training()
    layers = [0, 0, 0, 1, 1, 1, 1, 0]
    # forward0 stays on device 0 for backward0, when backward1's tensor is there; device 1 has a copy till backward1.
    assert peaks_in_order(graph, layers, 2) == (100 + 2 * 10, 100 + 3 * 10)
    away = [0, 0, 1, 0, 0, 0, 0, 0]  # forward0 reads a variable of the other device, so that a copy of it crosses
    assert peaks_in_order(graph, away, 2)[1] == 100 + 10


def test_at_the_fullest_moment_each_op_has_what_it_made():
    found = fullest_bytes(training())
    assert sum(found) == 3 * 10
    assert [found[v] for v in (1, 2, 4, 5, 6, 7)] == [0, 10, 0, 10, 10, 0]


def test_no_device_ever_holds_more_than_everything():
    graph = training()
    assert most_bytes(graph) == 200 + 2 * 100 + 3 * 10
    assert max(peaks_in_order(graph, [0] * 8, 1)) <= most_bytes(graph)


def test_what_is_lacking_is_said_with_the_device_and_by_how_much():
    graph = training(variable=100 << 20, activation=10 << 20)
    assert lack_in_order(graph, machine(None), [0] * 8) is None
    assert lack_in_order(graph, machine(230 << 20), [0] * 8) is None
    lack = lack_in_order(graph, machine(500 << 20, 130 << 20), [1] * 8)
    assert lack == Lack("d1", 230 << 20, 130 << 20)
    assert str(lack) == "d1 would hold 230.0 MiB at once and may hold 130.0 MiB, 100.0 MiB too few"


def test_devices_that_hold_much_are_not_looked_at_closely():
    graph = training()
    assert may_lack_memory(graph, machine(222), 0.1) and not may_lack_memory(graph, machine(223), 0.1)
    assert not may_lack_memory(graph, machine(None), 0.1)
    assert has_room_for_trials(graph, machine(None)) and has_room_for_trials(graph, machine(2000, 1060))
    assert not has_room_for_trials(graph, machine(2000, 1059))
