"""Runs mappings for real and measures them, interleaved with the incumbent, checked against the untouched step."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from statistics import median
from typing import Any, Protocol

from placer.devices.cluster import Devices
from placer.devices.host.suspends import Suspends
from placer.devices.links.staging import on_gpus
from placer.devices.memory_room import short_of_room
from placer.devices.workers import leftovers
from placer.devices.workers.deadline import waiting
from placer.execute.agreement import Outcome
from placer.execute.outputs import attempted, no_room, out_of_memory, values
from placer.execute.rewrite import PlacedStep, Template
from placer.graph.mapping import Mapping
from placer.measure.in_turn import InTurn
from placer.measure.race import Race, RacedStep
from placer.measure.settings import RunnerSettings
from placer.measure.step_check import StepCheck
from placer.result import Failed, Result, summary
from placer.trace.capture import Captured

SWITCHED = "a mapping was set up"


class Foresight(Protocol):
    """Predictions of mappings of the captured ops before they are set up."""

    def order(self, op_mapping: Mapping, /) -> Sequence[str]:
        """Names of ops in the order in which they should run (docs/decisions/006-run-order.md); if empty, TensorFlow's
        executor decides.
        """

    def hold(self, op_mappings: Sequence[Mapping], /) -> bool:
        """Whether the devices have memory for placed steps of all `op_mappings` at once."""

    def peaks(self, op_mapping: Mapping, /) -> Sequence[float]:
        """The most bytes that each device holds at once; empty if unknown."""


class NoForesight:
    """No predictions: TensorFlow's executor decides the order, and memory limits nothing."""

    def order(self, op_mapping: Mapping) -> Sequence[str]:
        return ()

    def hold(self, op_mappings: Sequence[Mapping]) -> bool:
        return True

    def peaks(self, op_mapping: Mapping) -> Sequence[float]:
        return ()


@dataclass(eq=False)
class _Entry:
    """A mapping in a race.

    raced: its step; None if it could not be set up. result: None before the race, and also after it if the anchor or
    the incumbent failed in it, because the mapping is then measured again without them.
    """

    op_mapping: Mapping
    raced: RacedStep | None
    result: Result | None = None

    @property
    def came_to(self) -> Result:
        """The result, once there is one."""
        assert self.result is not None
        return self.result


