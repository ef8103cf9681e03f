"""Rest: if no mapping comes near the untouched step, a training leaves its devices, and tries again when that may have
changed.

untouched  ~~~~~~~~~~|  at rest: nothing placed, no probes, no planner, no cluster   |~~~~~|  at rest, for longer ...
                     left                                         steps change, or a long time is over
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Sequence
from statistics import median

from placer import phase_names
from placer.errors import PlacerError, listed
from placer.result import Measured
from placer.train.steps.modes import UNTOUCHED, Placed
from search.online.diagnose.change_detection import ChangeTest
from search.online.interfaces import Steps
from search.online.narrator import Narrator
from search.online.phases.retry_later import RetryLater
from search.online.replan.proposal import Proposal
from search.online.settings import OnlineSettings
from search.online.trials.trials import LATEST, Trials
from search.online.trials.tried import LiveTrial

FAR = 1.5  # a mapping that takes this many times as long as the untouched step is not near
NEARER = 0.9  # share of FAR below which a look counts a mapping as near: few steps tell little, and a search follows
SEEN_EVERY_S = 0.02  # seconds between two steps at rest that are sent to the script
SHARE = 0.03  # share of the time at rest that looks may cost
FIRST_SPENT_S = 2.0  # seconds that the first look is assumed to cost, and every look at least
SOONER, LATER = 1 / 8, 8.0  # factors of a wait: if steps became as slow as the mapping, and if nothing changed
MOST_DOUBLINGS = 8


class Rest:
    """Decides when a training may rest, and when it looks at mappings again: the less looks bring, the later."""

    def __init__(
        self,
        trials: Trials,
        settings: OnlineSettings,
        narrator: Narrator,
        look_for_lost: Callable[[], None],
        clock: Callable[[], float] = time.perf_counter,
    ) -> None:
        """look_for_lost: called while the devices cannot be left. clock: seconds."""
        self.trials, self.settings, self._narrator = trials, settings, narrator
        self._look_for_lost, self._clock = look_for_lost, clock
        self.nearest: LiveTrial | None = None  # the fastest mapping while rest is due or goes on, else None
        self.is_calm = False  # whether the training waits only for a change of step times, or for time to pass
        self._margin = 0.0  # step time of `nearest` divided by that of the untouched step
        self._usual_s: float | None = None  # median step at rest since `_margin` was measured
        self._spent_s = FIRST_SPENT_S  # seconds that the last look cost, with the search that followed it, if any
        self._vain = 0  # looks in a row that found no mapping near, or only one that a search did not confirm
        self._leaving = RetryLater(clock)  # when to try again to leave the devices

    @property
    def is_due(self) -> bool:
        """Whether the training is to rest, or is at rest."""
        return self.nearest is not None

    def consider(self, known: Sequence[LiveTrial]) -> None:
        """Let rest be due if all `known` mappings, measured beside the untouched step, are far slower than that step;
        without adaptation, if they are slower at all.
        """
        trials, settings = self.trials, self.settings
        measured = [(t.result.step_s, t) for t in known if t.op_devices and isinstance(t.result, Measured)]
        here_s = trials.step_s.get(UNTOUCHED)
        stays = isinstance(trials.mode, Placed) or not trials.untouched_competes
        if not measured or here_s is None or stays or settings.dry_run or trials.live.session.missing:
            return
        step_s, nearest = min(measured, key=lambda one: one[0])
        if step_s >= (FAR if settings.adapt else 1.0) * here_s:
            self.nearest, self._margin, self._usual_s = nearest, step_s / here_s, None

    def consider_latest(self) -> None:
        """As `consider`, with what was measured since the load last changed."""
        known = [
            LiveTrial(mode.name, mode.op_devices, Measured(step_s), None, mode.plan, order=mode.order)
            for mode, step_s in self.trials.step_s.items()
            if isinstance(mode, Placed)
        ]
        self.consider(known)

    def run(self) -> Steps[None]:
        """Rest until a mapping has come near. A look only samples a few steps of the nearest mapping; it is no race."""
        self.trials.free()
        self._leaving = RetryLater(self._clock)
        while True:
            yield from self._wait()
            if (yield from self._look()):
                self.nearest = None
                return
            self._count_vain()
            self.trials.free()

    def searched(self, cost_s: float) -> None:
        """Note that a search, which cost `cost_s` seconds, followed the last look. If rest is due again, the look was
        in vain.
        """
        self._spent_s += cost_s
        if self.is_due:
            self._count_vain()
        else:
            self._vain = 0

    def unseen(self, step_s: float) -> int:
        """Return how many of the next calls, of `step_s` seconds each, need not be sent to the script."""
        return int(SEEN_EVERY_S / step_s) if self.is_calm else 0

    def _count_vain(self) -> None:
        self._vain = min(self._vain + 1, MOST_DOUBLINGS)

    def _wait(self) -> Steps[None]:
        """Run untouched steps until it is time to look."""
        begin_s, test, changed = self._clock(), ChangeTest(), False
        latest_s = self.trials.latest_s = deque(maxlen=LATEST)
        is_left = self._leave()
        while True:
            self.is_calm = is_left
            try:
                latest_s.append((yield UNTOUCHED))
            finally:
                self.is_calm = False
            if not is_left:
                self._look_for_lost()
                is_left = self._leaving.is_due and self._leave()
            changed = test.add(latest_s[-1]) is not None or changed
            if len(latest_s) < LATEST:
                continue
            self._usual_s = self._usual_s or median(latest_s)
            slowed = median(latest_s) / self._usual_s
            if self.settings.adapt and self._clock() - begin_s >= self._patience_s(slowed, changed):
                return

    def _patience_s(self, slowed: float, changed: bool) -> float:
        """Seconds of rest before the next look, so that looks take a bounded share of the training's time."""
        wait_s = self._spent_s / SHARE * 2.0**self._vain
        if slowed >= self._margin:
            return SOONER * wait_s
        return wait_s if changed else LATER * wait_s

    def _leave(self) -> bool:
        """Leave the devices, unless something else needs them. Returns whether they are left."""
        live = self.trials.live
        why = self._leaving.attempt(live.rest)
        devices = live.session.devices
        names = listed(devices.topology.names) if devices is not None else "the devices"
        far = f"the fastest mapping takes {self._margin:.1f}x as long as the untouched step"
        if why is None:
            self._narrator.say("left", f"{names} are left: {far}. They are joined again where that may have changed.")
        elif self._leaving.is_news(why):
            self._narrator.say("left", f"nothing is tried any more for now: {far}. {names} stay joined: {why}.")
        return why is None

    def _look(self) -> Steps[bool]:
        """Join the devices again, and try a few steps of the nearest mapping. Returns whether it is near now."""
        trials, live = self.trials, self.trials.live
        assert self.nearest is not None
        self._narrator.now(phase_names.LOOKING_AGAIN)
        lost_s, begin_s = trials.lost_s, self._clock()
        try:
            yield from trials.background(live.session.prepare)
            while live.session.missing:  # other wrapped steps go on without them; a comparison needs all
                yield UNTOUCHED
                self._look_for_lost()
            begin_s = self._clock()
            live.wake()
            self._narrator.say("joined", "the devices are joined again, to see whether a mapping has come near.")
            joined_s = self._clock() - begin_s
            yield from trials.enter([self._proposal(self.nearest)], self.settings.quick)
        except PlacerError as error:
            self._narrator.say("error", f"the devices were not joined again: {error}")
            joined_s = self._clock() - begin_s
        self._spent_s = max(FIRST_SPENT_S, joined_s + trials.lost_s - lost_s)
        self._narrator.now(phase_names.STEADY)
        here_s, best = trials.step_s.get(UNTOUCHED), trials.fastest(trials.built)
        if best is None or here_s is None:
            return False
        if trials.known_s(best) < NEARER * FAR * here_s:
            return True
        self._margin, self._usual_s = trials.known_s(best) / here_s, None
        return False

    @staticmethod
    def _proposal(trial: LiveTrial) -> Proposal:
        predicted_s = trial.predicted_s if trial.predicted_s is not None else float("inf")
        return Proposal(trial.op_devices, trial.order, predicted_s, trial.name, trial.plan)
