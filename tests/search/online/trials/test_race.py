"""Which of two step times is the faster one, and when the noise may hide it."""

from __future__ import annotations

import pytest

from placer.result import Measured
from search.online.trials.race import is_faster


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
