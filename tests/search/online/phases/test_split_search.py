"""Divided ops within a simulated training: they are tried where a plan of splits promises enough."""

from placer.errors import BadInputError
from search.online.phases import split_search
from search.online.settings import OnlineSettings
from tests.search.online.simulated.machine import Machine
from tests.search.online.simulated.training import Training


def divided(share, monkeypatch, chosen=lambda *_: split_search.ChosenPlan(1, None), **settings):
    """A training whose divided step takes that share of the whole one's time, with a plan of splits."""
    monkeypatch.setattr(split_search, "chosen", chosen)
    machine = Machine(3)
    machine.divided = share
    return Training(machine, split="auto", **settings).until("steady")


def test_a_divided_step_runs_in_the_end_where_it_is_faster_and_only_there(monkeypatch):
    faster, slower = divided(0.7, monkeypatch), divided(1.3, monkeypatch)
    for training, plan in ((faster, 1), (slower, 0)):
        tried = [trial for trial in training.controller.tried if trial.op_devices]
        assert {trial.plan for trial in tried} == {0, 1} and len(tried) <= OnlineSettings().budget
        assert training.mode.plan == plan
        assert "some ops are divided; mappings of that are tried, too." in training.said("plan")
    assert ", with divided ops (" in faster.said("end")[0] and ", with divided ops (" not in slower.said("end")[0]
    assert not faster.planners[1].closed and slower.planners[1].closed
    assert faster.controller.trials.best_single.plan == 0
    assert faster.true_s <= 1.08 * 0.7 * faster.machine.best_s()


def test_under_a_load_a_divided_step_is_adapted_as_a_whole_one(monkeypatch):
    training = divided(0.7, monkeypatch)
    step = training.machine.step
    training.machine.loads.append((step + 50, step + 10**6, (2.5, 1.0)))
    before = training.mode
    training.steps(700)
    assert training.mode is not before and training.mode.plan == 1
    assert training.true_s <= 1.1 * 0.7 * training.machine.best_s((2.5, 1.0))


def test_a_plan_that_cannot_be_carried_out_is_one_line_and_the_search_goes_on(monkeypatch):
    def refused(*_):
        raise BadInputError("the plan divides 'x', which the step does not have; it is for another graph.")

    training = divided(0.7, monkeypatch, refused)
    (said,) = training.said("error")
    assert said == "no ops are divided: the plan divides 'x', which the step does not have; it is for another graph."
    assert training.said("end") and {trial.plan for trial in training.controller.tried} == {0}


def test_where_no_plan_promises_enough_whole_ops_have_the_whole_budget(monkeypatch):
    training = divided(0.7, monkeypatch, lambda *_: "no plan is worth it.")
    assert "no plan is worth it." in training.said("plan")
    assert training.controller._search.budget == OnlineSettings().budget and len(training.planners) == 1
