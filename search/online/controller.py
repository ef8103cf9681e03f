"""The controller of a live step: decides in which mode the next call runs. It is one long script, a generator: it
yields a mode and is sent the seconds that the step took, so that trials within a training read like a plain search.

    untouched ──capture, join, profile, plan──▶ singles ──▶ proposals, until none pays any more ──▶ keep
                                                                 ▲                                    │
    step times change ──probe──▶ what slowed ──new costs──▶ plan ┘◀───────────────────────────────────┘

The trials are in search/online/trials/trials.py; what to do when the load changes is in search/online/adaptation.py.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from statistics import median
from typing import TYPE_CHECKING, Any, TypeVar

from placer.errors import PlacerError, listed
from placer.result import Failed, Measured
from placer.train.modes import UNTOUCHED, Mode, Placed, Untouched
from search.online.adaptation import Adaptation
from search.online.interfaces import LiveStepLike, PlannerLike, Steps
from search.online.journal import Journal, Kind
from search.online.replan.planner_client import Planner
from search.online.replan.proposal import PlanSettings, Proposal
from search.online.settings import OnlineSettings
from search.online.trials.trials import Trial, Trials, ms

if TYPE_CHECKING:
    from placer.graph.op_graph import OpGraph
    from placer.graph.topology import Topology
    from placer.measure.store import Store

__all__ = ["Controller", "OnlineSettings", "Steps", "Trial"]

T = TypeVar("T")
GIVEN = "given"  # the proposer of a mapping that the user gave
SETTLING = 60  # steps after the search until its time is compared
DRIFTED = 1.05  # change of it that may have decided the search
LOOK_EVERY = 50  # steps between looks whether all workers are there


class Controller:
    """Writes the script of one live step. step: how many calls there were, for the journal."""

    def __init__(
        self,
        live: LiveStepLike,
        journal: Journal,
        settings: OnlineSettings,
        store: Store | None = None,
        clock: Callable[[], float] = time.perf_counter,
        planner: Callable[[OpGraph, Topology, PlanSettings], PlannerLike] = Planner,
    ) -> None:
        self.live, self.journal, self.settings, self.store, self.clock = live, journal, settings, store, clock
        self.step = 0
        self.phase = "starting"
        self.planner: PlannerLike | None = None
        self.topology: Topology | None = None
        self.trials = Trials(live, self._say, self._report, settings.beat_untouched)
        self._make_planner = planner
        self._each_s = 0.0  # what a mapping costs that is tried
        self._why_ended = ""
        self._given: tuple[int, ...] | None = None
        self._unfound = settings.search or settings.adapt  # whether no search has ended yet
        self._rounds = 0
        self._misses = 0  # rounds that did not pay, since one that did

    @property
    def mode(self) -> Mode:
        """The incumbent: the mode of all calls but the few that measure others."""
        return self.trials.mode

    @property
    def step_s(self) -> dict[Mode, float]:
        """Seconds of a step by mode, all comparable."""
        return self.trials.step_s

    @property
    def tried(self) -> Sequence[Trial]:
        """What was measured so far."""
        return self.trials.tried

    @property
    def best_single(self) -> Placed | None:
        """The fastest device that runs everything, as far as measured."""
        return self.trials.best_single

    @property
    def moves(self) -> int:
        """How often the incumbent changed."""
        return self.trials.moves

    # Scripts.

    def script(self) -> Steps[None]:
        """From the first call on."""
        if (yield from self._begin()):
            yield from self._find()
            yield from self._keep()
        self._now("left alone")
        while True:
            yield self.mode

    def script_after_joining(self) -> Steps[None]:
        """After devices were lost or came back: what was built is gone but the mode that runs."""
        self.trials.start_anew(self.live.mode)
        there = self._there()
        if self._given is not None:
            yield from self._give_again(self._given, there)
        elif self._unfound and self._is_whole(there):
            yield from self._find()
        elif self.planner is not None and self.settings.adapt and there:
            try:
                yield from self._place_anew(there)
            except PlacerError as error:
                self._say("error", f"no mapping was looked for on {listed(there)}: {error}")
        yield from self._keep()

    def script_left_alone(self) -> Steps[None]:
        """After it showed in the training that the step must run untouched."""
        self._say_left_alone()
        self._now("left alone")
        while True:
            yield UNTOUCHED

    def place(self, mapping: Callable[[], Sequence[int]]) -> Steps[None]:
        """One mapping given, and nothing else. mapping: called once the step is captured and the devices joined."""
        yield UNTOUCHED
        yield UNTOUCHED
        while not self.live.is_ready:
            yield UNTOUCHED
        self._now("capturing")
        self.live.capture()
        self.live.session.prepare()
        self.topology = self.live.join()
        self._now("building")
        self._given = tuple(mapping())
        built = self.live.build(self._given, (), GIVEN)
        placed = built if isinstance(built, Failed) else self.live.settle(built)
        if isinstance(placed, Failed):
            raise PlacerError(f"the mapping cannot run: {placed.detail}")
        self.trials.start_anew(placed)
        self._say("moved", f"placed by the mapping given: {self.trials.describe(placed)}.")
        yield from self._keep()

    def _give_again(self, devices: tuple[int, ...], there: Sequence[str]) -> Steps[None]:
        """The mapping given, once all its devices are there again."""
        assert self.topology is not None
        if {self.topology.names[d] for d in devices} <= set(there):
            built = yield from self._meanwhile(self.live.background(lambda: self.live.build(devices, (), GIVEN)))
            placed = built if isinstance(built, Failed) else self.live.settle(built)
            if not isinstance(placed, Failed):
                self.trials.move(placed, (), "its devices are there")

    # The search.

    def _begin(self) -> Steps[bool]:
        """Run untouched steps until the devices are joined; returns whether there is something to place."""
        yield UNTOUCHED
        if self.live.left_alone:
            self._say_left_alone()
            return False
        ready = self.live.background(self.live.session.prepare)
        yield UNTOUCHED
        yield UNTOUCHED
        while not self.live.is_ready:
            yield UNTOUCHED
        if self.live.left_alone:
            self._say_left_alone()
            return False
        self._now("capturing")
        yield from self._meanwhile(self.live.background(self.live.capture))
        self._now("starting devices")
        yield from self._meanwhile(ready)
        self.topology = topology = self.live.join()
        if len(topology) < 2:
            self.live.leave_alone(f"{topology.names[0]} is the only device here, so that there is nothing to place")
            self._say_left_alone()
            return False
        return True

    def _find(self) -> Steps[None]:
        """Find the best mapping; goes on from an earlier search where a device was lost during it."""
        if self.planner is None:
            yield from self._plan((yield from self._profile()))
        else:
            yield from self._meanwhile(self.planner.only(self._there()))
        if self.settings.search:
            try:
                yield from self._search()
            except PlacerError as error:
                self._say("error", f"the search ended early, with {len(self.tried)} mappings measured: {error}")
            yield from self._settle()
        self._unfound = False

    def _profile(self) -> Steps[OpGraph]:
        self._now("profiling")
        if self.live.shares_cores:  # the training stands still: together both would take twice as long, and be wrong
            graph, self.topology = self.live.background(self.live.profile).result()
        else:
            graph, self.topology = yield from self._meanwhile(self.live.background(self.live.profile))
        return graph

    def _plan(self, graph: OpGraph) -> Steps[None]:
        topology = self.topology
        assert topology is not None
        self._now("planning")
        settings = PlanSettings(groups=self.settings.groups, seed=self.settings.seed)
        self.planner = self._make_planner(graph, topology, settings)
        self._say(
            "plan", f"{len(graph)} ops over {listed(topology.names)}: looking for a better mapping.",
            ops=len(graph), devices=len(topology),
        )  # fmt: skip
        try:
            yield from self._meanwhile(self.planner.start())
        except PlacerError as error:
            self._say("error", f"there is no plan: {error}")
            self.planner = None

    def _search(self) -> Steps[None]:
        """Measure the single devices, then what the planner proposes, until that no longer pays.

        Meanwhile the fastest mode known runs, the step untouched included, though it may be no candidate in the end.
        """
        if self.planner is None:
            return
        self._now("measuring single devices")
        singles = yield from self._meanwhile(self.planner.singles())
        yield from self.trials.enter(singles, self.settings.thorough)
        self._now("searching")
        self._each_s = self.trials.lost_s / max(1, len(singles))
        while not self._why_ended:
            self._why_ended = yield from self._round(self.planner)

    def _round(self, planner: PlannerLike) -> Steps[str]:
        """Look at what is proposed and may pay, and race the best; returns why to end the search, "" to go on."""
        proposals = yield from self._meanwhile(planner.propose(min(self.settings.batch, self._left())))
        if not proposals:
            return (yield from self._meanwhile(planner.ended())) or "nothing else was proposed."
        before_s, spent_s = self.trials.bar_s, self.trials.lost_s
        made: list[Placed] = []
        first = not self._rounds
        self._rounds += 1
        for proposal in proposals:
            if first or self._may_pay(proposal):
                made += yield from self.trials.enter([proposal], self.settings.thorough)
        if made:
            self._leave_untouched()
        yield from self.trials.race_near(made, self.settings.thorough)
        if not made:
            return "nothing else is predicted to pay."
        if self._left() <= 0:
            return "the budget is spent."
        spent_s = self.trials.lost_s - spent_s
        self._each_s = spent_s / len(made)
        paid = (before_s - self.trials.bar_s) * self.settings.horizon > spent_s
        self._misses = 0 if paid else self._misses + 1
        return "the last mappings did not pay." if self._misses >= self.settings.patience else ""

    def _may_pay(self, proposal: Proposal) -> bool:
        """Whether it would gain more within the horizon than recent trials cost, given how far predictions may err."""
        gain_s = self.trials.bar_s - self.settings.optimism * proposal.predicted_s
        return gain_s * self.settings.horizon > self._each_s

    def _left(self) -> int:
        return self.settings.budget - sum(1 for trial in self.tried if trial.devices)

    def _settle(self) -> Steps[None]:
        """Race the incumbent against what it must not be slower than, which wins in doubt. Free the rest."""
        self._leave_untouched()
        bars: list[Mode] = [self.best_single] if self.best_single is not None else []
        if self.trials.untouched_competes:
            bars.append(UNTOUCHED)
        bars.sort(key=self.trials.known_s)
        if self.trials.built:
            others: list[Mode] = [self.mode] if self.mode not in bars else []
            yield from self.trials.race([*bars, *others], self.settings.final, max(1, len(bars)))
        self.trials.forget(self.settings.kept)
        yield from self._look_again()
        self.trials.favourite = self.mode if isinstance(self.mode, Placed) else None
        self._say_end()

    def _look_again(self) -> Steps[None]:
        """Race the nearest others again if step times clearly changed once nothing is built any more: then what the
        machine did beside the search may have decided it.
        """
        if not isinstance(self.mode, Placed) or not self.trials.latest_s:
            return
        self._now("settling")
        compared_s = median(self.trials.latest_s)
        yield from self.trials.rest(SETTLING)
        if not 1 / DRIFTED < median(self.trials.latest_s) / compared_s < DRIFTED:
            yield from self.trials.race_near(self.trials.built, self.settings.thorough)

    def _leave_untouched(self) -> None:
        """Leave the untouched step where it is no candidate."""
        best = self.trials.fastest(self.trials.built)
        if isinstance(self.mode, Untouched) and best is not None and not self.trials.untouched_competes:
            self.trials.move(best, (), f"the fastest on these devices, {ms(self.trials.known_s(best))} a step")

    def _say_end(self) -> None:
        at_s, measured = self.trials.known_s(self.mode), sum(1 for trial in self.tried if trial.devices)
        alone_s = self.trials.known_s(self.best_single) if self.best_single is not None else None
        gain = f", {alone_s / at_s:.2f}x the fastest single device" if alone_s else ""
        took = f"; {ms(at_s)} a step{gain}" if at_s in self.step_s.values() else ""
        said = f"{measured} mappings measured{took}; on with {self.trials.describe(self.mode)}. {self._why()}"
        here_s = self.trials.known_s(UNTOUCHED)
        if here_s < at_s and not self.trials.untouched_competes:
            said += f" Untouched in this process it took {ms(here_s)}: beat_untouched=True lets that compete."
        self._say("end", said.strip(), step_s=at_s, measured=measured)

    def _why(self) -> str:
        return f"The search ended because {self._why_ended}" if self._why_ended else ""

    # Keeping it.

    def _keep(self) -> Steps[None]:
        """Steady steps, until the load changes or devices come back."""
        self._now("steady")
        adaptation = None
        if (
            self.settings.adapt
            and self.planner is not None
            and len(self._there()) > 1
            and isinstance(self.mode, Placed)
        ):
            probes = yield from self._meanwhile(self.live.background(self.live.load_probes))
            adaptation = Adaptation(self.trials, self.planner, probes, self.settings, self._say, lambda: self.step)
            yield from adaptation.begin()
        while True:
            step_s = yield self.mode
            self.trials.latest_s.append(step_s)
            if adaptation is not None:
                try:
                    yield from adaptation.watch(step_s)
                except PlacerError as error:
                    self._say("error", f"no longer looking for better mappings, the training goes on: {error}")
                    adaptation = None
            self._look_for_lost()

    def _look_for_lost(self) -> None:
        session = self.live.session
        if session.missing and self.step % self.settings.probe_every == 0 and session.is_back():
            session.rejoin()
        elif self.step % LOOK_EVERY == 0:  # nothing else notices the loss of an idle worker
            session.suspected = True

    def _place_anew(self, there: Sequence[str]) -> Steps[None]:
        """Find a mapping for the devices that are there now; if all are, try the one of before."""
        assert self.planner is not None
        self._now("searching")
        yield from self._meanwhile(self.planner.only(there))
        whole = self._is_whole(there)
        before = self.trials.favourite
        if whole and before is not None:
            proposals = [Proposal(before.devices, before.order, self.trials.predicted_s(before), before.name)]
        elif len(there) > 1:
            proposals = yield from self._meanwhile(self.planner.propose(self.settings.replan, self.settings.replan_s))
        else:
            proposals = yield from self._meanwhile(self.planner.singles())
        made = yield from self.trials.enter(proposals, self.settings.quick)
        self._leave_untouched()
        if whole:
            self.trials.favourite = next(iter(made), None)
            self._say("back", f"all of {listed(there)} are there; on with {self.trials.describe(self.mode)}.")

    # Small things.

    def _meanwhile(self, future: Future[T]) -> Steps[T]:
        return (yield from self.trials.meanwhile(future))

    def _report(self, trial: Trial, first: bool) -> None:
        """Pass a result to the planner, the journal and the store."""
        if first and isinstance(trial.result, Measured):
            step_s = trial.result.step_s
            self._say("measured", f"{trial.name}: {ms(step_s)} a step.", step_s=step_s, searcher=trial.name)
        if not trial.devices:
            return
        if self.planner is not None:
            self.planner.tell([(trial.devices, trial.result)])
        anchor_s = next((t.result.step_s for t in self.tried if isinstance(t.result, Measured)), None)
        if self.store is not None and self.live.graph is not None and anchor_s is not None:
            self.store.add(self.live.mapping(trial.devices), trial.result, anchor_s, trial.name)

    def _there(self) -> list[str]:
        devices = self.live.session.devices
        return [] if devices is None else list(devices.topology.names)

    def _is_whole(self, there: Sequence[str]) -> bool:
        return self.topology is not None and len(there) == len(self.topology)

    def _say_left_alone(self) -> None:
        self._say("alone", f"the step runs untouched: {self.live.left_alone}.")

    def _say(self, kind: Kind, sentence: str, **numbers: Any) -> None:
        self.journal.entry(self.step, kind, sentence, **numbers)

    def _now(self, phase: str) -> None:
        self.phase = phase
