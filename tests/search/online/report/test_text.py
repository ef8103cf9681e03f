"""What a live step tells its user."""

from __future__ import annotations

from typing import Any

from placer.graph.mapping import Mapping
from placer.graph.op_graph import Op, OpGraph
from placer.graph.topology import Device, Topology
from placer.result import Failed, Measured
from search.online.report.text import LINES, SHOWN, as_html, as_text
from search.online.trials.tried import LiveTrial
from tests.search.online.report.seen_step import Step

GRAPH = OpGraph("small", tuple(Op(f"op{i}", cost_s={"cpu": 1.0}) for i in range(3)), ())
TOPOLOGY = Topology(tuple(Device(f"worker:{i}", "cpu") for i in range(2)))

NAMED = {"single": (1, 1, 1), "hybrid": (0, 1, 1)}


def placed(**known: Any) -> Step:
    return Step(mapping=Mapping(GRAPH, TOPOLOGY, (0, 1, 1)), **known)


def test_a_step_that_has_just_begun_says_so_and_no_more() -> None:
    assert as_text(Step(phase="capturing", steps=4)) == "train_step: capturing after 4 steps\n  runs untouched"


def test_a_step_left_alone_says_why() -> None:
    assert "runs untouched: it is compiled by XLA" in as_text(Step(left_alone="it is compiled by XLA"))


def test_a_placed_step_is_held_against_its_alternatives() -> None:
    _, runs, takes, reference = as_text(placed(step_s=0.05, best_single_s=0.09, untouched_s=0.04)).splitlines()
    assert runs == "  runs 1 ops on worker:0, 2 ops on worker:1"
    assert takes == "  50.0 ms a step; the fastest single device: 90.0 ms (1.80x)"
    assert reference == "  for reference: 40.0 ms a step untouched, in this process, before it was placed"


def test_an_untouched_step_that_competes_was_measured_in_turn() -> None:
    tried = [LiveTrial("untouched", (), Measured(0.04, 0.001, 8, 0.0, False), None)]
    text = as_text(placed(step_s=0.05, untouched_s=0.04, tried=tried))
    assert "  for reference: 40.0 ms a step untouched, in this process, measured in turn with others" in text


def test_a_gain_that_was_not_measured_is_not_told() -> None:
    text = as_text(placed(step_s=0.05))
    assert "50.0 ms a step" in text
    assert "x)" not in text


def test_the_fastest_come_first_and_what_failed_is_told() -> None:
    tried = [LiveTrial(f"m{i}", (0, 1), Measured(0.1 - i / 1000, 0.001, 8, 0.0, False), 0.08) for i in range(SHOWN + 2)]
    step = placed(tried=[*tried, LiveTrial("bad", (1, 1, 0), Failed("error", "no kernel"), None)])
    names = [
        line.split()[-1] for line in as_text(step).splitlines() if line.endswith(tuple("0123456789")) and "ms" in line
    ]
    assert names == [f"m{i}" for i in reversed(range(2, SHOWN + 2))]
    assert "1 could not run, first: no kernel" in as_text(step)


def test_a_single_device_is_named_and_what_runs_is_marked() -> None:
    tried = [LiveTrial(name, on, Measured(0.1, 0.001, 8, 0.0, False), None) for name, on in NAMED.items()]
    lines = [line.split("ms")[-1].strip() for line in as_text(placed(tried=tried)).splitlines() if "ms" in line]
    assert lines == ["single on worker:1", "hybrid (runs now)"]


def test_an_untouched_step_has_its_time_told() -> None:
    assert as_text(Step(untouched_s=0.02)).splitlines()[1:] == ["  runs untouched", "  20.0 ms a step"]


def test_the_latest_decisions_come_last_and_the_rest_is_counted() -> None:
    step = placed()
    for i in range(LINES + 5):
        step.journal.entry(i, "stayed", f"reason {i}.")
    lines = as_text(step).splitlines()
    assert lines[-1].endswith(f"reason {LINES + 4}.")
    assert f"decided (the last {LINES} of {LINES + 5}):" in lines
    assert "reason 4." not in as_text(step)


def test_a_notebook_shows_the_same_and_escapes_it() -> None:
    step = placed(name="<lambda>", tried=[LiveTrial("a<b", (0, 1), Measured(0.1, 0.001, 8, 0.0, False), None)])
    step.journal.entry(1, "moved", "to <x>.")
    html = as_html(step)
    assert "&lt;lambda&gt;" in html and "a&lt;b" in html and "&lt;x&gt;" in html
    assert "<lambda>" not in html
