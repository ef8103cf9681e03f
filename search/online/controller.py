"""The controller of a live step, which decides in which mode the next call runs. Its script is a generator: it yields a
mode and is sent the seconds that the step took, so that trials within a training read like a plain search.

    untouched ──capture, join, profile, plan──▶ singles ──▶ proposals, until none pays any more ──▶ keep
                                                                 ▲                                    │
    step times change ──probe──▶ what slowed ──new costs──▶ plan ┘◀───────────────────────────────────┘

The phases of the script are in search/online/phases. They measure with search/online/trials/trials.py.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, TypeVar

from placer import phase_names
from placer.errors import PlacerError, listed
from placer.number_format import ms
from placer.result import Failed, Measured
from placer.train.steps.modes import UNTOUCHED, WHOLE, Mode, Placed, Untouched, Wanted
from search.online.interfaces import Answer, LiveStepLike, PlannerLike, Steps
from search.online.journal import Journal
from search.online.kept_results import KeptResults
from search.online.narrator import Narrator
from search.online.phases.adaptation import Adaptation
from search.online.phases.first_search import FirstSearch
from search.online.phases.joining import Joining
from search.online.phases.lost_devices import LostDevices
from search.online.phases.rest import Rest
from search.online.phases.split_search import SplitSearch
from search.online.phases.untouched_looks import compare_untouched
from search.online.planners import Planners
from search.online.replan.planner_client import Planner
from search.online.replan.proposal import NoRoomError, PlanSettings, Proposal
from search.online.settings import OnlineSettings
from search.online.trials.trials import Trials
from search.online.trials.tried import LiveTrial

if TYPE_CHECKING:
    from placer.graph.op_graph import OpGraph
    from placer.graph.topology import Topology
    from placer.measure.store import Store

T = TypeVar("T")
FEWER = "pad batches to a few lengths (tf.data's bucket_by_sequence_length), and pass what else changes as tensors."
SEEN_EVERY_S = 0.05  # seconds between two steady steps that are sent to the script


class Controller:
    """The writer of one live step's script. `narrator` notes what the script decides."""

    def __init__(
        self,
        live: LiveStepLike,
        journal: Journal,
        settings: OnlineSettings,
        store: Store | None = None,
        clock: Callable[[], float] = time.perf_counter,
        planner: Callable[[OpGraph, Topology, PlanSettings], PlannerLike] = Planner,
    ) -> None:
        self.live, self.settings, self.clock = live, settings, clock
        self.narrator = narrator = Narrator(journal)
        self.planners: list[Planners] = []  # at most one; in a list, to be ended after the controller was dropped
        self.topology: Topology | None = None
        self.trials = Trials(live, narrator.say, self._report, settings.beat_untouched, clock)
        self._kept = KeptResults(store, live, narrator.say)
        self._is_calm = False  # whether the script waits only for a change of step times
        self._said_scattered = False
        self._is_going_over = False  # whether the search goes over to another signature, which is not captured yet
        self._stalled_s = 0.0  # seconds that the training stood still for this search
        self.is_captured = False  # whether `place` has captured the step
        self.generation = 0  # of the devices that the script itself joined again, so that it goes on with them
        self.lost = LostDevices(live, settings.probe_every, narrator.say, clock)
        self._joining = Joining(live, self.trials, narrator, self._look_for_lost, self._join)
        self._search = FirstSearch(self.trials, settings, narrator)
        self._splits = SplitSearch(self.trials, settings, narrator)
        self._rest = Rest(self.trials, settings, narrator, self._look_for_lost, clock)
        self._make_planner = planner
        self._given: Wanted | None = None
        self._unfound = settings.search or settings.adapt  # whether no search has ended yet

    def unseen(self, step_s: float) -> int:
        """Return how many of the next calls, of `step_s` seconds each, need not be sent to the script, because sending
        costs time between two steps. Never passes over a step at which something is due.
        """
        if not self._is_calm:
            return self._rest.unseen(step_s)
        return min(self.lost.due(self.narrator.step) - 1, int(SEEN_EVERY_S / step_s))

    @property
    def planner(self) -> Planners | None:
        """The planners that propose mappings; None while there is no search."""
        return self.planners[0] if self.planners else None

    @property
    def mode(self) -> Mode:
        """The incumbent: the mode of all calls except the few that measure other modes."""
        return self.trials.mode

    @property
    def step_s(self) -> dict[Mode, float]:
        """Seconds of a step by mode, all comparable."""
        return self.trials.step_s

    @property
    def tried(self) -> Sequence[LiveTrial]:
        """The trials so far."""
        return self.trials.tried.trials

    @property
    def best_single_s(self) -> float | None:
        """Seconds of a step with all ops on the fastest device, comparable with `step_s`; None while unknown."""
        return self.trials.best_single_s

    # Scripts.

    def script(self) -> Steps[None]:
        """The script from the first call on, until the step is left alone."""
        if (yield from self._joining.run()):
            yield from self._find()
            yield from self._keep()
        while True:
            yield UNTOUCHED

    def script_after_joining(self) -> Steps[None]:
        """The script after devices were lost or came back, when only the mode that runs is still built."""
        if self._is_going_over:
            yield from self.script_of_another()
        self.trials.start_anew(self.live.mode)
        there = self._there()
        if self._given is not None:
            yield from self._give_again(self._given, there)
        elif self._unfound and self._is_whole(there) and not self._rest.is_due:
            yield from self._find()
        elif self.planner is not None and self.settings.adapt and there:
            try:
                yield from self._place_anew(there)
            except PlacerError as error:
                self.narrator.say("error", f"no mapping was looked for on {listed(there)}: {error}")
        yield from self._keep()

    def script_of_another(self) -> Steps[None]:
        """The script after the program went over to another signature for good: searches again from the start."""
        self._is_going_over = True
        self.narrator.say("start", "nearly all steps are of another signature now: a mapping of that one is searched.")
        self._begin_anew()
        self.narrator.now(phase_names.STARTING)
        yield from self._joining.until_whole()
        yield from self.script()

    def _join(self, topology: Topology) -> None:
        self.topology, self._is_going_over = topology, False

    def _begin_anew(self) -> None:
        """Forget all that was found."""
        self._end_planner()
        self.trials.forget_all()
        self._search = FirstSearch(self.trials, self.settings, self.narrator)
        self._splits = SplitSearch(self.trials, self.settings, self.narrator)
        self._rest.nearest = None
        self._unfound, self._stalled_s = True, 0.0

    def _end_planner(self) -> None:
        if self.planner is not None:
            self.planner.close()
            self.planners.clear()

    def end_for_good(self) -> None:
        """Say that the step is left alone for good, in the only line about it on stderr, and stop the search."""
        self.narrator.say("alone", f"{self.live.name} runs untouched: {self.live.left_alone}.")
        self.stop_search()

    def stop_search(self) -> None:
        """Stop the search."""
        self.narrator.now(phase_names.LEFT_ALONE)
        self._end_planner()

    def place(self, mapping: Callable[[], Wanted]) -> Steps[None]:
        """The script that only places the mapping given. mapping: called once the step is captured and the devices are
        joined. Raises PlacerError if the mapping cannot run.
        """
        yield UNTOUCHED
        yield UNTOUCHED
        while not self.live.is_ready:
            yield UNTOUCHED
        self.narrator.now(phase_names.CAPTURING)
        self.live.capture()
        self.is_captured = True
        self.live.session.prepare()
        yield from self._joining.until_whole()
        self.topology = self.live.join()
        self.narrator.now(phase_names.BUILDING)
        self._given = given = mapping()
        placed = self.live.settle(self.live.build(given.op_devices, given.order, given.name, given.plan))
        if isinstance(placed, Failed):
            raise PlacerError(f"the mapping cannot run: {placed.detail}")
        self.trials.start_anew(placed)
        divided = "" if given.plan == WHOLE else f" {self.live.divided_in_words(given.plan)}."
        self.narrator.say("moved", f"placed by the mapping given: {self.trials.describe(placed)}.{divided}")
        yield from self._keep()

    def _give_again(self, given: Wanted, there: Sequence[str]) -> Steps[None]:
        """Build the mapping given again and move to it, if all its devices are there again."""
        assert self.topology is not None
        if {self.topology.names[d] for d in given.op_devices} <= set(there):
            work = self.live.background(lambda: self.live.build(given.op_devices, given.order, given.name, given.plan))
            placed = self.live.settle((yield from self._meanwhile(work)))
            if not isinstance(placed, Failed):
                self.trials.move(placed, (), "its devices are there")

    # The search.

    def _find(self) -> Steps[None]:
        """Find the best mapping. Continues an earlier search if a device was lost during that."""
        if self.planner is None:
            yield from self._plan()
        else:
            yield from self._meanwhile(self.planner.only(self._there()))
        if self.settings.search:
            try:
                yield from self._search_all()
            except NoRoomError as error:
                self.live.leave_alone(str(error).rstrip("."))
                yield UNTOUCHED
            except PlacerError as error:
                self.narrator.say("error", f"the search ended early, with {len(self.tried)} mappings measured: {error}")
            yield from self._search.settle()
            self._rest.consider(self.tried)
            if self.planner is not None:
                self.planner.keep({built.plan for built in self.trials.built})
        self._unfound = False

    def _search_all(self) -> Steps[None]:
        """Search mappings of the whole step. If a plan of splits is worth a try, the divided step gets half of the
        budget.
        """
        if self.planner is None or self.topology is None:
            return
        yield from self._splits.choose(self.topology)
        divided = self._splits.search
        if divided is not None:
            self._search.budget = max(1, self.settings.budget // 2)
        try:
            yield from self._search.run(self.planner[WHOLE])
        except NoRoomError as error:
            if divided is None:
                raise
            self.narrator.say("error", f"whole ops: {error}")
        if divided is not None and divided.plan not in self.planner:
            yield from self._plan(divided.plan)
        if divided is not None and divided.plan in self.planner:
            yield from divided.run(self.planner[divided.plan])

    def _profile(self, plan: int) -> Steps[OpGraph]:
        self.narrator.now(phase_names.PROFILING)
        work = self.live.background(self.live.profile if plan == WHOLE else lambda: self.live.profile(plan))
        if self.live.shares_cores:  # the training waits: side by side both would take twice as long, and be wrong
            begin_s = self.clock()
            graph, self.topology = work.result()
            self._stalled_s += self.clock() - begin_s
        else:
            graph, self.topology = yield from self._meanwhile(work)
        return graph

    def _plan(self, plan: int = WHOLE) -> Steps[None]:
        """Profile the step as plan of splits number `plan` divides it, and start its planner."""
        graph, topology = (yield from self._profile(plan)), self.topology
        assert topology is not None
        self.narrator.now(phase_names.PLANNING)
        planner = self._make_planner(graph, topology, self.settings.planned(plan))
        if self.planner is None:
            self.planners.append(Planners(planner))
        else:
            self.planner.add(plan, planner)
        self.narrator.say(
            "plan", f"{len(graph)} ops over {listed(topology.names)}: looking for a better mapping.",
            ops=len(graph), devices=len(topology),
        )  # fmt: skip
        try:
            yield from self._meanwhile(planner.start())
        except PlacerError as error:
            self.narrator.say("error", f"there is no plan: {error}")
            if plan == WHOLE:
                self._end_planner()
            elif self.planner is not None:
                self.planner.keep(())

    # Keeping it.

    def _keep(self) -> Steps[None]:
        """Run steady steps, and rest while no mapping comes near the untouched step. After a rest, search again from
        the start.
        """
        while True:
            if not self._rest.is_due:
                yield from self._watch()
            self._end_planner()
            self.narrator.now(phase_names.STEADY)
            yield from self._rest.run()
            self._begin_anew()
            yield from self._find()
            self._rest.searched(self._stalled_s + self.trials.lost_s)

    def _watch(self) -> Steps[None]:
        """Run steady steps until rest is due. Try mappings when the load changes."""
        self.narrator.now(phase_names.STEADY)
        adaptation = yield from self._adaptation()
        while True:
            self._is_calm = True
            try:
                step_s = yield self.mode
            finally:
                self._is_calm = False
            self.trials.latest_s.append(step_s)
            if adaptation is not None:
                try:
                    yield from adaptation.watch(step_s)
                    if self.trials.mode is UNTOUCHED and self._given is None and not adaptation.waits_for_favourite:
                        self._rest.consider_latest()
                except PlacerError as error:
                    self.narrator.say("error", f"no longer looking for better mappings, the training goes on: {error}")
                    adaptation = None
            if self._rest.is_due:
                return
            self._look_for_lost()
            if self.lost.join_anew_if_due(self.narrator.step):
                yield from self._go_on(adaptation)

    def _adaptation(self) -> Steps[Adaptation | None]:
        """Begin to adapt to loads. Returns None if adapting is off, if there is no planner or no device, or if the
        training cannot move to another mode.
        """
        there = self._there()
        may_move = self.trials.untouched_competes or (isinstance(self.mode, Placed) and len(there) > 1)
        if not (self.settings.adapt and self.planner is not None and there and may_move):
            return None
        probes = yield from self._meanwhile(self.live.background(self.live.load_probes))
        adaptation = Adaptation(
            self.trials, self.planner, probes, self.settings, self.narrator.say, lambda: self.narrator.step,
            self._search.trial_s, self.clock,
        )  # fmt: skip
        yield from adaptation.begin()
        return adaptation

    def _go_on(self, adaptation: Adaptation | None) -> Steps[None]:
        """After workers were joined again: build again what had been built, and go on."""
        self.generation = self.live.session.generation
        yield from self.trials.build_again(self.live.mode)
        if adaptation is not None:
            adaptation.probes.replace((yield from self._meanwhile(self.live.background(self.live.load_probes_again))))

    def look_aside(self) -> None:
        """After a call of a signature other than the main one: look for lost devices, and say once if hardly any call
        is of the main signature.
        """
        self._look_for_lost()
        is_searched = self.settings.search and self._unfound
        scattered = self.live.scattered if is_searched and not self._said_scattered else None
        if scattered is not None:
            self._said_scattered = True
            self.narrator.say(
                "scattered", f"{self.live.name}: only {scattered}, and no others advance the search; {FEWER}"
            )

    def _place_anew(self, there: Sequence[str]) -> Steps[None]:
        """Find a mapping for the devices that are there now. If all devices are there, try the former favourite."""
        assert self.planner is not None
        self.narrator.now(phase_names.SEARCHING)
        yield from self._meanwhile(self.planner.only(there))
        whole = self._is_whole(there)
        before = self.trials.favourite
        if whole and isinstance(before, Untouched):
            proposals = []
        elif whole and isinstance(before, Placed):
            predicted_s = self.trials.predicted_s(before)
            proposals = [Proposal(before.op_devices, before.order, predicted_s, before.name, before.plan)]
        elif len(there) > 1:
            proposals = yield from self._meanwhile(self.planner.propose(self.settings.replan, self.settings.replan_s))
        else:
            proposals = yield from self._meanwhile(self.planner.singles())
        made = yield from self.trials.enter(proposals, self.settings.quick)
        self.trials.leave_untouched()
        yield from compare_untouched(self.trials, self.settings)
        if whole:
            self.trials.favourite = before if isinstance(before, Untouched) else next(iter(made), None)
            self.narrator.say("back", f"all of {listed(there)} are there; on with {self.trials.describe(self.mode)}.")

    # Which devices are there, and results.

    def _meanwhile(self, future: Answer[T]) -> Steps[T]:
        return (yield from self.trials.meanwhile(future))

    def _report(self, trial: LiveTrial, first: bool) -> None:
        """Pass a result to the planner, the journal and the store."""
        if first and isinstance(trial.result, Measured):
            step_s = trial.result.step_s
            self.narrator.say("measured", f"{trial.name}: {ms(step_s, 1)} a step.", step_s=step_s, searcher=trial.name)
        if not trial.op_devices:
            return
        if self.planner is not None:
            self.planner.tell(trial.plan, [(trial.op_devices, trial.result)])
        if self._unfound:  # later results may be taken under a load, but the anchor's was taken before it
            self._kept.add(trial, self.tried)

    def _there(self) -> list[str]:
        devices = self.live.session.devices
        return [] if devices is None else list(devices.topology.names)

    def _is_whole(self, there: Sequence[str]) -> bool:
        return self.topology is not None and len(there) == len(self.topology)

    def _look_for_lost(self) -> None:
        self.lost.check(self.narrator.step)
