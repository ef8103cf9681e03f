"""Hill climbing: improving a placement one move at a time, by its predicted objective."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from itertools import accumulate
from typing import NamedTuple

from search.problem.problem import Placement, Problem
from search.problem.searcher import Stop

# Long runs move, too, because moving one layer of many makes two tensors cross to save one.
RUN_LENGTHS = (1, 2, 4, 8, 16, 32)
GAIN = 1e-9  # relative: a smaller gain is a rounding error
MOST_LISTED = 100_000  # more moves are drawn at random, because listing them would take as long as many predictions


class Shift(NamedTuple):
    """A move of units first, first + 1, ... (`length` of them, in topological order) to `device`."""

    first: int
    length: int
    device: int


class Swap(NamedTuple):
    """A move by which two units exchange their devices, which is possible even if memory is full."""

    first: int
    second: int


Move = Shift | Swap


@dataclass(frozen=True)
class Climb:
    """The result of climbing: the placement, its predicted objective in seconds, and the number of predictions."""

    placement: Placement
    value: float
    evaluations: int


def climb(
    problem: Problem,
    start: Placement,
    predict: Callable[[Placement], float],
    *,
    evaluations: int,
    rng: random.Random,
    stop: Stop,
) -> Climb:
    """Climb by first improvement over all moves in a shuffled order, until a whole round gains nothing. If there are
    more than MOST_LISTED moves, a round draws as many moves as there are, with replacement, so that it misses about a
    third of them, and the result may have a neighbour that is better.

    Moves that neither gain nor lose are taken, too, because the landscape has plateaus. Ends early, with the best so
    far, after `evaluations` predictions or when `stop()`.
    """
    best, value, spent, gained = start, predict(start), 1, True
    while gained:
        gained = False
        for move in _shuffled(problem, rng):
            if spent >= evaluations or stop():
                return Climb(best, value, spent)
            candidate = moved(problem, best, move)
            if candidate is None:
                continue
            candidate_value = predict(candidate)
            spent += 1
            gained = gained or candidate_value < value * (1 - GAIN)
            if candidate_value <= value:
                best, value = candidate, candidate_value
    return Climb(best, value, spent)


def shifts(problem: Problem) -> Iterator[Shift]:
    """Yield every shift of RUN_LENGTHS units, to every device that can run the first of them."""
    for length in RUN_LENGTHS:
        for first in range(len(problem.units) - length + 1):
            for device in problem.feasible[first]:
                yield Shift(first, length, device)


def shift_count(problem: Problem) -> int:
    """Return the number of `shifts`."""
    devices = [0, *accumulate(map(len, problem.feasible))]
    return sum(devices[max(0, len(devices) - length)] for length in RUN_LENGTHS)


def some_shifts(problem: Problem, rng: random.Random) -> Iterable[Shift]:
    """Return all shifts in a shuffled order; if there are more than MOST_LISTED, MOST_LISTED random ones."""
    if shift_count(problem) > MOST_LISTED:
        return (_drawn_shift(problem, rng) for _ in range(MOST_LISTED))
    listed = list(shifts(problem))
    rng.shuffle(listed)
    return listed


def moved(problem: Problem, placement: Placement, move: Move) -> Placement | None:
    """Return the placement after `move`; None if that changes nothing, cannot run or does not fit."""
    if isinstance(move, Shift):
        end = move.first + move.length
        if any(move.device not in problem.feasible[u] for u in range(move.first, end)):
            return None
        after = placement[: move.first] + (move.device,) * move.length + placement[end:]
    else:
        a, b = placement[move.first], placement[move.second]
        if b not in problem.feasible[move.first] or a not in problem.feasible[move.second]:
            return None
        swapped = list(placement)
        swapped[move.first], swapped[move.second] = b, a
        after = tuple(swapped)
    return after if after != placement and problem.fits(after) else None


def kicked(problem: Problem, placement: Placement, rng: random.Random) -> Placement:
    """Return the placement after a few random shifts: enough to leave the hill, and few enough to keep good parts."""
    for _ in range(rng.choice((2, 3, 4))):
        length = min(len(placement), int(2 ** rng.uniform(0, 4)))
        first = rng.randrange(len(placement) - length + 1)
        device = rng.choice(problem.feasible[first])
        placement = moved(problem, placement, Shift(first, length, device)) or placement
    return placement


def _shuffled(problem: Problem, rng: random.Random) -> Iterable[Move]:
    """Return all shifts and one random swap for each unit, shuffled; if there are too many to list, as many random
    moves.
    """
    count = len(problem.units)
    total = len(RUN_LENGTHS) * sum(map(len, problem.feasible)) + count
    if total > MOST_LISTED:
        return (_drawn(problem, rng) for _ in range(total))
    moves: list[Move] = [*shifts(problem), *(Swap(u, rng.randrange(count)) for u in range(count))]
    rng.shuffle(moves)
    return moves


def _drawn(problem: Problem, rng: random.Random) -> Move:
    """Draw a random shift, or a swap with the share that swaps have among all moves."""
    count = len(problem.units)
    shift = _drawn_shift(problem, rng)
    if rng.random() * (len(RUN_LENGTHS) * len(problem.feasible[shift.first]) + 1) < 1:
        return Swap(shift.first, rng.randrange(count))
    return shift


def _drawn_shift(problem: Problem, rng: random.Random) -> Shift:
    count = len(problem.units)
    length = rng.choice([length for length in RUN_LENGTHS if length <= count])
    first = rng.randrange(count - length + 1)
    return Shift(first, length, rng.choice(problem.feasible[first]))
