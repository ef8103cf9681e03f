"""The plan of an online placement: what to measure next, by all that was measured, the load, and the devices in use."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from operator import itemgetter

from placer.errors import BadInputError, PlacerError, listed
from placer.graph.coarsen import coarsen
from placer.graph.op_graph import OpGraph
from placer.graph.topology import Topology
from placer.result import Failed, Measured, Result
from search.initial.nearly_singles import nearly_singles
from search.online.replan.load import Load
from search.online.replan.proposal import NoRoomError, OpDevices, PlanSettings, Proposal
from search.problem.problem import Placement, Problem
from search.problem.searcher import Stop, never
from search.session.prediction import Prediction
from search.session.refusals import Refusals
from search.session.session import SearchSession

RULES = ("heft", "expert")  # the mapping of each is worth a measurement if it is predicted to be nearly as good
NEARLY = 1.1
FAR = 1.3  # a mapping predicted this many times slower than the best costs the training more than it teaches
MOST_CALIBRATED = 24  # results that a calibration replays: the single devices, then the fastest
AS_PROFILED = Load()


class Replanner:
    """Proposes mappings of one step while it trains, and learns their results.

    A result counts under the load at which it was measured, and counts again when that load comes back. Under a new
    load, predictions take the costs known without load, multiplied by the factors of the load. Raises BadInputError for
    an unknown searcher, and if the graph cannot be placed.
    """

    def __init__(
        self,
        graph: OpGraph,
        topology: Topology,
        settings: PlanSettings | None = None,
        clock: Callable[[], float] = time.perf_counter,
    ) -> None:
        self.graph = graph
        self.topology = topology
        self.settings = settings or PlanSettings()
        self.clock = clock
        self.names = topology.names
        self.load = AS_PROFILED
        self.ended: str | None = None
        self._told: dict[Load, dict[OpDevices, Result]] = {AS_PROFILED: {}}
        self._views: dict[tuple[tuple[str, ...], Load], _View] = {}
        self._sessions: dict[tuple[tuple[str, ...], Load], SearchSession] = {}
        self._failures: list[Failed] = []  # for lack of memory, under any load
        self._refused = Refusals()  # of the last `propose`
        SearchSession(self.settings.searcher, self._view().problem)

    def singles(self) -> list[Proposal]:
        """Return for each device in use a mapping of all that it can run, if that fits; predicted fastest first."""
        view = self._view()
        singles = (*view.problem.of_variables.singles(), *nearly_singles(view.problem))
        found = [self._proposal(view, placement, "single") for placement in singles]
        fitting = [p for p in found if view.prediction.lack_of(self._within(view, p.op_devices)) is None]
        return [self._ordered(view, p) for p in _best_first(fitting)]

    def tell(self, measured: Sequence[tuple[OpDevices, Result]]) -> None:
        """Learn the results of mappings, proposed or not, under the current load. The last result of a mapping counts.

        Raises BadInputError for a mapping of another graph.
        """
        for devices, _ in measured:
            self._check(devices)
        self._told[self.load].update(measured)
        self._failures += [result for _, result in measured if isinstance(result, Failed) and result.device]

    def propose(self, count: int, seconds: float | None = None) -> list[Proposal]:
        """Return up to `count` different mappings without a result under this load, best predicted first.

        If the searcher has nothing left, there are fewer, and `ended` says why. Mappings of the default searcher are
        joined by those of known rules, and left out if they are predicted to be far from the best. seconds: time after
        which the search returns what it has. Raises PlacerError if nothing fits into the memory of the devices in use,
        and NoRoomError if nothing that was asked fits, as simulated, and nothing ran yet.
        """
        if count < 1:
            return []
        if len(self.names) == 1:  # nothing to search
            return [single for single in self.singles() if single.op_devices not in self._told[self.load]][:count]
        end_s = math.inf if seconds is None else self.clock() + seconds
        self._refused = Refusals()
        view = self._view()
        found, self.ended = self._asked(view, self.settings.searcher, count, lambda: self.clock() >= end_s)
        if not self.settings.is_chosen:
            if all(len(set(devices)) == 1 for devices, _ in self._measured(view)):
                found = self._with_rules(view, found, count)
            found = _best_first(self._worthwhile(view, found))
        if not found:
            self._check_room(view)
        return [self._ordered(view, proposal) for proposal in found]

    def _check_room(self, view: _View) -> None:
        """Raise NoRoomError if nothing ran yet, and what was asked lacks memory."""
        if self._refused.nearest is not None and not any(isinstance(r, Measured) for _, r in self._measured(view)):
            raise NoRoomError(f"{self._refused.none_fits()}.")

    def predict(self, devices: OpDevices) -> float:
        """Return the predicted seconds of a step under the current load; infinity if one of `devices` is not in use.

        Raises BadInputError for a mapping of another graph.
        """
        self._check(devices)
        view = self._view()
        return view.prediction.step_s_of(self._within(view, devices)) if view.has(devices) else math.inf

    def slowed(self, device_factor: Mapping[str, float], link_factor: Mapping[tuple[str, str], float]) -> None:
        """Set the load: the factors by which devices and links now take longer than profiled, 1 for those left out.

        If the load was there before, what was measured under it counts again. Raises BadInputError for an unknown
        device, and unless all factors are positive and finite.
        """
        load = Load.of(self.topology, device_factor, link_factor)
        self.load = next((known for known in self._told if known.is_like(load)), load)
        self._told.setdefault(self.load, {})
        if self.load != AS_PROFILED:  # more may have been learned without load since
            self._views = {key: view for key, view in self._views.items() if key[1] == AS_PROFILED}
            self._sessions = {key: session for key, session in self._sessions.items() if key[1] == AS_PROFILED}
        self.ended = None

    def only(self, names: Sequence[str]) -> None:
        """Set the devices in use. What was measured on other devices counts again when these are in use again.

        Raises BadInputError for an unknown device, for no device, and if the step cannot run on these devices alone.
        """
        unknown = [name for name in names if name not in self.topology.index]
        if unknown or not names:
            what = f"{listed(unknown)} not in the topology" if unknown else "no device left"
            raise BadInputError(f"a plan for {what}; name some of {listed(self.topology.names)}.")
        before, self.names = self.names, tuple(name for name in self.topology.names if name in names)
        try:
            _ = self._view().problem
        except PlacerError as error:
            left, self.names = listed(self.names), before
            raise BadInputError(f"the step cannot run on {left} alone: {error}") from None
        self.ended = None

    # Predictions.

    def _view(self) -> _View:
        return self._viewed(self.names, self.load)

    def _viewed(self, names: tuple[str, ...], load: Load) -> _View:
        """Return the view of the devices `names` under `load`, calibrated by all that was measured there."""
        view = self._views.get((names, load)) or self._begun(names, load)
        measured = self._measured(view)
        if len(measured) != view.knows:
            view = replace(view, prediction=view.prediction.calibrated_of(_telling(measured)), knows=len(measured))
        warned = view.prediction.warned(self._failures)
        if warned is not view.prediction:
            view = replace(view, prediction=warned)
        self._views[names, load] = view
        return view

    def _begun(self, names: tuple[str, ...], load: Load) -> _View:
        """Begin a view: under a load from the view without load, for some of the devices from the calibration of all,
        otherwise from the profile.
        """
        if load != AS_PROFILED:
            known = self._viewed(names, AS_PROFILED)
            return replace(known, load=load, prediction=load.on(known.prediction), knows=0)
        topology = self.topology.narrowed(names)
        groups = coarsen(self.graph, self.settings.groups, topology)
        prediction = Prediction.profiled(groups, topology, self.settings.headroom)
        view = _View(tuple(self.topology.index[name] for name in names), load, prediction, 0)
        if names == self.topology.names:
            return view
        whole = self._viewed(self.topology.names, load).prediction.predictor.calibration
        factors = tuple(whole.device_factor[d] for d in view.devices)
        predictor = replace(prediction.predictor, given=replace(whole, device_factor=factors))
        return replace(view, prediction=replace(prediction, predictor=predictor), knows=len(self._measured(view)))

    def _measured(self, view: _View) -> list[tuple[OpDevices, Result]]:
        """Return the results under the view's load of mappings on its devices, by their indices in the view."""
        told = self._told[view.load].items()
        return [(self._within(view, devices), result) for devices, result in told if view.has(devices)]

    def _within(self, view: _View, devices: OpDevices) -> OpDevices:
        if view.is_whole:
            return devices
        place = {d: i for i, d in enumerate(view.devices)}
        return tuple([place[d] for d in devices])

    def _check(self, devices: OpDevices) -> None:
        if len(devices) != len(self.graph) or not set(devices) <= set(range(len(self.topology))):
            raise BadInputError(
                f"the mapping is of {len(devices)} ops; this plan is for {len(self.graph)} on "
                f"{listed(self.topology.names)}. Carry it over first."
            )

    # Proposals.

    def _asked(self, view: _View, name: str, count: int, stop: Stop = never) -> tuple[list[Proposal], str | None]:
        """Return up to `count` proposals of the searcher `name`, and why there are no more."""
        session = self._informed(view, name)
        session.searcher.stop = stop
        before, noted = session.refused.count, len(session.notes)
        asked = session.ask(count)
        if session.refused.count > before:
            self._refused = session.refused
        proposals = [self._proposal(view, view.problem.placement(mapping), name) for mapping in asked]
        if proposals:
            proposals[0] = replace(proposals[0], notes=tuple(session.notes[noted:]))
        return proposals, session.ended if asked or not session.refusals else session.refusals

    def _informed(self, view: _View, name: str) -> SearchSession:
        """Return the session of the view's devices and load, told everything that was measured.

        Before anything ran, predictions of single devices stand in for results. The session is kept only if something
        ran, and if `name` is the settings' searcher and not a rule.
        """
        problem, prediction = view.problem, view.prediction
        known = [(prediction.placement(devices), result) for devices, result in self._measured(view)]
        ran = any(isinstance(result, Measured) for _, result in known)
        if not ran:
            known += [(p, Measured(prediction.step_s_of(prediction.op_devices(p)))) for p in problem.singles()]
        key = (tuple([self.topology.names[d] for d in view.devices]), view.load)
        kept = ran and name == self.settings.searcher
        session = self._sessions.get(key) if kept else None
        session = session or SearchSession(
            name, problem, seed=self.settings.seed, lack=lambda mapping: self._view().prediction.lack(mapping)
        )
        if kept:
            self._sessions[key] = session
        session.recalibrate(problem)
        session.searcher.withdraw()  # what was proposed and never measured
        session.tell((problem.mapping(placement), result) for placement, result in known if placement is not None)
        return session

    def _with_rules(self, view: _View, searched: list[Proposal], count: int) -> list[Proposal]:
        """Return `searched`, its last proposals replaced by mappings of known rules and single devices that have no
        result yet and are predicted to be nearly as good.

        These take at most half of `count`, or the places that `searched` leaves free. The best of these is never left
        out if it is predicted to be better than all of `searched`.
        """
        best_s = min((p.predicted_s for p in searched), default=math.inf)
        known = self._told[view.load].keys() | {p.op_devices for p in searched}
        rules = [p for name in RULES for p in self._asked(view, name, 1)[0]] + self.singles()
        new = {p.op_devices: p for p in rules if p.op_devices not in known and p.predicted_s <= NEARLY * best_s}
        chosen = _best_first([*new.values()])
        room = max(count // 2, count - len(searched), int(bool(chosen) and chosen[0].predicted_s < best_s))
        chosen = chosen[:room]
        return [*chosen, *searched[: count - len(chosen)]]

    def _worthwhile(self, view: _View, found: list[Proposal]) -> list[Proposal]:
        """Leave out proposals predicted to be far from the best of `found`, measured mappings and single devices."""
        known = [devices for devices, result in self._measured(view) if isinstance(result, Measured)]
        known += [view.prediction.op_devices(placement) for placement in view.problem.singles()]
        known_s = view.prediction.predictor.step_s(known).tolist() if known else []
        predicted_s = [*(p.predicted_s for p in found), *known_s]
        kept = [p for p in found if p.predicted_s <= FAR * min(predicted_s)]
        if len(kept) < len(found):
            self.ended = self.ended or f"what is left is predicted over {FAR:g} times slower than the best."
        return kept

    def _proposal(self, view: _View, placement: Placement, searcher: str) -> Proposal:
        """Return a proposal without its run order, which takes as long as many predictions."""
        devices = view.prediction.op_devices(placement)
        return Proposal(view.whole(devices), (), view.prediction.step_s_of(devices), searcher, self.settings.plan)

    def _ordered(self, view: _View, proposal: Proposal) -> Proposal:
        return replace(proposal, order=tuple(view.prediction.order_of(self._within(view, proposal.op_devices))))


@dataclass(frozen=True)
class _View:
    """The prediction for some of the devices, under one load.

    devices: their indices in the whole topology. knows: how many results the prediction is calibrated by.
    """

    devices: tuple[int, ...]
    load: Load
    prediction: Prediction
    knows: int

    @property
    def problem(self) -> Problem:
        return self.prediction.problem

    @property
    def is_whole(self) -> bool:
        """Whether indices here are those of the whole topology."""
        return self.devices == tuple(range(len(self.devices)))

    def has(self, devices: OpDevices) -> bool:
        return set(devices) <= set(self.devices)

    def whole(self, devices: OpDevices) -> OpDevices:
        """Return a mapping on the view's devices with their indices in the whole topology."""
        return devices if self.is_whole else tuple([self.devices[d] for d in devices])


def _best_first(proposals: Sequence[Proposal]) -> list[Proposal]:
    return sorted(proposals, key=lambda p: p.predicted_s)


def _telling(measured: Sequence[tuple[OpDevices, Result]]) -> list[tuple[OpDevices, Result]]:
    """Return those of the `measured` results that a calibration replays."""
    ran = [(len(set(devices)) > 1, r.step_s, devices, r) for devices, r in measured if isinstance(r, Measured)]
    return [(devices, result) for *_, devices, result in sorted(ran, key=itemgetter(0, 1, 2))[:MOST_CALIBRATED]]
