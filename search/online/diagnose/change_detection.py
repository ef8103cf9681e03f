"""Notices from step times alone that the load changed: a sequential test on ranks."""

from __future__ import annotations

import math
from bisect import bisect_left, bisect_right, insort
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from statistics import NormalDist, median

from placer.errors import PlacerError

NORMAL = NormalDist()
NORMAL_OCTILES = 2.301  # from the first to the last octile of the normal distribution, in standard deviations
OVERSHOOT = 1.166  # by which a normal random walk passes its limit, both sides together (Siegmund 1985)
OUTERMOST = 1 / 21  # share of ranks at either end that count alike


@dataclass(frozen=True)
class ChangeSettings:
    """How much evidence makes a change.

    The cumulative sums must reach `limit`, and the median of the `recent` steps must differ enough from the median of
    the reference and from that of its `late` steps, which are ahead during a drift.
    """

    window: int = 64  # steps in the reference
    held: int = 12  # latest steps, not yet in the reference, so that it does not swallow a change that is adding up
    warm_up: int = 24  # steps after which alarms begin
    allowance: float = 1.2  # of the sums, in standard deviations; a step at the end of the ranks adds 2.1 - allowance
    limit: float = 5.35  # of the sums, in standard deviations; six such steps reach it
    recent: int = 7  # steps whose median is compared
    late: int = 16  # latest steps of the reference
    least_ratio: float = 0.08  # least relative difference of the medians
    least_spreads: float = 3.0  # the same, in standard deviations of a step
    # The same, in standard deviations of medians of `recent` steps, so that correlated steps raise no false alarm.
    least_median_spreads: float = 5.0
    part: int = 10  # fewest steps on either side of a change within the warm-up
    settled: int = 48  # steps in the reference when its median is kept, against which a drift is measured
    least_drift: float = 0.65  # least relative difference from that median that is a change by itself


@dataclass(frozen=True, slots=True)
class Change:
    """A change of step times."""

    ratio: float  # the new median step time divided by that of the reference
    steps: int  # how many steps ago it seems to have begun
    slower: bool


