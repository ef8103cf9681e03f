"""Intervals over networks: they hold the mean, shrink with more values, and say nothing of a few."""

from __future__ import annotations

import random
from statistics import geometric_mean, mean

import pytest

from experiments.benches.intervals import (
    coefficient_in_words,
    geomean_in_words,
    mean_by_families_in_words,
    mean_in_words,
    of_geomean,
    of_mean,
    of_mean_by_families,
)


def test_an_interval_holds_the_mean_and_shrinks_with_more_values():
    rng = random.Random(1)
    few, many = ([rng.gauss(1.0, 0.2) for _ in range(count)] for count in (8, 200))
    (low, high), (least, most) = of_mean(few), of_mean(many)
    assert low < mean(few) < high and least < mean(many) < most
    assert most - least < (high - low) / 2
    assert most - least == pytest.approx(2 * 1.96 * 0.2 / 200**0.5, rel=0.25)
    assert of_mean(few) == of_mean(few)  # the same record gives the same page


def test_few_values_have_an_interval_by_students_t():
    low, high = of_mean([1.0, 2.0, 3.0])
    assert (low, high) == (pytest.approx(2 - 4.303 / 3**0.5, abs=1e-3), pytest.approx(2 + 4.303 / 3**0.5, abs=1e-3))
    assert mean_in_words([0.01, 0.02, 0.09]).startswith("4.0% (95% interval 0.0% to 14.8%")  # not below nothing


def test_ratios_are_averaged_by_their_logarithms():
    ratios = [0.5, 1.0, 2.0, 4.0, 1.5]
    low, high = of_geomean(ratios)
    assert low < geometric_mean(ratios) < high
    assert of_geomean([1 / ratio for ratio in ratios]) == pytest.approx([1 / high, 1 / low], rel=0.1)


def test_too_few_or_equal_values_are_no_distribution():
    assert of_mean([1.0, 2.0]) is None and of_mean([]) is None
    assert of_mean([0.5, 0.5, 0.5]) == [0.5, 0.5]
    assert geomean_in_words([2.0, 0.5]) == "1.00 (median 1.25)"
    assert mean_in_words([0.1, 0.1, 0.1]) == "10.0% (95% interval 10.0% to 10.0%; median 10.0%)"


def test_families_whose_members_are_alike_make_an_interval_wider():
    rng = random.Random(2)
    middles = [rng.gauss(1.0, 0.2) for _ in range(12)]
    families = {str(i): [middle + rng.gauss(0.0, 0.01) for _ in range(8)] for i, middle in enumerate(middles)}
    every = [value for family in families.values() for value in family]
    (low, high), (least, most) = of_mean(every), of_mean_by_families(families)
    assert least < mean(every) < most
    assert most - least > 2 * (high - low)
    assert of_mean_by_families({"a": [1.0, 2.0], "b": [3.0]}) is None
    assert of_mean_by_families({"a": [2.0, 2.0], "b": [2.0], "c": [2.0]}) == [2.0, 2.0]


def test_of_few_families_the_interval_holds_the_mean_as_often_as_it_says():
    """Bootstrapped from five families, it held the mean of the families in 4 of 5 cases."""
    rng = random.Random(3)
    held = 0
    for _ in range(400):
        middles = [rng.gauss(1.0, 0.2) for _ in range(5)]
        low, high = of_mean_by_families({str(i): [m + rng.gauss(0, 0.02)] * 4 for i, m in enumerate(middles)})
        held += low <= 1.0 <= high
    assert held >= 0.92 * 400


def test_families_of_one_value_have_the_interval_of_the_values():
    values = [1.0, 2.0, 4.0, 3.5]
    assert of_mean_by_families({str(v): [v] for v in values}) == pytest.approx(of_mean(values))


def test_large_families_count_more():
    low, high = of_mean_by_families({"a": [0.0] * 30, "b": [1.0], "c": [1.0], "d": [1.0]})
    assert low < 3 / 33 < high
    assert mean_by_families_in_words({"a": [0.0] * 3, "b": [0.4]}) == "10.0% (median 0.0%)"


def test_coefficients_stay_between_minus_one_and_one():
    assert coefficient_in_words([0.9, 1.0, 0.5]) == "0.80 (95% interval 0.14 to 1.00; median 0.90)"
    assert coefficient_in_words([]) == "unknown"
