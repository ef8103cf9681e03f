"""The benchmarks behind the numbers: each prints one JSON object, and with --record keeps it in benchmarks/.

Each is a package: `run` measures and returns the facts, `page` shows them in BENCHMARKS.md, `plot` draws them. What
several share stands beside the packages: `bench` the options and the record, `comparisons` runs of `placer compare`,
`sampling` measured mappings, `process` a process that measures under caps.
"""

from __future__ import annotations

from dataclasses import replace
from importlib import import_module

from experiments.benches.bench import Bench, BenchOptions, Facts, check_folder, keep
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


def bench(name: str) -> Bench:
    """`search-quality` is run.run and page.page of the package experiments/benches/search_quality/."""
    package = f"experiments.benches.{name.replace('-', '_')}"
    return Bench(import_module(f"{package}.run").run, import_module(f"{package}.page").page)


def run_bench(name: str, options: BenchOptions, *, record: bool) -> Facts:
    """Run the benchmark `name`; with `record` write benchmarks/NAME.json and BENCHMARKS.md anew.

    Raises BadInputError for a name that is none, and for options that this benchmark has no use for.
    """
    if name not in NAMES:
        raise BadInputError(f"there is no benchmark {name!r}; choose one of {', '.join(NAMES)}.")
    if options.devices is not None and name not in ON_DEVICES:
        raise BadInputError(f"{name} takes no --devices; leave it out ({', '.join(ON_DEVICES)} takes it).")
    if options.minutes is not None and name not in TIMED:
        raise BadInputError(f"{name} takes no --minutes; leave it out ({', '.join(TIMED)} take it).")
    if record:
        check_folder()
    facts = bench(name).run(replace(options, record=record))
    if record:
        keep(name, facts, {name: bench(name).page for name in NAMES})
    return facts
