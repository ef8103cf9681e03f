"""The command line. Every command says what it does with an example, prints JSON with --json, and never a traceback."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Callable
from contextlib import redirect_stdout
from pathlib import Path
from typing import Annotated, Any

import typer

from experiments.cli.scale import app as scale
from placer import __version__
from placer.errors import BadInputError, PlacerError, one_line

app = typer.Typer(
    name="placer",
    help="Decides which device runs which op of a TensorFlow training step, and proves it with a clock.",
    no_args_is_help=True,
    add_completion=True,
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
)
app.add_typer(scale)

INTERRUPTED = 130  # how typer ends on Ctrl-C

Workers = Annotated[int | None, typer.Option("--workers", help="Start N worker processes on this machine's cores.")]
DevicesSpec = Annotated[
    str | None, typer.Option("--devices", help="gpus:N[@MIB], cpus:N, workers:N, or host:port,host:port.")
]
IncludeLocal = Annotated[bool, typer.Option("--include-local", help="Let the coordinating process compute, too.")]
AsJson = Annotated[bool, typer.Option("--json", help="Print one JSON object on stdout.")]
Model = Annotated[str, typer.Argument(help="A zoo name, file.py:function or module:function.")]
Minutes = Annotated[float | None, typer.Option("--minutes", help="Stop asking after this long.")]
Batch = Annotated[int | None, typer.Option("--batch", help="Batch size (zoo models).")]
GroupCount = Annotated[int, typer.Option("--groups", help="How coarse to search: at most about so many groups.")]
Report = Annotated[Path | None, typer.Option("--report", help="Write the result table as Markdown.")]
StoreFile = Annotated[Path | None, typer.Option("--store", help="SQLite file; what is in it is not measured again.")]
Quiet = Annotated[bool, typer.Option("--quiet", help="No progress.")]
Seed = Annotated[int, typer.Option("--seed", help="Same seed, same mappings asked.")]
Objective = Annotated[str, typer.Option("--objective", help="makespan, or max-load (pipelined throughput).")]
Pins = Annotated[
    list[str] | None,
    typer.Option(
        "--pin",
        metavar="PATTERN=DEVICE",
        help="Ops whose whole name matches the regular expression run on this device, or kind; may be repeated.",
    ),
]
Schedule = Annotated[str, typer.Option("--schedule", help="rank, donf, or fifo (TensorFlow's own order).")]


def _version(asked: bool) -> None:
    if asked:
        print(f"placer {__version__}")
        raise typer.Exit


@app.callback()
def common(
    version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Print the version and end.")
    ] = False,
) -> None:
    """What holds for every command; the help text is that of `app`."""
    del version  # its callback has done all there is


@app.command()
def devices(workers: Workers = None, spec: DevicesSpec = None, include_local: IncludeLocal = False,
            as_json: AsJson = False) -> None:  # fmt: skip
    """The topology a search would use here: devices, memory, measured link latency and bandwidth.

    Example: placer devices --workers 2
    """
    from experiments.report.tables import show_topology, topology_facts

    _quiet_tensorflow()
    from placer.devices.cluster import open_devices

    with redirect_stdout(sys.stderr), open_devices(device_spec(workers, spec), include_local=include_local) as opened:
        topology, hardware = opened.topology, opened.hardware
    facts = topology_facts(topology, hardware)
    _print(as_json, facts, lambda: show_topology(topology, hardware))


@app.command()
def search(
    model: Model,
    workers: Workers = None,
    spec: DevicesSpec = None,
    include_local: IncludeLocal = False,
    searcher: Annotated[
        list[str] | None, typer.Option("--searcher", help="Use only this one; may be repeated.")
    ] = None,
    measurements: Annotated[int, typer.Option("--measurements", help="Mappings to measure at most.")] = 24,
    minutes: Minutes = None,
    seed: Seed = 0,
    batch: Batch = None,
    groups: GroupCount = 192,
    pin: Pins = None,
    out: Annotated[
        Path | None, typer.Option("--out", help="Folder for mapping.json, graph.json, topology.json.")
    ] = None,
    report: Report = None,
    trace: Annotated[
        Path | None, typer.Option("--trace", help="Write a Perfetto trace of the placed step, predicted and measured.")
    ] = None,
    gantt: Annotated[
        Path | None, typer.Option("--gantt", help="Draw the placed step, predicted and measured: .png, .svg or .pdf.")
    ] = None,
    store: StoreFile = None,
    quiet: Quiet = False,
    as_json: AsJson = False,
) -> None:
    """The main job: trace a training step, profile it, search, measure, and hand back the fastest mapping.

    Example: placer search towers --workers 2 --out out/
    """
    _quiet_tensorflow()
    from contextlib import nullcontext

    from experiments.jobs.search import run_search
    from experiments.jobs.search_settings import SearchSettings
    from experiments.report import tables
    from experiments.report.progress import bar
    from placer.measure.store import Store

    settings = SearchSettings(
        model, device_spec(workers, spec), include_local, tuple(searcher) if searcher else None,
        measurements, minutes, seed, batch, groups, pins=tuple(pin or ()),
    )  # fmt: skip
    tables.check_writable(out, report, trace, gantt)
    with redirect_stdout(sys.stderr), Store(store) if store else nullcontext() as opened:
        found = run_search(settings, bar(quiet), opened, trace=bool(trace or gantt))
        tables.write_results(found, out, report, trace, gantt)
    _print(as_json, tables.finding_facts(found), lambda: tables.show_finding(found))


@app.command()
def compare(
    model: Model,
    workers: Workers = None,
    spec: DevicesSpec = None,
    include_local: IncludeLocal = False,
    searcher: Annotated[
        list[str] | None, typer.Option("--searcher", help="Let this one compete; may be repeated. Default: all.")
    ] = None,
    measurements: Annotated[
        int, typer.Option("--measurements", help="Mappings each may have measured, single devices aside.")
    ] = 12,
    peer_measurements: Annotated[
        int | None, typer.Option("--peer-measurements", help="The same for all but the default searcher.")
    ] = None,
    minutes: Minutes = None,
    seed: Seed = 0,
    batch: Batch = None,
    groups: GroupCount = 192,
    pin: Pins = None,
    report: Report = None,
    curves: Annotated[
        Path | None, typer.Option("--curves", help="Draw how fast each comes near the best: .png, .svg or .pdf.")
    ] = None,
    store: StoreFile = None,
    quiet: Quiet = False,
    as_json: AsJson = False,
) -> None:
    """The searchers and baselines side by side, measured interleaved. Ctrl-C ends it with what was measured so far.

    Example: placer compare towers --workers 2 --measurements 8 --curves curves.png
    """
    _quiet_tensorflow()
    from contextlib import nullcontext

    from experiments.jobs.compare import CompareSettings, run_comparison
    from experiments.jobs.search_settings import SearchSettings
    from experiments.report import standings, tables
    from experiments.report.picture import check_picture
    from experiments.report.progress import bar
    from placer.measure.store import Store

    search = SearchSettings(
        model, device_spec(workers, spec), include_local, tuple(searcher) if searcher else None,
        measurements, minutes, seed, batch, groups, pins=tuple(pin or ()),
    )  # fmt: skip
    check_picture(curves, "--curves")
    tables.check_writable(None, report, curves)
    with redirect_stdout(sys.stderr), Store(store) if store else nullcontext() as opened:
        found = run_comparison(CompareSettings(search, peer_measurements), bar(quiet), opened)
        facts = standings.comparison_facts(found)
        standings.write_comparison(facts, report, curves)
    _print(as_json, facts, lambda: standings.show_comparison(facts))


@app.command()
def plan(
    graph: Annotated[Path, typer.Argument(help="placer.graph/1")],
    topology: Annotated[Path, typer.Argument(help="placer.topology/1")],
    objective: Objective = "makespan",
    searcher: Annotated[str, typer.Option("--searcher")] = "hybrid",
    schedule: Schedule = "rank",
    seconds: Annotated[float, typer.Option("--seconds", help="Time to search.")] = 10.0,
    seed: Seed = 0,
    pin: Pins = None,
    out: Annotated[Path | None, typer.Option("--out", help="Write the mapping (placer.mapping/1).")] = None,
    as_json: AsJson = False,
) -> None:
    """Search on files, by prediction alone; TensorFlow is not needed.

    Example: placer plan graph.json topology.json --out mapping.json
    """
    from experiments.jobs.plan import plan_command
    from experiments.report.tables import show_facts

    facts = plan_command(graph, topology, objective, searcher, schedule, seconds, seed, out, pin or ())
    _print(as_json, facts, lambda: show_facts(facts))


@app.command()
def simulate(
    graph: Annotated[Path, typer.Argument(help="placer.graph/1")],
    topology: Annotated[Path, typer.Argument(help="placer.topology/1")],
    mapping: Annotated[Path, typer.Argument(help="placer.mapping/1")],
    objective: Objective = "makespan",
    schedule: Schedule = "rank",
    trace: Annotated[Path | None, typer.Option("--trace", help="Write a Perfetto trace of the simulated step.")] = None,
    gantt: Annotated[Path | None, typer.Option("--gantt", help="Draw it: .png, .svg or .pdf.")] = None,
    match_by_name: Annotated[bool, typer.Option("--match-by-name", help="Carry over another graph's mapping.")] = False,
    as_json: AsJson = False,
) -> None:
    """Predict one training step under a mapping; TensorFlow is not needed.

    Example: placer simulate graph.json topology.json mapping.json --gantt step.png
    """
    from experiments.jobs.plan import simulate_command
    from experiments.report.picture import check_picture
    from experiments.report.tables import show_simulated, write_simulated

    check_picture(gantt)
    simulated = simulate_command(graph, topology, mapping, schedule, objective, match_by_name)
    write_simulated(simulated, trace, gantt)
    _print(as_json, simulated.facts, lambda: show_simulated(simulated))


@app.command()
def profile(
    models: Annotated[list[str], typer.Argument(metavar="MODEL...", help="Zoo names, file.py:function, ...")],
    workers: Workers = None,
    spec: DevicesSpec = None,
    batch: Annotated[list[int] | None, typer.Option("--batch", help="Batch size; may be repeated.")] = None,
    passes: Annotated[int, typer.Option("--passes", help="Rounds of measuring, spread over time.")] = 3,
    store: Annotated[Path | None, typer.Option("--store", help="SQLite file in which the dataset grows.")] = None,
    export: Annotated[Path | None, typer.Option("--export", help="Write the dataset: .csv or .parquet.")] = None,
    quiet: Quiet = False,
    as_json: AsJson = False,
) -> None:
    """Fill the operator dataset, fit the operator models, and print their error.

    Example: placer profile alexnet moe --workers 2 --store operators.sqlite
    """
    _quiet_tensorflow()
    from functools import partial

    from experiments.jobs.profile import ProfileSettings, profile_command
    from experiments.report.profile import profile_facts, show_profile
    from experiments.report.progress import progress_bar

    settings = ProfileSettings(tuple(models), device_spec(workers, spec), tuple(batch or (None,)), passes)
    with redirect_stdout(sys.stderr):
        found = profile_command(settings, store, export, partial(progress_bar, quiet=quiet))
    _print(as_json, profile_facts(found), lambda: show_profile(found))


@app.command()
def spoc(
    models: Annotated[
        list[str],
        typer.Argument(metavar="MODEL...", help="Zoo names, keras:NAME[@SIDE], file.py:function, or placer.graph/1."),
    ],
    batch: Batch = None,
    as_json: AsJson = False,
) -> None:
    """Size, parameters, operations and critical datapath length of training steps, and what they mean for speed.

    Graph files are read without TensorFlow; models are traced, not run.
    Example: placer spoc towers keras:ResNet50@96 out/towers/graph.json
    """
    _quiet_tensorflow()
    from experiments.jobs.spoc import spoc_command
    from experiments.report.spoc import show_spoc

    with redirect_stdout(sys.stderr):
        entries = spoc_command(models, batch)
    _print(as_json, {"models": entries}, lambda: show_spoc(entries))


@app.command()
def bench(
    name: Annotated[str, typer.Argument(help="One of those in BENCHMARKS.md.")],
    record: Annotated[
        bool, typer.Option("--record", help="Also write benchmarks/NAME.json and BENCHMARKS.md.")
    ] = False,
    models: Annotated[
        list[str] | None, typer.Option("--model", help="Only this model (spoc: family, or all); may be repeated.")
    ] = None,
    workers: Annotated[int, typer.Option("--workers")] = 2,
    measurements: Annotated[
        int | None, typer.Option("--measurements", help="Mappings to measure per model (spoc: networks).")
    ] = None,
    runs: Annotated[
        Path | None, typer.Option("--runs", help="Folder for runs that benchmarks share; what is in it is not rerun.")
    ] = None,
    spec: Annotated[
        str | None, typer.Option("--devices", help="gpu only: cpus:N tries all parts without a GPU, for no figures.")
    ] = None,
    minutes: Annotated[
        float | None, typer.Option("--minutes", help="gpu, spoc: begin nothing new after this long.")
    ] = None,
) -> None:
    """The benchmarks behind BENCHMARKS.md; the last line on stdout is one JSON object.

    Example: placer bench main-job --record
    """
    _quiet_tensorflow()
    from experiments.benches import run_bench
    from experiments.benches.bench import BenchOptions

    options = BenchOptions(tuple(models) if models else None, workers, measurements, False, runs, spec, minutes)
    with redirect_stdout(sys.stderr):
        facts = run_bench(name, options, record=record)
    print(json.dumps(facts))


def device_spec(workers: int | None, spec: str | None) -> str | None:
    """--workers N is short for --devices workers:N. Raises BadInputError where both are given."""
    if workers is not None and spec is not None:
        raise BadInputError("--workers and --devices both name the devices; give one of them.")
    return spec if workers is None else f"workers:{workers}"


def main() -> None:
    """Run the command line: exit 0 done, 1 failed honestly, 2 bad input, with one line on stderr."""
    try:
        app()
    except PlacerError as error:
        print(one_line(f"placer: {error}"), file=sys.stderr)
        sys.exit(error.exit_code)
    except SystemExit as end:
        if end.code != INTERRUPTED:
            raise
        print("placer: interrupted; what was measured is in the store, if you gave one.", file=sys.stderr)
        sys.exit(1)


def _print(as_json: bool, facts: dict[str, Any], show: Callable[[], None]) -> None:
    if as_json:
        print(json.dumps(facts))
    else:
        show()


def _quiet_tensorflow() -> None:
    """TensorFlow logs from C++ before Python can ask it not to."""
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")


if __name__ == "__main__":
    main()
