"""How far steps are from when they were last as fast as could be."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from search.online.diagnose.step_level import NOW, SETTLED, StepLevel

USUAL = [1.0] * SETTLED


def settled() -> StepLevel:
    return taken(StepLevel(), 1.0)


def taken(level: StepLevel, step_s: float, count: int = SETTLED, before: Sequence[float] = ()) -> StepLevel:
    """The level after so many steps more."""
    for n in range(count):
        level.settle([*before, *[step_s] * (n + 1)][-24:])
    return level


def test_clear_changes_compound_until_something_is_done() -> None:
    level = settled()
    assert not level.is_unsolved
    level.changed(1.2)
    level.changed(1.25)
    assert level.looked_at() == pytest.approx(1.5)
    assert level.is_unsolved
    level.changed(2.0)
    assert level.looked_at() == pytest.approx(3.0)
    level.solved()
    assert (level.unsolved, level.is_unsolved) == (1.0, False)


def test_what_may_be_noise_counts_for_one_look_but_adds_up_in_the_level() -> None:
    level = settled()
    level.changed(1.1)
    assert level.looked_at() == pytest.approx(1.1)
    assert not level.is_unsolved
    assert level.looked_at() == 1.0
    assert level.ratio_now([*USUAL, *[1.3] * NOW]) == pytest.approx(1.3)


def test_a_change_has_passed_when_steps_are_as_they_were_and_the_level_stays() -> None:
    level = settled()
    level.changed(1.5)
    assert not level.has_passed(USUAL)  # it was not looked at yet
    level.looked_at()
    assert not level.has_passed([1.5] * SETTLED)
    assert not level.has_passed([1.0] * (SETTLED - 1))  # too few to tell
    assert level.has_passed([1.5] * SETTLED + [1.1] * SETTLED)
    level.changed(1.5)  # noticed since
    assert not level.has_passed(USUAL)
    level.looked_at()
    level.passed()
    assert not level.is_unsolved
    level.changed(1.2)
    level.looked_at()
    assert not level.has_passed([1.2] * SETTLED)


def test_the_level_is_learned_from_enough_steps_while_nothing_has_changed() -> None:
    level = taken(StepLevel(), 9.0, 2)  # the first steps after workers were joined may be slow
    taken(level, 1.0, before=[9.0] * 2)
    taken(level, 9.0)  # it is known
    assert level.ratio_now(USUAL) == 1.0 and level.ratio_now([]) == 1.0
    level.changed(1.5)
    level.looked_at()
    level.forget()  # seconds mean something else now
    taken(level, 0.7)
    assert level.ratio_now([0.7] * NOW) == 1.0  # not known: this is no level at which all is well
    assert not level.has_passed([0.7] * SETTLED)
    level.solved()
    taken(level, 0.7)
    assert level.ratio_now([1.4] * NOW) == pytest.approx(2.0)


def test_steps_of_before_are_no_part_of_a_new_level() -> None:
    level = settled()
    level.solved()  # all devices slowed alike
    taken(level, 1.5, 6, before=USUAL)
    assert level.ratio_now([1.5] * NOW) == 1.0
    taken(level, 1.5, before=USUAL)
    assert level.ratio_now([1.5] * NOW) == pytest.approx(1.0) and level.ratio_now([3.0] * NOW) == pytest.approx(2.0)
