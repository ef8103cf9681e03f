"""The parts of a record: bars of timelines, the drawn graph, loads."""

from __future__ import annotations

import pytest

from placer.graph.coarsen import Groups
from placer.graph.op_graph import Edge, Op, OpGraph
from placer.graph.topology import Device, Link, Topology
from search.page.drawing import drawing_of, layout
from search.page.loads import loads_of
from search.page.panels import MOST_BARS, panel_of
from surrogate.simulate.simulator import Simulator
from surrogate.simulate.timeline import Timeline


def test_a_panel_keeps_all_the_work(timelines: tuple[Timeline, Timeline]) -> None:
    for timeline in timelines:
        panel = panel_of("step", timeline)
        for d, busy_s in enumerate(timeline.busy_s):
            assert sum(bar.busy_s for bar in panel.bars if bar.lane == d) == pytest.approx(busy_s, abs=1e-6)
        assert sum(bar.count for bar in panel.bars) == len(timeline.spans) + len(timeline.transfers)


def test_short_work_is_gathered(topology: Topology) -> None:
    ops = tuple(Op(f"op{i}", cost_s={"cpu": 1e-6}, phase="forward") for i in range(3 * MOST_BARS))
    edges = tuple(Edge(i, i + 1, 4) for i in range(len(ops) - 1))
    timeline = Simulator(OpGraph("chain", ops, edges), topology).timeline((0,) * len(ops))
    panel = panel_of("step", timeline)
    assert len(panel.bars) <= MOST_BARS
    assert sum(bar.count for bar in panel.bars) == len(ops)
    assert sum(bar.busy_s for bar in panel.bars) == pytest.approx(timeline.makespan_s, rel=1e-3)


def test_a_link_that_is_used_has_a_lane_of_both_its_devices(timelines: tuple[Timeline, Timeline]) -> None:
    single, apart = (panel_of("step", timeline) for timeline in timelines)
    assert [lane.devices for lane in single.lanes] == [(0,), (1,)]
    assert {lane.devices for lane in apart.lanes} == {(0,), (1,), (1, 0)}
    assert {bar.kind for bar in apart.bars if bar.lane >= 2} == {"transfer"}


def test_edges_of_the_drawing_lead_to_the_right(groups: Groups) -> None:
    places = layout(groups.graph)
    assert all(places[e.src][0] < places[e.dst][0] for e in groups.graph.edges)
    assert len(set(places)) == len(places)
    assert all(0 <= x <= 1 and 0 <= y <= 1 for x, y in places)


def test_nodes_say_what_is_in_them(groups: Groups, topology: Topology) -> None:
    devices = [i % 2 for i in range(len(groups.graph))]
    nodes, edges = drawing_of(groups.graph, groups, topology, devices)
    assert [node.device for node in nodes] == devices
    assert sum(node.op_count for node in nodes) == len(groups.fine)
    parts = {part for node in nodes for part in node.part.split("; ") if part}
    assert {"part 1", "part 2"} <= parts or "part 1, 2" in parts
    assert {(e.src, e.dst) for e in edges} == {(e.src, e.dst) for e in groups.graph.edges}


def test_loads_are_those_of_the_timeline(timelines: tuple[Timeline, Timeline]) -> None:
    before, after = timelines
    loads = loads_of(after, before)
    assert [load.busy_s for load in loads] == list(after.busy_s)
    assert [load.before_busy_s for load in loads] == list(before.busy_s)
    assert [load.peak_bytes for load in loads] == list(after.memory_peak_bytes)
    assert sum(load.ops for load in loads) == len(after.graph)
    assert loads[0].memory_bytes == sum(
        op.memory_bytes for op, d in zip(after.graph.ops, after.devices, strict=True) if d == 0
    )


def test_a_device_that_does_nothing_has_a_lane() -> None:
    three = Topology(tuple(Device(f"cpu:{i}", "cpu") for i in range(3)), (Link("*", "*", 1e-5, 1e9),))
    graph = OpGraph("one", (Op("a", cost_s={"cpu": 1e-3}),), ())
    panel = panel_of("step", Simulator(graph, three).timeline((1,)))
    assert [lane.name for lane in panel.lanes] == ["cpu:0", "cpu:1", "cpu:2"]
    assert [bar.lane for bar in panel.bars] == [1]
