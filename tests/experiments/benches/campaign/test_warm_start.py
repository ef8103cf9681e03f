"""The bench of warm starts: networks that are alike, a clock unlike the profile, and counts that are honest."""

from __future__ import annotations

from dataclasses import replace

import pytest

from experiments.benches.campaign import warm_start
from experiments.benches.campaign.networks import ALIKE, FIRST, MACHINE
from search.initial.likeness import Shape, likeness
from search.problem.problem import Problem


@pytest.mark.parametrize("name", ALIKE)
def test_what_is_called_alike_is(name: str) -> None:
    shapes = [Shape.of(Problem(network.graph(), MACHINE)) for network in (FIRST, ALIKE[name])]
    assert 0.5 < likeness(*shapes) <= 1 + 1e-9
    assert shapes[0] != shapes[1]


def test_the_clock_is_off_by_the_same_factor_for_ops_of_the_same_name() -> None:
    def errors(network: object) -> dict[tuple[str, str], float]:
        profiled, true = network.graph(0.0).ops, network.graph(0.3).ops  # type: ignore[attr-defined]
        pairs = zip(profiled, true, strict=True)
        return {(a.name, kind): b.cost_s[kind] / a.cost_s[kind] for a, b in pairs for kind in a.cost_s}

    here, there = errors(FIRST), errors(replace(FIRST, batch=1.7))
    assert here == pytest.approx(there)
    assert len(set(here.values())) == len(here)


def test_a_goal_that_was_never_reached_counts_as_one_measurement_more() -> None:
    assert [warm_start._count([3.0, 2.0, 1.0], goal) for goal in (3.0, 2.5, 1.0, 0.5)] == [1, 2, 3, 4]


def test_what_could_not_be_saved_is_said() -> None:
    rows = [{"searcher": "a", "cold": 1, "warm": 1}, {"searcher": "a", "cold": 8, "warm": 1},
            {"searcher": "b", "cold": 4, "warm": 2}]  # fmt: skip
    facts = warm_start.summary(rows)
    assert facts["warm_start_ratio"] == pytest.approx(4 / 13) and facts["warm_start_at_once"] == pytest.approx(1 / 3)
    assert facts["warm_start_by_searcher"]["a"] == {"cold": 4.5, "warm": 1}


@pytest.mark.slow
def test_a_second_campaign_is_measured_cold_and_warm(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(warm_start, "ALIKE", {"a branch more": ALIKE["a branch more"]})
    monkeypatch.setattr(warm_start, "MEASUREMENTS", 5)
    facts = warm_start.warm_start_facts(("local", "genetic"), (0,))
    assert len(facts["warm_start_rows"]) == 2
    assert all(1 <= row[how] <= 6 for row in facts["warm_start_rows"] for how in ("cold", "warm"))
