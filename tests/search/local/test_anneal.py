"""Annealing: only placements that may be, never a worse best, and the optimum where it is known."""

import numpy as np
import pytest

from search.initial.starts import starts
from search.local.anneal import Cooling, Elites, _Population, anneal
from search.local.moves import Moves
from search.problem.searcher import never


def annealed(problem, evaluations=1500, stop=never, seed=1):
    elites = Elites()
    begin = starts(problem, never)
    anneal(problem, Moves(problem), begin, elites, evaluations=evaluations, rng=np.random.default_rng(seed), stop=stop)
    return begin, elites.ranked()


def test_the_best_is_no_worse_than_any_start_and_values_are_what_is_predicted(problem):
    begin, ranked = annealed(problem)
    assert ranked[0][0] <= min(problem.predict(p) for p in begin[: Cooling.chains])
    assert [value for value, _ in ranked] == sorted(value for value, _ in ranked)
    for value, placement in ranked[:5]:
        assert value == pytest.approx(problem.predict(placement), rel=1e-12)


def test_all_elites_fit_and_can_run(tight):
    _, ranked = annealed(tight)
    for _, placement in ranked:
        assert tight.fits(placement)
        tight.mapping(placement)


def test_towers_end_side_by_side(towers):
    """The optimum: fork, one tower on each device, join; the other tower waits for one crossing only.

    a |f000000j|
    b | 111111 |
    """
    _, ranked = annealed(towers, evaluations=4000)
    best = ranked[0][1]
    one, other = ({best[u] for u, (v, *_) in enumerate(towers.units) if towers.graph.ops[v].name.startswith(t)}
                  for t in ("tower0", "tower1"))  # fmt: skip
    assert len(one) == len(other) == 1
    assert one != other


def test_the_same_chance_gives_the_same_elites(problem):
    assert annealed(problem, seed=3) == annealed(problem, seed=3)


def test_it_stops_when_told_to_with_the_starts_as_they_are(problem):
    begin, ranked = annealed(problem, stop=lambda: True)
    assert {placement for _, placement in ranked} <= set(begin)


def test_elites_forget_the_worst():
    elites = Elites(room=4)
    rows = np.arange(20, dtype=np.int32).reshape(20, 1)
    elites.add(rows, np.arange(20.0)[::-1].copy())
    assert [value for value, _ in elites.ranked()] == [0.0, 1.0, 2.0, 3.0]
    elites.add(rows[:1], np.array([-1.0]))
    assert elites.ranked()[0] == (-1.0, (0,))


def test_the_worst_chains_are_given_up_while_the_population_cools(problem, monkeypatch):
    chains, cool = [], _Population.cool

    def noted(population, stretch):
        chains.append(len(population.chains))
        cool(population, stretch)

    monkeypatch.setattr(_Population, "cool", noted)
    cooling = Cooling(chains=8, survivors=2, stretch=10, load_stretch=10)
    judged = anneal(
        problem, Moves(problem), starts(problem, never), Elites(), evaluations=2000, rng=np.random.default_rng(1),
        stop=never, cooling=cooling,
    )  # fmt: skip
    assert chains[0] == 8 and chains[-1] == 2 and chains == sorted(chains, reverse=True)
    assert judged == 8 + 10 * sum(chains) <= 8 + 2000 + 10 * 8


def test_of_large_graphs_a_stretch_has_fewer_steps(problem, monkeypatch):
    """So that the clock is looked at as often."""
    steps, stretch = [], _Population.stretch

    def noted(population, cooling, count, done):
        steps.append(count)
        return stretch(population, cooling, count, done)

    monkeypatch.setattr(_Population, "stretch", noted)
    work = 7 * problem.ops_and_edges
    anneal(
        problem, Moves(problem), starts(problem, never), Elites(), evaluations=1500, rng=np.random.default_rng(1),
        stop=never, cooling=Cooling(work=work, load_work=work),
    )  # fmt: skip
    assert set(steps) == {7}
