"""The options that a benchmark takes, and the values that they may have."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from math import inf
from pathlib import Path

from experiments import zoo
from experiments.benches.bench import BenchOptions
from placer.devices.host.cores import usable_cores
from placer.devices.workers.workers import share_cores
from placer.errors import BadInputError

OPTIONS = {
    "models": "--model",
    "measurements": "--measurements",
    "workers": "--workers",
    "runs": "--runs",
    "devices": "--devices",
    "minutes": "--minutes",
}
FEWEST_WORKERS = 2


@dataclass(frozen=True)
class Takes:
    """The fields of BenchOptions that a benchmark uses.

    models: is called with each name, and raises BadInputError for an unknown one; None if there is nothing to choose.
    measurements: the fewest that the benchmark can be judged by.
    """

    models: Callable[[str], object] | None = zoo.find
    measurements: int = 1
    workers: bool = False
    runs: bool = False
    devices: bool = False
    minutes: bool = False

    def check(self, bench: str, options: BenchOptions) -> None:
        """Raise BadInputError for an option that `bench` does not use, and for a value that is not allowed."""
        for name, option in OPTIONS.items():
            if not getattr(self, name) and getattr(options, name) != getattr(BenchOptions, name):
                raise BadInputError(f"{bench} takes no {option}; leave it out.")
        if options.measurements is not None and options.measurements < self.measurements:
            raise BadInputError(f"--measurements {options.measurements}: {bench} needs at least {self.measurements}.")
        if options.minutes is not None and not 0 < options.minutes < inf:
            raise BadInputError(f"--minutes {options.minutes}: give a number > 0, or leave it out.")
        if self.workers:
            _check_workers(options.workers)
        if options.runs is not None:
            _check_folder(options.runs)
        for model in options.models or ():
            assert self.models is not None  # refused above
            self.models(model)


def _check_workers(count: int) -> None:
    if count < FEWEST_WORKERS:
        raise BadInputError(f"--workers {count}: give at least {FEWEST_WORKERS}, or there is nothing to share.")
    share_cores(count, usable_cores())


def _check_folder(runs: Path) -> None:
    if runs.exists() and not runs.is_dir():
        raise BadInputError(f"--runs {runs}: this is no folder; name another.")
