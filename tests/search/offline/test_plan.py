"""Planning: the best of what was asked, never worse than a single device, within its time."""

from dataclasses import replace
from itertools import count
from pathlib import Path

import pytest

from placer.errors import BadInputError, PlacerError
from placer.graph.graph_files import read_graph
from placer.graph.held_memory import Lack, fullest_bytes
from placer.graph.op_graph import Edge, Op, OpGraph
from placer.graph.topology import Device, Link, Topology
from search.offline.plan import plan
from search.problem.memory_fit import with_more_tensors, with_tensors
from search.problem.problem import Problem
from search.session.registry import SEARCHERS

GNMT = Path(__file__).parents[2] / "data" / "gnmt.json"


def ticking(step_s=0.001):
    """A clock that moves on by `step_s` whenever somebody looks."""
    ticks = count()
    return lambda: next(ticks) * step_s


def gpus(number, **fields):
    rates = {"ingress_bytes_per_s": 1e10, "egress_bytes_per_s": 1e10}
    devices = tuple(Device(f"gpu:{i}", "gpu", **rates, **fields) for i in range(number))
    return Topology(devices, (Link("*", "*", 1e-5, 1e10),))


@pytest.mark.some(2)
@pytest.mark.parametrize(
    "name", [pytest.param(n, marks=pytest.mark.nightly) if n.startswith("bayes") else n for n in SEARCHERS]
)
def test_a_plan_lies_between_the_bound_and_the_best_single_device(name, problem):
    found = plan(problem, name, seconds=0.5, clock=ticking(0.02))
    assert found.value == problem.predict(problem.placement(found.mapping))
    assert found.lower_bound <= found.value
    assert found.best_single is None or found.value <= found.best_single


@pytest.mark.parametrize("objective", ["makespan", "max-load"])
def test_a_published_graph_is_planned(objective):
    problem = Problem(read_graph(GNMT), gpus(4), objective)
    found = plan(problem, seconds=0.5, clock=ticking())
    assert found.value < found.best_single
    if objective == "max-load":
        assert found.value < 0.4 * found.best_single


def test_the_same_seed_and_clock_plan_the_same(towers):
    one, two = (plan(towers, seconds=0.2, seed=5, clock=ticking()) for _ in range(2))
    assert one == two


def test_a_graph_that_no_single_device_holds_is_planned_all_the_same(tight):
    found = plan(tight, seconds=0.2, clock=ticking())
    assert found.best_single is None
    assert len(set(found.mapping.devices)) == 3


def test_no_time_at_all_still_gives_a_mapping(problem):
    assert plan(problem, seconds=0, clock=ticking()).value < float("inf")


def test_only_what_is_better_than_all_before_is_asked_what_memory_it_lacks(towers):
    """That takes as long as many predictions. What is refused is told as a failure, and said with how near it came."""
    looked = []

    def lack(mapping):
        looked.append(towers.predict(towers.placement(mapping)))
        return Lack("cpu:1", 12.0, 10.0) if mapping.memory_bytes[1] > 10 else None

    found = plan(towers, "local", seconds=1.0, clock=ticking(0.02), lack=lack)
    assert found.mapping.memory_bytes[1] <= 10 and found.value == found.best_single == looked[0]
    assert len(looked) > 1 and max(looked[1:]) <= looked[0]
    (note,) = found.notes
    assert note.startswith(f"{len(looked) - 1} mapping") and "cpu:1 would hold" in note


def test_where_all_that_was_asked_lacks_memory_the_nearest_is_said(towers):
    def lack(mapping):
        return Lack("cpu:0", 2**20 * (100 + sum(mapping.devices)), 2**20 * 90)

    with pytest.raises(PlacerError, match=r"'towers' that was asked fits .* cpu:0 would hold 100.0 MiB at once"):
        plan(towers, seconds=0.0, clock=ticking(), lack=lack)


def test_what_is_refused_makes_the_search_leave_more_room():
    """All that is best by the estimate of tensors lacks memory here, as simulated."""
    graph = read_graph(GNMT)
    problem = with_tensors(Problem(graph, gpus(4, memory_bytes=560_000_000)), fullest_bytes(graph))
    found = plan(problem, seconds=1.0, clock=ticking(), lack=lambda m: problem.simulator.timeline(m.devices).lack())
    assert problem.simulator.timeline(found.mapping.devices).lack() is None
    assert "left out for lack of memory" in found.notes[0]
    assert found.lower_bound <= found.value


