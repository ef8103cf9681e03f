"""Every benchmark refuses at the door what it cannot use, with one line that names the option."""

from __future__ import annotations

from dataclasses import replace
from math import inf, nan
from pathlib import Path
from typing import Any

import pytest

from experiments.benches import NAMES, _part
from experiments.benches.bench import BenchOptions
from placer.errors import BadInputError
from tests.experiments.benches.run_bench import run_bench

WRONG: tuple[dict[str, Any], ...] = (
    *({"measurements": count} for count in (0, -1)),
    *({"minutes": minutes} for minutes in (0.0, -1.0, nan, inf)),
    *({"workers": count} for count in (0, 1, -1, 10_000)),
    *({"models": (name,)} for name in ("nosuch", "")),
    *({"devices": devices} for devices in ("nosuch", "cpus:0", "cpus:-1")),
)
OPTION = {"models": "--model|zoo|loop", "workers": "--workers|10000 workers"}
GIVEN = {"models": ("towers",), "workers": 3, "devices": "cpus:2", "minutes": 5.0, "runs": Path("runs")}


def refuses(name: str, options: BenchOptions, says: str) -> None:
    with pytest.raises(BadInputError, match=says):
        run_bench(name, options, record=False)


@pytest.fixture
def nothing_runs(monkeypatch: pytest.MonkeyPatch) -> None:
    """A bench that begins although it should have refused fails the test instead of measuring."""

    def fail(*_: object) -> None:
        raise AssertionError("measured something")

    for name in set(NAMES) - {"gpu"}:  # which looks at --devices itself
        monkeypatch.setattr(_part(name, "run"), "bench_facts", fail)
    monkeypatch.setattr(_part("gpu", "run"), "Host", fail)


@pytest.mark.parametrize("name", NAMES)
def test_what_cannot_be_is_refused_before_anything_runs(name: str, nothing_runs: None, tmp_path: Path) -> None:
    for wrong in WRONG:
        refuses(name, BenchOptions(**wrong), OPTION.get(option := next(iter(wrong)), f"--{option}"))
    (tmp_path / "file").touch()
    refuses(name, BenchOptions(runs=tmp_path / "file"), "--runs")


@pytest.mark.parametrize("name", NAMES)
def test_an_option_without_a_use_is_refused_and_the_others_are_not(name: str) -> None:
    takes = _part(name, "run").TAKES
    for option, value in GIVEN.items():
        if not getattr(takes, option):
            refuses(name, replace(BenchOptions(), **{option: value}), f"{name} takes no --")
    takes.check(name, BenchOptions(measurements=takes.measurements))
