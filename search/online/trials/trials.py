"""Trials of mappings within the training: each proposal is built in the background, sampled for a few steps, and
raced against the incumbent, which all other calls run.
"""

from __future__ import annotations

import math
import time
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import CancelledError
from dataclasses import dataclass, replace
from statistics import median
from typing import Any, Protocol, TypeVar

from placer.graph.mapping import ops_by_device
from placer.number_format import ms
from placer.result import Failed, Measured, is_faster, summary
from placer.train.steps.modes import UNTOUCHED, WHOLE, Mode, Placed
from search.online.interfaces import Answer, LiveStepLike, Steps
from search.online.journal import Kind
from search.online.replan.proposal import Proposal
from search.online.trials.race import first_turn, measured, race, sample
from search.online.trials.tried import LiveTrial, Tried

T = TypeVar("T")
M = TypeVar("M", bound=Mode)
LEAST_S, MOST_TIMES = 0.02, 4  # a trial of steps shorter than LEAST_S counts more of them, up to MOST_TIMES as many
LATEST = 24  # steps of the incumbent that are remembered
NEAR = 1.06  # a mode that takes up to this many times the step time to beat may be as fast: a sample tells no more
SINGLES = 2  # single devices that stay built
MOST_NEAR = 3  # modes that race the incumbent


@dataclass(frozen=True)
class TrialSettings:
    """How many steps a trial takes, and what is worth a move."""

    repeats: int = 8  # counted steps of each mode in a race
    sample_steps: int = 3  # counted steps of a mode that is new
    hopeless: float = 2.0  # a sample ends after two steps in a row this many times as long as the incumbent's
    least_gain: float = 0.01  # share of a step worth a move
    sigmas: float = 1.0  # standard deviations that a gain must exceed

    def at(self, step_s: float) -> TrialSettings:
        """Return these settings with more steps if steps are short, because short steps are noisier and cost little."""
        times = min(MOST_TIMES, max(1, math.floor(LEAST_S / step_s))) if step_s > 0 else 1
        return replace(self, repeats=self.repeats * times, sample_steps=self.sample_steps * times)


class Say(Protocol):
    """Notes a decision in the journal."""

    def __call__(self, kind: Kind, sentence: str, **numbers: Any) -> None: ...


