"""What Ray gains a campaign, as the bench measures and shows it."""

from __future__ import annotations

import pytest

from experiments.benches.campaign import page, speed


def test_the_page_says_what_ray_gains_and_what_was_not_counted() -> None:
    facts = {"ray_speedup": 1.75, "ray_speedup_spread": 0.12, "ray_cpus": 2.0, "ray_repeats": 5}
    text = "\n".join(page._speed({**facts, "ray_measurements": 900, "ray_per_s": 350.4, "one_process_per_s": 200.2}))
    for part in ("on 2 cores", "900 measurements", "350 measurements a second", "one process 200", "1.75 times"):
        assert part in text
    assert "start of Ray" in text


@pytest.mark.nightly
@pytest.mark.slow
def test_both_ways_are_timed_in_turn(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(speed, "MEASUREMENTS", 2)
    monkeypatch.setattr(speed, "OPS", 20)
    monkeypatch.setattr(speed, "EDGES", 45)
    monkeypatch.setattr(speed, "SEEDS", (0, 1))
    facts = speed.speed_facts(repeats=2)
    assert facts["ray_measurements"] == 8 and facts["ray_repeats"] == 2
    assert facts["ray_speedup"] > 0 and facts["ray_per_s"] > 0 and facts["one_process_per_s"] > 0
