"""How far off a placed step may be, coarser where a GPU rounds coarsely."""

from __future__ import annotations

from functools import partial

import numpy as np
import pytest
import tensorflow as tf

from placer.execute import agreement
from placer.execute.agreement import (
    MOST_TOLERANCE,
    SPREAD,
    TF32_TOLERANCE,
    TOLERANCE,
    Agreement,
    LossDiffersError,
    Outcome,
    PlacedOutcome,
    tolerance,
)
from placer.execute.fingerprints import fingerprint
from placer.execute.untouched_outcome import perturbed


def returned(*losses):
    return Outcome([[np.float32(loss), np.int64(3)] for loss in losses], {}, {})


def placed(outcome):
    """That of a placed step."""

    def fetched(names):
        before, after = ({name: values[name] for name in names} for values in (outcome.before, outcome.after))
        return Outcome(outcome.returned, before, after)

    bits = {name: fingerprint(value) for name, value in outcome.after.items()}
    return PlacedOutcome(outcome.returned, lambda: bits, fetched)


@pytest.fixture
def tf32(monkeypatch):
    monkeypatch.setattr(agreement, "rounds_coarsely", lambda: True)


def test_a_process_without_gpu_never_rounds_coarsely():
    assert not agreement.rounds_coarsely()
    assert tolerance([returned(5.0, 4.0), returned(5.0, 3.0)]) == TOLERANCE


@pytest.mark.usefixtures("tf32")
def test_tensor_float_32_is_allowed_for():
    assert tolerance([returned(5.0, 4.0)]) == TF32_TOLERANCE
    assert tolerance([returned(5.0, 4.0), returned(5.0, 4.001)]) == TF32_TOLERANCE


@pytest.mark.usefixtures("tf32")
def test_a_step_that_magnifies_rounding_may_differ_as_it_does_from_itself():
    found = tolerance([returned(5.0, 4.0), returned(5.0, 4.1)])
    assert found == pytest.approx(SPREAD * 0.1 / 4.1, rel=1e-4)
    assert tolerance([returned(5.0, 4.0), returned(5.0, 9.0)]) == MOST_TOLERANCE
    assert tolerance([returned(np.nan, np.inf), returned(np.nan, np.inf)]) == TF32_TOLERANCE


@pytest.mark.parametrize(("apart", "agrees"), [(5e-3, True), (2e-2, False)])
@pytest.mark.usefixtures("tf32")
def test_a_coarse_step_agrees_within_its_tolerance(apart, agrees):
    references = [returned(5.0, 4.0)]
    held = Agreement(references, exact=False, tolerance=tolerance(references))
    if agrees:
        held.check(placed(returned(5.0, 4.0 * (1 + apart))))
    else:
        with pytest.raises(LossDiffersError):
            held.check(placed(returned(5.0, 4.0 * (1 + apart))))


def step_that(returned, before=(1.0, 1.0), after=(1.0, 1.0)):
    """An outcome of one step with one variable."""
    state = [np.asarray(value, np.float32) for value in (before, after)]
    return Outcome([[np.asarray(returned, np.float32)]], {"w": state[0]}, {"w": state[1]})


def agree(mine, *references, **how):
    try:
        Agreement(references, exact=False, **how).check(placed(mine))
    except LossDiffersError:
        return False
    return True


@pytest.mark.parametrize(
    ("a", "b", "exact", "as_one"),
    [
        (1.0, 1.0, True, True),
        (1.0, np.nextafter(np.float32(1), np.float32(2)), True, False),
        (1.0, 1.0005, False, True),
        (1.0, 1.01, False, False),
        (np.nan, np.nan, True, True),
        (np.nan, np.nan, False, True),
        ([1.0, 1e-6], [1.0, 2e-6], False, True),
        ([1.0, 1e-6], [1.0, 2e-3], False, False),
        ([1.0, np.inf], [1.0, np.inf], False, True),
        (0.0, 1e-9, False, False),
    ],
)
def test_returned_values(a, b, exact, as_one):
    held = Agreement([] if exact else [step_that(b)], exact=exact)
    if exact:
        held.check(placed(step_that(b)))
    if as_one:
        held.check(placed(step_that(a)))
    else:
        with pytest.raises(LossDiffersError):
            held.check(placed(step_that(a)))


DOWN, UP, START = (0.9999, 1.0), (1.0001, 1.0), (1.0, 1.0)  # a small learning rate


def test_another_number_of_tensors_is_refused():
    fewer = Outcome([values[:1] for values in returned(5.0, 4.0).returned], {}, {})
    for mine, reference in ((fewer, returned(5.0, 4.0)), (returned(5.0, 4.0), fewer)):
        with pytest.raises(LossDiffersError, match=r"returned \d tensors, and \d"):
            Agreement([reference], exact=False).check(placed(mine))


def test_an_update_of_the_wrong_sign_is_refused_although_the_loss_hardly_moves():
    assert agree(step_that(1.0, START, DOWN), step_that(1.0, START, DOWN))
    assert not agree(step_that(1.0, START, UP), step_that(1.0, START, DOWN))


@pytest.mark.parametrize("after", [START, (0.9998, 1.0), (0.9999, 1.0001)])
def test_an_update_that_is_missing_twice_as_large_or_elsewhere_is_refused(after):
    assert not agree(step_that(1.0, START, after), step_that(1.0, START, DOWN))


def test_a_change_within_the_rounding_of_the_value_says_nothing():
    large = (1e4, 1e4)
    moved = (float(np.nextafter(np.float32(1e4), np.float32(2e4))), 1e4)
    assert agree(step_that(1.0, large, moved), step_that(1.0, large, large))


