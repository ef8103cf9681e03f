"""`placer profile` and `placer spoc`: what the ops of models take, and what limits models."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from experiments.cli import options
from experiments.cli.options import device_spec, measuring, show_result
from placer.errors import raise_last, tried


def profile(
    models: Annotated[list[str], typer.Argument(metavar="MODEL...", help="Zoo names, file.py:function, ...")],
    workers: options.Workers = None,
    spec: options.DevicesSpec = None,
    batch: Annotated[list[int] | None, typer.Option(help="Batch size; may be repeated.")] = None,
    passes: Annotated[int, typer.Option(help="Rounds of measuring, spread over time.")] = 3,
    store: Annotated[Path | None, typer.Option(help="SQLite file in which the dataset grows.")] = None,
    export: Annotated[Path | None, typer.Option(help="Write the dataset: .csv or .parquet.")] = None,
    quiet: options.Quiet = False,
    as_json: options.AsJson = False,
) -> None:
    """Fill the operator dataset, fit the operator models, and print their error.

    Example: placer profile alexnet moe --workers 2 --store operators.sqlite
    """
    from functools import partial

    from experiments.jobs.profile import ProfileSettings, profile_command
    from experiments.report.profile import profile_facts, show_profile
    from experiments.report.progress import progress_bar

    settings = ProfileSettings(tuple(models), device_spec(workers, spec), tuple(batch or (None,)), passes)
    with measuring():
        found = profile_command(settings, store, export, partial(progress_bar, quiet=quiet))
    failures = tried(lambda: show_result(as_json, profile_facts(found), lambda: show_profile(found)))
    raise_last([*failures, *found.lost])


def spoc(
    models: Annotated[
        list[str],
        typer.Argument(metavar="MODEL...", help="Zoo names, keras:NAME[@SIDE], file.py:function, or placer.graph/1."),
    ],
    batch: options.Batch = None,
    as_json: options.AsJson = False,
) -> None:
    """Show size, parameters, operations and critical datapath length of training steps, and what limits their speed.

    Graph files are read without TensorFlow; models are traced, not run.
    Example: placer spoc towers keras:ResNet50@96 out/towers/graph.json
    """
    from experiments.jobs.spoc import spoc_command
    from experiments.report.spoc import show_spoc

    with measuring():
        entries, failures = spoc_command(models, batch)
    raise_last([*tried(lambda: show_result(as_json, {"models": entries}, lambda: show_spoc(entries))), *failures])
