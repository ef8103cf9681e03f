"""The bench simulator-speed: its line of the summary, and that graphs and mappings are those of its seeds."""

from __future__ import annotations

from typing import Any

import pytest

from experiments.benches import simulator_speed
from experiments.benches.bench import BenchOptions
from experiments.benches.simulator_speed import headline, layered

SPREAD = {"min": 1.0, "median": 2.0, "iqr": 0.1}
SPEEDS = {kind: dict.fromkeys(("exact_us", "all_cores_us", "screen_us", "plain_us"), SPREAD) for kind in ("none",)}


def test_the_headline_has_what_is_wanted_beside_what_was_found(monkeypatch: pytest.MonkeyPatch) -> None:
    made: list[int] = []

    def small(ops: int, edges: int, width: int) -> Any:
        made.append(ops)
        return layered(20, 40, 4)

    monkeypatch.setattr(simulator_speed, "layered", small)
    monkeypatch.setattr(simulator_speed, "_speeds", lambda *_: SPEEDS)
    monkeypatch.setattr(simulator_speed, "_heft", lambda *_: {"heft_s": SPREAD, "donf_s": SPREAD, "tables_s": 0.1})
    monkeypatch.setattr(simulator_speed, "_agreement", lambda _: {"rank": {"near_heft": {"kendall_tau": 0.5}}})
    monkeypatch.setattr(simulator_speed, "_first_makespan_s", lambda: 0.3)
    facts = simulator_speed.bench_facts(BenchOptions())
    assert made == [1_000, 5_000, 100_000] and facts["seeds"] == [0, 1] and facts["repeats"] == 25
    assert headline(facts) == (
        f"exact simulation of 1,000 ops and 4 devices: 2 us (wanted: 50), 500,000 a second on {facts['cores']} cores "
        "(wanted: 40,000); HEFT of 1,000, 5,000 and 100,000 ops: 2000.00, 2000.00 and 2000 ms"
    )
