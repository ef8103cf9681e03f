"""Step times: scaled, how far their medians may be off, and which of two is the faster one."""

from __future__ import annotations

import numpy as np
import pytest

from placer.result import Measured, is_faster, median_error, standard_error


def test_the_error_of_medians_shrinks_with_repeats():
    """IQR 1.349 sigma, and a median of n has a standard deviation of 1.2533 sigma / sqrt(n)."""
    assert standard_error(Measured(2.0, 0.1349, 25)) == pytest.approx(1.2533 * 0.1 / 5 / 2)
    assert standard_error(Measured(1.0, 0.1, 100)) < standard_error(Measured(1.0, 0.1, 4))


def test_the_error_is_what_medians_of_normal_noise_vary_by():
    samples = np.random.default_rng(0).normal(10.0, 0.5, (4000, 101))
    spread = np.subtract(*np.percentile(samples, [75, 25]))
    assert median_error(float(spread), 101) == pytest.approx(np.median(samples, axis=1).std(), rel=0.1)


def test_what_is_scaled_keeps_its_repeats_and_the_switch():
    found = Measured(2.0, 0.5, 12, switch_s=3.0, stopped_early=True)
    assert found.scaled(0.5) == Measured(1.0, 0.25, 12, switch_s=3.0, stopped_early=True)


@pytest.mark.parametrize("spread_s", [0.2, 0.6])
def test_noise_of_either_hides_a_gain(spread_s):
    quiet, faster = Measured(1.0, 0.0, 9), Measured(0.95, 0.0, 9)
    assert is_faster(faster, quiet, 0.03)
    assert not is_faster(faster, Measured(1.0, spread_s, 9), 0.03)
    assert not is_faster(Measured(0.95, spread_s, 9), quiet, 0.03)


def test_more_repeats_show_what_fewer_hide():
    few, many = ((Measured(0.95, 0.1, n), Measured(1.0, 0.1, n)) for n in (4, 100))
    assert not is_faster(*few, 0.03) and is_faster(*many, 0.03)


def test_a_single_step_has_an_unknown_spread():
    """Only what takes less than half as long is faster beyond doubt."""
    assert not is_faster(Measured(0.6), Measured(1.0, 0.0, 9), 0.03)
    assert is_faster(Measured(0.4), Measured(1.0, 0.0, 9), 0.03)
