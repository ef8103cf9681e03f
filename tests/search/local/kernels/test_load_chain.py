"""Chains of the largest load: what is added up move by move is what the objective says, and small optima are found."""

from itertools import product

import numpy as np
import pytest

from search.initial.nearly_singles import nearly_singles
from search.local.kernels.chain import Stretch, new_chain
from search.local.kernels.load_chain import cool_loads
from search.local.kernels.rng_state import rng_states
from search.local.moves import Moves
from search.problem.memory_fit import packed
from search.problem.problem import Problem


def annealed(problem, start, steps=3000, heat_s=0.3, seed=0):
    moves = Moves(problem)
    row = np.array(start, np.int32)
    chain = new_chain(moves.space, row, rng_states(np.random.default_rng(seed), 1)[0])
    cool_loads(problem.max_load.ends, moves.space, moves.move_shares([row]), chain, Stretch(steps, heat_s, 0.5, np.inf))
    found = zip(chain.found_s, chain.found.tolist(), strict=True)
    return chain, [(float(value_s), tuple(row)) for value_s, row in found if value_s < np.inf]


@pytest.mark.parametrize("seed", range(4))
def test_loads_after_thousands_of_moves_are_those_of_the_placement(build, seed):
    problem = Problem(build.layered(seed, layers=8, width=4), build.machine("gpu", "gpu", "gpu", "cpu"), "max-load")
    _, found = annealed(problem, next(nearly_singles(problem)), seed=seed)
    assert len(found) > 2
    for value_s, placement in found:
        assert value_s == pytest.approx(problem.predict(placement), rel=1e-12)


def test_the_best_of_a_small_space_is_found(build):
    problem = Problem(build.layered(1, layers=3, width=3), build.machine("gpu", "gpu"), "max-load")
    best = min(problem.predict(placement) for placement in product(*problem.feasible))
    _, found = annealed(problem, next(problem.singles()))
    assert min(value_s for value_s, _ in found) == pytest.approx(best, rel=1e-12)


def test_memory_is_kept_at_every_step(build):
    problem = Problem(build.layered(2), build.machine("gpu", "gpu", "gpu", memory_bytes=(24, 30, 24)), "max-load")
    chain, found = annealed(problem, packed(problem))
    assert problem.fits(tuple(chain.row.tolist()))
    assert all(problem.fits(placement) for _, placement in found)