class ChangeTest:
    """Two-sided CUSUM (Page 1954) on normal scores of sequential ranks (McDonald 1990; Gordon and Pollak 1994).

    How a new step ranks among those of the reference does not depend on the distribution of step times, and so
    neither do false alarms: with independent steps more than a million steps lie between two false alarms
    (`run_length`), even before the further conditions suppress some. A change beyond the noise is reported at its sixth
    step, at its seventh while the reference fills. The reference follows `held` steps behind, and thus follows a drift,
    so that a change that remains within the noise for long is swallowed in the end. Departures from the papers: the
    outermost ranks score alike, because two stragglers in the reference must not hide a change, and the window is
    finite.

    A change within the warm-up is reported at the end of the warm-up, if at least `part` steps lie on either side and
    the two sides hardly overlap; by chance that happens after less than one restart in 10,000. Earlier changes are not
    reported: they become part of the reference.

    The spread grows with a drift, so that a load that grows for a minute would never be reported. Therefore the level
    at which steps first settled is kept, and steps that have drifted by two thirds of it are a change.

    After an alarm the new times are the new normal, so each change is reported once, and its end is another change.
    """

    def __init__(self, settings: ChangeSettings | None = None) -> None:
        self.settings = settings or ChangeSettings()
        self.restart()

    def restart(self) -> None:
        """Forget all steps, because what is normal has changed, for example with the mapping."""
        self._begin(())

    @property
    def reference_s(self) -> float | None:
        """Median step time of the reference in seconds; None before the first step."""
        return self._reference.quantile(0.5) if self._reference.ordered else None

    @property
    def drift(self) -> float:
        """Latest step time of the reference divided by the level at which steps first settled; 1.0 before that."""
        if self._level is None:
            return 1.0
        return self._late_s() / self._level.step_s

    def add(self, step_s: float) -> Change | None:
        """Add a step. Returns the change for which the evidence is now complete, if any. Raises PlacerError unless
        `step_s` is positive and finite.
        """
        if not 0 < step_s < math.inf:
            raise PlacerError(f"a step of {step_s} s tells nothing of the load; add positive, finite seconds")
        self._count += 1
        if self._count <= self.settings.warm_up:
            self._reference.add(step_s)
        else:
            self._hold(step_s)
        change = self._late_change() or self._early_change() or self._drift(step_s)
        if change:
            self._begin(self._latest(change.steps))
        return change

    def _begin(self, steps_s: Sequence[float]) -> None:
        self._reference = _Reference(self.settings.window)
        self._held: deque[float] = deque()
        self._up = self._down = 0.0
        self._level: _Level | None = None
        self._count = len(steps_s)
        for step_s in steps_s:
            self._reference.add(step_s)

    def _hold(self, step_s: float) -> None:
        """Apply Page's recursions. The sums stop at `limit`, so that a change too small to act on is soon forgotten."""
        score, s = self._reference.score(step_s), self.settings
        self._up = min(s.limit, max(0.0, self._up + score - s.allowance))
        self._down = min(s.limit, max(0.0, self._down - score - s.allowance))
        self._held.append(step_s)
        if len(self._held) > s.held:
            self._reference.add(self._held.popleft())

    def _late_change(self) -> Change | None:
        """Return the change that the sums show, if it is worth acting on."""
        s = self.settings
        if max(self._up, self._down) < s.limit or len(self._held) < s.recent:
            return None
        held = list(self._held)
        usual_s, new_s = self._reference.quantile(0.5), median(held[-s.recent :])
        if not self._worth_it(new_s):
            return None
        return Change(new_s / usual_s, _begun(held, usual_s, new_s), self._up >= s.limit)

    def _drift(self, step_s: float) -> Change | None:
        """Return the change if the reference's latest steps are far from the level at which steps first settled."""
        s, reference = self.settings, self._reference
        if self._level is None:
            if len(reference.ordered) >= s.settled:
                spreads = (
                    s.least_spreads * reference.spread(),
                    s.least_median_spreads * reference.spread_of_medians(s.recent),
                )
                self._level = _Level(reference.quantile(0.5), max(math.log1p(s.least_drift), *spreads))
            return None
        if self._level.is_near(step_s):
            return None
        new_s = self._late_s()
        if self._level.is_near(new_s):
            return None
        return Change(new_s / self._level.step_s, s.late + len(self._held), new_s > self._level.step_s)

    def _worth_it(self, new_s: float) -> bool:
        """Whether the latest median is far enough off: by ratio, by the spread of steps, and by that of medians."""
        s, reference = self.settings, self._reference
        levels_s = (reference.quantile(0.5), self._late_s())
        difference = min((1 if self._up >= s.limit else -1) * math.log(new_s / level_s) for level_s in levels_s)
        if difference < _least(s, reference.spread()):
            return False
        return difference >= s.least_median_spreads * reference.spread_of_medians(s.recent)

    def _early_change(self) -> Change | None:
        """Return the likeliest split of the first steps. Looks until a change at the end of the warm-up shows, too."""
        s = self.settings
        if not s.warm_up <= self._count <= s.warm_up + s.part:
            return None
        steps_s = self._latest(self._count)
        splits = [_split(s, steps_s, len(steps_s) - n) for n in range(s.part, len(steps_s) - s.part + 1)]
        found = [change for change in splits if change]
        return max(found, key=lambda c: abs(math.log(c.ratio)) * c.steps * (self._count - c.steps), default=None)

    def _late_s(self) -> float:
        """Median of the latest steps of the reference."""
        return median(list(self._reference.steps)[-self.settings.late :])

    def _latest(self, count: int) -> list[float]:
        """The latest steps, the oldest first."""
        steps_s = [*self._reference.steps, *self._held]
        return steps_s[-count:]


@dataclass(frozen=True, slots=True)
class _Level:
    """A level of step times. least: the least difference of logarithms that is more than noise."""

    step_s: float
    least: float

    def is_near(self, step_s: float) -> bool:
        return abs(math.log(step_s / self.step_s)) < self.least


