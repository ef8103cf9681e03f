"""The best step of a case's searchers over measurements and over seconds: the median and the range over seeds."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import accumulate
from math import inf
from statistics import median

from experiments.campaign.store import Held
from placer.result import fastest_s
from search.page.record import Curve

DENSE = 60  # the first measurements, each of which has a place on the axis
GROWTH = 1.06  # from one place to the next, after these
MOST = 150  # places on an axis of seconds
ROUND = "125"  # 1, 2, 5, 10, 20, ... always have a place


@dataclass(frozen=True)
class Course:
    """One search: after n measurements, the best so far (infinity if nothing ran) and the seconds taken."""

    searcher: str
    best_s: tuple[float, ...]
    seconds: tuple[float, ...]
    is_over: bool  # then its last best also counts for everything after it

    @classmethod
    def of(cls, held: Held, single_s: float, is_over: bool) -> Course:
        """The course of a stored cell. single_s: seconds on the best single device, which every search knows."""
        ran = (fastest_s([trial.result]) for trial in held.measured)
        best_s = tuple(accumulate(ran, min, initial=single_s))
        spent_s = accumulate(trial.seconds for trial in held.trials)  # asking for what was refused took time, too
        seconds = (after_s for trial, after_s in zip(held.trials, spent_s, strict=True) if not trial.refused)
        return cls(held.searcher, best_s, (0.0, *seconds), is_over)

    @property
    def measurements(self) -> int:
        """The number of measurements."""
        return len(self.best_s) - 1

    def after(self, measurements: int) -> float | None:
        """The best after `measurements`; None if the search has not made as many."""
        known = self.is_over or measurements <= self.measurements
        return self.best_s[min(measurements, self.measurements)] if known else None

    def after_seconds(self, seconds: float) -> float | None:
        """The best after `seconds` of asking and measuring; None if the search has not taken as long."""
        known = self.is_over or seconds <= self.seconds[-1]
        return self.best_s[bisect_right(self.seconds, seconds) - 1] if known else None


def curves_of(courses: Sequence[Course]) -> tuple[Curve, ...]:
    """Two curves for each searcher, one over measurements and one over seconds; none before anything ran."""
    found = []
    for searcher in dict.fromkeys(course.searcher for course in courses):
        begun = [course for course in courses if course.searcher == searcher and course.measurements]
        if begun:
            found.append(_curve("order", begun, _counts(begun), Course.after))
            found.append(_curve("seconds", begun, _moments(begun), Course.after_seconds))
    return tuple(curve for curve in found if curve.at)


def _curve(
    axis: str, courses: Sequence[Course], places: Sequence[int | float], best: Callable[[Course, int], float | None]
) -> Curve:
    rows = list(_rows(courses, places, best))  # type: ignore[arg-type]
    at, middle, low, high = zip(*rows, strict=True) if rows else ((), (), (), ())
    return Curve(courses[0].searcher, axis, len(courses), at, middle, low, high)


def _rows(
    courses: Sequence[Course], places: Sequence[float], best: Callable[[Course, float], float | None]
) -> Iterator[tuple[float, float, float, float]]:
    """Yield (place, median, least, largest) of the best, for each place at which all searches that came so far have a
    best.
    """
    for place in places:
        known = [value for course in courses if (value := best(course, place)) is not None]
        if known and max(known) < inf:
            yield place, median(known), min(known), max(known)


def _counts(courses: Sequence[Course]) -> list[int]:
    """The counts that have a place: each one up to DENSE, then fewer and fewer, and the last one."""
    last = max(course.measurements for course in courses)
    places = [*range(min(last, DENSE) + 1), last]
    while places[-2] < last:
        places.insert(-1, min(last, int(places[-2] * GROWTH) + 1))
    rounds = (int(digit) * 10**power for power in range(7) for digit in ROUND)
    return sorted({*places, *(count for count in rounds if count <= last)})


def _moments(courses: Sequence[Course]) -> list[float]:
    """The seconds at which a search improved, thinned out evenly if there are many, and the end of every search."""
    better = {
        course.seconds[n]
        for course in courses
        for n in range(1, course.measurements + 1)
        if course.best_s[n] < course.best_s[n - 1] or n == 1
    }
    ordered = sorted(better)
    kept = ordered[:: max(1, -(-len(ordered) // MOST))]
    return sorted({*kept, *(course.seconds[-1] for course in courses)})
