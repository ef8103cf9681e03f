"""Which single devices are measured, in which order, and what is said of those that are not; how much is expected of
searchers and finalists.
"""

from __future__ import annotations

from math import inf
from types import SimpleNamespace

import pytest

from experiments.jobs.search import singles as singles_module
from experiments.jobs.search.finding import Progress, Trial
from experiments.jobs.search.job import Job
from placer.result import Failed, Measured


class Machine(Job):
    """A job that measures each mapping, a tuple of devices, in a second of its clock. lacking: devices without memory
    for it; failing: those on which it does not run.
    """

    def __init__(self, kinds, *, minutes=None, step_s=None, lacking=(), failing=(), beside=None, begin_s=0.0):
        names = [f"{kind}:{i}" for i, kind in enumerate(kinds)]
        devices = [SimpleNamespace(name=name, kind=kind) for name, kind in zip(names, kinds, strict=True)]
        self.topology = SimpleNamespace(names=names, devices=devices)
        self.settings = SimpleNamespace(measurements=24, minutes=minutes, final_s=None)
        self.trials, self.ended, self.beside, self.failing = [], [], beside, failing
        self.progress, self._refused = Progress(), SimpleNamespace(add=lambda lack: None)
        self._until_s = inf if minutes is None else begin_s + 60 * minutes
        self.clock = lambda: float(len(self.trials))
        singles = [(d, d) for d in range(len(kinds))]
        self.prediction = SimpleNamespace(
            lack=lambda mapping: "it lacks memory" if mapping[0] in lacking else None,
            step_s=lambda mapping: step_s[mapping[0]],
            problem=SimpleNamespace(mapping=lambda placement: placement, topology=self.topology),
        )
        self.prediction.problem.of_variables = SimpleNamespace(singles=lambda: iter(singles))

    def measure(self, searcher, mapping):
        result = Failed("error") if mapping[0] in self.failing else Measured(1.0)
        self.trials.append(Trial(searcher, mapping, result))

    def calibrate(self):
        pass

    @property
    def on(self):
        return [trial.mapping[0] for trial in self.trials]


@pytest.fixture(autouse=True)
def nearly(monkeypatch):
    monkeypatch.setattr(singles_module, "nearly_singles", lambda problem: [])


def test_no_more_are_measured_than_mappings_may_be_and_the_others_are_named():
    job = Machine(["cpu"] * 8)
    job.measure_singles(4)
    assert job.on == [0, 1, 2, 3]
    (line,) = job.ended
    assert line.startswith("single: cpu:4, cpu:5, cpu:6, cpu:7 not tried, because only 4 mappings may be measured")


def test_what_lacks_memory_is_no_measurement():
    job = Machine(["cpu"] * 4, lacking=(0, 1))
    job.measure_singles(2)
    assert job.on == [2, 3] and len(job.ended) == 2


def test_once_one_has_run_none_is_measured_after_the_minutes():
    """The first takes longer than all of them, and does not run."""
    job = Machine(["cpu"] * 4, minutes=0.5 / 60, failing=(0,))
    job.measure_singles()
    assert job.on == [0, 1]
    (line,) = job.ended
    assert line.startswith("single: cpu:2, cpu:3 not tried, because the minutes were up; one that was not tried may be")


def test_half_of_the_minutes_is_theirs_however_long_the_set_up_took():
    job = Machine(["cpu"] * 4, minutes=4 / 60, begin_s=-100.0)
    assert job.time_is_up()
    job.measure_singles()
    assert job.on == [0, 1, 2]  # the third began after 2 of the 4 seconds
    job.leave_share()
    assert job.time_left_s() == 2.0  # for the searchers
    hard = Machine(["cpu"] * 4, minutes=4 / 60, begin_s=-100.0)
    hard.settings.final_s = 1.0
    hard.measure_singles()
    hard.leave_share()
    assert hard.on == [0] and hard.time_is_up()


