"""How far steps are from when they were last as fast as could be."""

from __future__ import annotations

import pytest

from search.online.diagnose.step_level import SETTLED, StepLevel

USUAL = [1.0] * SETTLED


def test_clear_changes_compound_until_something_is_done() -> None:
    level = StepLevel()
    level.solved(USUAL)
    assert not level.is_unsolved
    level.changed(1.2)
    level.changed(1.25)
    assert level.looked_at() == pytest.approx(1.5)
    assert level.is_unsolved
    level.changed(2.0)
    assert level.looked_at() == pytest.approx(3.0)
    level.solved(USUAL)
    assert (level.unsolved, level.is_unsolved) == (1.0, False)


def test_what_may_be_noise_counts_for_one_look_and_then_no_more() -> None:
    level = StepLevel()
    level.changed(1.1)
    assert level.looked_at() == pytest.approx(1.1)
    assert not level.is_unsolved
    assert level.looked_at() == 1.0


def test_a_change_has_passed_when_steps_are_as_they_were() -> None:
    level = StepLevel()
    level.solved(USUAL)
    level.changed(1.5)
    assert not level.has_passed(USUAL)  # it was not looked at yet
    level.looked_at()
    assert not level.has_passed([1.5] * SETTLED)
    assert not level.has_passed([1.0] * (SETTLED - 1))  # too few to tell
    assert level.has_passed([1.5] * SETTLED + [1.05] * SETTLED)
    level.changed(1.5)  # noticed since
    assert not level.has_passed(USUAL)


def test_where_nothing_was_ever_solved_nothing_has_passed() -> None:
    level = StepLevel()
    level.changed(1.5)
    level.looked_at()
    assert not level.has_passed(USUAL)
