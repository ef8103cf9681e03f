"""The bench trust: figures of runs whose truth is known; a part that failed never looks good."""

from __future__ import annotations

import json
from typing import Any

import pytest

from experiments.benches.bench import BenchOptions
from experiments.benches.paired_trainings import compared, is_settled
from experiments.benches.trust import run as trust
from experiments.benches.trust.growth import slope
from experiments.benches.trust.page import headline, page_lines
from experiments.benches.trust.reading import ways
from experiments.benches.trust.reads import READS
from experiments.loops.catalogue import LOOPS
from placer.errors import BadInputError
from tests.experiments.benches.run_bench import run_bench

RUN = {
    "loop": "scratch", "steps": 40, "placed": 20, "mappings": 3, "variables": 24, "different": [], "repeated": 0,
    "alone": [], "said": [], "seconds": 1.0, "broken": [],
}  # fmt: skip
PARTS = {
    "reads": {"reads": 1000, "steps": 250, "ways": 38, "fewest": 5, "stale_reads": 0, "stale": {}, "seconds": 9.0},
    "pace": {"ratio": 1.01, "spread": 0.02, "wrapped_s": 0.00101, "alone_s": 0.001, "steps": 40, "searched": 300,
             "ended": ["steady: untouched"]},
    "growth": {"moves": 20, "growth_bytes": 2**20, "wrap_growth_bytes": 0.0, "variable_bytes": 2**18,
               "moved_bytes": [], "wrapped_bytes": []},
}  # fmt: skip


def answers(monkeypatch: pytest.MonkeyPatch, asked: dict[str, Any] | None = None, **parts: Any) -> list[str]:
    """Parts that answer at once; the list of those that ran."""
    ran = []

    def facts_alone(call: Any, name: str, settings: Any, seconds: float) -> Any:
        ran.append(name)
        return {**PARTS, **parts}[name]

    def judge(_: Any, loop: Any, way: str) -> Any:
        ran.append(f"{loop.name} {way}")
        alone = {"placed": 0, "alone": [f"it {loop.alone}"] * loop.steps} if loop.alone else {}
        found = {**RUN, **alone, **(asked or {})}
        return found if "failed" in found else {**found, "broken": trust.broken(loop, found)}

    monkeypatch.setattr(trust, "facts_alone", facts_alone)
    monkeypatch.setattr(trust, "_asked", judge)
    return ran


def bench(**options: Any) -> Any:
    return run_bench("trust", BenchOptions(**options), record=True)


