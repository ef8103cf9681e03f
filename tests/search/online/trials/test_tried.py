from placer.result import Failed, Measured
from search.online.replan.proposal import Proposal
from search.online.trials.tried import Tried


def tried_of(*steps_s):
    reported = []
    tried = Tried(lambda trial, first: reported.append((trial.op_devices, first)), clock=iter(range(100)).__next__)
    tried.tell("untouched", 0, (), (), Measured(2.0))
    for i, step_s in enumerate(steps_s):
        tried.note(Proposal((0, i), ("a", "b"), step_s / 2, "hybrid"))
        tried.tell("hybrid", 0, (0, i), ("a", "b"), Measured(step_s))
    return tried, reported


def test_a_mode_that_is_measured_again_keeps_its_place_and_is_reported_as_known():
    tried, reported = tried_of(1.0, 3.0)
    tried.tell("hybrid", 0, (0, 0), ("a", "b"), Failed("memory", "too large"))
    assert [trial.op_devices for trial in tried.trials] == [(), (0, 0), (0, 1)] and tried.mappings == 2
    assert isinstance(tried.trials[1].result, Failed) and tried.trials[1].at_s == 4
    assert reported == [((), True), ((0, 0), True), ((0, 1), True), ((0, 0), False)]


def test_of_long_adaptation_the_latest_trials_stay_known_and_those_that_can_run():
    tried, _ = tried_of(*(1.0 + i for i in range(9)))
    tried.forget_old({(0, (0, 1))}, most=3)
    assert [trial.op_devices for trial in tried.trials] == [(), (0, 1), (0, 6), (0, 7), (0, 8)]
    assert tried.predicted_s(0, (0, 1)) == 1.0 and tried.predicted_s(0, (0, 2)) is None
    tried.clear()
    assert not tried.trials and tried.predicted_s(0, (0, 1)) is None
