"""The genetic algorithm: what it hands down, what it finds, and that nobody else's random numbers change."""

import json
import random
from itertools import product

import numpy as np
import pytest

from placer.result import Measured
from search.initial.starts import starts
from search.learned.deap_adapter import bred, own_random
from search.learned.genetic import Breeding, Genetic, Operators, evolve
from search.problem.memory_fit import fitted
from search.problem.searcher import never

GENERATIONS = 25


def run(problem, population, fitness, seed=0, stop=never, generations=GENERATIONS):
    return evolve(problem, population, fitness, generations=generations, rng=random.Random(seed), stop=stop)


def predicted(problem):
    return lambda placements: problem.predict_many(placements)


def test_nobody_elses_random_numbers_change(problem):
    random.seed(5)
    expected = [random.random() for _ in range(3)]
    random.seed(5)
    found = [random.random()]
    searcher = Genetic(problem)
    searcher.tell(searcher.ask(), Measured(1.0))
    searcher.ask()
    found += [random.random(), random.random()]
    assert found == expected


def test_the_random_numbers_come_back_after_an_error_too():
    before = random.getstate()
    with pytest.raises(ZeroDivisionError), own_random(3):
        random.random()
        raise ZeroDivisionError
    assert random.getstate() == before


def test_others_random_numbers_change_nothing_here(problem):
    random.seed(1)
    one = Genetic(problem, seed=3).ask()
    random.seed(2)
    assert Genetic(problem, seed=3).ask() == one


def test_the_enumerated_optimum_is_found(towers):
    best = min(map(towers.predict, product(*towers.feasible)))
    value, placement = run(towers, list(towers.singles()), predicted(towers))[0]
    assert value == towers.predict(placement) == pytest.approx(best)


def test_values_are_sorted_right_and_of_fitting_distinct_placements(problem):
    ranking = run(problem, starts(problem, never), predicted(problem))
    placements = [placement for _, placement in ranking]
    assert ranking == sorted(ranking) and len(set(placements)) == len(placements)
    assert [value for value, _ in ranking] == problem.predict_many(placements).tolist()
    assert all(problem.fits(placement) for placement in placements)
    for placement in placements:
        assert all(d in devices for d, devices in zip(placement, problem.feasible, strict=True))


def test_the_end_is_no_worse_than_the_beginning_and_more_generations_no_worse_than_few(problem):
    start = starts(problem, never)
    begun, few, many = (run(problem, start, predicted(problem), generations=g)[0][0] for g in (0, 3, GENERATIONS))
    assert begun == min(problem.predict_many(start))
    assert begun >= few >= many


def test_each_placement_is_judged_once(problem):
    judged = []

    def fitness(placements):
        judged.extend(placements)
        return problem.predict_many(placements)

    run(problem, starts(problem, never), fitness)
    assert len(judged) == len(set(judged)) > len(starts(problem, never))


def test_infinite_and_missing_values_come_last(problem):
    start = starts(problem, never)

    def fitness(placements):
        return [[1.0, np.inf, np.nan][sum(placement) % 3] for placement in placements]

    values = [value for value, _ in run(problem, start, fitness)]
    assert values == sorted(values) and not np.isnan(values).any()


def test_time_that_is_up_leaves_the_beginning(problem):
    start = starts(problem, never)
    assert {placement for _, placement in run(problem, start, predicted(problem), stop=lambda: True)} == set(start)


def test_a_full_memory_is_kept(tight):
    start = starts(tight, never)
    ranking = run(tight, start, predicted(tight), generations=5)
    assert len(ranking) > len(start) and all(tight.fits(placement) for _, placement in ranking)


def test_mating_exchanges_one_region_and_knows_devices_by_what_they_do(towers):
    """Two parents that differ by the names of equal devices alone are one mapping: nothing is left to exchange."""
    operators, draws = Operators(towers), np.random.default_rng(0)
    units = len(towers.units)
    for _ in range(20):
        one = draws.integers(2, size=units).astype(np.int32)
        other = 1 - one
        before = one.copy()
        operators.mate(one, other, draws)
        assert (one == before).all() and (other == 1 - before).all()


def test_mating_gives_each_unit_the_device_of_one_parent(problem):
    """Where no devices are alike; so no child has a unit where it cannot run."""
    operators, draws = Operators(problem), np.random.default_rng(0)
    operators._unlike = ~np.eye(len(problem.topology), dtype=bool)
    for start in starts(problem, never):
        one, other = np.array(start, np.int32), np.array([d[-1] for d in problem.feasible], np.int32)
        parents = one.copy(), other.copy()
        operators.mate(one, other, draws)
        changed = one != parents[0]
        assert (one[changed] == parents[1][changed]).all() and (other[changed] == parents[0][changed]).all()
        assert (other[~changed] == parents[1][~changed]).all()


def test_children_are_copies_that_leave_their_parents_as_they_were():
    rows = [np.zeros(4, np.int32), np.ones(4, np.int32)]

    def mutate(row):
        row[0] = 7

    children = bred(
        rows, [1.0, np.inf], 10, mate=lambda one, other: None, mutate=mutate,
        tournament=2, mating=0.0, mutating=1.0, seed=0,
    )  # fmt: skip
    assert len(children) == 10 and all(child[0] == 7 for child in children)
    assert rows[0].tolist() == [0] * 4 and rows[1].tolist() == [1] * 4
    assert sum(child[1] == 0 for child in children) > 5  # the better parent wins tournaments


def test_the_fastest_measured_joins_the_population(problem):
    searcher, judged = Genetic(problem), []
    fastest = fitted(problem, [devices[-1] for devices in problem.feasible])
    searcher.tell(problem.mapping(fastest), Measured(1e-9))
    predict = searcher._predict_all
    searcher._predict_all = lambda placements: judged.extend(placements) or predict(placements)
    searcher.ask()
    assert judged[0] == fastest


def test_the_state_is_plain_data_of_the_size_of_a_population(problem):
    searcher = Genetic(problem)
    searcher.ask()
    saved = json.loads(json.dumps(searcher.state()))
    assert 0 < len(saved["memory"]) <= Breeding().size
