"""Where a device might be too small for a step, ops that free memory come first."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from placer.graph.held_memory import is_tight
from placer.graph.op_graph import Edge, Op, OpGraph
from placer.graph.topology import Device, Link, Topology
from surrogate.simulate.priority import freeing
from surrogate.simulate.run_order import run_order
from surrogate.simulate.simulator import Simulator

LAYERS, SIZE = 8, 1 << 20
RATE = "rate"


def training() -> OpGraph:
    """A backward pass over layers; each has a large variable, a gradient, which is scaled, and an update."""
    ops = [Op(RATE, cost_s={"cpu": 1e-3})]
    edges = []
    before = None
    for i in range(LAYERS):
        back, gradient, scaled, update = range(len(ops), len(ops) + 4)
        ops += [
            Op(f"{i}/back", cost_s={"cpu": 1.0}, phase="backward"),
            Op(f"{i}/gradient", cost_s={"cpu": 1.0}, phase="backward"),
            Op(f"{i}/scaled", cost_s={"cpu": 0.1}, phase="update"),
            Op(f"{i}/update", cost_s={"cpu": 1e-3}, phase="update", memory_bytes=SIZE),
        ]
        edges += [Edge(back, gradient, 8), Edge(gradient, scaled, SIZE), Edge(0, scaled, 4), Edge(scaled, update, SIZE)]
        edges += [] if before is None else [Edge(before, back, 8)]
        before = back
    return OpGraph("training", tuple(ops), tuple(edges))


def machine(memory_bytes: int | None) -> Topology:
    return Topology((Device("cpu:0", "cpu", memory_bytes),))


def test_updates_and_what_they_wait_for_beside_gradients_free_memory():
    graph = training()
    names = {op.name for op, first in zip(graph.ops, freeing(graph), strict=True) if first}
    assert names == {RATE, *(f"{i}/{what}" for i in range(LAYERS) for what in ("scaled", "update"))}


def test_an_op_that_alone_reads_something_large_frees_memory_whatever_its_phase():
    ops = tuple(Op(name, cost_s={"cpu": 1.0}) for name in ("made", "pooled", "seen", "summed"))
    edges = (Edge(0, 1, SIZE), Edge(1, 2, 40), Edge(1, 3, 40))  # two read `pooled`, so that neither frees it
    assert freeing(OpGraph("g", ops, edges)).tolist() == [False, True, False, False]


def test_limits_that_do_not_count_tensors_are_never_tight():
    assert is_tight(training(), machine(100))
    assert not is_tight(training(), replace(machine(100), counts_tensors=False))


def test_where_memory_is_tight_no_gradient_waits_for_the_last_one():
    graph, everywhere = training(), [0] * (4 * LAYERS + 1)
    roomy, tight = Simulator(graph, machine(None)), Simulator(graph, machine((LAYERS + 4) * SIZE))
    assert roomy.timeline(everywhere).memory_peak_bytes[0] > 1.8 * LAYERS * SIZE
    assert tight.timeline(everywhere).memory_peak_bytes[0] < (LAYERS + 2.5) * SIZE
    assert tight.makespan(everywhere) == pytest.approx(roomy.makespan(everywhere))
    assert tight.timeline(everywhere).makespan_s == tight.makespan(everywhere)


def test_a_tenth_of_a_device_counts_as_taken():
    graph = training()
    assert is_tight(graph, machine(int(2.2 * LAYERS * SIZE))) and not is_tight(graph, machine(3 * LAYERS * SIZE))


def test_where_memory_is_tight_what_frees_it_is_in_the_run_order():
    graph = training()
    pair = Topology(tuple(Device(f"cpu:{i}", "cpu", 3 * LAYERS * SIZE) for i in range(2)), (Link("*", "*", 1e-5, 1e9),))
    half = tuple(int(v > len(graph) // 2) for v in range(len(graph)))
    small = replace(pair, devices=tuple(replace(device, memory_bytes=LAYERS * SIZE) for device in pair.devices))
    updates = {f"{i}/update" for i in range(LAYERS)}
    roomy, tight = (set(run_order(Simulator(graph, topology).timeline(half))) for topology in (pair, small))
    assert not updates & roomy
    assert updates < tight
    heavy = {f"{i}/{what}" for i in range(LAYERS) for what in ("back", "gradient")}  # none of which frees memory
    assert heavy <= tight and not heavy <= roomy


def test_with_room_for_all_gradients_the_order_is_that_without_a_limit():
    graph = training()
    assert not is_tight(graph, machine(None)) and not is_tight(graph, machine(3 * LAYERS * SIZE))
    assert is_tight(graph, machine((LAYERS + 4) * SIZE))
    place = Simulator(graph, machine(3 * LAYERS * SIZE)).place
    assert place is not None and np.array_equal(place, Simulator(graph, machine(None)).place)
