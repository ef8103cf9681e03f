"""The record of a campaign's report page, made from its store, and from its cases' files if these still exist."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from datetime import datetime
from statistics import geometric_mean
from typing import Any

from experiments.campaign.cells import PREDICTED, Case
from experiments.campaign.rows import lead
from experiments.campaign.standing import best_single_s, standing
from experiments.campaign.store import CampaignStore, Held
from experiments.report.campaign.best import Best, GoneError, best_of
from experiments.report.campaign.curves import Course, curves_of
from experiments.report.campaign.terminal import is_raced, note_lines, standing_lines, untouched_lines
from placer.number_format import short_ms
from placer.result import Failed, Measured
from search.page.campaign_record import CampaignRecord, CellRow, Failure
from search.page.drawing import drawing_of, drawing_of_step
from search.page.loads import loads_of
from search.page.panels import MOST_BARS, panel_of
from search.page.record import Baseline, Edge, MeasuredRow, Node, Panel, RunRecord

Facts = dict[str, Any]
# Limits for all cases together, so that the page of a campaign with many cases stays small.
ALL_BARS, ALL_NODES, ALL_ROWS, ALL_FAILURES = 16_000, 1_500, 2_000, 500
MOST_NODES, FEWEST_NODES = 192, 24  # of one case's graph, about
DRAWN = 40  # cases whose best mapping is drawn
DONE = "done"


def campaign_record(store: CampaignStore, cases: Mapping[str, Case]) -> CampaignRecord:
    """The record of a campaign as it is now. cases: those of its spec, by key; empty if only the store is known."""
    held = store.held()
    facts = standing(store, held)
    keys = list(dict.fromkeys(cell.case_key for cell in held))
    searchers = tuple(dict.fromkeys(cell.searcher for cell in held))
    states = {row["cell"]: row["state"] for row in facts["cells"]}
    of_case = {key: [row for row in facts["cells"] if row["case"] == key] for key in keys}
    records = []
    for i, key in enumerate(keys):
        cells = [cell for cell in held if cell.case_key == key]
        courses = [Course.of(cell, best_single_s(store.opened(key)), states[cell.key] == DONE) for cell in cells]
        plain = _plain(key, of_case[key], courses, searchers)
        records.append(_drawn(plain, key, cells, cases, store, i, len(keys)))
    return CampaignRecord(
        title=f"Placer: campaign {store.path.stem}",
        subtitle=f"{len(keys)} cases, {len(searchers)} searchers, {len(held)} searches, {facts['done']} measurements",
        summary=(*standing_lines(facts), *_gains(of_case.values())),
        cases=tuple(records),
        cells=tuple(_cell(row, keys) for row in facts["cells"]),
        failures=tuple(_failures(store, held))[-ALL_FAILURES:],
    )


def _gains(cases: Iterable[list[Facts]]) -> Iterator[str]:
    """Yield a sentence on the best mappings against the best single devices, separately for predicted cases, cases
    measured side by side, and cases that are still raced.
    """
    found: dict[tuple[str, bool], list[float]] = {}
    for rows in cases:
        best = _best_row(rows)
        if best is not None and best["ratio_to_best_single"] is not None:
            found.setdefault((best["kind"], is_raced(best)), []).append(best["ratio_to_best_single"])
    for (kind, raced), ratios in found.items():
        over = f"the geometric mean over {len(ratios)} cases" if len(ratios) > 1 else "in one case"
        what, mark = (f"{kind}, but only in races yet", "~") if raced else (kind, "")
        ratio = f"{mark}{geometric_mean(ratios):.2f}x"
        yield f"{what.capitalize()}: the best mappings are {ratio} the best single device, {over}."


def _cell(row: Facts, keys: Sequence[str]) -> CellRow:
    return CellRow(
        keys.index(row["case"]), row["searcher"], row["seed"], row["kind"], row["state"], row["done"], row["total"],
        row["best_s"], row["best_single_s"], row["side_by_side"], row["seconds"], row["failures"], row["ended"] or "",
    )  # fmt: skip


def _plain(key: str, rows: list[Facts], courses: Sequence[Course], searchers: tuple[str, ...]) -> RunRecord:
    """The record of a case, made from the store alone."""
    kind = rows[0]["kind"]
    done = sum(row["done"] for row in rows)
    return RunRecord(
        title=key,
        subtitle=f"{kind}; {len(rows)} searches, {done} mappings",
        summary=tuple(_said(rows)),
        devices=(),
        baselines=tuple(_baselines(rows)),
        curves=curves_of(courses),
        known_searchers=searchers,
    )


def _best_row(rows: list[Facts]) -> Facts | None:
    """The cell whose mapping is the farthest ahead of the best single device, if possible among cells that were
    measured side by side with it; None if nothing ran. Seconds of two cells are not of the same minutes.
    """
    known = [row for row in rows if row["best_s"] is not None]
    return max(known, key=_standing, default=None)


def _standing(row: Facts) -> tuple[bool, tuple[bool, float]]:
    """Whether a cell was measured side by side, and how far its best mapping is ahead."""
    return row["side_by_side"], lead(row["best_s"], row["best_single_s"])


def _said(rows: list[Facts]) -> Iterator[str]:
    best = _best_row(rows)
    if best is None:
        yield "Nothing ran yet, so there is no best mapping and no baseline."
        return
    against = best["ratio_to_best_single"]
    ratio = "" if against is None else f", {'~' if is_raced(best) else ''}{against:.2f}x the best single device"
    judged = "by prediction only" if best["kind"] == PREDICTED else "side by side" if best["side_by_side"] else "raced"
    yield f"The best: {short_ms(best['best_s'])} a step ({judged}) by {best['searcher']}, seed {best['seed']}{ratio}."
    yield from untouched_lines(rows)
    if best["bound_s"]:
        over = best["best_s"] / best["bound_s"] - 1
        above = f", which it is {over:.1%} above" if best["kind"] == PREDICTED else ""
        yield f"No mapping can be predicted below {short_ms(best['bound_s'])}{above}."
    yield from note_lines(rows)


def _baselines(rows: list[Facts]) -> Iterator[Baseline]:
    """The best mapping and its baselines."""
    best = _best_row(rows)
    if best is None:
        return
    predicted = best["kind"] == PREDICTED
    judged = "by prediction only" if predicted else "side by side" if best["side_by_side"] else "in a race"
    yield Baseline("best mapping", best["best_s"], is_delivered=True, note=f"by {best['searcher']}; {judged}")
    if best["best_single_s"] is not None:
        yield Baseline("best single device", best["best_single_s"], note=judged)
    if best["untouched_s"] is not None:
        whole = "TensorFlow in one process with all of this machine's cores"
        beside = best["untouched_beside"]
        note = "side by side" if beside else f"for reference: {whole}"
        name = "untouched" if beside else "untouched, in one process"
        yield Baseline(name, best["untouched_s"], is_reference=not beside, note=note)
    if best["bound_s"]:
        note = "no mapping can be predicted below it"
        yield Baseline("lower bound, predicted", best["bound_s"], is_reference=True, note=note)


def _drawn(
    record: RunRecord,
    key: str,
    cells: Sequence[Held],
    cases: Mapping[str, Case],
    store: CampaignStore,
    i: int,
    count: int,
) -> RunRecord:
    """The record with the figures of its best mapping, or with the reason why there are none."""
    try:
        if i >= DRAWN:
            raise GoneError(f"only those of the first {DRAWN} cases are drawn, to keep the page small")
        best = best_of(key, cells, cases, store)
    except GoneError as gone:
        return replace(record, missing=(f"No timelines, no graph and no loads of the best mapping: {gone}.",))
    shared = min(count, DRAWN)
    bars = min(MOST_BARS, ALL_BARS // (2 * shared))
    nodes, edges = _drawing(best, max(FEWEST_NODES, min(MOST_NODES, ALL_NODES // shared)))
    return replace(
        record,
        subtitle=f"{record.subtitle}; {len(best.problem.graph)} ops on {len(best.problem.topology)} devices",
        devices=best.problem.topology.names,
        rows=() if cells[0].kind == PREDICTED else tuple(_rows(best, cells, ALL_ROWS // shared)),
        panels=tuple(_panels(best, bars)),
        nodes=nodes,
        edges=edges,
        loads=loads_of(best.after, best.before),
    )


def _drawing(best: Best, most: int) -> tuple[tuple[Node, ...], tuple[Edge, ...]]:
    """The graph of the best mapping: the groups that were placed if they are at most `most`, else the step."""
    if best.groups is None or len(best.groups.graph) > most:
        return drawing_of_step(best.after, most)
    return drawing_of(best.problem.graph, best.groups, best.problem.topology, best.after.devices)


def _panels(best: Best, bars: int) -> Iterator[Panel]:
    alone = "" if best.problem.objective == "makespan" else ", of one step by itself"
    if best.before is not None:
        yield panel_of(f"best single device, predicted{alone}", best.before, bars)
    yield panel_of(f"best mapping, predicted{alone}", best.after, bars)


def _rows(best: Best, cells: Sequence[Held], most: int) -> Iterator[MeasuredRow]:
    """Measured mappings with predictions that did not learn from them; thinned out evenly if more than `most`."""
    found = [(held.searcher, trial) for held in cells for trial in held.trials if isinstance(trial.result, Measured)]
    kept = found[:: max(1, -(-len(found) // most))]
    predicted = best.problem.predict_many([trial.placement for _, trial in kept]).tolist() if kept else []
    for order, ((searcher, trial), predicted_s) in enumerate(zip(kept, predicted, strict=True), start=1):
        counts = tuple(trial.placement.count(d) for d in range(len(best.problem.topology)))
        ran = trial.result
        assert isinstance(ran, Measured)
        yield MeasuredRow(
            searcher, order, counts, ran.step_s, ran.spread_s, ran.repeats, predicted_s,
            is_comparable=not ran.stopped_early,
        )  # fmt: skip


def _failures(store: CampaignStore, held: Sequence[Held]) -> Iterator[Failure]:
    """The failures that were stored when they came, and mappings that are predicted not to run."""
    kept = store.failures()
    for failure in kept:
        at = datetime.fromtimestamp(failure["at"]).isoformat(" ", "seconds")
        number = "" if failure["n"] is None else f", mapping {failure['n'] + 1}"
        yield Failure(at, f"{failure['cell'] or failure['case']}{number}", failure["reason"], failure["detail"])
    known = {(failure["cell"], failure["n"]) for failure in kept}
    for cell in held:
        for trial in cell.trials:
            if isinstance(trial.result, Failed) and (cell.key, trial.n) not in known:
                yield Failure("", f"{cell.key}, mapping {trial.n + 1}", trial.result.reason, trial.result.detail)
