"""A record as HTML tables, for readers who cannot see the figures, have no scripts, or look for a number."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from html import escape

from placer.number_format import mib, ms
from search.page.record import Panel, RunRecord
from search.page.words import times

Cells = Sequence[str]
LONGEST = 12  # bars of a timeline that its table names


def baselines_table(record: RunRecord) -> str:
    """The step times that the delivered step time is compared with."""
    delivered = next((b.step_s for b in record.baselines if b.is_delivered), None)
    rows = [
        (b.name, ms(b.step_s), ms(b.spread_s), str(b.repeats or ""), times(b.step_s, delivered), b.note)
        for b in record.baselines
    ]
    heads = ("step", "seconds a step", "spread", "steps", "delivered is faster by", "note")
    return table("Step times held against each other", heads, rows)


def measured_table(record: RunRecord) -> str:
    """Every mapping that was measured, in the order of measuring."""
    heads = ("no.", "searcher", "step", "spread", "steps", "predicted", "best so far", "at",
             *(f"on {name}" for name in record.devices), "failed")  # fmt: skip
    rows, marks = [], []
    for row, best_s in zip(record.rows, record.best_so_far_s, strict=True):
        at = "" if row.at_s is None else f"{row.at_s:.1f} s"
        star = "" if row.is_comparable or row.step_s is None else "*"
        rows.append((
            str(row.order), row.searcher, ms(row.step_s) + star, ms(row.spread_s), str(row.repeats or ""),
            ms(row.predicted_s), ms(best_s), at, *map(str, row.devices), row.failed or "",
        ))  # fmt: skip
        marks.append(f' data-searcher="{record.searchers.index(row.searcher)}"')
    return table("Mappings measured, in order (* stopped early as clearly slower than the best)", heads, rows, marks)


def curves_table(record: RunRecord) -> str:
    """The best so far by searcher after 1, 2, 5, 10, ... measurements and after the last."""
    rows, marks = [], []
    for curve in (curve for curve in record.curves if curve.axis == "order"):
        for i in _told(curve.at):
            told = (curve.median_s[i], curve.low_s[i], curve.high_s[i])
            rows.append((curve.searcher, str(curve.seeds), f"{curve.at[i]:.0f}", *map(ms, told)))
            marks.append(f' data-searcher="{record.searchers.index(curve.searcher)}"')
    heads = ("searcher", "seeds", "after", "median", "luckiest", "unluckiest")
    return table("Best so far after so many measurements, over the seeds", heads, rows, marks)


def _told(at: Sequence[float]) -> list[int]:
    """Indices of the round counts in `at`, and of the last count."""
    return [i for i, count in enumerate(at) if i == len(at) - 1 or (count > 0 and str(int(count)).strip("0") in "125")]


def timelines_table(record: RunRecord) -> str:
    """How busy each lane is in each step, and the longest pieces of work."""
    rows, marks = [], []
    for panel in record.panels:
        for lane, (name, devices) in enumerate((lane.name, lane.devices) for lane in panel.lanes):
            busy_s = sum(bar.busy_s for bar in panel.bars if bar.lane == lane)
            share = f"{busy_s / panel.makespan_s:.0%}" if panel.makespan_s > 0 else ""
            rows.append((panel.name, ms(panel.makespan_s), name, ms(busy_s), share))
            marks.append(_on(devices))
    heads = ("step", "makespan", "device or link", "busy", "share of the step")
    longest = "".join(_longest(panel) for panel in record.panels)
    return table("How busy devices and links are", heads, rows, marks) + longest


def _longest(panel: Panel) -> str:
    bars = sorted((bar for bar in panel.bars if bar.count == 1), key=lambda bar: -bar.busy_s)[:LONGEST]
    rows = [(bar.label, bar.kind, panel.lanes[bar.lane].name, ms(bar.start_s), ms(bar.busy_s)) for bar in bars]
    marks = [_on(panel.lanes[bar.lane].devices) for bar in bars]
    return table(f"{panel.name}: the longest ops", ("op", "kind", "where", "starts", "takes"), rows, marks)


def graph_table(record: RunRecord) -> str:
    """The groups and where they run."""
    rows = [
        (n.name, record.devices[n.device], ms(n.cost_s), mib(n.memory_bytes), str(n.op_count), n.part, ", ".join(n.ops))
        for n in record.nodes
    ]
    heads = ("group", "device", "cost", "variables", "ops", "parts", "its most expensive ops")
    return table("Groups of ops", heads, rows, [_on((n.device,)) for n in record.nodes])


def loads_table(record: RunRecord) -> str:
    """Work and memory by device."""
    rows = [
        (d.name, str(d.ops), ms(d.busy_s), ms(d.before_busy_s), mib(d.memory_bytes), mib(d.peak_bytes),
         "unlimited" if d.limit_bytes is None else mib(d.limit_bytes))
        for d in record.loads
    ]  # fmt: skip
    heads = ("device", "ops", "busy", "busy before", "variables", "most at once", "its memory")
    return table("Load and memory by device, as predicted", heads, rows, [_on((d,)) for d in range(len(rows))])


def events_table(record: RunRecord) -> str:
    """What was decided within the training."""
    rows = [
        (f"{e.at_s:.1f} s", str(e.step), e.kind, f"dry run: {e.sentence}" if e.dry_run else e.sentence)
        for e in record.events
    ]
    return table("Decisions, in order", ("at", "training step", "kind", "what, and why"), rows)


def table(caption: str, heads: Cells, rows: Iterable[Cells], marks: Sequence[str] | None = None) -> str:
    """An HTML table. marks: attributes of each row, by which the page's filters hide it."""
    head = "".join(f'<th scope="col">{escape(text)}</th>' for text in heads)
    body = [
        f"<tr{marks[i] if marks else ''}>" + "".join(f"<td>{escape(text)}</td>" for text in row) + "</tr>"
        for i, row in enumerate(rows)
    ]
    return (
        f'<div class="wide" tabindex="0" role="region" aria-label="{escape(caption)}"><table>'
        f"<caption>{escape(caption)}</caption><thead><tr>{head}</tr></thead><tbody>{''.join(body)}</tbody></table></div>"
    )


def _on(devices: Sequence[int]) -> str:
    return f' data-devices="{" ".join(map(str, devices))}"'
