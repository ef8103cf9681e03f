"""Made-up steps side by side: who is in which round, what times are scaled to, and that all steps are closed."""

from __future__ import annotations

from types import SimpleNamespace

import pytest

from experiments.jobs.search.finding import Progress
from experiments.jobs.search.side_by_side import announce, prepared, side_by_side, stepped
from placer.errors import PlacerError
from placer.measure import untouched as untouched_module
from placer.result import Failed, Measured


class Machine:
    """A job on a machine that takes `slower` times as long in each round as in the one before."""

    def __init__(self, seconds, slower=1.0, anchored=True, has_local=True):
        self.rounds, self.open, self.closed, self.joined_anew = [], [], [], 0
        self.seconds, self.slower, self.pace = seconds, slower, 1.0
        self.settings, self.captured = SimpleNamespace(model="huge"), self
        self.devices = SimpleNamespace(has_local=has_local)
        anchor = self.step("anchor") if anchored else None
        self.runner = SimpleNamespace(
            anchor=anchor,
            anchor_s=1.0,
            kept=[],
            ready=self.ready,
            join_anew_if_due=self.join_anew_if_due,
            in_turn=SimpleNamespace(compare=self.compare, seconds_of=self.seconds_of),
            take_down=lambda: None,
            settings=SimpleNamespace(warm_up=2),
        )
        self.prediction = SimpleNamespace(hold=lambda mappings: True)
        self.progress, self.now_s, self.clock, self.limits_s = Progress(), 0.0, lambda: self.now_s, []

    def step(self, name):
        self.open.append(name)
        return SimpleNamespace(name=name, close=lambda: self.close(name))

    def close(self, name):
        self.open.remove(name)
        self.closed.append(name)

    def join_anew_if_due(self):
        assert set(self.open) <= {"anchor"}, "a step is held that joining the workers anew would void"
        self.joined_anew += 1

    def op_mapping(self, mapping):
        return mapping

    def ready(self, mapping):
        return (self.step(mapping), 0.1) if mapping in self.seconds else Failed("memory")

    def seconds_of(self, step, repeats):
        self.rounds.append(step.name)
        self.now_s += repeats * self.seconds[step.name]
        return [self.seconds[step.name]] * repeats

    def compare(self, steps, repeats, **race):
        self.rounds.append([step.name for step in steps])
        self.limits_s.append(race["limit_s"])
        assert {step.name for step in steps} <= set(self.open)
        found = [Measured(self.seconds[step.name] * self.pace, 0.2 * self.pace, repeats) for step in steps]
        self.pace *= self.slower
        return found


@pytest.fixture(autouse=True)
def untouched(monkeypatch):
    monkeypatch.setattr(untouched_module, "UntouchedStep", lambda machine: machine.step("untouched"))


def test_times_are_in_the_anchors_and_what_does_not_run_is_left_out():
    """The anchor takes 2 s now and took 1 s at first, so what is measured now is halved."""
    job = Machine({"anchor": 2.0, "a": 3.0, "c": 5.0})
    found = side_by_side(job, ["a", "b", "c"], 7)
    assert found.measured == {"a": Measured(1.5, 0.1, 7), "c": Measured(2.5, 0.1, 7)}
    assert found.untouched is None and found.failed == {"b": Failed("memory")}
    assert job.rounds == [["anchor", "a", "c"]]
    assert sorted(job.closed) == ["a", "c"]


def test_every_round_has_the_anchor_and_the_first_and_is_scaled_to_the_first_round():
    job = Machine({"anchor": 2.0, "a": 3.0, "b": 4.0, "c": 5.0, "d": 6.0, "untouched": 1.0}, slower=1.5)
    found = side_by_side(job, ["a", "b", "c", "d"], 7, at_once=2, untouched=True)
    assert job.rounds == [["anchor", "a", "b", "c", "untouched"], ["anchor", "a", "d"]] and job.joined_anew == 2
    assert {name: result.step_s for name, result in found.measured.items()} == pytest.approx(
        {"a": 1.5, "b": 2.0, "c": 2.5, "d": 3.0}
    )
    assert found.untouched.step_s == 0.5
    assert sorted(job.closed) == ["a", "a", "b", "c", "d", "untouched"]


