"""Runs mappings for real and measures them, interleaved with the incumbent, checked against the untouched step."""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, field, replace
from statistics import median
from typing import Any

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
from placer.measure.step_check import StepCheck
from placer.measure.timing import Step, timed
from placer.result import Failed, Measured, Result, heats, is_clearly_slower, relative_error, summary
from placer.trace.capture import Captured

SWITCHED = "a mapping was set up"
GPU_WARM_UP_S = 0.3  # first steps on an idle H100 took twice as long as later ones (docs/decisions/037-first-gpu.md)
MOST_WARM_UP = 500  # steps
PRECISE = 0.004  # relative standard error of a median at which more steps would change no figure that is quoted

RunOrder = Callable[[Mapping], Sequence[str]]
"""Mapping -> names of ops in the order in which they should run (docs/decisions/006-run-order.md)."""
Holds = Callable[[Sequence[Mapping]], bool]
"""Mappings -> whether the devices have memory for placed steps of all of them at once."""
Peaks = Callable[[Mapping], Sequence[float]]
"""Mapping -> the most bytes that each device holds at once, as simulated; empty where it is not known."""


@dataclass(frozen=True)
class RunnerSettings:
    """How a mapping is measured."""

    warm_up: int = 2  # steps dropped after the first call
    repeats: int = 12  # steps that count
    give_up_after: int = 4  # steps after which a candidate is stopped if its best is slower than the incumbent's worst
    hopeless: float = 3.0  # a candidate is stopped after a step of more than this many times the incumbent's median
    drop_at_once: float | None = None  # the same for its first warm-up step, which is then the result; None = never
    drop_from_s: float = 0.2  # a first step faster than this never is: the first steps on a GPU set much up


def any_number(_: Sequence[Mapping]) -> bool:
    """Memory limits nothing."""
    return True


def not_simulated(_: Mapping) -> Sequence[float]:
    """No simulation: no peaks are known."""
    return ()


def as_it_comes(_: Mapping) -> Sequence[str]:
    """No order: TensorFlow's executor decides."""
    return ()


@dataclass(eq=False)
class RacedStep:
    """One placed step in a race: seconds of the switch to it and of each step, and why it failed if it did."""

    step: PlacedStep
    switch_s: float
    seconds: list[float] = field(default_factory=list)
    failed: Failed | None = None


