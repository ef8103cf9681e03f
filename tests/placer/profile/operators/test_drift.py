"""Drift: what slows all ops of one duration in one run is the machine, and goes; what an op takes stays."""

from __future__ import annotations

import numpy as np
import pytest

from placer.profile.operators.drift import NEIGHBOURS, without_drift

CHANCE = np.random.default_rng(5)
TRUE_S = np.geomspace(1e-6, 1e-2, 200)


def test_slow_runs_are_levelled_and_ratios_of_ops_kept():
    """Runs 1 and 3 of four at half speed for ops above 1 ms: another process takes turns on the core."""
    turns = np.where((TRUE_S > 1e-3)[:, None], np.array([1.0, 2.0, 1.0, 2.0]), 1.0)
    noise = CHANCE.normal(1.0, 0.01, (200, 4))
    found = np.median(without_drift(TRUE_S[:, None] * turns * noise), axis=1)
    away = np.abs(found / TRUE_S - 1)[np.abs(np.log(TRUE_S / 1e-3)) > 0.5]
    assert away.max() < 0.05


def test_an_op_that_is_slow_by_itself_stays_slow():
    times = np.tile(TRUE_S[:, None], (1, 4)).copy()
    times[100, 2] *= 3
    assert without_drift(times)[100, 2] == pytest.approx(3 * TRUE_S[100])


@pytest.mark.parametrize("shape", [(NEIGHBOURS, 4), (200, 1)])
def test_too_few_ops_or_runs_are_left_alone(shape):
    times = CHANCE.uniform(1e-6, 1e-3, shape)
    assert np.array_equal(without_drift(times), times)