def test_without_the_anchor_seconds_stay_as_measured():
    job = Machine({"a": 3.0, "b": 4.0}, anchored=False, has_local=False)
    with prepared(job, ["a", "b"]) as (steps, _):
        found, default = stepped(job, list(steps.values()), 7, untouched=True)
        assert job.closed == []
    assert [result.step_s for result in found] == [3.0, 4.0]
    assert default is None  # the process computes nothing
    assert sorted(job.closed) == ["a", "b"]


def test_without_a_single_device_there_is_nothing_to_compare_with():
    with pytest.raises(PlacerError, match="no single device can run huge"):
        side_by_side(Machine({}, anchored=False), [], 7)


def test_all_rounds_together_keep_to_the_limit():
    job = Machine({"anchor": 2.0, "a": 3.0, "b": 4.0, "c": 5.0, "d": 6.0})
    side_by_side(job, ["a", "b", "c", "d"], 7, at_once=2, limit_s=10.0)
    assert job.limits_s == [5.0, 5.0]


@pytest.mark.parametrize(("limit_s", "rounds"), [(0.0, 2), (60.0, 3), (1000.0, 3)])
def test_apart_no_round_begins_after_the_limit_once_there_are_enough(limit_s, rounds):
    """A round of four steps each takes 28 s."""
    job = Machine({"a": 3.0, "b": 4.0})
    job.prediction.hold = lambda mappings: False
    found = side_by_side(job, ["a", "b", "c"], 12, limit_s=limit_s)
    assert job.rounds == ["a", "b"] * rounds
    assert {name: result.repeats for name, result in found.measured.items()} == {"a": 4 * rounds, "b": 4 * rounds}
    assert found.failed == {"c": Failed("memory")}


@pytest.mark.parametrize(
    ("limit_s", "said"),
    [(float("inf"), "10 min"), (30.0, "2 min"), (300.0, "5 min"), (3600.0, "10 min")],
)
def test_before_it_begins_the_longest_that_it_may_take_is_told(limit_s, said):
    """Two turns to warm up, then 5 to 30 turns of 18 s."""
    phases, job = [], Machine({})
    job.progress.phase = phases.append
    announce(job, 18.0, 30, limit_s)
    assert phases == [f"measuring takes at most about {said}: up to 30 turns of 18.0 s"]


@pytest.mark.parametrize(
    ("limit_s", "each", "said"),
    [(float("inf"), 10, "4 min"), (0.0, 2, "1 min"), (130.0, 4, "2 min"), (3600.0, 10, "4 min")],
)
def test_apart_a_limit_sets_how_often_each_is_stepped_and_what_is_told(limit_s, each, said):
    """Three rounds, in each of which two turns of 7 s to warm up come first. The steps to warm up are in the time."""
    phases, job = [], Machine({"a": 3.0, "b": 4.0})
    job.progress.phase, job.prediction.hold = phases.append, lambda mappings: False
    found = side_by_side(job, ["a", "b"], 30, limit_s=limit_s, known_s=[3.0, 4.0])
    assert [result.repeats for result in found.measured.values()] == [3 * each] * 2
    assert phases == [
        f"measuring takes at most about {said}, besides setting up in each of 3 rounds: up to {3 * each} turns of 7.0 s"
    ]


def test_the_anchor_and_what_is_in_each_round_count_to_the_time_that_is_told():
    """Two rounds with the anchor (1 s) and a (3 s) in each, and the untouched step (2 s) in the first."""
    phases, job = [], Machine({"anchor": 1.0, "a": 3.0, "b": 4.0, "c": 5.0, "untouched": 2.0})
    job.progress.phase, job.untouched = phases.append, Measured(2.0)
    side_by_side(job, ["a", "b", "c"], 7, at_once=1, untouched=True, known_s=[3.0, 4.0, 5.0])
    assert [line.partition(": ")[2] for line in phases] == ["up to 7 turns of 19.0 s"]


def test_turns_are_reported_and_how_much_time_is_left_for_them():
    told, job = [], Machine({"anchor": 2.0, "a": 3.0})
    job.progress.limit, job.progress.turns = (lambda left_s: told.append(left_s())), told.append
    side_by_side(job, ["a"], 7, limit_s=10.0)
    assert told == [10.0, 7]
