"""Adaptation: step times show that the load changed, probes show what slowed, the planner proposes, a race decides.

steps  ~~~~~~~~~~|‾‾‾‾‾‾‾|‾‾‾‾‾‾‾‾|‾‾‾‾‾‾‾|──A──|────────B────
                 load    alarm    probed  a quick proposal and mappings built before are tried; then more proposals
"""

from __future__ import annotations

import math
import time
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import replace
from statistics import median

from placer.devices.load.load_reading import LoadReading
from placer.number_format import ms
from placer.train.steps.modes import UNTOUCHED, Mode, Placed
from search.online.diagnose.change_detection import Change, ChangeTest
from search.online.diagnose.diagnosis import Backoff, BackoffSettings, Diagnosis
from search.online.diagnose.look_worth import LookCost
from search.online.diagnose.probe_budget import MeteredProbes
from search.online.diagnose.slowdown_monitor import SlowdownMonitor
from search.online.diagnose.step_level import StepLevel, is_clear
from search.online.interfaces import Probes, Steps
from search.online.phases.every import Every
from search.online.phases.look import Look
from search.online.phases.refinement import Refinement
from search.online.phases.single_devices import SingleDevices
from search.online.phases.untouched_looks import UntouchedLooks
from search.online.planners import Planners
from search.online.settings import OnlineSettings
from search.online.trials.trials import Say, Trials

READINGS = 3  # readings of the probes that say what slowed, a step apart
LATEST = 5  # latest steps, whose median is the current step time
LONG = 500  # steps after which the baseline is renewed
DRIFT = BackoffSettings(first=80, most=2000)  # steps between looks at a drift that find nothing
MOST_LOOKS = 1000  # steps that are remembered; an alarm counts back no further


