"""How far the means of a benchmark can be trusted: intervals over what was measured."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
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


def of_mean_by_families(values: Mapping[str, Sequence[float]]) -> Interval | None:
    """The same as `of_mean`, for values that come in families whose members are alike: {family: its values}, none
    empty.

    Whole families are resampled, because the members of one family do not count as independent. The mean is over all
    values, so a large family counts more than a small one. From fewer than MANY families, the interval follows
    Student's t for families - 1 degrees of freedom, with the linearised variance of the ratio of sums to counts
    (Cochran 1977, Sampling Techniques, section 9A.3). None if there are fewer than FEWEST families.
    """
    if len(values) < FEWEST:
        return None
    import numpy as np
    from scipy.stats import bootstrap, t

    sums, counts = [sum(family) for family in values.values()], [len(family) for family in values.values()]
    if len({total / count for total, count in zip(sums, counts, strict=True)}) == 1:
        return [sums[0] / counts[0]] * 2
    if len(values) < MANY:
        middle, families = sum(sums) / sum(counts), len(values)
        off = [total - middle * count for total, count in zip(sums, counts, strict=True)]
        error = sqrt(families / (families - 1) * sum(each**2 for each in off)) / sum(counts)
        width = float(t.ppf((1 + CONFIDENCE) / 2, families - 1)) * error
        return [middle - width, middle + width]
    found = bootstrap(
        (np.asarray(sums, float), np.asarray(counts, float)),
        lambda total, count, axis=-1: total.sum(axis) / count.sum(axis),
        paired=True, vectorized=True, confidence_level=CONFIDENCE, n_resamples=RESAMPLES, rng=0,
    ).confidence_interval  # fmt: skip
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
    return _shares_in_words(shares, of_mean(shares))


def mean_by_families_in_words(shares: Mapping[str, Sequence[float]]) -> str:
    """The same as `mean_in_words`, for shares that come in families (`of_mean_by_families`)."""
    return _shares_in_words([share for family in shares.values() for share in family], of_mean_by_families(shares))


def coefficient_in_words(coefficients: Sequence[float]) -> str:
    """'0.70 (95 % interval 0.55 to 0.82; median 0.77)', for the mean of coefficients of correlation."""
    if not coefficients:
        return UNKNOWN
    interval = of_mean(coefficients)
    bounded = None if interval is None else [max(-1.0, min(1.0, bound)) for bound in interval]
    return f"{mean(coefficients):.2f} ({_beside(bounded, f'median {median(coefficients):.2f}', '.2f')})"


def _shares_in_words(shares: Sequence[float], interval: Interval | None) -> str:
    if not shares:
        return UNKNOWN
    bounded = None if interval is None else [max(0.0, bound) for bound in interval]
    return f"{mean(shares):.1%} ({_beside(bounded, f'median {median(shares):.1%}', '.1%')})"


def _beside(interval: Interval | None, middle: str, form: str) -> str:
    if interval is None:
        return middle
    low, high = interval
    return f"{CONFIDENCE:.0%} interval {low:{form}} to {high:{form}}; {middle}"
