"""The files that `search` and `simulate` write: mappings, graphs, reports and traces."""

from __future__ import annotations

import json
import sys
from collections.abc import Sequence
from functools import partial
from pathlib import Path

from experiments.jobs import search_folder
from experiments.jobs.plan import Simulated
from experiments.jobs.search.finding import Finding
from experiments.jobs.search.timelines import one_trace
from experiments.report.gantt import gantt_facts
from experiments.report.plots.gantt import draw
from experiments.report.plots.picture import check_picture
from experiments.report.report_files import is_page, write_each
from experiments.report.search_tables import HEADS, best_and_single, cells, summary_lines
from experiments.report.text import markdown_table, printable
from experiments.versions import versions
from placer.errors import BadInputError
from placer.files import check_not_read, check_outputs, write_whole
from placer.graph.graph_files import write_graph, write_topology
from placer.graph.mapping import Mapping
from placer.graph.mapping_files import MappingFile, mapping_file, write_mapping
from placer.number_format import short_ms
from placer.splits.plan_files import regions_of


def write_simulated(simulated: Simulated, trace: Path | None, gantt: Path | None) -> None:
    """Write the simulated step for ui.perfetto.dev, and as a picture, each by itself.

    Raises PlacerError if a file cannot be written.
    """
    timeline, schedule = simulated.timeline, simulated.facts["schedule"]

    def write_trace(path: Path) -> None:
        write_whole(path, json.dumps(timeline.to_trace()).encode())

    def draw_step(path: Path) -> None:
        name = printable(timeline.graph.name, 60)
        title = f"{name}, simulated ({schedule}): makespan {short_ms(timeline.makespan_s)}"
        draw(gantt_facts(title, {"": timeline}), path)

    write_each((trace, write_trace), (gantt, draw_step))


def check_writable(
    out: Path | None,
    report: Path | None,
    trace: Path | None,
    gantt: Path | None = None,
    *,
    inputs: Sequence[str | Path | None] = (),
) -> None:
    """Check, before the search, that the files of its end can be written.

    Missing folders are made. inputs: as in `check_outputs`, but a search may be repeated in the folder from which it
    takes devices or splits. Raises BadInputError for a file that cannot be written or is an input, and for a
    `gantt` that is not a picture.
    """
    check_picture(gantt)
    for folder in {p for p in (out, *(file and file.parent for file in (report, trace, gantt))) if p is not None}:
        try:
            folder.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise BadInputError(f"{folder}: cannot be written ({error.strerror}); name another folder.") from error
    folder_files = () if out is None else (out / name for name in search_folder.FILES)
    check_outputs(*folder_files, report, trace, gantt)
    for path in filter(None, (report, trace, gantt)):
        check_not_read(path, inputs)


def write_results(
    found: Finding, out: Path | None, report: Path | None, trace: Path | None, gantt: Path | None = None
) -> None:
    """Write mapping.json (the device of every op) to `out`, and, for `plan` and `simulate`, what the search placed:
    graph.json, topology.json, and groups.json (the mapping of graph.json's groups). Then write the report, the trace
    and its picture. Each file is written even if others fail.

    Raises PlacerError if a file cannot be written.
    """
    ways = dict(zip(search_folder.FILES, (_write_mapping, _write_groups, _write_graph, _write_topology), strict=True))
    in_folder = [] if out is None else [(out / name, partial(write, found)) for name, write in ways.items()]
    drawn = (trace, gantt) if found.trace is not None else (None, None)
    later = (_write_report, _write_trace, _draw_step)
    rest = [(path, partial(write, found)) for path, write in zip((report, *drawn), later, strict=True)]
    write_each(*in_folder, *rest)


def _write_mapping(found: Finding, path: Path) -> None:
    write_mapping(path, _mapping_file(found, found.mapping, found.order))
    print(f"wrote {path}", file=sys.stderr)


def _write_groups(found: Finding, path: Path) -> None:
    coarse = Mapping(found.problem.graph, found.problem.topology, found.best.mapping.devices)
    write_mapping(path, _mapping_file(found, coarse))


def _write_graph(found: Finding, path: Path) -> None:
    write_graph(path, found.problem.graph)


def _write_topology(found: Finding, path: Path) -> None:
    write_topology(path, found.problem.topology)


def _write_trace(found: Finding, path: Path) -> None:
    assert found.trace is not None
    write_whole(path, json.dumps(one_trace(*found.trace)).encode())


def _draw_step(found: Finding, path: Path) -> None:
    assert found.trace is not None
    title = f"{found.model}: the delivered mapping"
    draw(gantt_facts(title, dict(zip(("predicted", "measured"), found.trace, strict=True))), path)


def _mapping_file(found: Finding, mapping: Mapping, order: Sequence[str] = ()) -> MappingFile:
    best, single = best_and_single(found)
    single_s = None if single is None else single.step_s
    return mapping_file(
        mapping,
        objective="makespan",
        predicted_s=found.best.replayed_s,
        measured_s=best.step_s,
        spread_s=best.spread_s,
        repeats=best.repeats,
        baseline={"best_single": single_s, "tf_default": found.tf_default_s, "in_process": found.untouched.step_s},
        lower_bound_s=found.lower_bound_s,
        seed=found.seed,
        searcher=found.best.searcher,
        versions=versions(),
        splits=regions_of(found.plan) if found.plan else None,
        in_flight=found.plan.in_flight if found.plan else None,
        order=order,
    )


def _write_report(found: Finding, report: Path) -> None:
    """Write the report as HTML if its name says so, else as Markdown."""
    if is_page(report):
        from experiments.report.search_record import search_record
        from search.page.page import write_page

        write_page(search_record(found, summary_lines(found), versions()), report)
    else:
        write_whole(report, _markdown(found).encode())


def _markdown(found: Finding) -> str:
    table = "\n".join(markdown_table(HEADS, map(cells, found.measured), left=range(len(HEADS))))
    return f"# {found.model}\n\n{table}\n\n" + "\n".join(f"- {line}" for line in summary_lines(found)) + "\n"