class Runner:
    """Measures mappings of one captured step on real devices.

    The first mapping measured is the anchor, the fastest so far the incumbent. Every later one is stepped in turn
    with both, and its result is scaled to the anchor's time: anchor's first step time x median / the anchor's median
    now. So results stay comparable although the machine drifts.

    order: the order in which a mapping's ops run. beside: a runner that closes later; its anchor, if it has one, is
    this one's, too, so that the results of both compare. holds: whether the devices can hold some mappings at once;
    fewer are raced where they cannot, and where there is no room for one beside incumbent and anchor, these are taken
    down, and it is measured alone, as the next anchor. peaks: simulated peak bytes by device; workers are asked whether
    they have as much before a mapping is set up. suspends: steps during which the machine slept are stepped again.
    """

    def __init__(
        self,
        captured: Captured,
        devices: Devices,
        inputs: Sequence[Any],
        references: Sequence[Outcome],
        settings: RunnerSettings | None = None,
        clock: Callable[[], float] = time.perf_counter,
        order: RunOrder = as_it_comes,
        beside: Runner | None = None,
        holds: Holds = any_number,
        peaks: Peaks = not_simulated,
        suspends: Suspends | None = None,
    ) -> None:
        self.captured = captured
        self.order, self.holds, self.peaks = order, holds, peaks
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
        self.incumbent: PlacedStep | None = None
        self.incumbent_s = 0.0  # when it was measured
        self._mapping_of: dict[PlacedStep, Mapping] = {}  # of the steps that are kept

    def measure(self, mapping: Mapping) -> Result:
        """The step time of a mapping of the captured graph, or why it has none. A faster one becomes incumbent."""
        return self.race([mapping])[0]

    def race(self, mappings: Sequence[Mapping]) -> list[Result]:
        """The step times of several mappings by successive halving (Jamieson & Talwalkar 2016): all are stepped in
        turn, the slower half drops out, the faster half goes on, and only the winner takes all repeats.
        """
        self.free()
        if self.anchor is None and len(mappings) > 1:
            return [self.measure(mappings[0]), *self.race(mappings[1:])]
        together = self._with_room(mappings)
        ready = [self.ready(mapping) for mapping in together]
        entries = [RacedStep(*placed) for placed in ready if not isinstance(placed, Failed)]
        try:
            results = iter(self._raced(entries))
        finally:
            for entry in entries:
                if entry.step not in (self.anchor, self.incumbent):
                    entry.step.close()
        for mapping, placed in zip(together, ready, strict=True):
            if not isinstance(placed, Failed):
                self._mapping_of[placed[0]] = mapping
        self._mapping_of = {step: m for step, m in self._mapping_of.items() if step in (self.anchor, self.incumbent)}
        done = [placed if isinstance(placed, Failed) else next(results) for placed in ready]
        left = mappings[len(together) :]
        return [*done, *self.race(left)] if left else done

    def free(self) -> None:
        """Join workers anew that keep much of steps that were closed (`leftovers`). What this runner and others on the
        same devices keep for comparison is set up again; nobody may hold any other step on them.

        Raises DeviceLostError where a worker does not answer.
        """
        if leftovers.are_many() and self.devices.addresses:
            self._join_anew()

    @property
    def kept(self) -> list[Mapping]:
        """The mappings whose steps are kept for comparison."""
        return list(self._mapping_of.values())

    def _with_room(self, mappings: Sequence[Mapping]) -> Sequence[Mapping]:
        """The first of `mappings` that the devices hold together with what is kept; at least one, for which what is
        kept is taken down if need be.
        """
        if not self.holds([*self.kept, *mappings[:1]]):
            self.forget_incumbent()
        if not self.holds([*self.kept, *mappings[:1]]):
            self.close()
        count = 1
        while count < len(mappings) and self.holds([*self.kept, *mappings[: count + 1]]):
            count += 1
        return mappings[:count]

    def forget_incumbent(self) -> None:
        """Race what comes next beside the anchor alone."""
        if self.incumbent is not self.anchor:
            self._take_down_incumbent()

    def _take_down_incumbent(self) -> None:
        if self.incumbent is not None:
            self.incumbent.close()
            self._mapping_of.pop(self.incumbent, None)
        self.incumbent, self.incumbent_s = self.anchor, self.anchor_s

    def seconds_of(self, step: Step, repeats: int) -> list[float]:
        """Seconds of so many steps, one after another, after the warm-up."""
        for _ in range(self.settings.warm_up):
            timed(step, self.inputs, self.clock, self.suspends)
        return [timed(step, self.inputs, self.clock, self.suspends) for _ in range(repeats)]

    def compare(
        self, steps: Sequence[Step], repeats: int, *, fewest: int | None = None, kept: Collection[Step] = ()
    ) -> list[Measured]:
        """Time steps in turn: figures that a report may quote.

        fewest=None: every step takes `repeats` turns. Otherwise the slower half drops out after `fewest` turns and
        again halfway from there to `repeats`; from `fewest` on, steps clearly slower than the fastest drop out, too.
        Steps in `kept` never do. All end once the medians of those that are left are known to PRECISE.
        """
        for step in steps:
            for _ in range(self.settings.warm_up):
                timed(step, self.inputs, self.clock, self.suspends)
        seconds: list[list[float]] = [[] for _ in steps]
        live = list(range(len(steps)))
        for turn in range(1, repeats + 1):
            for i in live:
                seconds[i].append(timed(steps[i], self.inputs, self.clock, self.suspends))
            if fewest is not None and turn >= fewest:
                fastest = min((seconds[i] for i in live), key=median)
                racing = [i for i in live if steps[i] not in kept and not is_clearly_slower(seconds[i], fastest)]
                if turn in (fewest, (fewest + repeats) // 2):
                    racing = sorted(racing, key=lambda i: median(seconds[i]))[: (len(racing) + 1) // 2]
                live = [i for i in live if i in racing or steps[i] in kept]
                if all(relative_error(seconds[i]) <= PRECISE for i in live):
                    break
        turns = max(map(len, seconds), default=0)
        return [replace(summary(s), stopped_early=len(s) < turns) for s in seconds]

    def ready(self, mapping: Mapping) -> tuple[PlacedStep, float] | Failed:
        """`prepare`, with a failure as a value."""
        peaks = dict(zip(self.devices.topology.names, self.peaks(mapping), strict=False))
        wanted = {self.devices.tf_names[name]: peak for name, peak in peaks.items()}
        lacking = attempted(lambda: short_of_room(wanted))
        if isinstance(lacking, Failed):
            return lacking
        beside = [sum(held) for held in zip(*(kept.memory_bytes for kept in self.kept), strict=True)]
        at_once = {name: peak + (beside[d] if beside else 0) for d, (name, peak) in enumerate(peaks.items())}
        if lacking is not None:
            name = self._named[lacking]
            return no_room(name, at_once[name])
        placed: tuple[PlacedStep, float] | Failed = attempted(lambda: self.prepare(mapping))
        return out_of_memory(placed, self._named, at_once) if isinstance(placed, Failed) and peaks else placed

    @property
    def _named(self) -> dict[str, str]:
        return {tf_name: name for name, tf_name in self.devices.tf_names.items()}

    def prepare(self, mapping: Mapping) -> tuple[PlacedStep, float]:
        """(a placed step that was run and checked, seconds until its first step ended)."""
        begin = self.clock()
        with waiting(SWITCHED, first=True):
            step = PlacedStep(self.template, self._names(mapping), order=self.order(mapping))
            try:
                first = values(step.run_flat(self.inputs))
                switch_s = self.clock() - begin
                self.check(step, first)
            except BaseException:
                step.close()
                raise
        return step, switch_s

    def switch(self, step: PlacedStep, mapping: Mapping) -> tuple[PlacedStep, float]:
        """Continue from `step` under a mapping that was measured before: (the new step, seconds until its first step
        ended). Variables that stay on their device are reused; `step` must not be called again.
        """
        begin = self.clock()
        with waiting(SWITCHED, first=True):
            switched = PlacedStep(
                self.template, self._names(mapping), step.variables, order=self.order(mapping), proven=True
            )
            values(switched.run_flat(self.inputs))
            seconds = self.clock() - begin
            step.close()
        return switched, seconds

    def close(self) -> None:
        """Release the variables and functions of the steps kept for comparison."""
        for step in (self.anchor, self.incumbent):
            if step is not None and step is not self._borrowed:
                step.close()
        self.anchor = self.incumbent = self._borrowed = None
        self._mapping_of.clear()

    def _join_anew(self) -> None:
        runners = list(self.devices.runners)
        kept = [(runner, step, mapping) for runner in runners for step, mapping in runner._mapping_of.items()]
        anew: dict[PlacedStep | None, PlacedStep] = {}
        try:
            for _, step, _ in kept:
                step.close()
            for runner in runners:
                runner.check.forget()
            self.devices.join_anew()
            for runner, step, mapping in kept:
                again = runner._warm(mapping)
                if again is not None:
                    anew[step] = again
        finally:  # also where a device is lost, or Ctrl-C is pressed: none keeps a step that was closed
            for runner in runners:
                runner._go_on_with(anew)

    def _warm(self, mapping: Mapping) -> PlacedStep | None:
        """A placed step that is as warm as what it is raced with; None where it does not run."""
        ready = self.ready(mapping)
        if isinstance(ready, Failed):
            return None
        if isinstance(attempted(lambda: self.seconds_of(ready[0], 0)), Failed):
            ready[0].close()
            return None
        return ready[0]

    def _go_on_with(self, anew: dict[PlacedStep | None, PlacedStep]) -> None:
        """Keep these placed steps in place of the former ones of the same mappings. Where the anchor does not run any
        more, the next mapping that is measured becomes the anchor.
        """
        self._mapping_of = {anew[step]: mapping for step, mapping in self._mapping_of.items() if step in anew}
        self.anchor, self._borrowed = anew.get(self.anchor), anew.get(self._borrowed)
        if self.incumbent is not None:
            self.incumbent = anew.get(self.incumbent)
            if self.incumbent is None:
                self._take_down_incumbent()
        if self.anchor is None:
            self.close()

    def _names(self, mapping: Mapping) -> list[str]:
        return [self.devices.tf_name(d) for d in mapping.devices]

    def _raced(self, entries: Sequence[RacedStep]) -> list[Result]:
        peers = self._in_turn(entries)
        self._keep_the_fastest(entries, peers)
        return [self._result(entry, peers) for entry in entries]

    def _in_turn(self, entries: Sequence[RacedStep]) -> list[RacedStep]:
        """Step the entries in turn with anchor and incumbent, heat after heat; returns those two with their times."""
        peers = [RacedStep(step, 0.0) for step in dict.fromkeys((self.anchor, self.incumbent)) if step is not None]
        live = list(entries)
        for _ in range(self.settings.warm_up):
            live = [entry for entry in live if self._stepped(entry) and not self._is_dropped(entry)]
        if not peers:
            live = [entry for entry in live if self._woken(entry)]
        for entry in live:
            entry.seconds.clear()
        for until in heats(len(live), self.settings.repeats):
            while live and len(live[0].seconds) < until:
                if not all(self._stepped(peer) for peer in peers):
                    return peers
                live = [entry for entry in live if self._stepped(entry) and not self._is_hopeless(entry, peers)]
            live = sorted(live, key=lambda entry: median(entry.seconds))[: (len(live) + 1) // 2]
        return peers

    def _woken(self, entry: RacedStep) -> bool:
        """Step the first mapping, to whose time all others are scaled, until a GPU that was idle is at its speed; False
        where it failed.
        """
        if any(device.kind == "gpu" for device in self.devices.topology.devices):
            while sum(entry.seconds) < GPU_WARM_UP_S and len(entry.seconds) < MOST_WARM_UP:
                if not self._stepped(entry):
                    return False
        return True

    def _stepped(self, entry: RacedStep) -> bool:
        """Run one more step; False where it failed."""
        took_s: float | Failed = attempted(lambda: timed(entry.step, self.inputs, self.clock, self.suspends))
        if isinstance(took_s, Failed):
            entry.failed = took_s
            return False
        entry.seconds.append(took_s)
        return True

    def _is_hopeless(self, entry: RacedStep, peers: Sequence[RacedStep]) -> bool:
        """Whether the entry is clearly worse than the incumbent (RunnerSettings.hopeless and give_up_after)."""
        if not peers:
            return False
        mine, theirs = entry.seconds, peers[-1].seconds
        if mine[-1] > self.settings.hopeless * median(theirs) and len(mine) > 1:
            return True
        return len(mine) >= self.settings.give_up_after and min(mine) > max(theirs)

    def _is_dropped(self, entry: RacedStep) -> bool:
        """Whether its first warm-up step already rules it out (RunnerSettings.drop_at_once)."""
        most = self.settings.drop_at_once
        if most is None or self.incumbent_s == 0:
            return False
        return entry.seconds[0] > max(most * self.incumbent_s, self.settings.drop_from_s)

    def _result(self, entry: RacedStep, peers: Sequence[RacedStep]) -> Result:
        """The entry's result, scaled by what the anchor took in the same turns."""
        failed = entry.failed or next((peer.failed for peer in peers if peer.failed), None)
        if failed is not None:
            return failed
        found = summary(entry.seconds)
        beside = peers[0].seconds[: found.repeats] if peers else []
        scale = self.anchor_s / median(beside) if beside else 1.0  # no peer ran where all entries were dropped
        early = found.repeats < self.settings.repeats
        return Measured(found.step_s * scale, found.spread_s * scale, found.repeats, entry.switch_s, early)

    def _keep_the_fastest(self, entries: Sequence[RacedStep], peers: Sequence[RacedStep]) -> None:
        """The fastest entry that finished all heats replaces a slower incumbent."""
        through = [e for e in entries if not e.failed and len(e.seconds) == self.settings.repeats]
        if not through:
            return
        best = min(through, key=lambda entry: median(entry.seconds))
        if self.anchor is None:
            self.anchor = self.incumbent = best.step
            self.anchor_s = self.incumbent_s = median(best.seconds)
        elif not any(peer.failed for peer in peers) and median(best.seconds) < median(peers[-1].seconds):
            if self.incumbent is not None and self.incumbent is not self.anchor:
                self.incumbent.close()
            self.incumbent, self.incumbent_s = best.step, median(best.seconds)
