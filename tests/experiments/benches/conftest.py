"""Fixtures of all benches' tests."""

from __future__ import annotations

from pathlib import Path

import pytest

from experiments.benches.bench import machine


@pytest.fixture
def checkout(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty checkout, which is the working folder: benches record in it."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "benchmarks").mkdir()
    return tmp_path


@pytest.fixture(autouse=True)
def committed(monkeypatch: pytest.MonkeyPatch) -> None:
    """Runs are kept as in a checkout without changes, which this one may have."""
    here = machine() | {"commit": "0123456789ab"}
    monkeypatch.setattr("experiments.benches.kept_runs.machine", lambda: here)


@pytest.fixture(autouse=True)
def even(monkeypatch: pytest.MonkeyPatch) -> None:
    """The machine computes evenly: to find out takes seconds, and no test may depend on it."""
    monkeypatch.setattr("experiments.benches.unevenness", lambda: 0.02)
