"""What a plan is worth: of several mappings that are best by groups, the best op by op that fits into memory."""

from types import SimpleNamespace

import numpy as np
import pytest
import tensorflow as tf

from placer.graph.held_memory import Lack
from placer.splits.plan import PlanError, SplitPlan
from placer.splits.step import with_variables
from placer.splits.step_graph import StepGraph
from search.splits import choose
from search.splits.choose import Judge, Judged
from tests.search.splits.test_candidates import plan_of
from tests.search.splits.trainings import captured_training, dense

SINGLE = 40


LACK = Lack("d0", 2.0, 1.0)


def worth(monkeypatch, asked, lacks_memory=lambda mapping: False):
    """Of mappings that are numbers: the nearer to 20, the faster. There is one single device."""
    asking = SimpleNamespace(ask=lambda count: list(asked))
    monkeypatch.setattr(choose, "SearchSession", lambda *args, **kwargs: asking)
    problem = SimpleNamespace(singles=lambda: [SINGLE], mapping=lambda placement: placement)
    profiled = SimpleNamespace(
        problem=problem,
        step_s=lambda mapping: 1.0 + abs(mapping - 20),
        lack=lambda mapping: LACK if lacks_memory(mapping) else None,
    )
    return Judge(None, profiled, 192, 0).whole_s()


def test_the_best_op_by_op_counts_wherever_it_stands_among_those_asked(monkeypatch):
    assert worth(monkeypatch, range(48)) == pytest.approx(1.0)


def test_a_mapping_that_lacks_memory_promises_nothing(monkeypatch):
    assert worth(monkeypatch, range(48), lambda mapping: mapping > 12) == pytest.approx(9.0)


def test_where_a_searcher_has_nothing_to_ask_a_single_device_is_promised(monkeypatch):
    assert worth(monkeypatch, []) == pytest.approx(21.0)


def test_where_nothing_fits_nothing_is_promised(monkeypatch):
    assert worth(monkeypatch, range(48), lambda mapping: True) == float("inf")


@pytest.mark.parametrize(
    ("local", "judged"), [(False, ["b", "c", "d", "4 micro-batches"]), (True, ["b", "c", "d", "e", "4 micro-batches"])]
)
def test_mappings_are_sought_for_the_cheapest_plans_that_can_be_carried_out(monkeypatch, local, judged):
    plans = [(name, SplitPlan({})) for name in "abcde"]
    monkeypatch.setattr(choose, "StepGraph", lambda graph_def, inputs: None)
    monkeypatch.setattr(choose, "ranked", lambda *args: plans)
    monkeypatch.setattr(choose, "pipelines", lambda *args: [("4 micro-batches", SplitPlan({}, in_flight=3))])
    monkeypatch.setattr(choose, "with_local_statistics", lambda graph, plan: (plan, 0, 0))
    noted = []

    def fitting(self, plan, graph, *, limited):
        if noted[-1] == "a":
            raise PlanError("op x has no such way.")
        return f"step of {noted[-1]}", float(ord(noted[-1][0]))

    monkeypatch.setattr(Judge, "fitting", fitting)
    monkeypatch.setattr(Judge, "_rates", lambda self, fine: None)
    monkeypatch.setattr(Judge, "fine", SimpleNamespace(ops=()))
    judge = Judge(SimpleNamespace(graph_def=None, input_names=()), None, 192, 0, local=local)
    assert sorted(found.policy for found in judge.candidates(2, noted.append)) == sorted(judged)


def test_a_plan_is_judged_without_variables_for_its_parts_and_gets_them_once_it_is_chosen(monkeypatch):
    monkeypatch.setattr(Judge, "predicted_s", lambda self, step: 1.0)
    captured, _ = captured_training(dense, 7)
    plan = plan_of(captured, "columns", 2)
    step, _ = Judge(captured, None, 24, 0).fitting(plan, StepGraph(captured.graph_def))
    parts = [part for one in step.captured.divided.values() for part in one.nodes]
    assert parts and all(isinstance(step.captured.variables[part], tf.TensorSpec) for part in parts)
    chosen = with_variables(step).captured
    whole = chosen.joined({name: variable.numpy() for name, variable in chosen.variables.items()})
    assert whole.keys() == captured.variables.keys()
    for name, variable in captured.variables.items():
        np.testing.assert_array_equal(whole[name], variable.numpy())


@pytest.mark.parametrize("whole_s", [1.0, float("inf")])
def test_a_plan_that_does_not_fit_into_memory_is_not_tried_whether_or_not_whole_ops_do(monkeypatch, whole_s):
    monkeypatch.setattr(Judge, "whole_s", lambda self: whole_s)
    monkeypatch.setattr(Judge, "candidates", lambda self, parts, note: [Judged("batch", None, float("inf"))])
    said = "no plan of splits is predicted to fit into the devices' memory."
    assert Judge(None, None, 192, 0).best(2) == said


def test_no_further_plan_is_judged_once_the_time_is_up(monkeypatch):
    def refuse(*_, **__):
        raise PlanError("no rules")

    judged = []
    monkeypatch.setattr(Judge, "fitting", refuse)
    judge = Judge(None, None, 192, 0, stop=lambda: len(judged) == 2)
    assert list(judge._judged(None, [(name, None) for name in "abcd"], judged.append)) == []
    assert judged == ["a", "b"]
