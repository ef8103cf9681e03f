"""A record in words: figures as text, and the sentence by which a screen reader describes each figure."""

from __future__ import annotations

from placer.number_format import mib, ms
from search.page.record import RunRecord


def times(step_s: float, delivered_s: float | None) -> str:
    """How many times as fast as `step_s` the delivered step is."""
    return f"{step_s / delivered_s:.2f}x" if delivered_s else ""


def said_of_baselines(record: RunRecord) -> str:
    told = [f"{b.name} {ms(b.step_s)}" for b in record.baselines]
    return f"Bars of step times: {'; '.join(told)}."


def said_of_convergence(record: RunRecord) -> str:
    """Say how far the best step time falls, over how many measurements."""
    known = [best_s for best_s in record.best_so_far_s if best_s is not None]
    if not known:
        return f"{len(record.rows)} measurements; none gave a step time that compares."
    failed = sum(row.failed is not None for row in record.rows)
    end = f", {failed} failed" if failed else ""
    return (
        f"Step times of {len(record.rows)} measured mappings by {len(record.searchers)} searchers{end}. "
        f"The best so far falls from {ms(known[0])} to {ms(known[-1])}."
    )


def said_of_curves(record: RunRecord) -> str:
    """Say at which step time each searcher's median ends."""
    ends = [
        f"{curve.searcher} {ms(curve.median_s[-1])} after {curve.at[-1]:.0f} ({seeds(curve.seeds)})"
        for curve in record.curves
        if curve.axis == "order" and curve.at
    ]
    return f"Best so far after so many measurements, the median over seeds with their range: {'; '.join(ends)}."


def shown(count: int) -> str:
    """Say how many cells a table has."""
    return f"{count} cells, of which the filters above show {count}."


def seeds(count: int) -> str:
    """Say how many seeds there are."""
    return f"{count} seed" if count == 1 else f"{count} seeds"


def said_of_timelines(record: RunRecord) -> str:
    told = [f"{panel.name}, {ms(panel.makespan_s)}" for panel in record.panels]
    return f"What devices and links do during a step: {'; '.join(told)}."


def said_of_graph(record: RunRecord) -> str:
    """Say how many groups each device has, and how many edges lead from device to device."""
    crossing = sum(record.nodes[e.src].device != record.nodes[e.dst].device for e in record.edges)
    counts = [f"{sum(n.device == d for n in record.nodes)} on {name}" for d, name in enumerate(record.devices)]
    return f"{len(record.nodes)} groups of ops: {', '.join(counts)}. {crossing} edges lead from device to device."


def said_of_loads(record: RunRecord) -> str:
    told = [f"{d.name} {ms(d.busy_s)} busy, {mib(d.peak_bytes)} at most" for d in record.loads]
    return f"Predicted load and memory: {'; '.join(told)}."


def said_of_accuracy(record: RunRecord) -> str:
    """Say how far off the predictions were that were made before measuring."""
    off = [abs(r.predicted_s / r.step_s - 1) for r in record.rows if r.step_s and r.predicted_s]
    if not off:
        return "No measured mapping was predicted."
    return f"Predicted against measured step time of {len(off)} mappings: {sum(off) / len(off):.1%} off on average."
