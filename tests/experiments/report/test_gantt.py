"""Gantt charts: the facts of small ones in full, of large ones what must hold, and pictures that are pictures."""

from __future__ import annotations

import pytest

from experiments.report.gantt import MOST_KINDS, gantt_facts, gantt_text
from experiments.report.plots.gantt import draw
from placer.errors import BadInputError, PlacerError
from placer.graph.op_graph import Edge, Op, OpGraph
from placer.graph.topology import Device, Link, Topology
from surrogate.simulate.simulator import Simulator
from surrogate.simulate.timeline import Span, Timeline, Transfer

TOPOLOGY = Topology((Device("x", "cpu"), Device("y", "cpu")), (Link("*", "*", 2, float("inf"), send_s=1, receive_s=1),))


def chain(costs, phases=None, types=None):
    """Ops that follow each other, each with 1 byte for the next."""
    ops = tuple(
        Op(f"net/op{i}", types[i] if types else "", {"cpu": cost_s}, phase=phases[i] if phases else None)
        for i, cost_s in enumerate(costs)
    )
    return OpGraph("chain", ops, tuple(Edge(i, i + 1, 1) for i in range(len(ops) - 1)))


@pytest.fixture
def crossing():
    """op0 on x for 4 s, 1 s sent, 2 s on the way, 1 s received, then op1 on y for 2 s."""
    return Simulator(chain([4.0, 2.0], ("forward", "backward")), TOPOLOGY).timeline((0, 1))


def test_lanes_are_devices_and_used_links(crossing):
    chart = gantt_facts("chain", {"": crossing})
    (panel,) = chart.panels
    assert [(lane.name, lane.is_link, lane.busy) for lane in panel.lanes] == [
        ("x", False, 0.5),
        ("y", False, 0.3),
        ("x -> y", True, 0.2),
    ]
    bars = [[(bar.kind, bar.start_s, bar.end_s) for bar in lane.bars] for lane in panel.lanes]
    assert bars == [
        [("forward", 0, 4), ("send", 4, 5)],
        [("receive", 7, 8), ("backward", 8, 10)],
        [("transfer", 5, 7)],
    ]
    assert chart.kinds == ("forward", "backward", "send", "receive", "transfer")


def test_a_step_in_characters(crossing):
    assert gantt_text(crossing, len("x -> y || 100 % ") + 20).splitlines()[:3] == [
        "x      |net/op0->>..........|   50 %",
        "y      |..............<<op1-|   30 %",
        "x -> y |..........op0-......|",
    ]


def test_a_bar_with_little_room_names_its_micro_batch():
    """Forward and backward of two micro-batches on one device; only the last op has room for a name."""
    turns, seconds = (0, 1, 0, 1, None), (2.0, 2.0, 3.0, 3.0, 6.0)
    ops = tuple(
        Op(f"net/part_{turn}/op{i}" if turn is not None else "net/update", "", {"cpu": cost_s}, micro_batch=turn)
        for i, (turn, cost_s) in enumerate(zip(turns, seconds, strict=True))
    )
    graph = OpGraph("pipeline", ops, tuple(Edge(i, i + 1, 1) for i in range(4)))
    timeline = Simulator(graph, Topology((Device("x", "cpu"),))).timeline((0,) * 5)
    assert gantt_text(timeline, len("x ||  100 %") + 16).splitlines()[0] == "x |0-1-op2op3update|  100 %"


def one_device(spans, count=3):
    """A measured step with `spans` (op, start, end) on x."""
    graph = chain([1.0] * count)
    return Timeline(graph, TOPOLOGY, (0,) * count, tuple(Span(0, "op", *span) for span in spans), ())


def test_what_overlaps_shares_the_lane():
    timeline = one_device([(0, 0.0, 4.0), (1, 2.0, 6.0), (2, 6.0, 8.0)])
    bars = gantt_facts("", {"": timeline}).panels[0].lanes[0].bars
    assert [(bar.label, bar.base, bar.height) for bar in bars] == [
        ("net/op0", 0, 0.5),
        ("net/op1", 0.5, 0.5),
        ("net/op2", 0, 1),
    ]


