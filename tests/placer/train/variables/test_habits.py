"""Habits: which variables are fetched together, because the user reads them after each step."""

from __future__ import annotations

from placer.train.variables.habits import MOST_USUAL, SINGLY, Habits


def habits_of(read):
    """The habits of a user who read these variables after one step."""
    habits = Habits()
    habits.read(read)
    habits.after_step()
    return habits


def test_one_usual_variable_brings_the_others_and_an_unusual_one_comes_alone():
    habits = habits_of([1, 2])
    assert habits.with_usual([1]) == {1, 2}
    assert habits.with_usual([3]) == {3}


def test_what_is_read_after_no_step_is_not_forgotten():
    habits = habits_of([1, 2])
    habits.after_step()
    assert habits.with_usual([2]) == {1, 2}


def test_only_what_is_still_read_stays_usual():
    habits = habits_of([1, 2])
    habits.read_at_home([1, 7])  # came with another one, or is not kept elsewhere
    habits.after_step()
    assert habits.with_usual([1]) == {1} and habits.with_usual([7]) == {7}


def test_many_unusual_reads_after_one_step_want_all_and_many_usual_ones_do_not():
    usual = range(SINGLY + 1)
    habits = Habits()
    habits.read(usual[:SINGLY])
    assert not habits.wants_all
    habits.read(usual)
    assert habits.wants_all
    habits.after_step()
    habits.read(usual)
    assert not habits.wants_all


def test_a_user_who_reads_the_whole_model_once_has_no_new_habits():
    habits = habits_of([1, 2])
    habits.read(range(MOST_USUAL + 1))
    habits.after_step()
    assert habits.with_usual([1]) == {1, 2} and habits.with_usual([5]) == {5}
