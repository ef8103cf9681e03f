"""A traced step across which the wall clock was set, or the machine suspended, is traced again."""

from __future__ import annotations

from collections.abc import Iterator
from time import monotonic
from types import SimpleNamespace

import pytest

from placer.profile.trace_clock import MOST_TRIES, evenly_timed
from placer.profile.traced_session import run_traced


class Clocks:
    """A wall clock that is set by so many seconds during each run, one after the other; the other clock is not."""

    def __init__(self, sets_s: list[float]) -> None:
        self.wall_s, self.steady_s, self.runs = 1e9, 50.0, 0
        self.sets_s: Iterator[float] = iter(sets_s)

    def run(self, *_: object, **__: object) -> int:
        self.wall_s += 0.2 + next(self.sets_s)
        self.steady_s += 0.2
        self.runs += 1
        return self.runs


@pytest.mark.parametrize(
    ("sets_s", "runs"),
    [([0.0], 1), ([0.0001], 1), ([-3600.0, 0.0], 2), ([0.5, 3600.0, 0.0], 3), ([60.0] * 9, MOST_TRIES)],
)
def test_what_was_timed_across_a_step_of_the_wall_clock_is_timed_again(sets_s: list[float], runs: int) -> None:
    clocks = Clocks(sets_s)
    assert evenly_timed(clocks.run, lambda: clocks.wall_s, lambda: clocks.steady_s) == runs


def test_a_thread_that_is_held_up_between_two_clocks_finds_none_set() -> None:
    clocks = Clocks([0.0])

    def held_up(now_s: float) -> float:
        clocks.wall_s, clocks.steady_s = clocks.wall_s + 9.0, clocks.steady_s + 9.0
        return now_s

    assert evenly_timed(clocks.run, lambda: held_up(clocks.wall_s), lambda: held_up(clocks.steady_s)) == 1


def test_a_traced_call_of_a_session_is_one() -> None:
    clocks = Clocks([3600.0, 0.0])
    run_traced(SimpleNamespace(run=clocks.run), [], wall=lambda: monotonic() + clocks.wall_s - clocks.steady_s)
    assert clocks.runs == 2
