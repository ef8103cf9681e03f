"""The benchmarks behind the numbers: each prints one JSON object, and with --record keeps it in benchmarks/.

Each has the QUESTION that it answers, `TAKES`, the options that it may be given, `bench_facts`, which measures and
returns the facts, `page_lines`, which shows them in BENCHMARKS.md, and `headline`, its line of the summary there. Some
have `draw`. A small bench is one module, a large one a package with these in `run`, `page` and `plot`. Several benches
share these modules: `bench` has the options, the record and `say`, `evenness` how evenly the machine computes,
`taken_options` which options may be given, `kept_runs` runs that a later command continues, `process` processes that
measure, `sampling` measured mappings, `comparisons` runs of `placer compare`, `intervals` how far a mean can be
trusted, `all_records` the recording of all.
"""

from __future__ import annotations

import time
from contextlib import suppress
from dataclasses import replace
from functools import partial
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from experiments.benches.all_records import record_each
from experiments.benches.bench import (
    FOLDER,
    PAGE,
    BenchOptions,
    Facts,
    as_json_numbers,
    check_folder,
    command_of,
    commit,
    keep,
)
from experiments.benches.evenness import unevenness, warn_if_uneven
from experiments.benches.kept_runs import check_runs
from placer.errors import BadInputError, PlacerError, tried
from placer.files import check_outputs

ALL = "all"
NAMES = (
    "campaign",
    "faults",
    "gpu",
    "main-job",
    "online",
    "operators",
    "plan",
    "run-order",
    "sample-efficiency",
    "scaling",
    "search-quality",
    "simulator-accuracy",
    "simulator-speed",
    "splitting",
    "spoc",
    "surrogates",
    "trust",
)


def record_all(runs: Path | None) -> Facts:
    """Record every benchmark except gpu, each in its own process. Whole records of this commit and machine are kept.

    runs: the folder for benchmarks that can be resumed. Raises PlacerError, after all have run, if one failed.
    """
    check_folder()
    names = [name for name in NAMES if name != "gpu"]
    return record_each({name: _part(name, "run").TAKES.runs for name in names}, runs)


def try_bench(name: str, options: BenchOptions, *, record: bool) -> tuple[Facts, list[Exception]]:
    """Run the benchmark `name`. With `record`, rewrite benchmarks/NAME.json and BENCHMARKS.md and draw its picture.

    Returns the facts, and the errors for which something could not be written or drawn: hours of figures must not be
    lost for these. Raises BadInputError, before anything runs, for an unknown name, for options that this benchmark
    cannot use, and for outputs that cannot be written; afterwards what the benchmark raises.
    """
    if name not in NAMES:
        raise BadInputError(f"there is no benchmark {name!r}; choose one of {', '.join(NAMES)}, or {ALL}.")
    bench = _part(name, "run")
    bench.TAKES.check(name, options)
    if bench.TAKES.runs:
        check_runs(options)
    if record:
        check_folder()
        _check_outputs(name)
    begun_at = commit() if record else None
    options = replace(options, record=record, begun_at=begun_at)
    uneven = unevenness() if record else None
    warn_if_uneven(uneven)
    begin_s = time.perf_counter()
    facts: Facts = as_json_numbers(bench.bench_facts(options))
    if not record:
        return facts, []
    took_s = time.perf_counter() - begin_s + sum(options.spared_s)
    facts = {**facts, "took_s": took_s, "uneven": {"before": uneven, "after": unevenness()}}
    return _recorded(name, facts, options)


def _recorded(name: str, facts: Facts, options: BenchOptions) -> tuple[Facts, list[Exception]]:
    """Keep the facts, and draw them afterwards. If that fails, the record does not count as whole. Returns the facts,
    and the errors.
    """
    pages = {each: _part(each, "page") for each in NAMES}
    store = partial(keep, name, command=command_of(name, options), begun_at=options.begun_at, pages=pages)
    failures: list[Exception] = [PlacerError(facts["failed"])] if isinstance(facts.get("failed"), str) else []
    unkept = tried(partial(store, facts))
    undrawn = _undrawn(name, facts)
    if undrawn is not None:
        facts = {**facts, "failed": f"its picture cannot be drawn: {undrawn}"}
        unkept = unkept or tried(partial(store, facts))
        failures.append(undrawn)
    return facts, [*failures, *unkept]


def _check_outputs(name: str) -> None:
    """Raise BadInputError if what is recorded of the bench `name` cannot be written."""
    picture = getattr(_part(name, "plot"), "PICTURE", None)
    if picture is not None:
        with suppress(OSError):  # the check says so
            picture.parent.mkdir(exist_ok=True)
    check_outputs(FOLDER / f"{name}.json", PAGE, picture)


def _undrawn(name: str, facts: Facts) -> Exception | None:
    """Draw the picture, if the bench has one. Returns the error if that fails."""
    plot = _part(name, "plot")
    try:
        if hasattr(plot, "draw"):
            plot.draw(facts, plot.PICTURE)
    except Exception as error:
        return error
    return None


def _part(name: str, part: str) -> Any:
    """Module `part` of the bench `name`, or its only module if it is no package. None if the package has no `part`."""
    module = import_module(f"experiments.benches.{name.replace('-', '_')}")
    if not hasattr(module, "__path__"):
        return module
    path = f"{module.__name__}.{part}"
    return import_module(path) if find_spec(path) else None
