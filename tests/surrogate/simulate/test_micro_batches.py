"""Micro-batches on stages: the order in which devices take them, and what that costs in memory and time."""

from itertools import pairwise
from textwrap import dedent

import pytest

from placer.graph.coarsen import coarsen
from placer.graph.mapping import Mapping
from placer.graph.op_graph import Edge, Op, OpGraph
from placer.graph.topology import Device, Link, Topology
from surrogate.costs.cost_matrix import cost_matrix
from surrogate.simulate.max_load import loads
from surrogate.simulate.simulator import Simulator

STEP_BYTES = 960  # of activations that a stage keeps from forward to backward, over all micro-batches
FORWARD_S, BACKWARD_S = 1, 2


def pipeline(stages, micro_batches, in_flight=None, scale=1.0):
    """Each stage's forward and backward ops, one per micro-batch, costs times `scale`; the next stage needs a forward
    op, and so does its backward op. in_flight: so many micro-batches may be under way.
    """
    ops, edges, index = [], [], {}

    def add(name, cost_s, micro_batch, *inputs):
        index[name] = len(ops)
        ops.append(Op(name, cost_s={"cpu": cost_s * scale}, micro_batch=micro_batch))
        edges.extend(Edge(index[src], index[name], size, output_index=int(size > 0)) for src, size in inputs)

    for i in range(micro_batches):
        waits = [(backward(0, i - in_flight), 0)] if in_flight and i >= in_flight else []
        for s in range(stages):
            add(forward(s, i), FORWARD_S, i, *(waits if s == 0 else [(forward(s - 1, i), 0)]))
        for s in reversed(range(stages)):
            kept = (forward(s, i), STEP_BYTES // micro_batches)
            add(backward(s, i), BACKWARD_S, i, kept, *([] if s == stages - 1 else [(backward(s + 1, i), 0)]))
    return OpGraph("pipeline", tuple(ops), tuple(edges))


def forward(stage, i):
    return f"{i}@{stage}"


def backward(stage, i):
    return f"{'abcdefghijklmnopqrstuvwxyzABCDEF'[i] * 2}@{stage}"


def by_stage(graph, topology):
    return Mapping(graph, topology, tuple(int(op.name.partition("@")[2]) for op in graph.ops))


def machine(stages, latency_s=0.0):
    return Topology(tuple(Device(f"d{s}", "cpu") for s in range(stages)), (Link("*", "*", latency_s, 1e9),))


def timeline(graph, stages, latency_s=0.0):
    topology = machine(stages, latency_s)
    return Simulator(graph, topology).timeline(by_stage(graph, topology).devices)


def most_in_flight(found, stage):
    """The most micro-batches between their forward and their backward op on a stage."""
    spans = sorted((s for s in found.spans if s.device == stage), key=lambda s: s.start_s)
    now = most = 0
    for span in spans:
        now += 1 if span.end_s - span.start_s == FORWARD_S else -1
        most = max(most, now)
    return most


def test_a_stage_goes_backward_as_soon_as_it_can():
    found = timeline(pipeline(2, 4, in_flight=2), 2)
    picture = """
        d0 |01..aa2bb3cc.dd|
        d1 |.0aa1bb2cc3dd..|
        """
    assert found.as_text(unit_s=1.0) == dedent(picture).strip()


@pytest.mark.parametrize("stages", [2, 3, 4])
@pytest.mark.parametrize("micro_batches", [4, 8, 16])
def test_stages_idle_for_the_others_to_fill_and_to_drain_and_no_longer(stages, micro_batches):
    found = timeline(pipeline(stages, micro_batches, in_flight=2 * stages - 1), stages)
    assert found.makespan_s == (micro_batches + stages - 1) * (FORWARD_S + BACKWARD_S)


@pytest.mark.parametrize("stages", [2, 4])
def test_at_most_the_allowed_number_is_under_way(stages):
    for in_flight in (stages, 2 * stages - 1):
        found = timeline(pipeline(stages, 16, in_flight), stages)
        assert most_in_flight(found, 0) == in_flight
        assert [most_in_flight(found, s) for s in range(stages)] == sorted(
            (most_in_flight(found, s) for s in range(stages)), reverse=True
        )
        assert most_in_flight(found, stages - 1) == 1


@pytest.mark.parametrize("stages", [1, 2, 4])
def test_more_micro_batches_need_less_memory(stages):
    peaks = [
        max(timeline(pipeline(stages, m, in_flight=2 * stages - 1), stages).memory_peak_bytes)
        for m in (1, 4, 8, 16, 32)
        if m == 1 or m >= 2 * stages
    ]
    assert all(fewer > more for fewer, more in pairwise(peaks))
    assert peaks[0] == STEP_BYTES and peaks[-1] == (2 * stages - 1) * STEP_BYTES / 32


def test_a_stage_that_holds_too_many_at_once_lacks_memory():
    """Of 8 micro-batches of 120 bytes each, three fit into 400 bytes, and eight do not."""
    small = Topology(tuple(Device(f"d{s}", "cpu", memory_bytes=400) for s in range(2)), machine(2).links)

    def lack(in_flight, headroom=0.0):
        graph = pipeline(2, 8, in_flight)
        by_arrival = Simulator(graph, small, "fifo")  # which takes forward passes as they come
        return by_arrival.timeline(by_stage(graph, small).devices).lack(headroom)

    assert lack(3) is None
    assert lack(8) == ("d0", 960, 400) and lack(8).missing_bytes == 560
    assert lack(3, headroom=0.5) == ("d0", 360, 200) and lack(1, headroom=0.5) is None


@pytest.mark.parametrize("stages", [2, 4])
def test_the_time_per_micro_batch_approaches_the_largest_load(stages):
    """makespan / max-load = (m + p - 1) / m for m micro-batches on p stages."""
    over = []
    for m in (2, 4, 8, 16, 32):
        graph, topology = pipeline(stages, m, in_flight=min(m, 2 * stages - 1), scale=1 / m), machine(stages)
        costs = cost_matrix(graph, topology).tolist()
        load_s = max(loads(graph, costs, topology, by_stage(graph, topology).devices))
        over.append(timeline(graph, stages).makespan_s / load_s)
        assert over[-1] == pytest.approx((m + stages - 1) / m)
    assert over == sorted(over, reverse=True)


def test_ops_of_no_micro_batch_come_when_the_first_that_needs_them_comes_or_last():
    micro_batches = {"late": 1, "early": 0, "for_late": None, "for_early": None, "update": None}
    ops = tuple(Op(name, cost_s={"cpu": 1.0}, micro_batch=i) for name, i in micro_batches.items())
    edges = (Edge(2, 0, 0), Edge(3, 1, 0))
    found = Simulator(OpGraph("g", ops, edges), machine(1)).timeline((0,) * 5)
    assert [found.graph.ops[s.op].name for s in found.spans] == ["for_early", "early", "for_late", "late", "update"]


def test_groups_keep_micro_batches_apart_and_a_layer_together():
    fine = pipeline(4, 6, in_flight=3)
    layers = tuple(
        Op(op.name, cost_s=op.cost_s, micro_batch=op.micro_batch, colocate=op.name.partition("@")[2]) for op in fine.ops
    )
    coarse = coarsen(OpGraph("pipeline", layers, fine.edges), 60, machine(1))
    for op, members in zip(coarse.graph.ops, coarse.members, strict=True):
        assert {fine.ops[v].micro_batch for v in members} == {op.micro_batch}
    assert 2 <= len(coarse.graph.colocated) <= 4
