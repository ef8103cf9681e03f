"""The benchmarks behind the numbers: each prints one JSON object, and with --record keeps it in benchmarks/.

Each is a package: `run` measures and returns the facts, `page` shows them in BENCHMARKS.md, `plot` draws them. What
several share stands beside the packages: `bench` the options and the record, `kept_runs` runs that a later command
takes up again, `process` processes that measure, `sampling` measured mappings, `comparisons` runs of `placer compare`.
"""

from __future__ import annotations

from dataclasses import replace
from importlib import import_module
from importlib.util import find_spec
from typing import Any

from experiments.benches.bench import BenchOptions, Facts, check_folder, keep
from placer.errors import BadInputError

NAMES = (
    "gpu",
    "main-job",
    "online",
    "operators",
    "sample-efficiency",
    "scaling",
    "search-quality",
    "simulator-accuracy",
    "simulator-speed",
    "spoc",
    "surrogates",
)
ON_DEVICES, TIMED = ("gpu",), ("gpu", "spoc")  # these take --devices, and --minutes


def run_bench(name: str, options: BenchOptions, *, record: bool) -> Facts:
    """Run the benchmark `name`. With `record`, write benchmarks/NAME.json and BENCHMARKS.md anew and draw its picture.

    Raises BadInputError for an unknown name, and for options that this benchmark has no use for.
    """
    if name not in NAMES:
        raise BadInputError(f"there is no benchmark {name!r}; choose one of {', '.join(NAMES)}.")
    if options.devices is not None and name not in ON_DEVICES:
        raise BadInputError(f"{name} takes no --devices; leave it out ({', '.join(ON_DEVICES)} takes it).")
    if options.minutes is not None and name not in TIMED:
        raise BadInputError(f"{name} takes no --minutes; leave it out ({', '.join(TIMED)} take it).")
    if record:
        check_folder()
    facts: Facts = _module(name, "run").bench_facts(replace(options, record=record))
    if record:
        keep(name, facts, {name: _module(name, "page").page_lines for name in NAMES})
        if find_spec(_path(name, "plot")):
            plot = _module(name, "plot")
            plot.PICTURE.parent.mkdir(exist_ok=True)
            plot.draw(facts, plot.PICTURE)
    return facts


def _path(name: str, part: str) -> str:
    """`search-quality` is the package experiments/benches/search_quality/."""
    return f"experiments.benches.{name.replace('-', '_')}.{part}"


def _module(name: str, part: str) -> Any:
    return import_module(_path(name, part))
