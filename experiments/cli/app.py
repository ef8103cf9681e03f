"""The command line. Every command has an example in its help, prints JSON with --json, and never prints a traceback."""

from __future__ import annotations

import os
import signal
import sys
import traceback
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from experiments.cli import options
from experiments.cli.bench import bench
from experiments.cli.campaign import app as campaign
from experiments.cli.failures import in_one_line
from experiments.cli.last_words import become_another, last_words
from experiments.cli.mappings import diff, show
from experiments.cli.models import profile, spoc
from experiments.cli.options import device_spec, measuring, show_result
from experiments.cli.quiet import import_quietly
from experiments.cli.scale import app as scale
from experiments.cli.streams import flush_stdout, guard_streams
from experiments.cli.usage import run_app
from experiments.jobs.interrupt import EXIT, WORDS, Signals, heard
from placer import __version__
from placer.errors import PlacerError, raise_last, tell, tell_all, tried, try_each
from placer.graph.defaults import GROUPS
from placer.graph.memory_limits import MemoryLimits
from placer.graph.schedules import RANK
from search.defaults import DEFAULT_SEARCHER

if TYPE_CHECKING:
    from experiments.jobs.search.comparison import Comparison
    from experiments.jobs.search.finding import Finding

app = typer.Typer(
    name="placer",
    help="Decides which device runs which op of a TensorFlow training step, and proves it with a clock.",
    no_args_is_help=True,
    add_completion=True,
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
)
app.add_typer(scale)
app.add_typer(campaign)

INTERRUPTED = 130  # typer's exit code on KeyboardInterrupt
LEFT = "what was measured is in the store, if you gave one."
LEFT_OF_BENCH = "runs that had ended are in the folder of --runs, if you gave one; nothing else is kept."


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
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")  # TensorFlow logs from C++ before Python can ask it not to
    import_quietly()


@app.command()
def devices(
    workers: options.Workers = None,
    spec: options.DevicesSpec = None,
    include_local: options.IncludeLocal = False,
    max_memory: options.MaxMemory = None,
    as_json: options.AsJson = False,
) -> None:
    """Show the topology that a search would use here: devices, memory, measured link latency and bandwidth.

    Example: placer devices --workers 2
    """
    from experiments.report.topology import show_topology, topology_facts
    from placer.devices.opening import open_devices

    limits, named = MemoryLimits.parsed(max_memory or ()), device_spec(workers, spec)
    with measuring(), open_devices(named, include_local=include_local, deadlines=True, max_memory=limits) as opened:
        topology = opened.topology
    show_result(as_json, topology_facts(topology), lambda: show_topology(topology))


@app.command()
def search(
    model: options.Model,
    workers: options.Workers = None,
    spec: options.DevicesSpec = None,
    include_local: options.IncludeLocal = False,
    searcher: options.Searchers = None,
    measurements: Annotated[
        int, typer.Option(help="Measure at most this many mappings, single devices included.")
    ] = 24,
    minutes: options.Minutes = None,
    seed: options.Seed = 0,
    batch: options.Batch = None,
    groups: options.GroupCount = GROUPS,
    pin: options.Pins = None,
    schedule: options.Schedule = RANK,
    max_memory: options.MaxMemory = None,
    split: Annotated[
        str,
        typer.Option(
            help="Divide ops: auto, off, pipeline:M (M micro-batches), or the mapping file whose splits are taken."
        ),
    ] = "auto",
    split_batchnorm: Annotated[
        str,
        typer.Option(
            help="Statistics of divided batch normalisation: exact (of the whole batch), or local (of each part), "
            "which changes the mathematics."
        ),
    ] = "exact",
    costs: options.Costs = options.PROFILED,
    operators: options.Operators = None,
    out: Annotated[Path | None, typer.Option(help="Folder for mapping.json, graph.json, topology.json.")] = None,
    report: options.Page = None,
    trace: Annotated[Path | None, typer.Option(help="Write the step, predicted and measured, for Perfetto.")] = None,
    gantt: Annotated[
        Path | None, typer.Option(help="Draw the step, predicted and measured (.png, .svg, .pdf).")
    ] = None,
    store: options.StoreFile = None,
    quiet: options.Quiet = False,
    as_json: options.AsJson = False,
) -> None:
    """Trace a training step, profile it, search, measure, and hand back the fastest mapping: the main job.

    Example: placer search towers --workers 2 --out out/
    """
    from experiments.jobs.search.main_job import run_search
    from experiments.report.progress import bar
    from experiments.report.report_files import check_report, is_page
    from experiments.report.result_files import check_writable, write_results
    from experiments.report.search_tables import finding_facts, show_finding

    check_report(report)
    settings = options.search_settings(
        model, workers, spec, searcher, pin, max_memory, include_local=include_local, measurements=measurements,
        minutes=minutes, seed=seed, batch=batch, groups=groups, schedule=schedule, split=split,
        split_batchnorm=split_batchnorm, operators=options.predicting_from(costs, operators),
    )  # fmt: skip
    check_writable(out, report, trace, gantt, inputs=(store, spec, split, operators, options.program_in(model)))
    with measuring(store) as opened:
        found = run_search(
            settings, bar(quiet), opened, bool(trace or gantt or is_page(report)),
            unfinished=lambda found: tell_all(tried(lambda: write_results(found, out, report, None, None))),
        )  # fmt: skip
    failures = tried(
        lambda: show_result(as_json, finding_facts(found), lambda: show_finding(found)),
        lambda: write_results(found, out, report, *((None, None) if found.lost else (trace, gantt))),
    )
    raise_last([*failures, *_what_ended(found)])


