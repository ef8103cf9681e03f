"""Predictions of a search: in which order placed steps run their ops."""

from __future__ import annotations

import pytest

from placer.errors import BadInputError
from placer.graph.coarsen import Groups
from placer.graph.op_graph import Edge, Op, OpGraph
from placer.graph.topology import Device, Link, Topology
from placer.result import Measured
from search.session.prediction import Prediction

# 'wide' has more successors, 'long' the longer way to the end.
OPS = {"wide": 1.0, "long": 1.0, "x": 0.1, "y": 0.1, "z": 0.1, "last": 3.0, "there": 0.1}
EDGES = (("wide", "x"), ("wide", "y"), ("wide", "z"), ("long", "last"), ("x", "there"))
AT = {name: i for i, name in enumerate(OPS)}
GRAPH = OpGraph(
    "two ways",
    tuple(Op(name, cost_s={"cpu": cost_s}) for name, cost_s in OPS.items()),
    tuple(Edge(AT[src], AT[dst], 8) for src, dst in EDGES),
)
TOPOLOGY = Topology((Device("p", "cpu"), Device("q", "cpu")), (Link("*", "*", 1e-3, 1e9),))
GROUPS = Groups(GRAPH, GRAPH, tuple((v,) for v in range(len(GRAPH))))
MEASURED = Measured(12.0)
CUT = tuple(int(name == "there") for name in OPS)


def order(schedule):
    return Prediction.profiled(GROUPS, TOPOLOGY, 0.0, schedule).order_of(CUT)


def test_each_schedule_has_its_own_order():
    assert order("rank").index("long") < order("rank").index("wide")
    assert order("donf").index("wide") < order("donf").index("long")


def test_with_fifo_tensorflow_decides():
    assert order("fifo") == []


def test_one_device_has_no_order():
    assert Prediction.profiled(GROUPS, TOPOLOGY, 0.0).order_of((0,) * len(GRAPH)) == []


def test_a_calibrated_prediction_keeps_the_schedule():
    profiled = Prediction.profiled(GROUPS, TOPOLOGY, 0.0, "donf")
    calibrated = profiled.calibrated_of([(CUT, MEASURED), ((0,) * len(GRAPH), MEASURED)])
    assert calibrated.schedule == calibrated.problem.schedule == "donf"
    assert calibrated.order_of(CUT).index("wide") < calibrated.order_of(CUT).index("long")


def test_a_calibrated_problem_knows_the_costs_that_were_profiled():
    profiled = Prediction.profiled(GROUPS, TOPOLOGY, 0.0)
    slow = [(CUT, Measured(100.0)), ((0,) * len(GRAPH), Measured(100.0))]
    calibrated = profiled.calibrated_of(slow).problem
    cut = [profiled.placement(CUT)]
    assert calibrated.predict_many(cut) > profiled.problem.predict_many(cut)
    assert calibrated.uncalibrated.predict_many(cut) == profiled.problem.predict_many(cut)
    assert profiled.problem.uncalibrated is profiled.problem


def test_an_unknown_schedule_is_refused():
    with pytest.raises(BadInputError, match="none of rank, donf, fifo"):
        order("lifo")
