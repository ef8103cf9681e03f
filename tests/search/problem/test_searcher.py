"""What holds for every searcher in the registry. A new searcher is tested here without a new line."""

import json
from dataclasses import replace

import numpy as np
import pytest

from placer.errors import BadInputError
from placer.graph.mapping import Mapping
from placer.graph.op_graph import Op, OpGraph
from placer.graph.topology import Device, Link, Topology
from placer.result import Failed, Measured
from search.problem.memory_fit import packed
from search.problem.problem import Problem
from search.problem.searcher import SearchExhausted, fitting_placements
from search.session.registry import SEARCHERS, make_searcher
from search.session.session import SearchSession

ASKS = 6


@pytest.fixture(params=SEARCHERS)
def name(request):
    return request.param


def result(problem, mapping, failing=False):
    """A clock that disagrees with the simulator a little, and sometimes fails."""
    noise = sum(d * (i % 7) for i, d in enumerate(mapping.devices)) % 5
    if failing and noise == 0:
        return Failed("memory", "out of memory")
    return Measured(problem.predict(problem.placement(mapping)) * (1 + noise / 10), repeats=3)


def asks(searcher, count=ASKS, failing=False, resume_at=None):
    """What `searcher` asks, told after each; after `resume_at` asks it is saved and resumed in a new one."""
    asked = []
    for i in range(count):
        if i == resume_at:
            saved = json.loads(json.dumps(searcher.state()))
            searcher = type(searcher)(searcher.problem, seed=999)
            searcher.restore(saved)
        try:
            mapping = searcher.ask()
        except SearchExhausted:
            break
        asked.append(mapping)
        searcher.tell(mapping, result(searcher.problem, mapping, failing))
    return asked


@pytest.mark.some(5)
def test_a_search_resumed_without_its_history_goes_on_once_it_has_replayed_it(name, problem):
    straight = asks(make_searcher(name, problem, seed=3))
    for count in (1, 4):
        searcher = make_searcher(name, problem, seed=3)
        asks(searcher, count)
        searcher.notes.append("what a report should say.")
        kept, state = list(searcher.told.items()), json.loads(json.dumps(searcher.state(history=False)))
        assert not {"asked", "told"} & state.keys()
        resumed = make_searcher(name, problem, seed=999)
        resumed.replay(kept)
        resumed.restore(state)
        assert resumed.state() == searcher.state()
        assert asks(resumed, ASKS - count) == straight[count:]


def recalibrated(problem):
    """The same problem, some devices slower than they were profiled, and ops by one in three."""
    devices = 1 + np.arange(len(problem.topology)) / 4
    return replace(problem, cost_s=problem.costs * devices * (1 + np.arange(len(problem.graph)) % 3)[:, None])


def sessions_asks(name, problem, resume=False):
    """What a session asks in three batches, the costs recalibrated after each; saved and resumed amid each batch."""
    session = SearchSession(name, problem, seed=3)
    asked = []
    for _ in range(3):
        batch = session.ask(2)
        if resume:
            saved = json.loads(json.dumps(session.state()))
            session = SearchSession(name, session.searcher.problem, seed=999)
            session.restore(saved)
        batch += session.ask(1)
        session.tell((mapping, result(problem, mapping)) for mapping in batch)
        asked += batch
        session.recalibrate(recalibrated(session.searcher.problem))
    return asked


@pytest.mark.some(4)
def test_the_same_seed_asks_the_same(name, problem):
    one, two = (asks(make_searcher(name, problem, seed=3)) for _ in range(2))
    assert one == two


@pytest.mark.some(5)
def test_a_resumed_search_asks_what_an_uninterrupted_one_would(name, problem):
    straight = asks(make_searcher(name, problem, seed=3))
    for resume_at in (1, 4):
        assert asks(make_searcher(name, problem, seed=3), resume_at=resume_at) == straight


@pytest.mark.some(6)
def test_a_resumed_session_asks_what_an_uninterrupted_one_would_across_recalibrations(name, problem):
    straight = sessions_asks(name, problem)
    assert sessions_asks(name, problem, resume=True) == straight
    assert len({mapping.devices for mapping in straight}) == len(straight)


def test_a_rebased_searcher_knows_what_it_asked_and_was_told_and_asks_none_of_it_again(name, problem):
    searcher = make_searcher(name, problem)
    asked = asks(searcher, count=3)
    told, draws = dict(searcher.told), searcher.rng.getstate()
    searcher.request_repeat(asked[0])
    searcher.rebase(recalibrated(problem))
    assert (searcher.told, searcher.incumbent() is None) == (told, False)
    assert draws == searcher.rng.getstate()
    assert searcher.ask() == asked[0]
    more = asks(searcher, count=3)
    assert not {mapping.devices for mapping in asked} & {mapping.devices for mapping in more}


def test_a_searcher_is_not_rebased_on_another_problem(name, towers, tiny):
    for other, what in ((tiny, "graph"), (replace(towers, objective="max-load"), "objective")):
        with pytest.raises(BadInputError, match=f"another {what}; begin a new one") as refused:
            make_searcher(name, towers).rebase(other)
        assert "\n" not in str(refused.value)


def test_what_was_withdrawn_may_be_asked_again(name, towers):
    searcher = make_searcher(name, towers)
    first = searcher.ask()
    searcher.withdraw()
    assert searcher.is_new(towers.placement(first))


def test_nothing_is_asked_twice(name, problem):
    asked = asks(make_searcher(name, problem))
    assert len({mapping.devices for mapping in asked}) == len(asked) >= 1