@app.command()
def compare(
    model: options.Model,
    workers: options.Workers = None,
    spec: options.DevicesSpec = None,
    include_local: options.IncludeLocal = False,
    searcher: options.Searchers = None,
    measurements: Annotated[int, typer.Option(help="Mappings that each may measure, single devices aside.")] = 12,
    peer_measurements: Annotated[int | None, typer.Option(help="The same for all but the default searcher.")] = None,
    longer: Annotated[
        int, typer.Option(help="Measurements of one more search, with another seed, for the best known; 0: none.")
    ] = 0,
    minutes: options.Minutes = None,
    seed: options.Seed = 0,
    batch: options.Batch = None,
    groups: options.GroupCount = GROUPS,
    pin: options.Pins = None,
    schedule: options.Schedule = RANK,
    max_memory: options.MaxMemory = None,
    report: options.Report = None,
    curves: Annotated[
        Path | None, typer.Option(help="Draw how each searcher nears the best (.png, .svg, .pdf).")
    ] = None,
    store: options.StoreFile = None,
    quiet: options.Quiet = False,
    as_json: options.AsJson = False,
) -> None:
    """Compare searchers and baselines, measured side by side. Ctrl-C ends it with what was measured so far.

    Example: placer compare towers --workers 2 --measurements 8 --curves curves.png
    """
    from experiments.jobs.search.compare import run_comparison
    from experiments.jobs.search.comparison import CompareSettings
    from experiments.report import comparison
    from experiments.report.plots.picture import check_picture
    from experiments.report.progress import bar
    from experiments.report.result_files import check_writable

    search = options.search_settings(
        model, workers, spec, searcher, pin, max_memory, include_local=include_local, measurements=measurements,
        minutes=minutes, seed=seed, batch=batch, groups=groups, schedule=schedule,
    )  # fmt: skip
    check_picture(curves, "--curves")
    check_writable(None, report, curves, inputs=(store, spec, options.program_in(model)))
    with measuring(store) as opened:
        found = run_comparison(
            CompareSettings(search, peer_measurements, longer), bar(quiet), opened,
            unfinished=lambda found: tell_all(
                tried(lambda: comparison.write_comparison(comparison.comparison_facts(found), report, None))
            ),
        )  # fmt: skip
        facts = comparison.comparison_facts(found)
    failures = tried(
        lambda: show_result(as_json, facts, lambda: comparison.show_comparison(facts)),
        lambda: comparison.write_comparison(facts, report, curves),
    )
    raise_last([*failures, *_what_ended(found)])


@app.command()
def plan(
    graph: Annotated[
        str, typer.Argument(metavar="GRAPH", help="A training step (placer.graph/1); with --costs predicted, a model.")
    ],
    topology: Annotated[
        Path | None, typer.Argument(metavar="[TOPOLOGY]", help="Devices and links (placer.topology/1).")
    ] = None,
    workers: options.Workers = None,
    spec: options.DevicesSpec = None,
    objective: options.Objective = "makespan",
    searcher: Annotated[str, typer.Option(help="The searcher to ask.")] = DEFAULT_SEARCHER,
    schedule: options.Schedule = RANK,
    seconds: Annotated[float, typer.Option(help="Search for this long.")] = 10.0,
    seed: options.Seed = 0,
    batch: options.Batch = None,
    pin: options.Pins = None,
    costs: options.Costs = options.PROFILED,
    operators: options.Operators = None,
    max_memory: options.MaxMemory = None,
    out: Annotated[Path | None, typer.Option(help="Write the mapping (placer.mapping/1).")] = None,
    as_json: options.AsJson = False,
) -> None:
    """Search by prediction only: on files, without TensorFlow, or for a model that was never profiled.

    Such a model is traced, not run; without TOPOLOGY, the devices are those of --workers or --devices.
    Example: placer plan graph.json topology.json --out mapping.json
    """
    from experiments.jobs.plan import plan_command
    from experiments.report.report_files import write_each
    from experiments.report.search_tables import show_facts
    from placer.files import check_outputs, write_document

    store, devices = options.predicting_from(costs, operators), device_spec(workers, spec)
    check_outputs(out, inputs=(graph, options.program_in(graph), topology, spec, store))
    limits = MemoryLimits.parsed(max_memory or ())
    if store is None:
        files = options.planned_files(graph, topology, devices, batch)
        found = plan_command(*files, objective, searcher, schedule, seconds, seed, pin or (), limits)
    else:
        from experiments.jobs.plan_model import ModelToPlan, plan_model

        wanted = ModelToPlan(graph, store, topology, devices, batch, tuple(pin or ()), limits)
        with measuring():
            found = plan_model(wanted, objective, searcher, schedule, seconds, seed)
    try_each(
        lambda: show_result(as_json, found.facts, lambda: show_facts(found.facts)),
        lambda: write_each((out, lambda path: write_document(path, found.file))),
    )