class Runner:
    """Measures mappings of one captured step on real devices.

    The first mapping measured is the anchor; the fastest so far is the incumbent. Every later mapping is stepped in
    turn with both. Its result is its median times the anchor's first step time, divided by the anchor's median in the
    same turns. So results stay comparable although the machine drifts.

    If the devices cannot hold all mappings of a race at once, fewer are raced. If there is no room for even one beside
    incumbent and anchor, or these fail in the race, they are taken down, and the mapping is measured alone: it becomes
    the next anchor, in the scale of the former one. Before a mapping is set up, workers are asked whether they have
    room for its peaks.

    beside: a runner that closes after this one. If it has an anchor, this runner uses the same one, so that the results
    of both compare. suspends: notices when the machine slept; such steps are timed again.
    """

    def __init__(
        self,
        captured: Captured,
        devices: Devices,
        inputs: Sequence[Any],
        references: Sequence[Outcome],
        settings: RunnerSettings | None = None,
        clock: Callable[[], float] = time.perf_counter,
        foresight: Foresight | None = None,
        beside: Runner | None = None,
        suspends: Suspends | None = None,
    ) -> None:
        self.captured = captured
        self.foresight = foresight or NoForesight()
        self.devices = devices
        self.inputs = list(inputs)
        self.settings = settings or RunnerSettings()
        self.clock, self.suspends = clock, suspends or Suspends()
        self.template = Template(captured, devices.host, devices.stages_from, on_gpus(self.inputs))
        self.check = StepCheck(captured, devices, self.inputs, references)
        devices.runners.add(self)
        self.anchor: PlacedStep | None = beside.anchor if beside else None
        self.anchor_s: float = beside.anchor_s if beside else 0.0
        self._borrowed = self.anchor
        self._scale: float = beside._scale if beside else 1.0  # anchor's first step time / its last one
        self.incumbent: PlacedStep | None = None
        self.incumbent_s = 0.0  # its step time when it was measured
        self._op_mapping_of: dict[PlacedStep, Mapping] = {}  # of the steps that are kept

    def measure(self, op_mapping: Mapping) -> Result:
        """Measure the step time of a mapping of the captured graph, or why it has none. The mapping becomes the
        incumbent if it is faster.
        """
        return self.race([op_mapping])[0]

    def race(self, op_mappings: Sequence[Mapping]) -> list[Result]:
        """Measure the step times of several mappings by successive halving (Jamieson & Talwalkar 2016): all are stepped
        in turn, the slower half drops out, the faster half goes on, and only the winner takes all repeats.
        """
        found = self._race_the_first(op_mappings)
        while len(found) < len(op_mappings):
            found += self._race_the_first(op_mappings[len(found) :])
        return found

    def _race_the_first(self, op_mappings: Sequence[Mapping]) -> list[Result]:
        """Measure the first of `op_mappings`: as many as the devices hold together, but only one if there is no anchor
        yet.
        """
        self.join_anew_if_due()
        entries = [self._entry(each) for each in self._with_room(op_mappings if self.anchor else op_mappings[:1])]
        self._race_and_close({entry.raced: entry for entry in entries if entry.raced is not None})
        alone = [entry for entry in entries if entry.result is None]
        if alone:
            again = self._without_anchor([entry.op_mapping for entry in alone])
            for entry, result in zip(alone, again, strict=True):
                entry.result = result
        return [entry.came_to for entry in entries]

    def _entry(self, op_mapping: Mapping) -> _Entry:
        placed = self.ready(op_mapping)
        if isinstance(placed, Failed):
            return _Entry(op_mapping, None, placed)
        return _Entry(op_mapping, RacedStep(*placed))

    def _race_and_close(self, entries: dict[RacedStep, _Entry]) -> None:
        """Race entries that are ready, and note their results. Only the anchor and the incumbent are kept."""
        try:
            for entry, result in zip(entries.values(), self._raced(list(entries)), strict=True):
                entry.result = result
        finally:
            for raced in entries:
                if raced.step not in (self.anchor, self.incumbent):
                    raced.step.close()
        known = self._op_mapping_of | {raced.step: entry.op_mapping for raced, entry in entries.items()}
        self._op_mapping_of = {step: known[step] for step in known if step in (self.anchor, self.incumbent)}

    def _without_anchor(self, op_mappings: Sequence[Mapping]) -> list[Result]:
        """Race these mappings again without the anchor and incumbent, one of which failed beside them. If none of the
        mappings runs, set the anchor up again.
        """
        anchor, borrowed = self._op_mapping_of.get(self.anchor) if self.anchor else None, self._borrowed
        self.take_down()
        found = self.race(op_mappings)
        if self.anchor is None:
            again = borrowed or (self._warm(anchor) if anchor is not None else None)
            self.anchor = self.incumbent = again
            self.incumbent_s, self._borrowed = self.anchor_s / self._scale, borrowed
            if again is not None and again is not borrowed and anchor is not None:
                self._op_mapping_of[again] = anchor
        return found

    def set_anchor_s(self, anchor_s: float) -> None:
        """Set the anchor's step time, to which later results are scaled."""
        self._scale *= anchor_s / self.anchor_s
        self.anchor_s = anchor_s

    def join_anew_if_due(self) -> None:
        """Leave the workers and join them again if they keep much of closed steps (`leftovers`). The steps that this
        runner and others on the same devices keep for comparison are set up again; other steps become invalid.

        Raises DeviceLostError if a worker does not answer.
        """
        if leftovers.are_many() and self.devices.addresses:
            self._join_anew()

    @property
    def in_turn(self) -> InTurn:
        """A timer of steps on this runner's inputs, with its current settings."""
        return InTurn(self.inputs, self.settings.warm_up, self.clock, self.suspends)

    @property
    def kept(self) -> list[Mapping]:
        """The mappings whose steps are kept for comparison."""
        return list(self._op_mapping_of.values())

    def _with_room(self, op_mappings: Sequence[Mapping]) -> Sequence[Mapping]:
        """The first of `op_mappings` that the devices hold together with the kept steps; at least one. If there is no
        room for one, kept steps are taken down.
        """
        if not self.foresight.hold([*self.kept, *op_mappings[:1]]):
            self.forget_incumbent()
        if not self.foresight.hold([*self.kept, *op_mappings[:1]]):
            self.take_down()
        count = 1
        while count < len(op_mappings) and self.foresight.hold([*self.kept, *op_mappings[: count + 1]]):
            count += 1
        return op_mappings[:count]

    def forget_incumbent(self) -> None:
        """Take the incumbent down, so that the next mappings are raced beside the anchor alone."""
        if self.incumbent is not self.anchor:
            self._take_down_incumbent()

    def _take_down_incumbent(self) -> None:
        if self.incumbent is not None:
            self.incumbent.close()
            self._op_mapping_of.pop(self.incumbent, None)
        self.incumbent, self.incumbent_s = self.anchor, self.anchor_s / self._scale

    def ready(self, op_mapping: Mapping) -> tuple[PlacedStep, float] | Failed:
        """As `prepare`, but ask workers for room first, and return a failure as Failed."""
        peaks = dict(zip(self.devices.topology.names, self.foresight.peaks(op_mapping), strict=False))
        lacking = attempted(lambda: short_of_room(self.devices, peaks))
        if isinstance(lacking, Failed):
            return lacking
        beside = [sum(held) for held in zip(*(kept.memory_bytes for kept in self.kept), strict=True)]
        at_once = {name: peak + (beside[d] if beside else 0) for d, (name, peak) in enumerate(peaks.items())}
        if lacking is not None:
            return no_room(lacking, at_once[lacking])
        placed: tuple[PlacedStep, float] | Failed = attempted(lambda: self.prepare(op_mapping))
        if isinstance(placed, Failed) and peaks:
            return out_of_memory(placed, self.devices.name_of, at_once)
        return placed

    def prepare(self, op_mapping: Mapping) -> tuple[PlacedStep, float]:
        """Set a mapping up. Returns (a placed step that was run and checked, seconds until its first step ended)."""
        begin = self.clock()
        with waiting(SWITCHED, first=True):
            step = PlacedStep(self.template, self._names(op_mapping), order=self.foresight.order(op_mapping))
            try:
                first = values(step.run_flat(self.inputs))
                switch_s = self.clock() - begin
                self.check(step, first)
            except BaseException:
                step.close()
                raise
        return step, switch_s

    def switch(self, step: PlacedStep, op_mapping: Mapping) -> tuple[PlacedStep, float]:
        """Continue from `step` under a mapping that was measured before: (the new step, seconds until its first step
        ended). Variables that stay on their device are reused; `step` must not be called again.
        """
        begin = self.clock()
        with waiting(SWITCHED, first=True):
            order = self.foresight.order(op_mapping)
            switched = PlacedStep(self.template, self._names(op_mapping), step.variables, order=order, proven=True)
            values(switched.run_flat(self.inputs))
            seconds = self.clock() - begin
            step.close()
        return switched, seconds

    def take_down(self) -> None:
        """Release the variables and functions of the steps kept for comparison. The next mapping that is measured
        becomes the anchor.
        """
        for step in (self.anchor, self.incumbent):
            if step is not None and step is not self._borrowed:
                step.close()
        self.anchor = self.incumbent = self._borrowed = None
        self._op_mapping_of.clear()

    def close(self) -> None:
        """Take down what is kept; the runner is not used afterwards."""
        self.take_down()

    def _join_anew(self) -> None:
        runners = list(self.devices.runners)
        kept = [(runner, step, op_mapping) for runner in runners for step, op_mapping in runner._op_mapping_of.items()]
        anew: dict[PlacedStep | None, PlacedStep] = {}
        try:
            for _, step, _ in kept:
                step.close()
            for runner in runners:
                runner.check.forget()
            self.devices.join_anew()
            for runner, step, op_mapping in kept:
                again = runner._warm(op_mapping)
                if again is not None:
                    anew[step] = again
        finally:  # also if a device is lost or Ctrl-C is pressed: no runner may keep a closed step
            for runner in runners:
                runner._go_on_with(anew)

    def _warm(self, op_mapping: Mapping) -> PlacedStep | None:
        """Set a mapping up and warm its step up for a race; None if it does not run."""
        ready = self.ready(op_mapping)
        if isinstance(ready, Failed):
            return None
        if isinstance(attempted(lambda: self.in_turn.seconds_of(ready[0], 0)), Failed):
            ready[0].close()
            return None
        return ready[0]

    def _go_on_with(self, anew: dict[PlacedStep | None, PlacedStep]) -> None:
        """Keep new placed steps in place of the former ones. If the anchor no longer runs, the next mapping that is
        measured becomes the anchor. anew: former step -> new step of the same mapping.
        """
        self._op_mapping_of = {anew[step]: kept for step, kept in self._op_mapping_of.items() if step in anew}
        self.anchor, self._borrowed = anew.get(self.anchor), anew.get(self._borrowed)
        if self.incumbent is not None:
            self.incumbent = anew.get(self.incumbent)
            if self.incumbent is None:
                self._take_down_incumbent()
        if self.anchor is None:
            self.take_down()

    def _names(self, op_mapping: Mapping) -> list[str]:
        return [self.devices.tf_name(d) for d in op_mapping.devices]

    def _raced(self, entries: Sequence[RacedStep]) -> list[Result | None]:
        """Race entries that are ready, and return their results (see `_result`)."""
        peers = [RacedStep(step, 0.0) for step in dict.fromkeys((self.anchor, self.incumbent)) if step is not None]
        has_gpu = any(device.kind == "gpu" for device in self.devices.topology.devices)
        Race(self.in_turn, self.settings, peers, self.incumbent_s, has_gpu).run(entries)
        if peers and peers[0].seconds and not any(peer.failed for peer in peers):  # else its steps are not usual
            self._scale = self.anchor_s / median(peers[0].seconds)
        self._keep_the_fastest(entries, peers)
        return [self._result(entry, peers) for entry in entries]

    def _result(self, entry: RacedStep, peers: Sequence[RacedStep]) -> Result | None:
        """The entry's result, scaled by the anchor's times in the same turns; None if the anchor or the incumbent
        failed although no device is lost.
        """
        beside_it = next((peer.failed for peer in peers if peer.failed), None)
        if entry.failed is not None or beside_it is not None:
            return entry.failed or (beside_it if beside_it and beside_it.reason == "device" else None)
        found = summary(entry.seconds)
        beside = peers[0].seconds[: found.repeats] if peers else []
        scale = self.anchor_s / median(beside) if beside else self._scale  # the anchor did not run if all were dropped
        early = found.repeats < self.settings.repeats
        return replace(found.scaled(scale), switch_s=entry.switch_s, stopped_early=early)

    def _keep_the_fastest(self, entries: Sequence[RacedStep], peers: Sequence[RacedStep]) -> None:
        """Make the fastest entry that finished all heats the incumbent, unless the current incumbent is faster. If
        there is no anchor, the entry becomes the anchor, too.
        """
        through = [e for e in entries if not e.failed and len(e.seconds) == self.settings.repeats]
        if not through:
            return
        best = min(through, key=lambda entry: median(entry.seconds))
        if self.anchor is None:
            self.anchor = self.incumbent = best.step
            self.incumbent_s = median(best.seconds)
            self.anchor_s = self.incumbent_s * self._scale
        elif not any(peer.failed for peer in peers) and median(best.seconds) < median(peers[-1].seconds):
            if self.incumbent is not None and self.incumbent is not self.anchor:
                self.incumbent.close()
            self.incumbent, self.incumbent_s = best.step, median(best.seconds)