class Adaptation:
    """Watches the steps of the incumbent, and finds another incumbent when the load has changed.

    The incumbent may be the untouched step, if that competes.
    """

    def __init__(
        self,
        trials: Trials,
        planner: Planners,
        probes: Probes,
        settings: OnlineSettings,
        say: Say,
        step: Callable[[], int],
        trial_s: float,
        clock: Callable[[], float] = time.perf_counter,
    ) -> None:
        """step: returns the number of calls so far. trial_s: seconds that one trial of the search cost. clock:
        seconds.
        """
        self.trials, self.planner, self.settings, self.say = trials, planner, settings, say
        self.probes = MeteredProbes(probes, clock)
        self._test = ChangeTest()
        self._backoff = Backoff()
        self._overlaps = False  # whether the steps that the test knows were timed without waiting for GPUs
        self._level = StepLevel()
        self._cost = LookCost(trial_s)
        self._step = step
        self._looked_at = deque([step()], maxlen=MOST_LOOKS)  # numbers of the steps seen; of short steps only some are
        self._probing, self._renewing = Every(settings.probe_every, step()), Every(LONG, step())
        self._untouched_looks = UntouchedLooks(trials, settings)
        self._refinement = Refinement(trials, planner, settings, step)
        self._drift = Backoff(DRIFT)  # when to look again at what makes steps drift
        self._returning = False
        self._single_devices = SingleDevices(trials)
        self._look = Look(trials, planner, settings)

    def begin(self) -> Steps[None]:
        """Learn what is normal."""
        self.monitor = SlowdownMonitor(self.probes, (yield from self._readings()))
        self.trials.step_s.setdefault(self.trials.mode, median(self.trials.latest_s))
        self._single_devices.learn()
        self._learn()

    def watch(self, step_s: float) -> Steps[None]:
        """Called after each step of the incumbent; mostly does nothing. Raises PlacerError if the planner has ended."""
        step = self._step()
        if self.trials.live.overlaps is not self._overlaps:  # timed differently now: no change of the load
            self._overlaps = not self._overlaps
            self._test.restart()
            self._level.forget()
            self.trials.go_on_with(self.trials.mode, [step_s])
        change = self._test.add(step_s)
        self.probes.stepped(step_s * (step - self._looked_at[-1]), self._level.unsolved)
        self._looked_at.append(step)
        self._level.settle(self.trials.latest_s)
        if change is not None:
            self._alarm(change)
        elif self._probing.passed(step) and self.probes.may_spend:
            self._probe()
        if self._returning:
            backoff, mode = self._backoff, self.trials.mode
            yield from self._adapt()
            if self.trials.mode is not mode:
                self._backoff = backoff
        elif self._backoff.due(step) and self.probes.may_spend:
            mode, lost_s = self.trials.mode, self.trials.lost_s
            yield from self._adapt()
            if self.trials.mode is mode:
                self.probes.pay(self.trials.lost_s - lost_s)
        elif self._refinement.is_answered:
            yield from self._look_again()
        elif self._refinement.is_due and self._is_loaded and not self._backoff.is_urgent and self.probes.may_spend:
            yield from self._ask_again()
        elif self._may_return and self._untouched_looks.is_due(step):
            yield from self._look_at_untouched()

    def _alarm(self, change: Change) -> None:
        before = self._looked_at[max(0, len(self._looked_at) - 1 - change.steps)]
        steps = max(change.steps, self._looked_at[-1] - before)
        self._level.changed(change.ratio)
        if is_clear(change.ratio):
            self.probes.renew()
        self._gone_or_alarmed(not change.slower)
        self.monitor.alarmed()
        self.say(
            "alarm", f"steps take {change.ratio:.2f}x as long since {steps} steps.", ratio=change.ratio, steps=steps,
        )  # fmt: skip

    def _gone_or_alarmed(self, eased: bool) -> None:
        """Act at once if a load has `eased` and the favourite can run, because the favourite is built and cheap to try.
        Otherwise, and while the backoff waits, the backoff says when to act.
        """
        if eased and self._may_return and self._step() >= self._backoff.ready_step:
            self._returning = True
        else:
            self._backoff = self._backoff.alarmed(self._step())

    @property
    def waits_for_favourite(self) -> bool:
        """Whether the untouched step runs in place of a built favourite, which is the faster one without the load."""
        return self.trials.mode is UNTOUCHED and self._may_return

    @property
    def _may_return(self) -> bool:
        """Whether the favourite is not the incumbent, and can run."""
        favourite = self.trials.favourite
        return favourite is not self.trials.mode and (favourite is UNTOUCHED or favourite in self.trials.current)

    @property
    def _has_all(self) -> bool:
        """Whether nothing is left to win back: by the changes that were looked at, steps are faster than when a mapping
        was last chosen, and there is no favourite to go back to.
        """
        return self._level.unsolved < 1 and not self._may_return

    def _look_at_untouched(self) -> Steps[None]:
        if (yield from self._untouched_looks.look()):
            self._level.solved()
            # Now a mapping is faster again: the load on its devices has gone, which probes need not have seen.
            if isinstance(self.trials.mode, Placed):
                self.monitor.act_on((yield from self._readings()))
        self._untouched_looks.later(self._step())
        self._learn()

    def _probe(self) -> None:
        """Check whether a load has drifted, eased or grown; while there is none, learn what is normal."""
        if self._backoff.is_urgent:
            return
        is_placed = isinstance(self.trials.mode, Placed)
        if is_placed and is_clear(self._test.drift) and self._step() >= self._drift.ready_step:
            self._look_at_drift(self._test.drift)
        elif self.monitor.is_slow:
            if self.monitor.has_eased():
                self._gone_or_alarmed(True)
            elif is_placed:
                self._look_at_growth()
        elif not self.monitor.is_sure or self._renewing.passed(self._step()):
            self.monitor.calm()

    def _look_at_growth(self) -> None:
        """Raise an alarm if the load has grown further since a mapping was found for it. Steps show that soonest, and
        probes show that it is this load.
        """
        trials = self.trials
        if len(trials.latest_s) < LATEST or self._overlaps:  # known times are of steps that waited for GPUs
            return
        ratio = median(list(trials.latest_s)[-LATEST:]) / trials.known_s(trials.mode)
        if ratio > 1 and is_clear(ratio) and self.monitor.has_grown():
            self._level.changed(ratio)
            self.monitor.alarmed()
            self.say("alarm", f"the load grows: steps have come to take {ratio:.2f}x as long.", ratio=ratio)
            self._backoff = self._backoff.at_once(self._step())
            self._learn()

    def _look_at_drift(self, drift: float) -> None:
        """Raise an alarm if a load makes steps drift slowly. Steps also drift if the whole machine slows; probes tell
        the two apart. Looks that find nothing are further and further apart.
        """
        found = self.monitor.diagnose([self.monitor.take()], 1.0)
        if found.may_gain and found.has_eased == (drift < 1):
            self._level.changed(drift)
            self.monitor.alarmed()
            self.say("alarm", f"steps have come to take {drift:.2f}x as long, {found.why}.", ratio=drift)
            self._gone_or_alarmed(drift < 1)
            self._learn()
        else:
            self._drift = self._drift.missed(self._step())

    def _learn(self) -> Change | None:
        """Restart the change test with the incumbent's latest steps. Returns the first change among these steps; None
        if there is none.
        """
        self._drift = Backoff(DRIFT)
        self._test.restart()
        found = [self._test.add(step_s) for step_s in list(self.trials.latest_s)]
        return next((change for change in found if change is not None), None)

    def _adapt(self) -> Steps[None]:
        """Find out what slowed, and whether another mapping is worth moving to."""
        returning, self._returning = self._returning, False
        if not returning and self._level.has_passed(self.trials.latest_s):
            self._pass_over()
            return
        self._refinement.drop()
        ratio = self._level.looked_at()
        readings, is_placed = (yield from self._readings()), isinstance(self.trials.mode, Placed)
        found = self._diagnosed(readings, ratio)
        self.trials.renew(list(self.trials.latest_s)[-LATEST:])
        if found.kind == "nothing" and self._level.is_unsolved and is_placed and not self.settings.dry_run:
            names, known = self.monitor.baseline.device_s, self.monitor.acted_on.load.devices
            found = yield from self._single_devices.diagnose(names, known, self._level.unsolved)
        if not found.may_gain and (is_placed or not self._level.is_unsolved):
            yield from self._nothing_to_gain(found, readings)
        elif not self._may_pay(found):
            self._cost.refused()
            self._postpone(f"{found.why}; a look at other mappings would cost more than it may gain")
        else:
            yield from self._act_on(found, readings)

    def _pass_over(self) -> None:
        """Drop a change that has gone again by itself, and the load that was taken for its reason."""
        self._level.passed()
        self.monitor.passed()
        self.trials.renew(list(self.trials.latest_s)[-LATEST:])
        self._backoff = self._backoff.postponed(self._step(), pending=False)

    def _act_on(self, found: Diagnosis, readings: Sequence[LoadReading]) -> Steps[None]:
        """Look at other mappings, or say what would be looked at."""
        before = self.monitor.acted_on
        self.monitor.act_on(readings, found)
        if self.settings.dry_run:
            yield from self._only_say(found)
            return
        lost_s, has_all = self.trials.lost_s, self._has_all
        if not (yield from self._place_anew(found)) and not has_all:
            self.monitor.acted_on = before
        cost_s = self.trials.lost_s - lost_s
        self._refinement.begin_anew(cost_s)
        self._cost.took(cost_s)

    def _diagnosed(self, readings: Sequence[LoadReading], ratio: float) -> Diagnosis:
        """Return what changed. The untouched step need not run on the devices, so that its pace says nothing about
        them; each clear change of its pace is a reason to look at mappings.
        """
        if isinstance(self.trials.mode, Placed):
            return self.monitor.diagnose(readings, ratio)
        found = self.monitor.diagnose(readings, 1.0)
        # The devices became faster alike. The untouched step need not have, so going back to a mapping may gain.
        if found.kind == "alike" and found.has_eased and self._may_return:
            found = replace(found, kind="uneven")
        said = f"untouched steps take {ratio:.2f}x as long"
        return replace(found, why=said if found.kind == "nothing" else f"{said}, {found.why}")

    def _may_pay(self, found: Diagnosis) -> bool:
        """Whether to look at mappings. Always True if the load has eased and the favourite can run, because it is built
        and costs little to try, and for the untouched step, because something other than a device may slow it.
        """
        trials, mode = self.trials, self.trials.mode
        if (found.has_eased and self._may_return) or not isinstance(mode, Placed):
            return True
        ratio = max(found.step_ratio, self._level.ratio_now(trials.latest_s))  # small changes add up
        return self._cost.may_pay(replace(found, step_ratio=ratio), trials.known_s(mode), self.settings.horizon)

    @property
    def _is_loaded(self) -> bool:
        """Whether a load is known, and the incumbent is a mapping that may be replaced."""
        return self.monitor.is_slow and isinstance(self.trials.mode, Placed) and not self.settings.dry_run

    def _ask_again(self) -> Steps[None]:
        """Ask for a better mapping under the current load."""
        self.monitor.look_again((yield from self._readings()))
        self.trials.renew(list(self.trials.latest_s)[-LATEST:])
        if isinstance(self.trials.mode, Placed):
            self._refinement.ask(self.monitor.load, self.trials.mode)

    def _look_again(self) -> Steps[None]:
        """Try the better mapping that was asked for."""
        mode = self.trials.mode
        yield from self._refinement.look()
        if self.trials.mode is not mode:
            self._level.solved()
            self._learn()

    def _nothing_to_gain(self, found: Diagnosis, readings: list[LoadReading]) -> Steps[None]:
        """After a change from which no other mapping can gain: try the untouched step if steps clearly slowed, and go
        on with it if it is faster. Otherwise change nothing, and say why.
        """
        before, lost_s, begin = self.trials.mode, self.trials.lost_s, self._step()
        if (yield from self._untouched_looks.try_instead(found)):
            self.monitor.act_on(readings, found)
            self.planner.slowed(self.monitor.load.devices, self.monitor.load.links)
            self._conclude(found, before, self.trials.lost_s - lost_s, begin)
            return
        only_probed = found.step_ratio == 1.0 and isinstance(self.trials.mode, Placed)  # probes said the load eased
        if found.kind == "alike":
            self.monitor.take_for_usual(readings)
            self._level.solved()
            self._postpone(f"{found.why}: moving gains nothing")
        elif only_probed:
            self.monitor.take_load_from(readings)
            self._postpone(f"{found.why}: going on")
        else:
            self._stay(f"{found.why}: going on")

    def _readings(self) -> Steps[list[LoadReading]]:
        readings = [self.probes.take()]
        while len(readings) < READINGS:
            self.trials.latest_s.append((yield self.trials.mode))
            readings.append(self.probes.take())
        return readings

    def _place_anew(self, found: Diagnosis) -> Steps[bool]:
        """Look for a mapping under the current load. Returns whether the training moved to another mode."""
        trials, before, spent_s, begin = self.trials, self.trials.mode, self.trials.lost_s, self._step()
        yield from self._look.run(self.monitor.load, returns=found.has_eased and self._may_return)
        return self._conclude(found, before, trials.lost_s - spent_s, begin)

    def _conclude(self, found: Diagnosis, before: Mode, cost_s: float, begin: int) -> bool:
        trials, now_s = self.trials, self.trials.known_s(self.trials.mode)
        gain_s = trials.known_s(before) - now_s
        moved = trials.mode is not before and gain_s > 0
        if moved:
            pays_back = max(1, math.ceil(cost_s / gain_s))
            self._level.solved()
            self._backoff = self._backoff.moved(begin, pays_back)
            self._untouched_looks.later(self._step())
            self._say_moved(found, cost_s, gain_s / trials.known_s(before), pays_back)
        else:
            if self._has_all:
                self._level.solved()
            self._stay(f"{found.why}; nothing that was tried is better than {ms(now_s, 1)} a step: staying")
        load, is_whole = self.monitor.load, not trials.live.session.missing
        if is_whole and not (load.devices or load.links) and found.has_eased and trials.favourite is not UNTOUCHED:
            trials.favourite = trials.mode  # an untouched favourite stays: what slows it may be no load on a device
        trials.forget(self.settings.kept)
        change = self._learn()
        if change is not None:  # the load changed during the look at other modes
            self._alarm(change)
        return moved

    def _say_moved(self, found: Diagnosis, cost_s: float, gain: float, pays_back: int) -> None:
        self.say(
            "moved", f"{found.why}; {self.trials.describe(self.trials.mode)} gains {gain:.0%} a step; finding it cost "
            f"{cost_s:.2g} s, pays back in {pays_back} steps.",
            cost_s=cost_s, gain=gain, pays_back_steps=pays_back,
        )  # fmt: skip

    def _only_say(self, found: Diagnosis) -> Steps[None]:
        """Only report what would be tried."""
        hopes = yield from self._look.hopes(self.monitor.load)
        self._stay(f"{found.why}; would try {' and '.join(hopes) or 'nothing else'}, but only watches")

    def _stay(self, why: str) -> None:
        """Change nothing; look again after a while if steps have clearly changed."""
        self._backoff = self._backoff.missed(self._step())
        if self._level.is_unsolved:
            self._backoff = self._backoff.alarmed(self._step())
        self.say("stayed", f"{why}.")

    def _postpone(self, why: str) -> None:
        """Change nothing, because a look would not pay; the next one comes later."""
        self._backoff = self._backoff.postponed(self._step(), pending=self._level.is_unsolved)
        self.say("stayed", f"{why}.")