def test_a_change_that_rounding_decides_is_compared_with_what_rounding_does():
    """The bias before a batch normalisation has a gradient of 0 but for rounding, and Adam makes whole steps of it."""
    mine, theirs = step_that(1.0, START, UP), step_that(1.0, START, DOWN)
    asked = []

    def shaken():
        asked.append(1)
        return theirs, step_that(1.0, START, UP)

    held = Agreement([theirs], exact=False, shaken=shaken)
    held.check(placed(theirs))
    assert not asked
    held.check(placed(mine))
    held.check(placed(mine))
    assert len(asked) == 1
    with pytest.raises(LossDiffersError):
        held.check(placed(step_that(1.0, START, (0.99, 1.0))))


def test_what_a_rounding_error_grows_to_is_no_reference():
    """The shaken outcomes show a size only: that the placed step agrees with them proves nothing about the training."""
    wrong, right = step_that(2.0, START, UP), step_that(1.0, START, DOWN)
    assert not agree(wrong, right, shaken=lambda: (wrong, wrong))


def test_counters_and_short_floats_are_compared_too():
    def state(kind, value):
        return Outcome([[]], {"v": np.asarray([3], kind)}, {"v": np.asarray([value], kind)})

    for kind in (np.int64, tf.bfloat16.as_numpy_dtype, np.float16, np.bool_):
        assert agree(state(kind, 1), state(kind, 1))
        assert not agree(state(kind, 0), state(kind, 1))
    names = [Outcome([[]], {"v": np.array([b"x"], object)}, {"v": np.array([text], object)}) for text in (b"x", b"y")]
    assert agree(names[0], names[0]) and not agree(names[1], names[0])


EPS = float(np.finfo(np.float32).eps)


def complex_step(after):
    """An outcome of one step that returns what it made of its variable, which is of complex numbers."""
    state = np.asarray(after, np.complex64)
    return Outcome([[state]], {"w": np.ones_like(state)}, {"w": state})


@pytest.mark.parametrize(
    ("one", "other", "alike"),
    [
        ([2 + 1j, 1 - 3j], [2 + 1j, 1 - 3j * (1 + EPS)], True),
        ([2 + 1j, 1 - 3j], [2 + 1j, 1 + 3j], False),
        ([np.nan + 1j, 2], [np.nan + 1j, 2], True),
        ([np.nan + 1j, 2], [np.nan + 2j, 2], False),
        ([complex(np.nan, 1), 2], [complex(1, np.nan), 2], False),
        (2 + 1j, (2 + 1j) * (1 + EPS), True),
    ],
)
def test_complex_numbers_are_compared_by_both_parts(one, other, alike):
    assert agree(complex_step(one), complex_step(other)) == alike
    exact = Agreement([complex_step(one)], exact=True)
    for _ in range(2):
        exact.check(placed(complex_step(one)))


def test_complex_numbers_are_moved_by_a_rounding_error_like_others():
    start = {"w": np.asarray([2 + 1j, 1 - 3j], np.complex64)}
    moved = perturbed(start)["w"]
    assert moved.dtype == np.complex64 and (moved != start["w"]).all()
    np.testing.assert_allclose(moved, start["w"], rtol=4 * EPS)


def test_only_values_that_are_not_known_are_fetched():
    reference = step_that(1.0, START, DOWN)
    near = step_that(1.0, START, (float(np.float32(DOWN[0]) + np.float32(1e-7)), 1.0))
    asked = []

    def fetched(names, outcome):
        asked.append(list(names))
        return placed(outcome).fetched(names)

    held = Agreement([reference], exact=False)
    for outcome in (reference, near, near, reference):
        held.check(PlacedOutcome(outcome.returned, placed(outcome).fingerprints, partial(fetched, outcome=outcome)))
    assert asked == [[], ["w"], [], []]
    with pytest.raises(LossDiffersError):
        held.check(placed(step_that(2.0, START, DOWN)))  # known variables do not excuse what the step returned


def test_large_changes_are_compared_in_portions_as_in_one(monkeypatch):
    rng = np.random.default_rng(0)
    before, change = rng.normal(size=(7, 31)), rng.normal(size=(7, 31))
    near, far = change * (1 + 1e-3 * rng.normal(size=(7, 31))), change + (np.arange(7 * 31) == 216).reshape(7, 31)
    monkeypatch.setattr(agreement, "PORTION", 10)
    mine, theirs = step_that(1.0, before, before + far), step_that(1.0, before, before + change)
    alike, apart, size = agreement._apart(mine, theirs, "w")
    assert alike and apart == pytest.approx(1.0, rel=1e-5)
    assert size == pytest.approx(np.linalg.norm(change), rel=1e-5)
    assert agree(step_that(1.0, before, before + near), theirs) and not agree(mine, theirs, tolerance=1e-3)
    far[6, 30] = np.nan
    assert not agree(step_that(1.0, before, before + far), theirs)


def test_alike_devices_must_give_the_same_bits_of_every_variable():
    held = Agreement([step_that(1.0, START, DOWN)], exact=True)
    held.check(placed(step_that(1.0, START, DOWN)))
    held.check(placed(step_that(1.0, START, DOWN)))
    last_bit = (float(np.nextafter(np.float32(DOWN[0]), np.float32(2))), 1.0)
    with pytest.raises(LossDiffersError, match="'w' has other values than under another mapping"):
        held.check(placed(step_that(1.0, START, last_bit)))
