"""The likelihood that length scales are learned from: scikit-learn's, and its derivatives; what the scales then say."""

from __future__ import annotations

import numpy as np
import pytest
from sklearn.gaussian_process import GaussianProcessRegressor
from sklearn.gaussian_process.kernels import ConstantKernel, Matern, WhiteKernel

from surrogate.operators.length_scales import NOISE, SCALE, learned, negative_log_likelihood


def drawn(seed: int, rows: int, features: int):
    """Features, and values that depend on the first of them alone."""
    rng = np.random.default_rng(seed)
    x = rng.normal(size=(rows, features))
    y = np.sin(2 * x[:, 0]) + rng.normal(0.0, 0.05, rows)
    return x, (y - y.mean()) / y.std()


@pytest.mark.parametrize("rows", [1, 2, 40])
def test_the_likelihood_and_its_derivatives_are_those_of_scikit_learn(rows):
    rng = np.random.default_rng(rows)
    x, y = rng.normal(size=(rows, 5)), rng.normal(size=rows)
    logs = np.log([1.7, *rng.uniform(0.5, 5.0, 5), 0.02])
    kernel = ConstantKernel(1.7) * Matern(np.exp(logs[1:-1]), nu=1.5) + WhiteKernel(0.02)
    known = GaussianProcessRegressor(kernel, optimizer=None).fit(x, y)
    value, slope = known.log_marginal_likelihood(logs, eval_gradient=True)
    found, by_logs = negative_log_likelihood(logs, x, y)
    assert found == pytest.approx(-value)
    assert by_logs == pytest.approx(-slope, rel=1e-6, abs=1e-8)


def test_a_feature_that_tells_nothing_gets_a_long_scale():
    found = learned(*drawn(0, 80, 3), steps=60)
    assert found.scales[0] < 5.0 < 20.0 < min(found.scales[1:])
    assert NOISE[0] <= found.noise < 0.1


@pytest.mark.parametrize("rows", [1, 2])
def test_hardly_any_rows_and_rows_that_are_all_alike_have_scales_within_bounds(rows):
    found = learned(np.zeros((rows, 3)), np.zeros(rows), steps=10)
    assert all(SCALE[0] <= scale <= SCALE[1] * (1 + 1e-9) for scale in found.scales)


def test_a_kernel_that_cannot_be_inverted_is_infinitely_unlikely():
    value, by_logs = negative_log_likelihood(np.log([1.0, 1.0, 1e-300]), np.zeros((3, 1)), np.zeros(3))
    assert value == np.inf and not by_logs.any()
