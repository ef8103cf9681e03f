"""The bench of campaigns: really killed, and honest about what was lost."""

from __future__ import annotations

import random
from pathlib import Path

import pytest

from experiments.benches.bench import BenchOptions
from experiments.benches.campaign import kills, page, run
from experiments.campaign.spec import Spec
from placer.errors import PlacerError
from placer.result import Measured

ONE = Measured(1.0)


def test_a_placement_that_a_cell_measured_twice_is_counted_and_that_of_another_cell_is_not() -> None:
    rows = {("a", 0): ((0, 1), ONE), ("a", 1): ((0, 1), ONE), ("a", 2): ((1, 1), ONE), ("b", 0): ((0, 1), ONE)}
    assert kills._duplicated(rows) == 1


def test_the_page_says_what_was_seen() -> None:
    facts = {"kills": 3, "lost": 1, "duplicated": 2, "asks_identical": False, "store_ms": 0.5, "store_spread_ms": 0.1}
    of = ("bayes-et", "hybrid", "bayes-et", "hybrid")
    counts = ((4, 1), (1, 2), (11, 1), (1, 1))
    rows = [{"searcher": s, "cold": cold, "warm": warm} for s, (cold, warm) in zip(of, counts, strict=True)]
    warm = {"warm_start_ratio": 5 / 17, "warm_start_at_once": 0.25, "warm_start_rows": rows}
    by_searcher = {"hybrid": {"cold": 11, "warm": 1.5}}
    found = {**facts, **warm, "measurements": 9, "at_kills": 8, "warm_start_by_searcher": by_searcher}
    text = "\n".join(page.page_lines(found))
    said = ("25% of the cold searches (all those of `hybrid`) were within 5% at once",
            "Of 4 searches, 2 took fewer measurements warm than cold, and 1 more", "warm start saves some): 0.29;",
            "| hybrid | more than 10 | 1.5 |")  # fmt: skip
    for row in ("| 3 |", "| 8 of 9 |", "| 1 |", "| 2 |", "| no |", "0.50 ms +- 0.10 ms", *said):
        assert row in text
    assert page.headline(found) == (
        "3 SIGKILLs, 1 measurements lost; measurements needed after a warm start (simulated; below 1 saves): "
        "`hybrid` (the default) 1.50x, other searchers 0.13x"
    )


def test_a_question_that_fails_is_named_and_the_others_go_on(monkeypatch: pytest.MonkeyPatch) -> None:
    def fails(*_: int) -> dict[str, int]:
        raise OSError("no browser")

    monkeypatch.setattr(run, "speed_facts", dict)
    for name, ask in (("kill_facts", fails), ("report_facts", fails), ("warm_start_facts", lambda: {"warm_start": 1})):
        monkeypatch.setattr(run, name, ask)
    facts = run.bench_facts(BenchOptions())
    why = {"failed": "OSError: no browser"}
    assert (facts.pop("seeds"), facts.pop("repeats")["over Ray and without"]) == ([0, 1, 2, 3, 4, 5], 5)
    assert page.headline(facts) == "not measured"
    assert facts == {"warm_start": 1, "missing": {"kills": why, "report": why}}
    assert page.page_lines(facts)[-1] == "- Not measured: report: OSError: no browser."


def test_a_store_that_a_kill_left_unreadable_is_no_empty_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def spoilt(spec: Spec, goal: int, rng: random.Random) -> int:
        spec.store.write_bytes(b"no store" * 1000)
        return 1

    monkeypatch.setattr(kills, "_killed_once", spoilt)
    spec = kills._spec(tmp_path, "killed")
    with pytest.raises(PlacerError, match="not a database"):
        kills._killed(spec, 4, random.Random(0))
    assert kills._count(spec.store) == 0  # as while it is being made


@pytest.mark.nightly
def test_killed_campaigns_go_on_as_if_they_had_not_been(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(kills, "MEASUREMENTS", 8)
    monkeypatch.setattr(kills, "ALL", 48)
    facts = kills.kill_facts(4)
    assert facts["kills"] >= 1 and facts["at_kills"] > 0 and facts["measurements"] == 48
    assert (facts["lost"], facts["duplicated"], facts["asks_identical"]) == (0, 0, True)
