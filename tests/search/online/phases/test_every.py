"""What is due every so many steps comes once for each multiple that is passed, seen or not."""

import pytest

from search.online.phases.every import Every


@pytest.mark.parametrize(("seen", "due"), [
    (range(1, 31), [10, 20, 30]),
    (range(1, 31, 2), [11, 21]),
    ([9, 10, 10, 35, 36, 39], [10, 35]),
])  # fmt: skip
def test_it_is_due_at_the_first_step_seen_from_each_multiple_on(seen, due):
    every = Every(10)
    assert [step for step in seen if every.passed(step)] == due


def test_what_is_left_leads_to_the_next_multiple():
    every = Every(10, 730)
    assert not every.passed(731)
    assert (every.left(731), every.left(740)) == (9, 10)
    assert every.passed(740)