def test_without_limits_all_are_measured():
    job = Machine(["cpu"] * 3)
    job.measure_singles(24)
    assert (job.on, job.ended) == ([0, 1, 2], [])


def test_a_divided_step_says_nothing_of_those_that_the_whole_step_has_shown():
    whole = SimpleNamespace(trials=[Trial("single", (0, 0), Measured(1.0))], time_left_s=lambda: 0.5 - len(job.trials))
    job = Machine(["cpu"] * 3, beside=whole)
    job.measure_singles()
    assert (job.on, job.ended) == ([0], [])


@pytest.mark.parametrize(("most", "minutes", "on"), [(3, None, [1, 3, 0]), (None, 60.0, [1, 3, 0, 2])])
def test_if_some_may_be_left_out_devices_of_the_kind_that_is_predicted_to_be_fastest_come_first(most, minutes, on):
    """The order of devices of one kind stays, whatever is predicted: the first is what stored results compare with."""
    job = Machine(["cpu", "gpu", "cpu", "gpu"], minutes=minutes, step_s=[3.0, 2.0, 4.0, 1.0])
    job.measure_singles(most)
    assert job.on == on


@pytest.mark.parametrize("most", [None, 24])
@pytest.mark.parametrize("gpu_s", [0.1, 0.9])
def test_if_none_is_left_out_the_first_device_stays_what_stored_results_compare_with(most, gpu_s):
    job = Machine(["cpu", "gpu"], step_s=[1.0, gpu_s])
    job.measure_singles(most)
    assert job.on == [0, 1]


@pytest.mark.parametrize("step_s", [[1.0, 0.9], [0.9, 1.0]])
def test_noise_does_not_change_the_first_device(step_s):
    job = Machine(["cpu", "gpu"], minutes=60.0, step_s=step_s)
    job.measure_singles(1)
    assert job.on == [0]


@pytest.mark.parametrize(
    ("minutes", "final_s", "limit_s"),
    [(None, None, inf), (10.0, None, 540.0), (2.0, None, 60.0), (0.5, None, 15.0), (10.0, 5.0, inf)],
)
def test_the_finalists_may_take_half_of_the_minutes_or_what_is_left_of_them(minutes, final_s, limit_s):
    job = Machine(["cpu"], minutes=minutes)
    job.settings.final_s, job.clock = final_s, lambda: 60.0
    assert job.final_limit_s() == limit_s


class Shared(Machine):
    """Its searchers, by name, measure this many of the mappings that they may."""

    def __init__(self, searchers, beside=None):
        super().__init__(["cpu"], beside=beside)
        self.searchers, self._expected, self.totals = searchers, 24, []
        self.settings.shares = lambda left: [(name, 8) for name in searchers]
        self.progress.begin = self.totals.append

    def measurements_left(self):
        return 24

    def _measure_baselines(self, shares, over):
        self.trials += [self.searchers[name] for name, _ in shares for _ in range(self.searchers[name])]

    def _measure_searcher(self, name, share, over):
        self.trials += [name] * self.searchers[name]


def test_if_a_searcher_ends_early_fewer_mappings_are_expected():
    job = Shared({"heft": 1, "hybrid": 3, "genetic": 8})
    job.measure_searchers()
    assert job.totals == [1 + 16, 1 + 3 + 8]


def test_if_another_job_takes_what_is_left_as_many_are_expected():
    job = Shared({"heft": 1, "hybrid": 3, "genetic": 8})
    job.measure_searchers(most=24)
    assert job.totals == []
    divided = Shared({"heft": 8, "hybrid": 4, "genetic": 4}, beside=SimpleNamespace(trials=[None] * 12))
    divided.measure_searchers()
    assert divided.totals == [12 + 24, 12 + 20]


def test_ctrl_c_is_heard_after_each():
    job = Machine(["cpu"] * 3)
    job.measure_singles(over=lambda: True)
    assert job.on == [0]
