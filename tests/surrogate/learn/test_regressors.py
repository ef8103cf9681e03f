"""The regressors of step times: what each of them must do, whatever it is."""

from __future__ import annotations

import subprocess
import sys

import numpy as np
import pytest

from placer.errors import BadInputError
from surrogate.learn.regressors import BASELINE, FAR, LEARNERS, REGRESSORS, make_regressor

NAMES = sorted(REGRESSORS)


def mappings(count, seed=0, noise=0.0):
    """Features like those of mappings: positive, of very different sizes, some constant; a smooth truth."""
    rng = np.random.default_rng(seed)
    hidden = rng.uniform(0.5, 1.5, (count, 3))
    sizes = 10.0 ** np.arange(-3, 6)
    x = np.column_stack([hidden @ rng.uniform(0, 1, (3, 9)) * sizes, np.full(count, 7.0), np.zeros(count)])
    x[:, 0] = 0.1 * hidden[:, 0] + 0.05 * hidden[:, 1]
    step_s = x[:, 0] * (1 + 0.4 * (hidden[:, 2] - 1)) * rng.normal(1, noise, count)
    return x, step_s


@pytest.mark.parametrize("name", NAMES)
class TestEveryRegressor:
    @pytest.mark.some(4)
    def test_predicts_in_seconds_what_it_was_not_shown(self, name):
        x, step_s = mappings(90)
        found = make_regressor(name).fit(x[:60], step_s[:60]).predict(x[60:])
        guess = np.exp(np.mean(np.log(step_s[:60])))
        error, of_guess = (np.mean(np.abs(p / step_s[60:] - 1)) for p in (found, np.full(30, guess)))
        assert error < (1.0 if name == BASELINE else 0.35) * of_guess

    def test_same_seed_same_predictions(self, name):
        x, step_s = mappings(40, noise=0.05)
        first, again = (make_regressor(name, seed=3).fit(x[:30], step_s[:30]).predict(x[30:]) for _ in range(2))
        np.testing.assert_array_equal(first, again)

    @pytest.mark.parametrize("count", [1, 2, 5, 9])
    def test_few_rows_are_enough(self, name, count):
        x, step_s = mappings(20)
        found = make_regressor(name).fit(x[:count], step_s[:count]).predict(x)
        assert np.isfinite(found).all() and (found > 0).all()

    def test_rows_all_alike_are_no_harm(self, name):
        found = make_regressor(name).fit(np.ones((12, 4)), np.full(12, 0.2)).predict(np.ones((2, 4)))
        np.testing.assert_allclose(found, 0.2, rtol=1e-3)

    @pytest.mark.some(4)
    def test_units_do_not_matter_to_what_is_learned(self, name):
        """Twice the seconds and other units of features: twice the predictions."""
        x, step_s = mappings(40)
        units = np.array([1.0, *([1024.0] * (x.shape[1] - 1))])
        plain, other = (make_regressor(name).fit((x * u)[:30], step_s[:30] * k) for u, k in ((1.0, 1.0), (units, 2.0)))
        np.testing.assert_allclose(2 * plain.predict(x[30:]), other.predict(x[30:] * units), rtol=0.02)

    @pytest.mark.some(4)
    def test_what_cannot_run_takes_for_ever_and_teaches_nothing(self, name):
        x, step_s = mappings(30)
        broken = x.copy()
        broken[5, 0] = np.inf
        without = make_regressor(name).fit(np.delete(x, 5, 0), np.delete(step_s, 5))
        found = make_regressor(name).fit(broken, step_s).predict(broken)
        assert np.isinf(found[5])
        np.testing.assert_array_equal(np.delete(found, 5), without.predict(np.delete(x, 5, 0)))

    def test_wrong_shapes_and_no_rows_are_refused(self, name):
        regressor = make_regressor(name)
        with pytest.raises(BadInputError, match="step times of the shape"):
            regressor.fit(np.ones((3, 2)), np.ones(2))
        with pytest.raises(BadInputError, match="features have the shape"):
            regressor.fit(np.ones(3), np.ones(3))
        with pytest.raises(BadInputError, match="no mapping"):
            regressor.fit(np.full((3, 2), np.inf), np.ones(3))


@pytest.mark.parametrize("name", sorted(LEARNERS))
def test_far_away_predictions_stay_near_what_was_seen(name):
    x, step_s = mappings(30)
    found = make_regressor(name).fit(x, step_s).predict(x * 1e6)
    assert (found <= step_s.max() * np.exp(FAR) * (1 + 1e-9)).all()


@pytest.mark.parametrize("name", [n for n in NAMES if n.endswith("on-simulator")])
def test_on_the_simulator_a_perfect_simulation_is_left_as_it_is(name):
    x, _ = mappings(60)
    found = make_regressor(name).fit(x[:20], 3 * x[:20, 0]).predict(x[20:])
    np.testing.assert_allclose(found, 3 * x[20:, 0], rtol=1e-6)


def test_the_baseline_is_the_simulated_step_times_the_median_factor():
    x = np.array([[1.0, 5.0], [2.0, 5.0], [4.0, 5.0]])
    found = make_regressor(BASELINE).fit(x, [2.0, 4.0, 80.0]).predict(x)
    np.testing.assert_allclose(found, [2.0, 4.0, 8.0])


def test_an_unknown_name_is_refused():
    with pytest.raises(BadInputError, match="no regressor 'oracle'"):
        make_regressor("oracle")


def test_scikit_learn_and_xgboost_are_loaded_with_the_first_fit_only():
    code = (
        "import sys, surrogate.learn.regressors; "
        "sys.exit(any(m in sys.modules for m in ('sklearn', 'xgboost', 'numba')))"
    )
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
