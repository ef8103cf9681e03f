"""`placer bench`: the benchmarks behind BENCHMARKS.md."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated

import typer

from experiments.cli import options
from experiments.cli.options import measuring
from placer.errors import BadInputError


def bench(
    name: Annotated[str, typer.Argument(help="A benchmark of BENCHMARKS.md, or all of them.")],
    record: Annotated[bool, typer.Option("--record", help="Write benchmarks/NAME.json and BENCHMARKS.md.")] = False,
    models: Annotated[
        list[str] | None, typer.Option("--model", help="Only this model (spoc: family, or all); may be repeated.")
    ] = None,
    workers: Annotated[int, typer.Option(help="Start N worker processes.")] = 2,
    measurements: Annotated[int | None, typer.Option(help="Mappings to measure per model (spoc: networks).")] = None,
    runs: Annotated[Path | None, typer.Option(help="Folder for runs that benchmarks share; none is run twice.")] = None,
    spec: Annotated[str | None, typer.Option("--devices", help="gpu only: cpus:N tries it without a GPU.")] = None,
    minutes: Annotated[float | None, typer.Option(help="faults, gpu, splitting, spoc: begin nothing new then.")] = None,
    as_json: options.AsJson = False,
) -> None:
    """Run one of the benchmarks behind BENCHMARKS.md; the last line on stdout is one JSON object.

    Example: placer bench main-job --record
    """
    del as_json  # the last line is JSON with and without it
    from experiments.benches import ALL, record_all, try_bench
    from experiments.benches.bench import BenchOptions
    from placer.errors import raise_last, tried

    names = tuple(dict.fromkeys(models)) if models else None
    asked = BenchOptions(names, workers, measurements, False, runs, spec, minutes)
    if name == ALL and (not record or asked != BenchOptions(runs=runs)):
        raise BadInputError("bench all records each benchmark as it is defined; give --record and --runs alone.")
    with measuring():
        facts, failures = (record_all(runs), []) if name == ALL else try_bench(name, asked, record=record)
    raise_last([*failures, *tried(lambda: print(json.dumps(facts)))])