@app.command()
def simulate(
    graph: options.GraphFile,
    topology: options.TopologyFile,
    mapping: Annotated[Path, typer.Argument(help="The device of each op (placer.mapping/1).")],
    objective: options.Objective = "makespan",
    schedule: options.Schedule = RANK,
    trace: Annotated[Path | None, typer.Option(help="Write the simulated step for Perfetto.")] = None,
    gantt: Annotated[Path | None, typer.Option(help="Draw the simulated step (.png, .svg, .pdf).")] = None,
    match_by_name: Annotated[bool, typer.Option("--match-by-name", help="Carry over another graph's mapping.")] = False,
    as_json: options.AsJson = False,
) -> None:
    """Predict one training step under a mapping; TensorFlow is not needed.

    Example: placer simulate graph.json topology.json mapping.json --gantt step.png
    """
    from experiments.jobs.plan import simulate_command
    from experiments.report.plots.picture import check_picture
    from experiments.report.result_files import write_simulated
    from experiments.report.search_tables import show_simulated
    from placer.files import check_outputs

    check_picture(gantt)
    check_outputs(trace, gantt, inputs=(graph, topology, mapping))
    simulated = simulate_command(graph, topology, mapping, schedule, objective, match_by_name)
    try_each(
        lambda: show_result(as_json, simulated.facts, lambda: show_simulated(simulated)),
        lambda: write_simulated(simulated, trace, gantt),
    )


@app.command()
def worker(
    listen: Annotated[
        str, typer.Option(metavar="HOST:PORT", help="This machine's address to serve at; localhost: this machine only.")
    ] = "localhost:0",
    cores: Annotated[str | None, typer.Option(metavar="0,1", help="Compute on these cores only.")] = None,
    as_json: options.AsJson = False,
) -> None:
    """Serve this machine's devices to a Placer on another machine, until Ctrl-C. Without a port, a free one is used.

    TensorFlow has no authentication: whoever reaches the port runs code here. Use trusted networks only.
    Example: placer worker --listen 10.0.0.5:5000, and elsewhere placer search towers --devices 10.0.0.5:5000
    """
    from placer.devices.workers.standalone import become_worker

    become_another()
    become_worker(listen, cores, as_json)


for command in (profile, spoc, show, diff, bench):
    app.command()(command)


def _what_ended(found: Finding | Comparison) -> list[Exception]:
    """The errors to tell after the results of a search that did not end as it should have."""
    lost = [found.error] if found.error is not None else [PlacerError(found.lost)] if found.lost else []
    return [*([PlacerError(found.unkept)] if found.unkept else []), *lost]


def main() -> None:
    """Run the command line; docs/reference.md has the exit codes."""
    guard_streams()
    with last_words():
        with heard() as signals:
            code, line = _run(signals)
        if line:
            tell(PlacerError(line))
    sys.exit(code)


def _run(signals: Signals) -> tuple[int, str]:
    """Run the command that was given. Return its exit code, and the line that explains it."""
    code, line = 0, ""
    try:
        try:
            code = run_app(app)
        finally:
            flush_stdout()
    except PlacerError as error:
        code, line = error.exit_code, str(error)
    except KeyboardInterrupt:
        code = INTERRUPTED
    except SystemExit as end:
        code = end.code if isinstance(end.code, int) else int(end.code is not None)
    except Exception as error:
        code, line = _failed(error, signals)
    if not signals.pressed() and code != INTERRUPTED:
        return code, line
    number = signals.numbers[0] if signals.pressed() else int(signal.SIGINT)
    if code == INTERRUPTED:
        left = LEFT_OF_BENCH if sys.argv[1:2] == ["bench"] else LEFT
        line = line or f"{WORDS[number]}; {left}"
    elif not signals.was_said:
        line = line or f"{WORDS[number]}; what there was so far is handed back."
    return EXIT + number, line


def _failed(error: Exception, signals: Signals) -> tuple[int, str]:
    """The exit code and the line for an error that is no PlacerError. Raises it if it may be a bug; after a signal, its
    traceback is printed instead.
    """
    if signals.raised:  # a library may have turned the signal into this error
        return INTERRUPTED, ""
    failure = in_one_line(error)
    if failure is None and not signals.pressed():
        raise error
    if failure is None:
        traceback.print_exception(error)
    return PlacerError.exit_code, failure or ""


if __name__ == "__main__":
    main()