@pytest.mark.some(4)
def test_what_was_told_unasked_is_not_asked(name, problem):
    first = make_searcher(name, problem).ask()
    searcher = make_searcher(name, problem)
    searcher.tell(first, Measured(1.0))
    assert first not in asks(searcher)


def test_a_requested_repeat_is_asked_again(name, problem):
    searcher = make_searcher(name, problem)
    first = searcher.ask()
    searcher.tell(first, Measured(1.0))
    searcher.request_repeat(first)
    assert searcher.ask() == first


@pytest.mark.some(4)
def test_failures_are_survived(name, problem):
    searcher = make_searcher(name, problem)
    first = searcher.ask()
    searcher.tell(first, Failed("error"))
    assert searcher.incumbent() is None
    assert first not in asks(searcher, failing=True)


def test_exhaustion_is_said_in_one_line_and_is_true(name, tiny):
    searcher = make_searcher(name, tiny)
    asked = asks(searcher, count=20)
    assert len({mapping.devices for mapping in asked}) == len(asked) <= 7
    with pytest.raises(SearchExhausted) as last:
        searcher.ask()
    assert name in str(last.value) and "\n" not in str(last.value)
    if name in ("random", "local", "exact"):
        assert len(asked) == 7


@pytest.mark.parametrize("looks_at_singles", ["single", "local", "hybrid", "exact", "genetic"])
def test_what_is_asked_first_is_predicted_no_slower_than_any_single_device(looks_at_singles, problem):
    first = problem.placement(make_searcher(looks_at_singles, problem).ask())
    assert problem.predict(first) <= min(problem.predict(single) for single in problem.singles())


def test_the_incumbent_is_the_fastest_by_its_last_measurement(towers):
    searcher = make_searcher("random", towers)
    assert searcher.incumbent() is None
    one, two = (towers.mapping(single) for single in towers.singles())
    three = searcher.ask()
    for mapping, told, best in (
        (three, Failed("error"), None),
        (two, Measured(3.0), two),
        (one, Measured(3.0), one),  # of equals the first in order
        (two, Measured(2.0), two),
        (two, Measured(4.0), one),
        (one, Failed("memory"), two),
    ):
        searcher.tell(mapping, told)
        assert searcher.incumbent() == (best and towers.placement(best))


def test_every_mapping_asked_fits_into_memory_and_runs_where_it_can(name, build):
    """By the graph itself: of three devices that it nearly fills, one cannot run all ops."""
    graph = build.layered(2)
    problem = Problem(graph, build.machine("gpu", "gpu", "cpu", memory_bytes=(24, 24, 24)))
    asked = asks(make_searcher(name, problem))
    assert asked or name == "single"  # no device holds everything
    for mapping in asked:
        held_bytes, together = [0, 0, 0], {}
        for op, d in zip(graph.ops, mapping.devices, strict=True):
            held_bytes[d] += op.memory_bytes
            assert d < 2 or "cpu" in op.cost_s
            assert op.colocate is None or together.setdefault(op.colocate, d) == d
        assert max(held_bytes) <= 24


def test_a_result_for_another_graph_is_refused(name, towers):
    other = OpGraph("other", towers.graph.ops[:2], ())
    with pytest.raises(BadInputError, match="this search is for"):
        make_searcher(name, towers).tell(Mapping(other, towers.topology, (0, 0)), Measured(1.0))


def test_another_searchers_state_is_refused(name, towers):
    other = next(n for n in SEARCHERS if n != name)
    with pytest.raises(BadInputError, match=other):
        make_searcher(name, towers).restore(make_searcher(other, towers).state())


def test_an_unknown_searcher_is_refused_with_the_known_ones(towers):
    with pytest.raises(BadInputError, match="choose one of"):
        make_searcher("magic", towers)


def test_where_memory_is_nearly_full_looking_for_a_mapping_that_fits_ends_in_time():
    """The last unit has room nowhere, whichever of 2**41 ways the others take."""
    ops = [Op(name=f"op{i}", type="MatMul", cost_s={"cpu": 1e-3}, memory_bytes=10) for i in range(41)]
    ops.append(Op(name="large", type="MatMul", cost_s={"cpu": 1e-3}, memory_bytes=395))
    devices = tuple(Device(f"cpu:{i}", "cpu", memory_bytes=400) for i in range(2))
    topology = Topology(devices, (Link("*", "*", 1e-5, 1e9),))
    problem = Problem(OpGraph("full", tuple(ops), ()), topology)
    looks = []
    assert list(fitting_placements(problem, lambda: bool(looks.append(1) or len(looks) > 2))) == []
    assert len(looks) == 3


def test_where_only_one_mapping_fits_looking_for_another_ends_although_nothing_limits_it(monkeypatch):
    """Ops of 1, 2, 4, ... bytes on devices that all of them fill: to try all ways would take days."""
    monkeypatch.setattr("search.problem.searcher.MOST_LOOKS", 4)
    ops = tuple(Op(f"op{i}", cost_s={"cpu": 1e-3}, memory_bytes=2**i) for i in range(40))
    full = sum(op.memory_bytes for op in ops[::3])
    sizes = (full, sum(op.memory_bytes for op in ops) - full)
    devices = tuple(Device(f"cpu:{i}", "cpu", memory_bytes=size) for i, size in enumerate(sizes))
    problem = Problem(OpGraph("full", ops, ()), Topology(devices, (Link("*", "*", 1e-5, 1e9),)))
    searcher = make_searcher("random", problem)
    searcher.tell(problem.mapping(packed(problem)), Measured(1.0))
    with pytest.raises(SearchExhausted, match="no other mapping that fits into memory was found in time"):
        searcher.ask()