class _Reference:
    """The last `size` steps added, in order and sorted."""

    def __init__(self, size: int) -> None:
        self.size = size
        self.steps: deque[float] = deque()
        self.ordered: list[float] = []

    def add(self, step_s: float) -> None:
        self.steps.append(step_s)
        insort(self.ordered, step_s)
        if len(self.steps) > self.size:
            del self.ordered[bisect_left(self.ordered, self.steps.popleft())]

    def score(self, step_s: float) -> float:
        """Normal score of the rank of `step_s` among these steps and itself; among equal steps, of the middle rank."""
        scores = normal_scores(len(self.ordered))
        return (scores[bisect_left(self.ordered, step_s)] + scores[bisect_right(self.ordered, step_s)]) / 2

    def quantile(self, share: float) -> float:
        """The step at that share of the way from the fastest to the slowest."""
        return self.ordered[int(share * (len(self.ordered) - 1) + 0.5)]

    def spread(self) -> float:
        """Standard deviation of the logarithm of a step, by its octiles."""
        return math.log(self.quantile(0.875) / self.quantile(0.125)) / NORMAL_OCTILES

    def spread_of_medians(self, length: int) -> float:
        """As `spread`, for medians of `length` steps in a row: larger than by chance if steps are correlated."""
        steps_s = list(self.steps)
        medians = _Reference(self.size)
        for end in range(length, len(steps_s) + 1):
            medians.add(median(steps_s[end - length : end]))
        return medians.spread() if medians.ordered else 0.0


@lru_cache(maxsize=256)
def normal_scores(size: int) -> tuple[float, ...]:
    """The scores of a step that is slower than 0, 1, ..., `size` of `size` others. At either end, the outermost scores
    are replaced by their mean.
    """
    count = size + 1
    ends = min(count // 2, max(2, round(count * OUTERMOST)))
    scores = [NORMAL.inv_cdf((rank + 0.5) / count) for rank in range(count)]
    if ends:
        outer = NORMAL.pdf(NORMAL.inv_cdf(ends / count)) * count / ends
        scores[:ends], scores[count - ends :] = [-outer] * ends, [outer] * ends
    return tuple(scores)


def run_length(allowance: float, limit: float) -> float:
    """Steps between false alarms on either side, independent steps assumed (Siegmund 1985, section 2.6)."""
    b = 2 * allowance * (limit + OVERSHOOT)
    return (math.exp(b) - 1 - b) / (2 * allowance**2) / 2


def _least(settings: ChangeSettings, spread: float) -> float:
    """The least difference of logarithms worth an alarm."""
    return max(math.log1p(settings.least_ratio), settings.least_spreads * spread)


def _begun(held: Sequence[float], usual_s: float, new_s: float) -> int:
    """Return how many of the latest steps are of the new kind. Counting back, that is where steps nearer `new_s` than
    `usual_s` outnumber the others most.
    """
    border_s, votes, most, begun = math.sqrt(usual_s * new_s), 0, 0, 1
    for back, step_s in enumerate(reversed(held), 1):
        votes += 1 if (step_s > border_s) == (new_s > usual_s) else -1
        if votes > most:
            most, begun = votes, back
    return begun


def _split(settings: ChangeSettings, steps_s: Sequence[float], at: int) -> Change | None:
    """Return the change between the steps before `at` and from `at` on, if it is worth an alarm and at most one
    straggler overlaps.
    """
    before, after = sorted(steps_s[:at]), sorted(steps_s[at:])
    ratio = median(after) / median(before)
    if not (before[-2] < after[0] or after[-2] < before[0]):
        return None
    parts = _Reference(len(steps_s))
    for part in (before, after):
        for step_s in part:
            parts.add(step_s / median(part))
    worth = abs(math.log(ratio)) >= _least(settings, parts.spread())
    return Change(ratio, len(after), ratio > 1) if worth else None
