"""Options that several commands take, and how each command prints its facts."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from experiments.cli.failures import in_one_line
from experiments.cli.streams import flush_stdout, stdout_to_stderr
from placer.errors import BadInputError, PlacerError, short
from placer.graph.memory_limits import MemoryLimits

if TYPE_CHECKING:
    from experiments.jobs.search.settings import SearchSettings
    from placer.measure.store import Store

# What to place, and where.
Model = Annotated[str, typer.Argument(help="A zoo name, file.py:function or module:function.")]
GraphFile = Annotated[Path, typer.Argument(help="A training step (placer.graph/1).")]
TopologyFile = Annotated[Path, typer.Argument(help="Devices and links (placer.topology/1).")]
Workers = Annotated[int | None, typer.Option("--workers", help="Start N worker processes on this machine's cores.")]
DevicesSpec = Annotated[
    str | None,
    typer.Option(
        "--devices",
        help="gpus:N[@MIB], cpus:N, workers:N, host:port,host:port, ray:N[@HOST:PORT], or a topology file.",
    ),
]
IncludeLocal = Annotated[bool, typer.Option("--include-local", help="Let the coordinating process compute, too.")]
Batch = Annotated[int | None, typer.Option("--batch", help="Batch size (zoo models, functions with that parameter).")]
Pins = Annotated[
    list[str] | None,
    typer.Option(
        "--pin",
        metavar="PATTERN=DEVICE",
        help="Ops whose whole name matches the regular expression run on this device, or kind; may be repeated.",
    ),
]

MaxMemory = Annotated[
    list[str] | None,
    typer.Option(
        "--max-memory",
        metavar="DEVICE=SIZE",
        help="The device may hold only so much, such as worker:0=800MiB; may be repeated.",
    ),
]

# Where the costs of ops come from.
Costs = Annotated[
    str, typer.Option("--costs", help="profiled, or predicted from --operators, so that nothing is profiled.")
]
Operators = Annotated[
    Path | None,
    typer.Option(
        "--operators",
        help="For --costs predicted: the SQLite file that `placer profile --store` fills; by default "
        "operators.sqlite in this folder.",
    ),
]
PROFILED, PREDICTED = "profiled", "predicted"
COSTS = (PROFILED, PREDICTED)
DEFAULT_OPERATORS = Path("operators.sqlite")

# How to search and simulate.
Searchers = Annotated[list[str] | None, typer.Option("--searcher", help="Only this searcher; may be repeated.")]
Minutes = Annotated[
    float | None,
    typer.Option(
        "--minutes",
        help="Begin no further race of mappings after this long. Single devices, searchers and the comparison at the "
        "end each have half as long in any case, and the comparison takes five turns at least.",
    ),
]
GroupCount = Annotated[int, typer.Option("--groups", help="Move at most about this many groups of ops.")]
Seed = Annotated[int, typer.Option("--seed", help="The same seed asks the same mappings.")]
Objective = Annotated[str, typer.Option("--objective", help="makespan, or max-load (pipelined throughput).")]
Schedule = Annotated[
    str, typer.Option("--schedule", help="What decides which op a device runs next: rank, donf, or fifo.")
]

# What to write, and what to print.
StoreFile = Annotated[Path | None, typer.Option("--store", help="SQLite file; what is in it is not measured again.")]
Report = Annotated[Path | None, typer.Option("--report", help="Write the result table as Markdown.")]
Page = Annotated[Path | None, typer.Option("--report", help="Write a page with figures (.html), or a table (.md).")]
Quiet = Annotated[bool, typer.Option("--quiet", help="Show no progress.")]
AsJson = Annotated[bool, typer.Option("--json", help="Print one JSON object on stdout.")]


def device_spec(workers: int | None, spec: str | None) -> str | None:
    """The value of --devices; --workers N is short for workers:N. Raises BadInputError if both are given."""
    if workers is not None and spec is not None:
        raise BadInputError("--workers and --devices both name the devices; give one of them.")
    return spec if workers is None else f"workers:{workers}"


def search_settings(
    model: str,
    workers: int | None,
    spec: str | None,
    searcher: list[str] | None,
    pin: list[str] | None,
    max_memory: list[str] | None,
    **others: Any,
) -> SearchSettings:
    """The settings given to `search` or `compare`. others: settings by their own names. Raises BadInputError."""
    from experiments.jobs.search.settings import SearchSettings  # slow to import

    return SearchSettings(
        model=model,
        devices=device_spec(workers, spec),
        searchers=tuple(searcher) if searcher else None,
        pins=tuple(pin or ()),
        max_memory=MemoryLimits.parsed(max_memory or ()),
        **others,
    )


def predicting_from(costs: str, operators: Path | None) -> Path | None:
    """The store of op times for --costs predicted; None for profiled costs. Raises BadInputError."""
    if costs not in COSTS:
        raise BadInputError(f"--costs is {short(costs)}; give {' or '.join(COSTS)}.")
    if costs == PROFILED:
        if operators is not None:
            raise BadInputError("--operators is for --costs predicted; add that, or leave it out.")
        return None
    if operators is None and not DEFAULT_OPERATORS.exists():
        raise BadInputError(
            f"--costs predicted takes times of ops from a store, and there is no {DEFAULT_OPERATORS} in this folder; "
            "name another with --operators STORE, or fill one with "
            f"placer profile MODEL... --store {DEFAULT_OPERATORS}."
        )
    return operators or DEFAULT_OPERATORS


def program_in(model: str) -> str | None:
    """The file of a model that is named as file.py:function; None for other models."""
    file, _, _ = model.rpartition(":")
    return file if file.endswith(".py") else None


def planned_files(graph: str, topology: Path | None, spec: str | None, batch: int | None) -> tuple[str, Path]:
    """The two files of a plan with profiled costs. Raises BadInputError if something else is given."""
    if topology is None or spec is not None or batch is not None:
        raise BadInputError(
            "with the costs of a graph file, give GRAPH and TOPOLOGY, and no --workers, --devices or --batch; a model "
            "is planned with --costs predicted."
        )
    return graph, topology


@contextmanager
def measuring(store: Path | None = None) -> Iterator[Store | None]:
    """Send everything that is printed in the block, also by programs that it starts, to stderr. Yield the opened store;
    None if none is given.

    Raises PlacerError for each error that `in_one_line` explains, such as TensorFlow's errors and a lack of memory.
    """
    from placer.measure.store import Store

    with stdout_to_stderr(), Store(store) if store else nullcontext() as opened:
        try:
            yield opened
        except Exception as error:
            line = in_one_line(error)
            if line is None:
                raise
            raise PlacerError(line) from error


def show_result(as_json: bool, facts: dict[str, Any], show: Callable[[], None]) -> None:
    """Print the facts as JSON, or call `show`. Raises PlacerError if stdout cannot be written."""
    if as_json:
        print(json.dumps(facts, allow_nan=False))
    else:
        show()
    flush_stdout()
