"""The record of a live step, from which its report page is made."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from math import isfinite
from typing import TYPE_CHECKING

from placer.graph.defaults import GROUPS
from placer.graph.mapping import Mapping
from placer.result import Measured
from placer.train.steps.modes import WHOLE
from search.online.report.text import facts, head
from search.page.drawing import drawing_of_step
from search.page.loads import loads_of
from search.page.panels import panel_of
from search.page.record import Baseline, DeviceLoad, Event, MeasuredRow, Panel, RunRecord
from surrogate.simulate.simulator import Simulator
from surrogate.simulate.timeline import Timeline

if TYPE_CHECKING:
    from search.online.auto_step import AutoStep
    from search.online.trials.tried import LiveTrial

Mapped = Callable[[tuple[int, ...], int], Mapping]
"""Returns the mapping for a device per op and a plan of splits, as `placer.train.live_step.LiveStep.mapping`."""


def later_page(step: AutoStep, mapped: Mapped) -> Callable[[], str]:
    """Return a function that makes the page of this moment at any later time."""
    record = later_record(step, mapped)

    def page() -> str:
        from search.page.page import page_html  # loads a library of a megabyte

        return page_html(record())

    return page


def later_record(step: AutoStep, mapped: Mapped) -> Callable[[], RunRecord]:
    """Return a function that makes, at any later time, the record of the step as it is now. This call notes only what
    takes no time. Timelines are predicted by costs as profiled; there are none without costs.
    """
    alone, mapping = _single(step, mapped), step.mapping
    noted = RunRecord(
        title=f"Placer: {step.name}",
        subtitle=f"{head(step)}, on {', '.join(step.device_names) or 'devices that are not joined yet'}",
        summary=tuple(facts(step)),
        devices=step.device_names,
        baselines=tuple(_baselines(step)),
        rows=_rows(step),
        events=_events(step),
    )
    return lambda: _drawn(noted, alone, mapping)


def _drawn(noted: RunRecord, alone: Mapping | None, mapping: Mapping | None) -> RunRecord:
    """Return `noted` with figures of the fastest single device (`alone`) and of the mapping that runs (`mapping`)."""
    before, after = _timeline(alone), _timeline(mapping)
    nodes, edges = ((), ()) if after is None else drawing_of_step(after, GROUPS)
    panels, loads = tuple(_panels(before, after)), _loads(before, after)
    return replace(noted, panels=panels, nodes=nodes, edges=edges, loads=loads)


def _baselines(step: AutoStep) -> Iterator[Baseline]:
    """Yield the step times of what runs now, of the fastest single device, and of the untouched step."""
    is_placed, here_s, untouched_s = step.mapping is not None, step.step_s, step.untouched_s
    if is_placed and here_s is not None:
        yield Baseline("the mapping that runs now", here_s, is_delivered=True, note="measured in turn with others")
    if untouched_s is not None and not is_placed:
        yield Baseline("untouched, as it runs now", untouched_s, is_delivered=True)
    if step.best_single_s is not None:
        yield Baseline("best single device", step.best_single_s, note="measured in turn with others")
    if untouched_s is not None and is_placed:
        beside = any(not trial.op_devices for trial in step.tried)
        note = "measured in turn with others" if beside else "for reference: by itself, before the step was placed"
        yield Baseline("untouched, in this process", untouched_s, is_reference=not beside, note=note)


def _rows(step: AutoStep) -> tuple[MeasuredRow, ...]:
    """Return a row for each trial, in the order in which their latest results came in."""
    trials = sorted(step.tried, key=lambda trial: trial.at_s or 0.0)
    return tuple(_row(order, trial, len(step.device_names)) for order, trial in enumerate(trials, start=1))


def _row(order: int, trial: LiveTrial, devices: int) -> MeasuredRow:
    counts = tuple(trial.op_devices.count(d) for d in range(devices))
    result = trial.result
    if not isinstance(result, Measured):
        failed = f"{result.reason}: {result.detail}"
        return MeasuredRow(trial.name, order, counts, predicted_s=trial.predicted_s, at_s=trial.at_s, failed=failed)
    return MeasuredRow(
        trial.name, order, counts, result.step_s, result.spread_s, result.repeats, trial.predicted_s, trial.at_s,
        is_comparable=not result.stopped_early,
    )  # fmt: skip


def _events(step: AutoStep) -> tuple[Event, ...]:
    journal = step.journal
    return tuple(Event(e.at_s - journal.began_s, e.step, e.kind, e.sentence, e.dry_run) for e in journal.entries)


def _single(step: AutoStep, mapped: Mapped) -> Mapping | None:
    """Return the mapping of the whole step on the fastest single device; None if no single device was measured."""
    alone = [
        (t.result.step_s, t.op_devices)
        for t in step.tried
        if len(set(t.op_devices)) == 1 and isinstance(t.result, Measured) and t.plan == WHOLE
    ]
    fastest = min(alone, key=lambda found: found[0], default=None)
    return None if fastest is None else mapped(fastest[1], WHOLE)


def _timeline(mapping: Mapping | None) -> Timeline | None:
    """Return the predicted timeline; None without a mapping, without costs, or if the step cannot run."""
    if mapping is None or not any(op.cost_s for op in mapping.graph.ops):
        return None
    timeline = Simulator(mapping.graph, mapping.topology).timeline(mapping.devices)
    return timeline if isfinite(timeline.makespan_s) else None


def _panels(before: Timeline | None, after: Timeline | None) -> Iterator[Panel]:
    if before is not None:
        yield panel_of("best single device, predicted as profiled", before)
    if after is not None:
        yield panel_of("the mapping that runs now, predicted as profiled", after)


def _loads(before: Timeline | None, after: Timeline | None) -> tuple[DeviceLoad, ...]:
    return () if after is None else loads_of(after, before)