class Trials:
    """Keeps the incumbent, what was built, and how long steps take."""

    def __init__(
        self,
        live: LiveStepLike,
        say: Say,
        report: Callable[[LiveTrial, bool], None],
        beat_untouched: bool = True,
        clock: Callable[[], float] = time.perf_counter,
    ) -> None:
        """report: called with each result, and whether it is the first of its mode. beat_untouched: whether the
        untouched step is to be beaten even if this process is not one of the devices.
        """
        self.live, self.say, self.beat_untouched = live, say, beat_untouched
        self.tried = Tried(report, clock)
        self.mode: Mode = UNTOUCHED
        self.built: list[Placed] = []  # all placed steps that can run
        self.favourite: Mode | None = None  # the best while no device is slow
        self.step_s: dict[Mode, float] = {}  # all comparable: at the pace of the first race, or since the load changed
        self.latest_s: deque[float] = deque(maxlen=LATEST)  # seconds of the incumbent's latest undisturbed steps
        self.lost_s = 0.0  # seconds lost to building and to steps of other modes
        self._freed_single_s: float | None = None  # step time of the fastest single device, when all was freed

    # Steps of the incumbent.

    def meanwhile(self, future: Answer[T]) -> Steps[T]:
        """Run the incumbent until `future` is done, and return its result. These steps do not count as measured; what
        they take longer counts as lost.

        Raises the error that `future` holds.
        """
        usual_s = median(self.latest_s) if self.latest_s else self.known_s(self.mode)
        while not future.done():
            self.lost_s += max(0.0, (yield self.mode) - usual_s)
        return future.result()

    def background(self, work: Callable[[], T], begun: Answer[T] | None = None) -> Steps[T]:
        """Run `work` on the other thread while the incumbent trains. Run it again if another step of the session
        cancelled it by going on without a lost device.

        begun: the answer of `work`, if it was begun before. Raises what `work` raises.
        """
        while True:
            try:
                return (yield from self.meanwhile(begun or self.live.background(work)))
            except CancelledError:
                begun = None
                yield self.mode

    def run_undisturbed(self, steps: int) -> Steps[None]:
        """Run the incumbent for `steps` undisturbed steps."""
        for _ in range(steps):
            self.latest_s.append((yield self.mode))

    def go_on_with(self, mode: Mode, latest_s: Iterable[float] = ()) -> None:
        """Make `mode` the incumbent. latest_s: seconds of its latest steps."""
        self.mode = mode
        self.latest_s = deque(latest_s, LATEST)

    def move(self, mode: Mode, latest_s: Iterable[float], why: str) -> None:
        """Go on with `mode`, and note it in the journal."""
        self.go_on_with(mode, latest_s)
        self.say("moved", f"to {self.describe(mode)}: {why}.", step_s=self.known_s(mode))

    def leave_untouched(self) -> None:
        """Move from the untouched step to the fastest mapping, if the untouched step does not compete."""
        best = self.fastest(self.built)
        if not isinstance(self.mode, Placed) and best is not None and not self.untouched_competes:
            self.move(best, (), f"the fastest on these devices, {ms(self.known_s(best), 1)} a step")

    # What is new.

    def enter(self, proposals: Iterable[Proposal], settings: TrialSettings) -> Steps[list[Placed]]:
        """Build each proposal that was not measured yet while the training goes on, try it out, and go on with the
        fastest mode. Returns what was built.

        Proposals are built one after the other, because steps beside a build take longer and tell nothing. What cannot
        run is left out.
        """
        entered = []
        for proposal in proposals:
            for note in proposal.notes:
                self.say("plan", f"{proposal.searcher}: {note}", searcher=proposal.searcher)
            if not self._is_known(proposal):
                built = yield from self._made(proposal)
                if built is not None:
                    entered.append(built)
                    yield from self.try_out(built, settings)
        return entered

    def try_out(self, mode: Mode, settings: TrialSettings) -> Steps[None]:
        """Compare a few steps of `mode` with the incumbent's latest; move to it if it is clearly faster."""
        self.latest_s.append((yield self.mode))
        settings = settings.at(self.latest_s[-1])
        for _ in range(settings.sample_steps - 1):
            self.latest_s.append((yield self.mode))
        beside = self._beside(settings)
        scale = self.step_s.setdefault(self.mode, beside.step_s) / beside.step_s
        took = yield from sample(mode, settings.sample_steps, settings.hopeless * self.bar_s / scale)
        found = measured(took, settings.sample_steps)
        self._note({mode: found}, self.mode, beside)
        self._count_lost(took, beside.step_s)
        if not found.stopped_early and is_faster(found, beside, max(0.03, settings.least_gain), 2.0):
            self.move(mode, took, _against(found, beside))

    def race(self, modes: Sequence[Mode], settings: TrialSettings, bars: int = 1) -> Steps[None]:
        """Race `modes`, and go on with the fastest of all if it is clearly faster than the fastest of the first `bars`
        modes; otherwise go on with the fastest of the first `bars` modes.
        """
        if len(modes) < 2:
            return
        settings = settings.at(self.known_s(self.mode))
        took = yield from race(modes, settings.repeats, settings.hopeless)
        wanted = first_turn(settings.repeats), settings.repeats
        results = {mode: measured(steps_s, *wanted) for mode, steps_s in took.items()}
        self._note(results, modes[0], results[modes[0]])
        best = min(modes, key=lambda mode: results[mode].step_s)
        for steps_s in took.values():
            self._count_lost(steps_s, results[best].step_s)
        bar = min(modes[:bars], key=lambda mode: results[mode].step_s)
        if not is_faster(results[best], results[bar], settings.least_gain, settings.sigmas):
            best = bar
        if best is self.mode:
            self.latest_s.extend(took[best])
        else:
            self.move(best, took[best], _against(results[best], results.get(self.mode, results[bar])))

    def race_near(self, modes: Sequence[Mode], settings: TrialSettings, drift: float = 1.0) -> Steps[None]:
        """Race the incumbent against at most MOST_NEAR of those `modes` that are nearly as fast: the untouched step
        first, then the fastest. drift: the factor by which step times of the modes may have changed relative to each
        other since they were compared.
        """
        limit_s = NEAR * drift * self.bar_s
        near = [mode for mode in modes if mode is not self.mode and self.known_s(mode) <= limit_s]
        near.sort(key=lambda mode: (mode is not UNTOUCHED, self.known_s(mode)))
        yield from self.race([self.mode, *near[:MOST_NEAR]], settings)

    # What is known.

    def known_s(self, mode: Mode) -> float:
        """Return the comparable seconds of a step; infinite if unknown."""
        return self.step_s.get(mode, math.inf)

    def renew(self, steps_s: Sequence[float]) -> None:
        """Rescale all known times to what the incumbent's steps take now."""
        if self.mode in self.step_s and steps_s:
            ratio = median(steps_s) / self.step_s[self.mode]
            self.step_s = {mode: step_s * ratio for mode, step_s in self.step_s.items()}
            self._freed_single_s = None if self._freed_single_s is None else self._freed_single_s * ratio

    def only_incumbent(self) -> None:
        """Forget the step times of other modes, because the load changed for some devices."""
        self.step_s = {mode: step_s for mode, step_s in self.step_s.items() if mode is self.mode}
        self._freed_single_s = None
        self.latest_s.clear()

    def fastest(self, modes: Iterable[M]) -> M | None:
        """Return the fastest of those `modes` that were measured; None if none was."""
        return min((mode for mode in modes if mode in self.step_s), key=self.known_s, default=None)

    @property
    def singles(self) -> list[Placed]:
        """The built steps that run on one device each, with whole ops."""
        return [placed for placed in self.built if placed.plan == WHOLE and len(set(placed.op_devices)) == 1]

    @property
    def best_single(self) -> Placed | None:
        """The fastest of `singles` that was measured; None if none was."""
        return self.fastest(self.singles)

    @property
    def best_single_s(self) -> float | None:
        """Seconds of a step on the fastest single device; None while unknown."""
        best = self.best_single
        return self._freed_single_s if best is None else self.step_s.get(best)

    @property
    def current(self) -> list[Placed]:
        """The steps that are built for the current devices."""
        return [placed for placed in self.built if self.live.is_current(placed)]

    @property
    def untouched_competes(self) -> bool:
        """Whether the training may end with the untouched step. If not, that only runs until the step is placed."""
        devices = self.live.session.devices
        return self.beat_untouched or (devices is not None and devices.has_local)

    @property
    def bar_s(self) -> float:
        """Seconds of the step that is to be beaten: the incumbent's, or the fastest mapping's if the incumbent is an
        untouched step that does not compete.
        """
        if isinstance(self.mode, Placed) or self.untouched_competes:
            return self.known_s(self.mode)
        return min((step_s for mode, step_s in self.step_s.items() if isinstance(mode, Placed)), default=math.inf)

    def predicted_s(self, mode: Placed) -> float:
        """Return the seconds of a step as predicted when the mapping was proposed; infinite if it was not proposed."""
        found_s = self.tried.predicted_s(mode.plan, mode.op_devices)
        return math.inf if found_s is None else found_s

    def forget(self, count: int) -> None:
        """Free all built steps except the incumbent, the favourite, the fastest single devices and the latest `count`
        of one plan of splits: the incumbent's, or the fastest mapping's if the incumbent is the untouched step. Forget
        old trials.
        """
        singles = sorted(self.singles, key=self.known_s)[:SINGLES]
        best = self.mode if isinstance(self.mode, Placed) else self.fastest(self.built)
        alike = [built for built in self.built if best is None or built.plan == best.plan]
        keep = {self.mode, self.favourite, *singles, *alike[-count:]}
        for built in self.built:
            if built not in keep:
                built.step.close()
                self.step_s.pop(built, None)
        self.built = [built for built in self.built if built in keep]
        self.tried.forget_old({(mode.plan, mode.op_devices) for mode in keep if isinstance(mode, Placed)})
        self.live.release(self.built)

    def drop(self, failed: Placed) -> None:
        """Forget a mode that failed. If it was the incumbent, go on untouched."""
        self.built = [built for built in self.built if built is not failed]
        self.step_s.pop(failed, None)
        self.favourite = None if self.favourite is failed else self.favourite
        if self.mode is failed:
            self.go_on_with(UNTOUCHED)

    def forget_all(self) -> None:
        """Forget everything and go on untouched, because a search begins from the start."""
        self.free()
        self.step_s, self._freed_single_s = {}, None
        self.favourite, self.lost_s = None, 0.0
        self.tried.clear()

    def free(self) -> None:
        """Go on untouched, and free all that was built. Only step times that reports give stay known."""
        single_s, here_s = self.best_single_s, self.step_s.get(UNTOUCHED)
        for built in self.built:
            built.step.close()
        self.favourite = UNTOUCHED if self.favourite is UNTOUCHED else None
        self.start_anew(UNTOUCHED)
        self._freed_single_s = single_s
        if here_s is not None:
            self.step_s[UNTOUCHED] = here_s
        self.live.release([])

    def start_anew(self, mode: Mode) -> None:
        """Forget all that was built except `mode`, because devices were joined again."""
        self.built = [mode] if isinstance(mode, Placed) else []
        self.step_s, self._freed_single_s = {}, None
        self.go_on_with(mode)

    def build_again(self, mode: Mode) -> Steps[None]:
        """After all workers were joined again: build the other modes again while the training goes on, and keep what is
        known of each. What cannot run is left out. mode: the incumbent, which is already built again.
        """
        former, others = self.mode, [built for built in self.built if built is not self.mode]
        known_s, favourite = self.step_s, self.favourite
        self._freed_single_s = self.best_single_s
        self.built = [mode] if isinstance(mode, Placed) else []
        self.go_on_with(mode, self.latest_s)
        self.step_s = {there: known_s[one] for one, there in ((UNTOUCHED, UNTOUCHED), (former, mode)) if one in known_s}
        self.favourite = mode if favourite is former else favourite if favourite is UNTOUCHED else None
        for built in others:
            again = Proposal(built.op_devices, built.order, self.predicted_s(built), built.name, built.plan)
            placed = yield from self._made(again)
            if placed is not None and built in known_s:
                self.step_s[placed] = known_s[built]
            if built is favourite:
                self.favourite = placed

    def name_of(self, single: Placed) -> str:
        """Return the name of the device on which everything runs."""
        return self.live.mapping(single.op_devices, single.plan).topology.names[single.op_devices[0]]

    def describe(self, mode: Mode) -> str:
        """Return in words who proposed the mapping of `mode`, and where its ops run."""
        if not isinstance(mode, Placed) or self.live.graph is None:
            return "the untouched step" if not isinstance(mode, Placed) else f"a mapping of {mode.name}"
        divided = ", with divided ops" if mode.plan != WHOLE else ""
        return f"a mapping of {mode.name}{divided} ({ops_by_device(self.live.mapping(mode.op_devices, mode.plan))})"

    # Building proposals, and keeping what was measured.

    def _is_known(self, p: Proposal) -> bool:
        """Whether the proposal was measured under the current load."""
        current = (mode for mode in self.step_s if isinstance(mode, Placed) and self.live.is_current(mode))
        return any((mode.plan, mode.op_devices) == (p.plan, p.op_devices) for mode in current)

    def _made(self, p: Proposal) -> Steps[Placed | None]:
        """Return the proposed mapping, ready to run; None if it cannot run, which the journal then says."""
        self.tried.note(p)
        wanted = p.plan, p.op_devices, p.order
        known = next((b for b in self.current if (b.plan, b.op_devices, b.order) == wanted), None)
        if known is not None:
            return known
        work = self.live.background(lambda: self.live.build(p.op_devices, p.order, p.searcher, p.plan))
        placed = self.live.settle((yield from self.meanwhile(work)))
        if isinstance(placed, Failed):
            if placed.reason != "device":  # the loss of a device is not the mapping's fault
                self.tried.tell(p.searcher, p.plan, p.op_devices, p.order, placed)
            self.say("error", f"a mapping of {p.searcher} cannot run and is left out: {placed.detail}")
            return None
        self.built.append(placed)
        return placed

    def _beside(self, settings: TrialSettings) -> Measured:
        """Return a summary of the latest steps of the incumbent."""
        return summary(list(self.latest_s)[-max(settings.repeats, settings.sample_steps) :])

    def _note(self, results: dict[Mode, Measured], anchor: Mode, beside: Measured) -> None:
        """Keep these results, scaled to the known step time of `anchor`. beside: what `anchor` took beside them."""
        scale = self.step_s.setdefault(anchor, beside.step_s) / beside.step_s
        for mode, found in results.items():
            switch_s = mode.switch_s if isinstance(mode, Placed) else 0.0
            scaled = replace(found.scaled(scale), switch_s=switch_s)
            self.step_s[mode] = scaled.step_s
            built = (mode.plan, mode.op_devices, mode.order) if isinstance(mode, Placed) else (WHOLE, (), ())
            self.tried.tell(mode.name, *built, scaled)

    def _count_lost(self, steps_s: Sequence[float], beside_s: float) -> None:
        """Count as lost what these steps took longer than `beside_s`. The first step of a sample, which is not among
        them, is assumed to be as slow as the slowest.
        """
        over_s = [max(0.0, s - beside_s) for s in steps_s]
        self.lost_s += sum(over_s) + (max(over_s) if over_s else 0.0)


def _against(one: Measured, other: Measured) -> str:
    return f"{ms(one.step_s, 1)} a step against {ms(other.step_s, 1)}"
