"""Devices alone whose failure may pass: measured again in the first session, and when the case is opened again."""

from types import SimpleNamespace
from typing import Any

import pytest

from experiments.campaign.measured import case as measured_case
from experiments.campaign.measured.process import LOST as GONE
from experiments.campaign.measured.process import ProcessError
from experiments.campaign.measured.session import Known, Session
from experiments.campaign.open_case import AwayError
from experiments.campaign.rows import to_plain
from experiments.campaign.standing import standing
from placer.result import Failed, Measured, Result
from search.session.prediction import Prediction
from tests.experiments.campaign.test_measured_case import (  # noqa: F401 - two fixtures
    AN_OUTAGE,
    CASE,
    SPEC,
    TOPOLOGY,
    Process,
    folder,
    process,
    profiled,
    read,
    run,
)

LOST, FULL, BROKEN = (Failed(reason, "said TensorFlow") for reason in ("device", "memory", "error"))
WRONG = Failed("loss", "another loss")
RAN = Measured(1.0, 0.1, 12)


class Job:
    """A search under way, whose worker:1 comes to the next of `results` each time that it is measured."""

    def __init__(self, *results: Result) -> None:
        self.left = list(results)
        self.prediction = profiled().prediction
        self.trials: list[Any] = []
        self.topology, self.problem = TOPOLOGY, self.prediction.problem
        self.runner = SimpleNamespace(measure=self._next, take_down=self.calibrate, set_anchor_s=lambda anchor_s: None)

    def measure_singles(self) -> None:
        for placement in self.problem.singles():
            self.measure("single", self.problem.mapping(placement))

    def measure(self, searcher: str, mapping: Any) -> None:
        self.trials.append(SimpleNamespace(mapping=mapping, result=self._next(mapping)))
        self.prediction = self.prediction.warned([self.trials[-1].result])

    def calibrate(self) -> None:
        pass

    def op_mapping(self, mapping: Any) -> Any:
        return mapping

    def _next(self, mapping: Any) -> Result:
        return RAN if set(mapping.devices) == {0} else self.left.pop(0)


def session(job: Job, known: Known | None = None) -> Any:
    held: Any = Session.__new__(Session)
    held.job, held.profiled, held.known, held.facts = job, profiled(), known, None
    held._mapping = lambda devices: SimpleNamespace(devices=devices)
    return held


@pytest.mark.parametrize("results", [[BROKEN, RAN], [FULL, BROKEN, RAN], [LOST, RAN]])
def test_a_device_that_failed_once_is_measured_again(results: list[Result]) -> None:
    assert [result for _, result in session(Job(*results))._singles()] == [RAN, RAN]


def test_what_fails_each_time_is_told_as_a_failure() -> None:
    """A device that is too small for the step alone must not keep the case from being opened."""
    assert [result for _, result in session(Job(FULL, FULL, FULL))._singles()] == [RAN, FULL]
    assert [result for _, result in session(Job(WRONG))._singles()] == [RAN, WRONG]


def test_a_device_that_stays_lost_is_away() -> None:
    with pytest.raises(AwayError, match="said TensorFlow"):
        session(Job(LOST, LOST, LOST))._singles()


def test_what_ran_out_of_memory_is_not_refused_when_it_is_measured_again() -> None:
    job = Job(Failed("memory", "full", "worker:1", 1.0), RAN)
    tried: list[Prediction] = []
    whole = job.measure
    job.measure = lambda name, mapping: (tried.append(job.prediction), whole(name, mapping))  # type: ignore[assignment]
    session(job)._singles()
    assert [prediction.ran_out for prediction in tried] == [(), (), ()]


@pytest.mark.parametrize(("then", "now"), [(FULL, RAN), (FULL, FULL), (WRONG, WRONG)])
def test_a_device_that_failed_before_is_measured_again_in_a_later_session(then: Result, now: Result) -> None:
    first, second = profiled().units.singles()
    held = session(Job(now), Known(b"", [(first, RAN), (second, then)]))
    held._try_again()
    assert [result for _, result in held.known.told] == [RAN, now]
    changed = None if now is then else [["worker:0", 1.0], ["worker:1", 1.0]]
    assert (held.facts and held.facts["singles"]) == changed


def run_longer(folder: Any) -> Any:  # noqa: F811
    """Run the campaign again, with more measurements, so that its case is opened again."""
    (folder / "campaign.toml").write_text(SPEC.replace("measurements = 6", "measurements = 8"))
    return run(folder)


class Passing(Process):
    """worker:1 fails in the first session; it runs when the case is opened again."""

    def __init__(self, settings: Any, known: Known | None, *more: Any) -> None:
        super().__init__(settings, known, *more)
        told = [(place, self.measure(self.step.units.devices(place), None)) for place in self.step.units.singles()]
        facts = self.facts(told)
        if known is None:
            facts["singles"][1][1], facts["told"][1][1] = None, to_plain(FULL)
            self.found = facts
        elif known.tries_again:
            self.found = {name: facts[name] for name in ("singles", "told")}


def test_a_case_that_is_opened_again_knows_the_device_that_runs_now(
    folder: Any,  # noqa: F811
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(measured_case, "CaseProcess", Passing)
    run(folder)
    with read(folder) as store:
        assert [step_s is None for _, step_s in store.opened(CASE)["singles"]] == [False, True]
    run_longer(folder)
    with read(folder) as store:
        opened = store.opened(CASE)
        assert standing(store)["complete"] and "untouched_s" in opened
    assert all(step_s is not None for _, step_s in opened["singles"])
    assert [known and known.tries_again for _, known in Passing.begun] == [None, True]


class Fatal(Passing):
    """worker:1, measured again, ends the process."""

    def __init__(self, settings: Any, known: Known | None, *more: Any) -> None:
        super().__init__(settings, known, *more)
        if known and known.tries_again:
            raise ProcessError("worker:1 was lost", GONE)


def test_a_device_that_ends_the_process_when_it_is_measured_again_keeps_no_case_from_being_opened(
    folder: Any,  # noqa: F811
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(measured_case, "CaseProcess", Fatal)
    run(folder)
    _, campaign = run_longer(folder)
    with read(folder) as store:
        assert standing(store)["complete"] and campaign.lost == []
        assert [step_s is None for _, step_s in store.opened(CASE)["singles"]] == [False, True]
    assert [known and known.tries_again for _, known in Fatal.begun] == [None, True, False]


def test_a_case_is_not_opened_twice_for_a_device_that_is_away_where_none_is_to_be_measured_again(
    folder: Any,  # noqa: F811
) -> None:
    run(folder)
    Process.opening[:] = [AN_OUTAGE]
    assert run_longer(folder)[1].lost == [CASE]
    assert len(Process.begun) == 2
