"""What a live step shows on its report page."""

from __future__ import annotations

from typing import Any

import pytest

from placer.graph.mapping import Mapping
from placer.graph.op_graph import Edge, Op, OpGraph
from placer.graph.topology import Device, Link, Topology
from placer.result import Failed, Measured
from search.online.journal import MOST_ENTRIES, Journal
from search.online.report.step_record import later_record
from search.online.trials.tried import LiveTrial
from search.page.page import page_html
from search.page.record import RunRecord
from tests.clock import Clock
from tests.search.online.report.seen_step import Step

GRAPH = OpGraph(
    "small", tuple(Op(f"op{i}", cost_s={"cpu": 1e-3}) for i in range(4)), (Edge(0, 2, 8), Edge(1, 3, 8))
)  # fmt: skip
TOPOLOGY = Topology(tuple(Device(f"worker:{i}", "cpu") for i in range(2)), (Link("*", "*", 1e-5, 1e9),))
SINGLE, APART = (1, 1, 1, 1), (0, 1, 0, 1)


def mapped(devices: tuple[int, ...], plan: int, graph: OpGraph = GRAPH) -> Mapping:
    return Mapping(graph, TOPOLOGY, devices)


def record_of(step: Any, graph: OpGraph = GRAPH) -> RunRecord:
    """The record of a step as it is now."""
    return later_record(step, lambda devices, plan: mapped(devices, plan, graph))()


@pytest.fixture
def step() -> Any:
    """A placed step, a moment after its search; times of the journal are those of a clock that counts."""
    seconds = iter(range(100, 200))
    journal = Journal(clock=lambda: float(next(seconds)))
    journal.entry(3, "measured", "single: 4.0 ms a step.", step_s=4e-3)
    journal.entry(9, "moved", "on with hybrid.")
    tried = [
        LiveTrial("hybrid", APART, Measured(2e-3, 1e-4, 8), 2.1e-3, at_s=7.0),
        LiveTrial("single", SINGLE, Measured(4e-3, 1e-4, 8), 3.9e-3, at_s=2.0),
        LiveTrial("hybrid", (0, 0, 0, 1), Failed("memory", "too large"), 2.5e-3, at_s=5.0),
        LiveTrial("untouched", (), Measured(3e-3, 1e-4, 8), None, at_s=1.0),
    ]
    known = {"step_s": 2e-3, "best_single_s": 4e-3, "untouched_s": 3e-3}
    return Step(mapping=mapped(APART, 0), tried=tried, journal=journal, **known)


def test_rows_are_the_trials_in_the_order_of_time(step: Any) -> None:
    rows = record_of(step).rows
    assert [(row.order, row.searcher, row.at_s) for row in rows] == [
        (1, "untouched", 1.0), (2, "single", 2.0), (3, "hybrid", 5.0), (4, "hybrid", 7.0),
    ]  # fmt: skip
    assert [row.step_s for row in rows] == [3e-3, 4e-3, None, 2e-3]
    assert [row.predicted_s for row in rows] == [None, 3.9e-3, 2.5e-3, 2.1e-3]
    assert [row.devices for row in rows] == [(0, 0), (0, 4), (3, 1), (2, 2)]
    assert rows[2].failed == "memory: too large"


def test_what_runs_is_held_against_single_device_and_untouched_step(step: Any) -> None:
    found = [(b.step_s, b.is_delivered, b.is_reference) for b in record_of(step).baselines]
    assert found == [(2e-3, True, False), (4e-3, False, False), (3e-3, False, False)]
    step.tried = step.tried[:-1]  # the untouched step was not measured beside them
    assert [b.is_reference for b in record_of(step).baselines] == [False, False, True]


def test_the_step_is_shown_before_and_after(step: Any) -> None:
    record = record_of(step)
    before, after = record.panels
    assert before.makespan_s == pytest.approx(4e-3) and after.makespan_s == pytest.approx(2e-3)
    assert [load.ops for load in record.loads] == [2, 2]
    assert [load.before_busy_s for load in record.loads] == pytest.approx([0.0, 4e-3])
    on = {name: node.device for node in record.nodes for name in node.ops}
    assert on == {f"op{i}": d for i, d in enumerate(APART)}


def test_every_decision_has_its_step_and_time(step: Any) -> None:
    events = record_of(step).events
    assert [(e.at_s, e.step, e.kind) for e in events] == [(1.0, 3, "measured"), (2.0, 9, "moved")]
    assert "on with hybrid." in page_html(record_of(step))


def test_when_decisions_were_made_counts_from_the_beginning_though_the_first_are_no_longer_kept() -> None:
    clock = Clock(tick_s=1.0)
    journal = Journal(clock=clock)
    for step in range(MOST_ENTRIES + 5):
        journal.entry(step, "measured", "a")
    events = record_of(Step(journal=journal)).events
    assert [event.at_s for event in (events[0], events[-1])] == [6.0, MOST_ENTRIES + 5.0]


def test_an_untouched_step_says_so() -> None:
    record = record_of(Step(left_alone="it is compiled by XLA", untouched_s=3e-3, device_names=()))
    assert record.summary[0] == "runs untouched: it is compiled by XLA"
    assert [(b.step_s, b.is_delivered) for b in record.baselines] == [(3e-3, True)]
    assert (record.panels, record.nodes, record.rows) == ((), (), ())
    assert "it is compiled by XLA" in page_html(record)


def test_without_costs_nothing_is_predicted(step: Any) -> None:
    unknown = OpGraph("small", tuple(Op(op.name, devices=("cpu",)) for op in GRAPH.ops), GRAPH.edges)
    step.mapping = mapped(APART, 0, unknown)
    record = record_of(step, unknown)
    assert (record.panels, record.nodes, record.loads) == ((), (), ())
    assert len(record.rows) == 4
