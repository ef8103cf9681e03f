"""Which finalist is handed back: the fastest, or the best single device where they differ by no more than noise."""

from __future__ import annotations

from types import SimpleNamespace

import pytest

from experiments.jobs.search import ending
from experiments.jobs.search.ending import Final, Finalist, _beaten, _delivered, _in_doubt
from experiments.jobs.search.finding import Trial
from placer.result import Measured

WHOLE, DIVIDED = (SimpleNamespace(traced=SimpleNamespace(plan=plan)) for plan in (None, "a plan"))


def finalist(ms, spread_ms=0.0, *, single=False, job=WHOLE, stopped_early=False):
    mapping = SimpleNamespace(is_single=single)
    return Finalist(job, Trial("x", mapping, Measured(ms / 1e3, spread_ms / 1e3, 30, stopped_early=stopped_early)))


@pytest.mark.parametrize(
    ("fastest_ms", "spread_ms", "is_single"),
    [(90, 1, False), (99, 10, True), (90, 40, True), (99.9, 0, False), (100, 0, True)],
)
def test_a_mapping_must_beat_the_single_device_by_more_than_noise(fastest_ms, spread_ms, is_single):
    finalists = [finalist(100, spread_ms, single=True), finalist(130), finalist(fastest_ms, spread_ms)]
    best = _delivered(finalists)
    assert best is finalists[0 if is_single else 2]
    said = _in_doubt(Final(tuple(finalists)), best)
    assert bool(said) == (is_single and fastest_ms < 100)
    assert not said or f"took {fastest_ms:.2f} ms against 100.00 ms" in said[0]


def test_a_mapping_in_doubt_hides_none_that_surely_beats_the_device():
    finalists = [finalist(100, 1, single=True), finalist(97, 60), finalist(97.5, 1)]
    best = _delivered(finalists)
    assert best is finalists[2]
    assert "another mapping is handed back" in _in_doubt(Final(tuple(finalists)), best)[0]


def test_of_the_single_devices_the_fastest_is_handed_back():
    finalists = [finalist(110, 20, single=True), finalist(100, 20, single=True), finalist(99, 20)]
    assert _delivered(finalists) is finalists[1]


def test_where_no_single_device_runs_the_fastest_mapping_is_handed_back():
    finalists = [finalist(100, 50), finalist(99, 50)]
    assert _delivered(finalists) is finalists[1]


def test_finalists_apart_are_limited_by_the_time_of_a_turn(monkeypatch):
    """The untouched step is stepped with them."""
    told = {}

    def apart(pairs, repeats, **given):
        told.update(given)
        return [Measured(1.0) for _ in pairs], None

    monkeypatch.setattr(ending, "apart", apart)
    job = SimpleNamespace(
        traced=WHOLE.traced, untouched=Measured(0.25), devices=SimpleNamespace(has_local=True), notes=[]
    )
    ending._final_apart([finalist(500, job=job), finalist(1000, job=job)], 30, limit_s=60.0)
    assert told == {"untouched": True, "limit_s": 60.0, "turn_s": 1.75} and job.notes == [ending.APART]


def test_a_finalist_that_dropped_out_is_no_reason_for_doubt():
    finalists = [finalist(100, single=True), finalist(80), finalist(1, stopped_early=True)]
    assert _delivered(finalists) is finalists[1]


def test_divided_ops_within_noise_of_the_single_device_are_said_once():
    finalists = [finalist(100, 40, single=True), finalist(97, 40, job=DIVIDED)]
    best = _delivered(finalists)
    assert best is finalists[0]
    assert _in_doubt(Final(tuple(finalists)), best) and not _beaten(Final(tuple(finalists)), best)
