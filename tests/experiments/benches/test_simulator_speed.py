"""The bench simulator-speed: its line of the summary, and that graphs and mappings are those of its seeds."""

from __future__ import annotations

from typing import Any

import pytest

from experiments.benches import simulator_speed
from experiments.benches.bench import BenchOptions
from experiments.benches.simulator_speed import headline, layered

SPREAD = {"min": 1.0, "median": 2.0, "iqr": 0.1}
SPEEDS = {
    kind: dict.fromkeys(("exact_us", "all_cores_us", "screen_us", "plain_us"), SPREAD) for kind in ("none", "link")
}


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
        "exact simulation of 1,000 ops and 4 devices: 2 us without contention (wanted: 50), 2 us with `link`; 500,000 "
        f"a second on {facts['cores']} cores (wanted: 40,000); HEFT with its tables, by ops: 2100 ms of 1,000, 2100 ms "
        "of 5,000, 2100 ms of 100,000"
    )
