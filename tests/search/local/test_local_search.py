"""Local search: where it can be enumerated, it is the best; elsewhere nobody asks better first."""

from itertools import product

import pytest

from placer.result import Measured
from search.local.hill_climb import Shift, climb, moved, shift_count, shifts, some_shifts
from search.local.local_search import Local, LocalSettings
from search.problem.searcher import fitting_placements
from search.session.registry import make_searcher

# Too small a limit to rank the whole space: the climbing itself is tested.
CLIMBING = LocalSettings(enumerate=0)


def test_fitting_placements_are_the_product_that_fits(tiny):
    by_hand = [p for p in product(*tiny.feasible) if tiny.fits(p)]
    assert list(fitting_placements(tiny)) == by_hand
    assert len(by_hand) == 7


def test_the_first_ask_is_the_enumerated_optimum(towers):
    best = min(map(towers.predict, product(*towers.feasible)))
    for settings in (LocalSettings(), CLIMBING):
        first = Local(towers, settings=settings).ask()
        assert towers.predict(towers.placement(first)) == pytest.approx(best)


def test_the_first_ask_is_as_good_as_any_other_searchers(problem):
    first = Local(problem, settings=CLIMBING).ask()
    value = problem.predict(problem.placement(first))
    for name in ("heft", "expert"):
        assert value <= problem.predict(problem.placement(make_searcher(name, problem).ask()))


def test_no_single_move_improves_a_summit(problem):
    start = next(fitting_placements(problem))
    searcher = Local(problem)
    end = climb(problem, start, problem.predict, evaluations=10**6, rng=searcher.rng, stop=searcher.stop)
    flips = [Shift(u, 1, d) for u, devices in enumerate(problem.feasible) for d in devices]
    around = [after for flip in flips if (after := moved(problem, end.placement, flip))]
    assert min(map(problem.predict, around)) >= end.value * (1 - 1e-9)


def test_of_too_many_moves_as_many_are_drawn(problem, monkeypatch):
    monkeypatch.setattr("search.local.hill_climb.MOST_LISTED", 0)
    start = next(fitting_placements(problem))
    searcher, tried = Local(problem), []

    def predict(placement):
        tried.append(placement)
        return problem.predict(placement)

    end = climb(problem, start, predict, evaluations=2000, rng=searcher.rng, stop=searcher.stop)
    assert end.value < problem.predict(start) and len(tried) == end.evaluations
    assert all(map(problem.fits, tried))


def test_later_asks_look_around_the_best_measured(towers):
    searcher = Local(towers, settings=CLIMBING)
    target = (0,) * len(towers.units)
    searcher.tell(towers.mapping(target), Measured(1e-6))
    near = 0
    for _ in range(9):
        mapping = searcher.ask()
        searcher.tell(mapping, Measured(1.0))
        near += len(set(towers.placement(mapping))) == 2
    assert searcher.incumbent() == target and near > 0


def test_time_that_is_up_shortens_the_search_and_no_more(problem):
    searcher = Local(problem, stop=lambda: True)
    mapping = searcher.ask()
    assert problem.fits(problem.placement(mapping))
    assert searcher.evaluations < 50


def test_shifts_are_counted_without_listing_them(problem):
    assert shift_count(problem) == len(list(shifts(problem)))


def test_of_too_many_shifts_around_the_best_measured_some_are_drawn_and_the_clock_is_looked_at(problem, monkeypatch):
    monkeypatch.setattr("search.local.hill_climb.MOST_LISTED", 30)
    assert len(list(some_shifts(problem, Local(problem).rng))) == 30
    searcher = Local(problem, stop=lambda: True)
    assert list(searcher._neighbours(next(fitting_placements(problem)), [1.0] * len(problem.units), 0.0)) == []