def test_a_device_that_is_too_small_by_the_estimate_of_tensors_counts_where_it_holds_all_as_simulated():
    """Four ops make 100 MB each, and each is used up before the next is made; in the order of the file, all four
    would be held at once.
    """
    ops = [Op(f"made{i}", cost_s={"gpu": 1.0}) for i in range(4)]
    ops += [Op("start", cost_s={"gpu": 1.0}), *(Op(f"used{i}", cost_s={"gpu": 1.0}) for i in range(4))]
    edges = [edge for i in range(4) for edge in (Edge(i, 5 + i, 100_000_000), Edge(4, 5 + i, 1000))]
    graph = OpGraph("pairs", tuple(ops), tuple(edges))
    devices = tuple(Device(f"gpu:{i}", "gpu", memory_bytes=250_000_000) for i in range(2))
    alone = Problem(graph, Topology(devices, (Link("*", "*", 10.0, 1e9),)))
    problem = with_tensors(alone, fullest_bytes(graph))
    assert list(alone.singles()) and not list(problem.singles())

    def lack(mapping):
        return problem.simulator.timeline(mapping.devices).lack()

    found = plan(problem, seconds=1.0, clock=ticking(), lack=lack)
    assert lack(found.mapping) is None
    assert found.value == found.best_single == pytest.approx(9.0)


def test_with_more_tensors_what_was_refused_no_longer_fits():
    chain = OpGraph(
        "chain", tuple(Op(f"v{i}", cost_s={"gpu": 1.0}, memory_bytes=1) for i in range(12)),
        tuple(Edge(i, 11, 40) for i in range(11)),
    )  # fmt: skip
    refused = (0,) * 6 + (1,) * 6
    for devices, is_roomier in ((3, True), (1, False)):  # on one, no placement would fit
        problem = with_tensors(Problem(chain, gpus(devices, memory_bytes=500)), fullest_bytes(chain))
        found = with_more_tensors(problem, refused, Lack("gpu:0", 606.0, 500.0))
        assert (found is not problem) == is_roomier
        if is_roomier:
            assert not found.fits(refused) and found.kept_bytes == (100.0,) * 11 + (0.0,)
    alone = Problem(chain, gpus(3, memory_bytes=500))
    assert with_more_tensors(alone, refused, Lack("gpu:0", 606.0, 500.0)) is alone


def test_a_graph_that_fits_nowhere_is_refused_with_what_is_missing():
    problem = Problem(read_graph(GNMT), gpus(2, memory_bytes=300_000_000))
    with pytest.raises(BadInputError, match="175063808 too few"):
        plan(problem, clock=ticking())


def relay(*links, between="abc"):
    """An op on `a` feeds one, by default on any device, which feeds one on `c`. links: the devices at their ends."""
    devices = tuple(Device(name, name) for name in "abc")
    ops = (
        Op("first", cost_s={"a": 1.0}),
        Op("between", cost_s=dict.fromkeys(between, 1.0)),
        Op("last", cost_s={"c": 1.0}),
    )
    graph = OpGraph("relay", ops, (Edge(0, 1, 8), Edge(1, 2, 8)))
    return Problem(graph, Topology(devices, tuple(Link(src, dst, 1e-5, 1e10) for src, dst in links)))


NOT_FOUND = "no mapping was found under which each tensor that crosses has a link: "


def test_a_searcher_that_asks_for_no_mapping_with_all_links_names_one_that_does():
    """Only by way of `b` are there links."""
    problem = relay("ab", "bc", "cb", "ba")
    assert plan(problem, seconds=0.2, clock=ticking()).mapping.devices == (0, 1, 2)
    with pytest.raises(PlacerError, match=f"{NOT_FOUND}try --searcher hybrid, search longer"):
        plan(problem, "single", seconds=0.2, clock=ticking())


def test_the_usual_searcher_returns_no_mapping_either_whose_tensors_have_no_link():
    """Each tensor alone has a way, and both have none."""
    for seconds in (0.0, 0.2):
        with pytest.raises(PlacerError, match=f"{NOT_FOUND}search longer, or add") as caught:
            plan(relay("ab", "cb"), seconds=seconds, clock=ticking())
        assert not isinstance(caught.value, BadInputError)


@pytest.mark.parametrize("searcher", ["hybrid", "single"])
def test_a_tensor_that_has_no_link_under_any_mapping_is_named(searcher):
    with pytest.raises(BadInputError, match=r"the topology has no link b -> c, and a tensor must cross it"):
        plan(relay("ab", "ac", between="b"), searcher, seconds=0.2, clock=ticking())


def test_max_load_needs_no_links():
    problem = replace(relay(), objective="max-load")
    assert plan(problem, seconds=0.2, clock=ticking()).value < float("inf")
