"""What lacks memory as simulated is not handed on: searchers are told, and asked for something else."""

from __future__ import annotations

import pytest

from placer.errors import BadInputError
from placer.graph.coarsen import coarsen
from placer.graph.held_memory import Lack
from placer.graph.mapping import Mapping
from placer.graph.op_graph import Edge, Op, OpGraph
from placer.graph.topology import Device, Link, Topology
from placer.result import Failed
from search.problem.memory_fit import refuse_too_large
from search.session.prediction import Prediction
from search.session.session import MOST_REFUSED, SearchSession

FREE_LINK = Link("*", "*", 1e-6, 1e12)


def keeping(layers=4, variable=10, kept=100):
    """Forward ops whose tensors wait for backward ops, each with a variable and colocated with its backward op."""
    ops, edges = [], []
    for i in range(layers):
        ops.append(Op(f"f{i}", "F", {"cpu": 1.0}, variable, colocate=f"layer{i}", phase="forward"))
        edges += [Edge(i - 1, i, 1)] if i else []
    for i in reversed(range(layers)):
        ops.append(Op(f"b{i}", "B", {"cpu": 2.0}, colocate=f"layer{i}", phase="backward"))
        edges.append(Edge(i, len(ops) - 1, kept, 1))
        edges.append(Edge(len(ops) - 2, len(ops) - 1, 1))
    return OpGraph("keeping", tuple(ops), tuple(edges))


def prediction(*limits, graph=None, headroom=0.0):
    graph = graph or keeping()
    topology = Topology(tuple(Device(f"d{i}", "cpu", limit) for i, limit in enumerate(limits)), (FREE_LINK,))
    return Prediction.profiled(coarsen(graph, 100, topology), topology, headroom)


@pytest.mark.parametrize("name", ["hybrid", "local", "heft", "random", "expert", "genetic", "bayes-rf"])
def test_searchers_leave_room_for_the_tensors_that_are_kept(name):
    """One device takes all variables many times, but the tensors of two layers only."""
    found = prediction(250, 250)
    session = SearchSession(name, found.problem, seed=1, lack=found.lack)
    asked = session.ask(3)
    assert asked
    for mapping in asked:
        assert found.lack(mapping) is None
        assert sorted(found.problem.placement(mapping)) == [0, 0, 1, 1]


def test_a_single_device_that_would_be_too_full_is_no_candidate():
    assert list(prediction(250, 250).problem.singles()) == []
    assert list(prediction(500, 250).problem.singles()) == [(0, 0, 0, 0)]


def test_the_limit_that_is_simulated_is_the_one_of_the_head_room():
    alone = (0,) * 8
    assert prediction(450, 450).lack_of(alone) is None
    lack = prediction(450, 450, headroom=0.1).lack_of(alone)
    assert lack is not None and (lack.device, lack.limit_bytes) == ("d0", 405.0) and lack.peak_bytes > 440


class Choosy:
    """Refuses all mappings but those that put the first op where it may be."""

    def __init__(self, device):
        self.device, self.refused = device, []

    def __call__(self, mapping: Mapping):
        if mapping.devices[0] == self.device:
            return None
        self.refused.append(mapping)
        return Lack("d0", 100.0 + len(self.refused), 100.0)


def test_what_is_refused_is_told_as_a_failure_and_counted():
    choosy = Choosy(1)
    session = SearchSession("random", prediction(None, None).problem, seed=3, lack=choosy)
    asked = session.ask(6)
    assert len(asked) == 6 and all(mapping.devices[0] == 1 for mapping in asked)
    assert choosy.refused and session.refused.count == len(choosy.refused)
    for mapping in choosy.refused:
        told = session.searcher.told[session.searcher.problem.placement(mapping)]
        assert isinstance(told, Failed) and told.reason == "memory" and "d0 would hold" in told.detail
    assert session.refused.nearest == Lack("d0", 101.0, 100.0)
    assert session.refusals.startswith("random: ") and "not tried for lack of memory, as simulated" in session.refusals


def test_it_is_not_asked_for_ever():
    choosy = Choosy(7)
    graph = keeping(layers=8)
    session = SearchSession("random", prediction(None, None, graph=graph).problem, lack=choosy)
    assert session.ask(2) == [] and session.refused.count == MOST_REFUSED
    assert session.ended == f"searcher 'random' asked {MOST_REFUSED} mappings in a row that lack memory."


def test_where_all_fits_nothing_is_refused():
    found = prediction(None, 10_000)
    session = SearchSession("hybrid", found.problem, lack=found.lack)
    assert session.ask(2) and session.refusals == "" and found.problem.kept_bytes is None


def test_where_the_tensors_fit_nowhere_searchers_go_by_variables_and_what_is_lacking_is_known():
    found = prediction(150, 150)
    assert found.problem.kept_bytes is None
    session = SearchSession("hybrid", found.problem, lack=found.lack)
    assert session.ask(1) == []
    assert session.refused.nearest is not None and session.refused.nearest.missing_bytes > 0


def test_steps_side_by_side_need_the_variables_of_all_and_the_tensors_of_one():
    graph = keeping(variable=100, kept=10)
    found = prediction(400, 500, graph=graph)
    half = Mapping(graph, found.topology, (0, 0, 1, 1, 1, 1, 0, 0))
    assert found.hold([]) and found.hold([half]) and not found.hold([half, half])
    assert prediction(450, 450, graph=graph).hold([half, half])
    assert prediction(None, None, graph=graph).hold([half] * 50)


def test_variables_that_no_mapping_has_room_for_are_refused_before_costs_are_known():
    ops = tuple(Op(f"w{i}", devices=("cpu",), memory_bytes=100) for i in range(3))
    graph = OpGraph("large", ops, ())
    topology = Topology(tuple(Device(f"d{i}", "cpu", 110) for i in range(2)))
    with pytest.raises(BadInputError, match=r"^graph 'large' needs 300 memory_bytes and all devices together hold 220"):
        refuse_too_large(graph, topology, 0.0)
    with pytest.raises(BadInputError, match=r"fits no device's memory_bytes: op 'w0' needs 100 bytes.* 1 too few"):
        refuse_too_large(graph, Topology(topology.devices), 0.1)
    refuse_too_large(graph, Topology((*topology.devices, Device("d2", "cpu", 100))), 0.0)


def test_a_device_that_ran_out_is_not_asked_for_as_much_again():
    found = prediction(None, None)
    peak = found.predictor.simulator.timeline((0,) * 8).memory_peak_bytes[0]
    told = found.warned([Failed("memory", "ran out", "d0", peak), Failed("memory", "of whatever"), Failed("loss")])
    assert found.lack_of((0,) * 8) is None
    lack = told.lack_of((0,) * 8)
    assert lack is not None and (lack.device, lack.peak_bytes, lack.limit_bytes) == ("d0", peak, peak - 1)
    assert told.lack_of((1,) * 8) is None and told.lack_of((0, 0, 1, 1, 1, 1, 0, 0)) is None
    assert told.warned([Failed("memory", "later", "d0", 2 * peak)]).lack_of((0,) * 8) == lack
    assert told.problem.kept_bytes is None  # the problem that searchers know stays the same
    session = SearchSession("random", told.problem, seed=2, lack=told.lack)
    asked = session.ask(8)
    assert asked and all(len(set(mapping.devices)) > 1 or mapping.devices[0] == 1 for mapping in asked)
    assert session.refused.count == 1 and session.refused.nearest is not None
