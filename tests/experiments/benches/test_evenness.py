"""How evenly a machine computes stands beside what was measured on it."""

from __future__ import annotations

import json
from types import SimpleNamespace

import pytest

from experiments import benches
from experiments.benches import evenness
from experiments.benches.bench import BenchOptions
from experiments.benches.evenness import UNEVEN, pace_line, scatter, unevenness, warn_if_uneven
from tests.experiments.benches.run_bench import run_bench
from tests.experiments.benches.test_bench import answers


def test_equal_work_takes_about_equal_times():
    assert scatter(0.1) >= 0.0
    assert unevenness(0.1) >= 0.0


def test_times_that_scatter_are_told_by_their_quartiles(monkeypatch):
    now_s = iter([0.0, 0.0, 1.0, 10.0, 12.0, 20.0, 22.0, 30.0, 33.0, 99.0])
    monkeypatch.setattr(evenness, "PIECE", 1)
    # The module's own name of the clock: threads of other tests may look at the clock itself.
    monkeypatch.setattr(evenness, "time", SimpleNamespace(perf_counter=lambda: next(now_s)))
    assert scatter(0.0) == pytest.approx((2.25 - 1.75) / 2.0)


def test_what_cannot_be_found_out_is_none_and_says_nothing(monkeypatch):
    monkeypatch.setattr(evenness, "LOOK", "raise SystemExit(3)")
    assert unevenness() is None
    warn_if_uneven(None)
    assert pace_line(None, None) == ""
    assert pace_line(None, 0.02).startswith(
        "Times of equal work, on all cores at once, scattered by 2% after the bench ("
    )


def test_an_uneven_machine_is_warned_of_and_named_on_the_page(checkout, monkeypatch):
    shares = iter((2 * UNEVEN, 0.05))
    monkeypatch.setattr(benches, "unevenness", lambda: next(shares))
    answers(monkeypatch)
    with pytest.warns(UserWarning, match="computes unevenly just now"):
        run_bench("main-job", BenchOptions(("towers", "moe"), measurements=4), record=True)
    assert json.loads((checkout / "benchmarks/main-job.json").read_text())["uneven"] == {"before": 0.3, "after": 0.05}
    page = (checkout / "BENCHMARKS.md").read_text()
    assert (
        "scattered by 30% before the bench and 5% after the bench (interquartile range); **what was measured may be off"
        in page
    )


def test_nothing_is_looked_at_without_a_record(monkeypatch):
    monkeypatch.setattr(benches, "unevenness", lambda: pytest.fail("looked"))
    answers(monkeypatch)
    facts = run_bench("main-job", BenchOptions(("towers",), measurements=4), record=False)
    assert "uneven" not in facts
