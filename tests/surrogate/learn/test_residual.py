"""The residual: near what was measured it knows, far away it does not, and gains are worth what is left to gain."""

import numpy as np
import pytest

from surrogate.learn.residual import COMMON, MappingViews, Residual, expected_gain

UNITS = 8
WORK = np.full(UNITS, 1 / UNITS)


def sample(*placements, form=None):
    rows = np.array(placements, np.int32)
    return MappingViews(rows, np.zeros((len(rows), 2)) if form is None else np.array(form, float), np.ones(len(rows)))


def learnt(noise=0.001):
    """All on device 0 is as predicted; all on device 1 takes 20 % more."""
    measured = sample([0] * UNITS, [1] * UNITS)
    return Residual(WORK, measured, np.array([0.0, np.log(1.2)]), np.full(2, noise))


def test_what_was_measured_is_known():
    residual = learnt()
    mean, deviation = residual.expect(residual.measured)
    assert mean == pytest.approx(residual.error, abs=0.01)
    assert (deviation < 0.02).all()


def test_half_way_lies_between_and_is_less_sure():
    residual = learnt()
    mean, deviation = residual.expect(sample([0] * 4 + [1] * 4))
    assert residual.error[0] < mean[0] < residual.error[1]
    assert deviation[0] > residual.expect(residual.measured)[1].max()


def test_another_form_of_the_same_placement_is_another_mapping():
    residual = learnt()
    near, far = (residual.expect(sample([1] * UNITS, form=[[f, f]])) for f in (0.1, 50.0))
    assert near[1][0] < far[1][0]
    assert abs(far[0][0]) < abs(near[0][0])


def test_never_less_sure_than_before_anything_was_measured():
    residual = learnt()
    _, deviation = residual.expect(sample([2] * UNITS, form=[[90.0, -90.0]]))
    assert deviation[0] <= np.hypot(COMMON, residual.settings.size) + 1e-12


def test_the_best_is_not_the_luckiest_figure():
    """Two mappings nearly alike, one measured a lucky 20 % below the other: the best lies between the two."""
    rows = sample([0] * UNITS, [0] * (UNITS - 1) + [1])
    residual = Residual(WORK, rows, np.array([np.log(0.8), 0.0]), np.full(2, 0.1))
    assert 0.8 < residual.best_s() < 1.0


def test_believing_makes_sure_of_the_believed_and_changes_no_expectation():
    residual = learnt()
    new = sample([0] * 4 + [1] * 4)
    believed = residual.and_believed(new)
    assert believed.expect(new)[1][0] < residual.expect(new)[1][0]
    assert believed.expect(new)[0] == pytest.approx(residual.expect(new)[0], abs=1e-3)


def test_expected_gain_grows_with_promise_and_with_doubt_and_is_never_negative():
    def gain(predicted, deviation):
        return float(expected_gain(np.array([predicted]), np.zeros(1), np.array([deviation]), 1.0)[0])

    assert gain(0.8, 0.05) > gain(0.9, 0.05) > gain(1.1, 0.05) >= 0
    assert gain(1.1, 0.2) > gain(1.1, 0.05)
    assert gain(0.5, 1e-6) == pytest.approx(np.log(2), rel=1e-3)
    assert gain(np.inf, 0.1) == 0
