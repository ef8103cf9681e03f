"""One benchmark as `placer bench` runs it, for tests."""

from __future__ import annotations

from experiments.benches import try_bench
from experiments.benches.bench import BenchOptions, Facts
from placer.errors import raise_last


def run_bench(name: str, options: BenchOptions, *, record: bool) -> Facts:
    """As `try_bench`, but raises the errors that this returns."""
    facts, failures = try_bench(name, options, record=record)
    raise_last(failures)
    return facts
