"""The bar of a search: the remaining time that it shows, and what it counts."""

from __future__ import annotations

from math import inf
from types import SimpleNamespace

import pytest

from experiments.report.progress import SearchBar, _Remaining


@pytest.mark.parametrize(
    ("counted_s", "left_s", "shown"),
    [
        (None, inf, "-:--:--"),
        (None, 90.0, "0:01:30"),
        (4000.0, inf, "1:06:40"),
        (4000.0, 90.0, "0:01:30"),
        (10.0, 90.0, "0:00:10"),
        (10.0, -5.0, "0:00:00"),
    ],
)
def test_the_remaining_time_is_that_of_the_count_or_of_the_limit(counted_s, left_s, shown):
    task = SimpleNamespace(time_remaining=counted_s, total=10)
    assert _Remaining(lambda: left_s).render(task).plain == shown


def test_a_bar_keeps_to_the_limit_that_was_told_last():
    bar = SearchBar()
    column = bar.bar.columns[-1]
    task = SimpleNamespace(time_remaining=None, total=10)
    bar.limit(lambda: 60.0)
    assert column.render(task).plain == "0:01:00"
    bar.limit(lambda: inf)
    assert column.render(task).plain == "-:--:--"


def test_the_turns_of_the_finalists_are_counted_anew():
    bar = SearchBar()
    (task,) = bar.bar.tasks
    bar.begin(24)
    bar.begin(20)
    assert (task.completed, task.total) == (0, 20)
    bar.bar.update(bar.task, advance=20)
    bar.turns(30)
    bar.turn()
    assert (task.completed, task.total, task.description) == (1, 30, "stepping in turn")
    bar.end()
