"""The only file that imports scikit-optimize: it ranks candidates by the improvement that its models expect.

The package is no longer maintained. So we use little of it, and tests/search/learned/test_skopt_adapter.py checks all
of that: `Space` of integer categories (given strings it answers in `np.str_`), `cook_estimator` for GP, RF and ET, and
`gaussian_ei`. Its gradient-boosted trees do not work with the current scikit-learn and are not offered.
"""

from __future__ import annotations

import warnings
from collections.abc import Sequence

import numpy as np

MODELS = ("GP", "RF", "ET")
POINTS = 1_000  # drawn at random for each ranking, as `Optimizer(acq_optimizer_kwargs={"n_points": 1000})` does


def ranked(
    model: str,
    choices: Sequence[Sequence[int]],
    points: Sequence[Sequence[int]],
    values: Sequence[float],
    near: Sequence[Sequence[int]],
    seed: int,
) -> list[tuple[int, ...]]:
    """Return POINTS random points and those of `near`, the largest expected improvement first; may contain duplicates.

    model: one of MODELS. choices: the values that each dimension may have, two or more. points, values: the known
    points and their values, the lower the better. If the model is a forest and `near` is empty, the first point is the
    one that `skopt.Optimizer` with `acq_func="EI"` would ask.
    """
    from skopt.acquisition import gaussian_ei  # skopt is slow to import
    from skopt.space import Categorical, Space
    from skopt.utils import cook_estimator
    from threadpoolctl import threadpool_limits

    rng = np.random.RandomState(seed)
    space = Space([Categorical([int(c) for c in choice]) for choice in choices])
    settings = {"n_restarts_optimizer": 0} if model == "GP" else {"n_jobs": 1}  # each restart costs as much again
    estimator = cook_estimator(
        model, space=space.dimensions, random_state=rng.randint(0, np.iinfo(np.int32).max), **settings
    )
    with warnings.catch_warnings(), threadpool_limits(1):
        warnings.simplefilter("ignore")  # a Gaussian process warns if its likelihood is flat
        estimator.fit(space.transform([list(point) for point in points]), list(values))
        pool = [*space.rvs(n_samples=POINTS, random_state=rng), *near]
        gain = gaussian_ei(space.transform([list(point) for point in pool]), estimator, y_opt=min(values))
    return [tuple(int(c) for c in pool[i]) for i in np.argsort(-gain, kind="stable")]
