"""Exact: what it proves is true, by enumeration; where time runs out its bound is; symmetric mappings are one."""

from itertools import count

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from placer.errors import BadInputError
from placer.graph.op_graph import Edge, Op, OpGraph
from placer.graph.topology import Device, Link, Topology
from search.exact import exact
from search.exact.bounds import lower_bound
from search.exact.exact import Exact, ExactSettings
from search.offline.plan import plan
from search.problem.problem import Problem
from search.problem.searcher import SearchExhausted, fitting_placements

TREE_ONLY = ExactSettings(enumerate=0, climbs=0)


def optimum(problem):
    return float(problem.predict_many(list(fitting_placements(problem))).min())


@settings(max_examples=200, deadline=None)
@given(st.data())
def test_branch_and_bound_finds_what_enumeration_finds(enumerable, data):
    problem = data.draw(enumerable)
    if problem is None:
        return
    searcher = Exact(problem, settings=TREE_ONLY)
    try:
        found = problem.predict(problem.placement(searcher.ask()))
    except BadInputError:  # nothing fits
        assert not list(fitting_placements(problem))
        return
    assert searcher.proven
    assert found == pytest.approx(optimum(problem), rel=1e-9)
    assert searcher.bound() <= optimum(problem)


@settings(max_examples=100, deadline=None)
@given(st.data(), st.integers(1, 40))
def test_the_bound_holds_wherever_it_stops(enumerable, data, work):
    problem = data.draw(enumerable)
    if problem is None or not list(fitting_placements(problem)):
        return
    work *= problem.ops_and_edges
    searcher = Exact(problem, settings=ExactSettings(enumerate=0, climbs=0, work=work, at_once=1))
    searcher.ask()
    assert searcher.bound() <= optimum(problem)
    assert not searcher.proven or searcher.ranking[0][0] == pytest.approx(optimum(problem), rel=1e-9)


def forked(chains, width, devices):
    """Chains of `width` ops side by side, between a fork and a join."""
    ops = [Op("fork", cost_s={"cpu": 0.5})]
    edges = []
    for i in range(chains):
        row = len(ops)
        ops += [Op(f"{i}/{j}", cost_s={"cpu": 1.0 + (i * width + j) % 7 / 10}) for j in range(width)]
        edges += [Edge(0, row, 1), *(Edge(v, v + 1, 1) for v in range(row, row + width - 1))]
    ops.append(Op("join", cost_s={"cpu": 0.5}))
    edges += [Edge(width * (i + 1), len(ops) - 1, 1) for i in range(chains)]
    rates = {"ingress_bytes_per_s": 9.0, "egress_bytes_per_s": 9.0}
    machine = tuple(Device(f"cpu:{i}", "cpu", **rates) for i in range(devices))
    return OpGraph("forked", tuple(ops), tuple(edges)), Topology(machine, (Link("*", "*", 0.01, 1e3),))


@pytest.mark.parametrize("objective", ["makespan", "max-load"])
def test_a_space_too_large_to_enumerate_is_proven(objective):
    problem = Problem(*forked(3, 6, 3), objective)
    assert problem.space > 10**9
    searcher = Exact(problem)
    best = problem.predict(problem.placement(searcher.ask()))
    assert searcher.proven
    assert best * (1 - 1e-9) <= searcher.bound() <= best


def test_what_time_cut_short_is_solved_where_there_is_more(build):
    problem = Problem(build.layered(1, layers=4), build.machine("gpu", "gpu", "cpu"))
    looks = count()
    searcher = Exact(problem, stop=lambda: next(looks) >= 1, settings=TREE_ONLY)
    searcher.ask()
    assert not searcher.proven and searcher.cut
    other = Exact(problem, settings=TREE_ONLY)
    other.restore(searcher.state())
    other.ask()
    assert other.proven and not other.cut


def test_a_tree_too_large_for_memory_is_left_out_and_what_was_found_is_kept(build):
    problem = Problem(build.layered(1, layers=8), build.machine("gpu", "gpu", "cpu"))
    searcher = Exact(problem, settings=ExactSettings(most_bytes=1000))
    best = problem.predict(problem.placement(searcher.ask()))
    assert not searcher.proven and 0 < searcher.bound() <= best < min(map(problem.predict, problem.singles()))
    assert f"{len(problem.units)} units on 3 devices would take too much memory" in searcher.notes[0]


def test_a_plan_that_is_proven_ends_with_its_bound(towers):
    found = plan(towers, "exact", seconds=1e9)
    assert found.lower_bound <= found.value <= found.lower_bound * (1 + 1e-8)


def test_time_that_is_up_leaves_a_mapping_and_a_bound():
    ticks = count()
    problem = Problem(*forked(5, 6, 3))
    searcher = Exact(problem, stop=lambda: next(ticks) > 3)
    best = problem.predict(problem.placement(searcher.ask()))
    assert not searcher.proven
    assert 0 < searcher.bound() <= best


def refuse(*_, **__):
    raise AssertionError("this work was done already")


def test_a_search_begins_from_what_is_known(build, monkeypatch):
    problem = Problem(build.layered(2, layers=6), build.machine("gpu", "gpu", "cpu"))
    settings = ExactSettings(enumerate=0)
    first = Exact(problem, settings=settings)
    best = problem.placement(first.ask())
    for name in ("starts", "climb", "lower_bound"):
        monkeypatch.setattr(exact, name, refuse)
    second = Exact(problem, settings=settings, known=[best])
    second.given_bound_s = lower_bound(problem)
    assert problem.placement(second.ask()) == best
    assert first.proven and second.proven and second.evaluations < first.evaluations


def test_a_search_that_knows_only_what_does_not_fit_begins_as_any(tight):
    searcher = Exact(tight, settings=TREE_ONLY, known=[(0,) * len(tight.units)])
    assert tight.fits(tight.placement(searcher.ask()))


def test_other_costs_have_another_bound(build):
    problem = Problem(build.layered(2, layers=6), build.machine("gpu", "gpu", "cpu"))
    searcher = Exact(problem, settings=TREE_ONLY)
    searcher.given_bound_s = lower_bound(problem)
    searcher.rebase(Problem(problem.graph, problem.topology, cost_s=problem.costs / 10))
    best = searcher.problem.predict(problem.placement(searcher.ask()))
    assert searcher.proven and searcher.bound() <= best


def test_what_is_asked_gets_no_better_while_the_ranking_lasts(towers):
    searcher = Exact(towers)
    values = [towers.predict(towers.placement(searcher.ask())) for _ in range(30)]
    assert values == sorted(values)


def test_every_mapping_that_fits_is_asked_in_the_end(tiny):
    searcher = Exact(tiny, settings=TREE_ONLY)
    asked = set()
    with pytest.raises(SearchExhausted):
        while True:
            asked.add(searcher.ask().devices)
    assert len(asked) == 7


def test_a_resumed_search_has_its_proof(towers):
    searcher = Exact(towers, settings=TREE_ONLY)
    searcher.ask()
    resumed = Exact(towers)
    resumed.restore(searcher.state())
    assert resumed.proven and resumed.bound() == searcher.bound() > 0
