"""How far the means of a benchmark can be trusted: intervals over what was measured."""

from __future__ import annotations

from collections.abc import Sequence
from math import exp, log, sqrt
from statistics import geometric_mean, mean, median, stdev

CONFIDENCE = 0.95
FEWEST = 3  # values; an interval of fewer says nothing
MANY = 10  # values from which on intervals are bootstrapped; bootstrapped from fewer, they are too narrow
RESAMPLES = 9999
UNKNOWN = "unknown"  # the mean of no values

Interval = list[float]
"""[low, high], a list because records are JSON."""


def of_mean(values: Sequence[float]) -> Interval | None:
    """The CONFIDENCE interval of the mean of values like these; None if there are too few.

    Each value belongs to one sampled thing, for example a network. Average repeats of the same thing first, because
    they are not independent. From MANY values on, the interval is bootstrapped: bias-corrected and accelerated (Efron
    1987), by scipy.stats.bootstrap, always with the same seed. From fewer values, it follows Student's t.
    """
    if len(values) < FEWEST:
        return None
    if max(values) == min(values):
        return [values[0], values[0]]
    import numpy as np
    from scipy.stats import bootstrap, t

    if len(values) < MANY:
        width = float(t.ppf((1 + CONFIDENCE) / 2, len(values) - 1)) * stdev(values) / sqrt(len(values))
        return [mean(values) - width, mean(values) + width]
    found = bootstrap(
        (np.asarray(values, float),), np.mean, confidence_level=CONFIDENCE, n_resamples=RESAMPLES, rng=0
    ).confidence_interval
    return [float(found.low), float(found.high)]


def of_geomean(ratios: Sequence[float]) -> Interval | None:
    """The same as `of_mean`, for the geometric mean of ratios."""
    found = of_mean([log(ratio) for ratio in ratios])
    return None if found is None else [exp(bound) for bound in found]


def geomean_in_words(ratios: Sequence[float]) -> str:
    """'1.47 (95 % interval 1.36 to 1.58; median 1.45)'; without the interval if there are too few ratios."""
    if not ratios:
        return UNKNOWN
    return f"{geometric_mean(ratios):.2f} ({_beside(of_geomean(ratios), f'median {median(ratios):.2f}', '.2f')})"


def mean_in_words(shares: Sequence[float]) -> str:
    """'6.7 % (95 % interval 4.1 % to 11 %; median 3.7 %)', for shares, which cannot be negative."""
    if not shares:
        return UNKNOWN
    interval = of_mean(shares)
    bounded = None if interval is None else [max(0.0, bound) for bound in interval]
    return f"{mean(shares):.1%} ({_beside(bounded, f'median {median(shares):.1%}', '.1%')})"


def _beside(interval: Interval | None, middle: str, form: str) -> str:
    if interval is None:
        return middle
    low, high = interval
    return f"{CONFIDENCE:.0%} interval {low:{form}} to {high:{form}}; {middle}"
