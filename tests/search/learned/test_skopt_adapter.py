"""Canary: what is used of scikit-optimize, which nobody maintains, works with the packages installed now."""

import numpy as np
import pytest
from skopt import Optimizer
from skopt.space import Categorical, Space

from search.learned.skopt_adapter import MODELS, POINTS, ranked

CHOICES = [[0, 1, 2], [3, 5], [0, 1, 2, 3], [7, 2]]


def known(count, choices=CHOICES):
    """Points whose value is how many of their dimensions are not the first choice."""
    rng = np.random.default_rng(0)
    points = [[int(rng.choice(choice)) for choice in choices] for _ in range(count)]
    return points, [float(sum(c != choice[0] for c, choice in zip(p, choices, strict=True))) for p in points]


def test_integer_categories_stay_integers():
    for point in Space([Categorical(choice) for choice in CHOICES]).rvs(20, random_state=0):
        assert all(isinstance(c, (int, np.integer)) for c in point)
        assert all(c in choice for c, choice in zip(point, CHOICES, strict=True))


@pytest.mark.parametrize("model", MODELS)
def test_what_is_ranked_first_is_better_than_what_is_ranked_last(model):
    choices = [[0, 1, 2, 3]] * 8
    points, values = known(40, choices)
    ranking = ranked(model, choices, points, values, [], seed=1)
    first, last = (np.mean([sum(c != 0 for c in p) for p in part]) for part in (ranking[:50], ranking[-50:]))
    assert first < 6 < last  # 6 is the mean of all points


@pytest.mark.parametrize("model", MODELS)
def test_every_candidate_is_ranked_and_the_seed_decides_which(model):
    points, values = known(12)
    near = [(0, 5, 3, 2), (0, 3, 0, 7)]
    one, two, other = (ranked(model, CHOICES, points, values, near, seed) for seed in (1, 1, 2))
    assert one == two != other
    assert len(one) == POINTS + len(near) and set(near) <= set(one)
    assert all(type(c) is int for c in one[0])


@pytest.mark.parametrize("model", ["RF", "ET"])
def test_the_first_is_what_the_optimizer_would_ask(model):
    choices = [[0, 1, 2, 3]] * 8
    points, values = known(25, choices)
    asking = Optimizer(
        [Categorical(choice) for choice in choices],
        model,
        n_initial_points=1,
        acq_func="EI",
        acq_optimizer_kwargs={"n_points": POINTS},
        random_state=4,
    )
    asking.tell(points, values)
    assert tuple(asking.ask()) == ranked(model, choices, points, values, [], seed=4)[0]


@pytest.mark.parametrize("model", MODELS)
def test_two_results_that_agree_are_enough(model):
    assert ranked(model, [[0, 1]], [[0], [1]], [1.0, 1.0], [(0,)], seed=0)