def test_every_loop_is_run_and_the_page_has_it(checkout: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    ran = answers(monkeypatch)
    facts = bench()
    assert (facts["loops"], facts["differences"], facts["stale_reads"]) == (len(LOOPS), 0, 0)
    assert (facts["worst_vs_untouched"], facts["growth_bytes"]) == (1.01, 2**20)
    assert {"scratch moved", "scratch searched", "summary searched"} <= set(ran) and "summary moved" not in ran
    page = (checkout / "BENCHMARKS.md").read_text()
    assert all(f"| `{name}` |" in page for name in LOOPS) and "1.010 +- 0.020" in page
    assert (facts["seeds"], facts["repeats"]["reads"]) == ([7], 100_000)
    assert headline(facts) == (
        "0 differences in 26 loops, 21 of which were placed, and 0 stale reads (wanted: 0), on two CPU "
        "devices of one process; loops that ended untouched, on 2 workers: 1.01 (95% interval 1.01 to "
        "1.01; median 1.01) of the time alone, worst 1.01, 0 of 21 above 1.05 (wanted: none)"
    )
    assert json.loads((checkout / "benchmarks" / "trust.json").read_text())["by_loop"]["gan"]


@pytest.mark.parametrize(
    "wrong",
    [
        {"different": ["variable w: [1.0], and [2.0] alone"]},
        {"placed": 0},
        {"alone": ["it prints"]},
    ],
)
def test_what_breaks_the_contract_is_a_difference(
    checkout: Any, monkeypatch: pytest.MonkeyPatch, wrong: dict[str, Any]
) -> None:
    answers(monkeypatch, wrong)
    facts = bench(models=("scratch",))
    assert facts["differences"] == 2  # moved and searched
    assert "- `scratch`, searched: " in (checkout / "BENCHMARKS.md").read_text()


def test_noise_that_is_drawn_again_and_steps_that_should_be_left_alone_are_differences() -> None:
    assert trust.broken(LOOPS["gan"], {**RUN, "repeated": 3})
    assert trust.broken(LOOPS["summary"], RUN)
    assert trust.broken(LOOPS["seeded_gan"], {**RUN, "placed": 0, "alone": ["a seeded stream"]})
    assert not trust.broken(LOOPS["seeded_gan"], {**RUN, "placed": 0, "alone": ["a seeded stream"] * 2})


@pytest.mark.parametrize(
    ("part", "key"), [("reads", "stale_reads"), ("pace", "worst_vs_untouched"), ("growth", "growth_bytes")]
)
def test_a_part_that_failed_gives_no_figure(
    checkout: Any, monkeypatch: pytest.MonkeyPatch, part: str, key: str
) -> None:
    answers(monkeypatch, **{part: {"failed": "it did not end within 9 s"}})
    assert bench(models=("scratch", "summary"))[key] is None
    assert "it did not end within 9 s" in (checkout / "BENCHMARKS.md").read_text()


def test_a_loop_that_failed_gives_no_figure(checkout: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    answers(monkeypatch, {"failed": "more than 240 s"})
    assert bench(models=("scratch",))["differences"] is None
    assert "- `scratch`, moved: more than 240 s" in (checkout / "BENCHMARKS.md").read_text()


@pytest.mark.parametrize("options", [{"models": ("nosuch",)}, {"measurements": 0}])
def test_bad_options_are_refused_before_any_part_runs(
    checkout: Any, monkeypatch: pytest.MonkeyPatch, options: dict[str, Any]
) -> None:
    ran = answers(monkeypatch)
    with pytest.raises(BadInputError):
        bench(**options)
    assert not ran


def test_a_ratio_is_of_pairs_of_blocks_and_growth_is_a_slope() -> None:
    """A machine that gets twice as slow slows both sides of a pair."""
    found = compared([(1.1, 1.0), (2.2, 2.0), (1.1, 1.0)], "wrapped_s", "alone_s")
    assert found["ratio"] == pytest.approx(1.1) and found["spread"] == pytest.approx(0.0)
    assert found["pairs"] == 3 and found["error"] == pytest.approx(0.0)
    assert compared([(1.0, 1.0), (1.1, 1.0), (1.2, 1.0), (1.3, 1.0)], "a", "b")["error"] == pytest.approx(
        0.15 / 1.349 * 1.2533 / 2
    )
    assert slope([10.0, 13.0, 16.0, 19.0]) == pytest.approx(3.0)


def paced(**ratios: tuple[float, float]) -> dict[str, Any]:
    """Facts of loops: their names, and ratio and spread of each."""
    paces = {name: {**PARTS["pace"], "ratio": ratio, "spread": spread} for name, (ratio, spread) in ratios.items()}
    return trust.judged({}, PARTS["reads"], paces, PARTS["growth"], 2, 16)


def test_a_fit_whose_step_is_not_made_yet_has_not_searched() -> None:
    assert not is_settled([]) and not is_settled(["steady: untouched", "searching: untouched"])
    assert is_settled(["steady: untouched", "left alone: it prints"])


def test_what_wrapping_costs_loops_that_end_untouched_is_summed_up_and_noise_is_called_noise() -> None:
    facts = paced(vae=(0.78, 0.1), a=(1.03, 0.02), b=(1.07, 0.02), c=(1.15, 0.4))
    facts["paces"]["placed"] = {**PARTS["pace"], "ratio": 0.3, "ended": ["steady: placed"]}
    text = "\n".join(page_lines(facts))
    assert "Of 4 loops that ended untouched, 3 took longer than alone, by 3% to 15%; in the median, all 4 took" in text
    assert "took 1.05 times as long as alone. 2 took more than 1.05 times as long." in text
    assert "The worst is `c` with 1.150 +- 0.400: its interval covers 1, so it may be noise." in text
    assert "The worst whose interval does not is `b` with 1.070 +- 0.020." in text
    assert "2 of 4 above 1.05 (wanted: none)" in headline(facts)
    facts["paces"]["c"]["error"] = 0.05
    assert "The worst is `c` with 1.150 +- 0.400.\n" in "\n".join(page_lines(facts))
    assert "untouched, on 2 workers: unknown of the time" in headline(paced()) and "ended untouched, " not in "\n".join(
        page_lines(paced())
    )


def test_every_way_of_reading_has_its_turn() -> None:
    turns = ways()
    assert {next(turns) for _ in range(2 * len(READS))} | {"dataset", "generator"} == set(READS)