def test_slivers_are_as_high_as_their_column_is_busy():
    # Ten columns of 1 s: one op of 2 s, then two ops that fill a quarter of second 5, one that fills second 9 nearly.
    timeline = one_device([(0, 0.0, 2.0), (1, 5.0, 5.125), (2, 5.5, 5.625), (1, 9.01, 10.0)])
    bars = gantt_facts("", {"": timeline}, columns=10).panels[0].lanes[0].bars
    found = [(bar.start_s, bar.end_s, bar.height) for bar in bars if bar.is_sliver]
    assert found == [(5, 6, 0.25), (9, 10, 1.0)]


def test_thousands_of_ops_are_hundreds_of_bars():
    count = 5000
    timeline = Simulator(chain([1e-4 * (1 + i % 3) for i in range(count)]), TOPOLOGY).timeline((0,) * count)
    bars = gantt_facts("", {"": timeline}, columns=700).panels[0].lanes[0].bars
    assert 1 <= len(bars) <= 700
    assert min(bar.start_s for bar in bars) == 0
    assert max(bar.end_s for bar in bars) == pytest.approx(timeline.makespan_s)


def test_colours_are_families_of_types_or_types_where_no_phase_is_known():
    assert kinds_of(["Conv2D", "MatMul", "Mystery"]) == ("conv forward", "matmul", "other")
    assert kinds_of(["Lstm", "Attend"]) == ("Attend", "Lstm")
    assert len(kinds_of([f"T{i}" for i in range(30)])) == MOST_KINDS + 1


def kinds_of(types):
    timeline = Simulator(chain([1.0] * len(types), types=types), TOPOLOGY).timeline((0,) * len(types))
    return gantt_facts("", {"": timeline}).kinds


def test_two_steps_have_the_same_lanes_and_one_axis(crossing):
    alone = Timeline(crossing.graph, TOPOLOGY, (0, 0), (Span(0, "op", 0, 0.0, 4.0), Span(0, "op", 1, 4.0, 12.0)), ())
    chart = gantt_facts("chain", {"predicted": crossing, "measured": alone})
    assert chart.axis_s == 12
    predicted, measured = ([lane.name for lane in panel.lanes] for panel in chart.panels)
    assert predicted == measured == ["x", "y", "x -> y"]


def test_of_many_links_the_busiest_are_shown():
    devices = tuple(Device(f"d{i}", "cpu") for i in range(4))
    graph = chain([1.0, 1.0])
    moved = [Transfer(s, d, 0, 0, 1.0, 0.0, 1.0 + s) for s in range(4) for d in range(4) if s != d]
    timeline = Timeline(graph, Topology(devices), (0, 0), (Span(0, "op", 0, 0.0, 9.0),), tuple(moved))
    chart = gantt_facts("", {"": timeline}, links=3)
    assert [lane.name for lane in chart.panels[0].lanes if lane.is_link] == ["d3 -> d0", "d3 -> d1", "d3 -> d2"]
    assert chart.links_left_out == 9


@pytest.mark.parametrize(("ending", "begins"), [("png", b"\x89PNG"), ("svg", b"<?xml"), ("PDF", b"%PDF")])
def test_a_picture_is_written(crossing, tmp_path, ending, begins):
    path = tmp_path / f"step.{ending}"
    draw(gantt_facts("a $ in\n a name", {"predicted": crossing, "measured": crossing}), path)
    assert path.read_bytes().startswith(begins)
    assert list(tmp_path.iterdir()) == [path]


def test_a_step_that_takes_no_time_is_drawn(tmp_path):
    timeline = Simulator(chain([0.0, 0.0]), TOPOLOGY).timeline((0, 0))
    draw(gantt_facts("nothing", {"": timeline}), tmp_path / "step.png")
    assert "x      |....".replace("      ", " ") in gantt_text(timeline, 40)


def test_no_picture_is_one_clear_line(crossing, tmp_path):
    chart = gantt_facts("chain", {"": crossing})
    with pytest.raises(BadInputError, match=r"step\.gif: a picture ends in \.png, \.svg, \.pdf"):
        draw(chart, tmp_path / "step.gif")
    with pytest.raises(PlacerError, match="cannot be written"):
        draw(chart, tmp_path / "nowhere" / "step.png")
