"""The record that a report page shows of a search from the command line."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from experiments.jobs.search.finding import Finding, Trial
from placer.result import Failed, Measured
from search.page.drawing import drawing_of
from search.page.loads import loads_of
from search.page.panels import panel_of
from search.page.record import Baseline, MeasuredRow, Panel, RunRecord


def search_record(found: Finding, summary: Sequence[str], versions: Mapping[str, str]) -> RunRecord:
    """The record of a finding. summary: its outcome in sentences. versions: those of the software that measured it."""
    nodes, edges = drawing_of(found.problem.graph, found.groups, found.topology, found.best.mapping.devices)
    return RunRecord(
        title=f"Placer: {found.model}",
        subtitle=_subtitle(found, versions),
        summary=tuple(line for line in summary if not line.startswith("*")),  # marks of the table
        devices=found.topology.names,
        baselines=tuple(_baselines(found)),
        rows=tuple(_row(i, row) for i, row in enumerate(found.measured, start=1)),
        panels=tuple(_panels(found)),
        nodes=nodes,
        edges=edges,
        loads=loads_of(found.after, found.before) if found.after else (),
    )


def _subtitle(found: Finding, versions: Mapping[str, str]) -> str:
    made = ", ".join(f"{name} {number}" for name, number in versions.items())
    return (
        f"{found.ops} ops in {len(found.groups.graph)} groups on {', '.join(found.topology.names)}; "
        f"{len(found.measured)} mappings measured in {found.seconds:.0f} s; seed {found.seed}; {made}"
    )


def _baselines(found: Finding) -> Iterator[Baseline]:
    """The delivered mapping, the results measured beside it, and the reference line."""
    beside = "in a race, before the end" if found.raced else "measured side by side"
    if found.best.measured is not None:
        yield _baseline("delivered mapping", found.best.measured, f"by {found.best.searcher}; {beside}", delivered=True)
    single = found.best_single
    if single is not None and single.measured is not None:
        alone = found.topology.names[single.mapping.devices[0]]
        yield _baseline(f"best single device ({alone})", single.measured, beside)
    if found.whole is not None and found.whole.measured is not None:
        yield _baseline("best mapping of whole ops", found.whole.measured, beside)
    if found.tf_default is not None:
        yield _baseline("untouched, TensorFlow's placement", found.tf_default, beside)
    yield _baseline(
        "untouched, in this process", found.untouched,
        "for reference: TensorFlow with all of this machine's cores, by itself before the search", reference=True,
    )  # fmt: skip


def _baseline(name: str, result: Measured, note: str, delivered: bool = False, reference: bool = False) -> Baseline:
    return Baseline(name, result.step_s, result.spread_s, result.repeats, delivered, reference, note)


def _row(order: int, row: Trial) -> MeasuredRow:
    counts = tuple(row.mapping.devices.count(d) for d in range(len(row.mapping.topology)))
    if isinstance(row.result, Failed):
        failed = f"{row.result.reason}: {row.result.detail}"
        return MeasuredRow(row.searcher, order, counts, predicted_s=row.predicted_s, at_s=row.at_s, failed=failed)
    result = row.result
    return MeasuredRow(
        row.searcher, order, counts, result.step_s, result.spread_s, result.repeats, row.predicted_s, row.at_s,
        is_comparable=not result.stopped_early,
    )  # fmt: skip


def _panels(found: Finding) -> Iterator[Panel]:
    """The step before and after the search as predicted, and after it as traced."""
    if found.before is not None:
        yield panel_of("best single device, predicted", found.before)
    if found.after is not None:
        yield panel_of("delivered mapping, predicted", found.after)
    if found.trace is not None:
        yield panel_of("delivered mapping, traced", found.trace[1])
