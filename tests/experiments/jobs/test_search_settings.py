"""How the measurements of a search are shared among its searchers."""

from __future__ import annotations

import pytest

from experiments.jobs.search_settings import SearchSettings


@pytest.mark.parametrize(
    ("searchers", "left", "shares"),
    [
        (("expert", "heft", "random", "local"), 20, {"expert": 2, "heft": 2, "random": 1, "local": 15}),
        (("heft",), 5, {"heft": 5}),
        (("local",), 5, {"local": 5}),
    ],
)
def test_baselines_get_a_part_and_the_searchers_the_rest(searchers, left, shares):
    assert SearchSettings("any", searchers=searchers).shares(left) == list(shares.items())
