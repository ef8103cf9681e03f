"""Adaptation: step times show that the load changed, probes what slowed, the planner proposes, and a race decides.

steps  ~~~~~~~~~~|‾‾‾‾‾‾‾|‾‾‾‾‾‾‾‾|‾‾‾‾‾‾‾|──A──|────────B────
                 load    alarm    probed  what was built before is looked at; then what is new, as it gets built
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from dataclasses import replace
from statistics import median

from placer.devices.load.load_reading import LoadReading
from placer.figures import ms
from placer.result import Measured
from placer.train.steps.modes import UNTOUCHED, Mode, Placed
from search.online.diagnose.change_detection import Change, ChangeTest
from search.online.diagnose.diagnosis import Backoff, BackoffSettings, Diagnosis
from search.online.diagnose.probe_budget import MeteredProbes
from search.online.diagnose.slowdown_monitor import SlowdownMonitor, is_clear
from search.online.interfaces import Answer, Probes, Steps
from search.online.phases.refinement import Refinement
from search.online.phases.single_devices import SingleDevices
from search.online.planners import Planners
from search.online.replan.proposal import LEAST_PREDICTED, Proposal, below
from search.online.settings import OnlineSettings
from search.online.trials.trials import Say, Trials

READINGS = 3  # that say what slowed, a step apart
ROUNDS = 3  # at most, of an adaptation
REST = 12  # steps that nothing disturbs, after the first move
LATEST = 5  # steps that say how long one takes now
HASTE = 0.4  # share of the time of a plan in which the first proposal is to be there
LONG = 500  # steps after which the baseline is renewed, and the untouched step is looked at again
MOST_WAIT = 4 * LONG
DRIFT = BackoffSettings(first=80, most=MOST_WAIT)  # steps between looks at a drift that find nothing
CLEAR_GAIN = 0.15  # needs no second look
MOST_LOOKS = 1000  # after which an alarm does not count back any further


class Adaptation:
    """Watches the steps of the incumbent, and finds another one when the load has changed.

    The incumbent may be the untouched step, where that competes.
    """

    def __init__(
        self,
        trials: Trials,
        planner: Planners,
        probes: Probes,
        settings: OnlineSettings,
        say: Say,
        step: Callable[[], int],
    ) -> None:
        """step: how many calls there were."""
        self.trials, self.planner, self.settings, self.say = trials, planner, settings, say
        self.probes = MeteredProbes(probes)
        self._test = ChangeTest()
        self._backoff = Backoff()
        self._overlaps = False  # whether the steps that the test knows were timed without waiting for GPUs
        self._ratio = 1.0  # of step times since the last adaptation
        self._unsolved = 1.0  # the same, of those before that changed nothing
        self._step = step
        self._looked_at = deque([step()], maxlen=MOST_LOOKS)  # steps, of which some may be one in several
        self._wait = LONG  # steps until the next look at the untouched step, where that is the favourite
        self._look_step = 0
        self._refinement = Refinement(trials, planner, settings, step)
        self._drift = Backoff(DRIFT)  # when to look again at what makes steps drift
        self._returning = False
        self._asked: list[tuple[Placed, Future[float]]] = []
        self._single_devices = SingleDevices(trials)
        self._predicted: dict[Placed, float] = {}  # seconds of a step of what was built, under the load of now

    def begin(self) -> Steps[None]:
        """Learn what is normal."""
        self.monitor = SlowdownMonitor(self.probes, (yield from self._readings()))
        self.trials.step_s.setdefault(self.trials.mode, median(self.trials.latest_s))
        self._single_devices.learn()
        self._learn()

    def watch(self, step_s: float) -> Steps[None]:
        """Called after each step of the incumbent; mostly does nothing. Raises PlacerError if the planner is gone."""
        step = self._step()
        if self.trials.live.overlaps is not self._overlaps:  # seconds mean something else now: no change of the load
            self._overlaps = not self._overlaps
            self._test.restart()
            self.trials.go_on_with(self.trials.mode, [step_s])
        change = self._test.add(step_s)
        self.probes.stepped(step_s * (step - self._looked_at[-1]))
        self._looked_at.append(step)
        if change is not None:
            self._alarm(change)
        elif step % self.settings.probe_every == 0 and self.probes.may_spend:
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
        elif self._refinement.is_due and self._is_loaded and not self._backoff.pending and self.probes.may_spend:
            yield from self._ask_again()
        elif step >= self._look_step and self._may_return and self.trials.favourite is UNTOUCHED:
            yield from self._look_at_untouched()

    def _alarm(self, change: Change) -> None:
        before = self._looked_at[max(0, len(self._looked_at) - 1 - change.steps)]
        steps = max(change.steps, self._looked_at[-1] - before)
        self._ratio *= change.ratio
        if is_clear(change.ratio):
            self.probes.renew()
        self._gone_or_alarmed(not change.slower)
        self.monitor.alarmed()
        self.say(
            "alarm", f"steps take {change.ratio:.2f}x as long since {steps} steps.", ratio=change.ratio, steps=steps,
        )  # fmt: skip

    def _gone_or_alarmed(self, eased: bool) -> None:
        """Act at once where a load has gone, because the favourite is built and cheap to look at; else the backoff
        says when to act.
        """
        if eased and self._may_return and self._step() >= self._backoff.ready_step:
            self._returning = True
        else:
            self._backoff = self._backoff.alarmed(self._step())

    @property
    def _may_return(self) -> bool:
        """Whether the favourite is another mode than the incumbent, and can run."""
        favourite = self.trials.favourite
        return favourite is not self.trials.mode and (favourite is UNTOUCHED or favourite in self.trials.current)

    def _look_at_untouched(self) -> Steps[None]:
        """That a load has left this process's cores may go unnoticed where the incumbent's devices are others. Looks
        that bring nothing are further and further apart.
        """
        trials, mode = self.trials, self.trials.mode
        yield from trials.try_out(UNTOUCHED, self.settings.quick)
        if trials.mode is mode and trials.known_s(UNTOUCHED) < trials.known_s(mode):
            yield from trials.race([mode, UNTOUCHED], self.settings.quick)
        if trials.mode is not mode:
            self._unsolved = self._ratio = 1.0
            self._wait = LONG
        else:
            self._wait = min(2 * self._wait, MOST_WAIT)
        self._look_step = self._step() + self._wait
        self._learn()

    def _probe(self) -> None:
        """Check whether a load has gone; while there is none, learn what is normal."""
        if self._backoff.pending:
            return
        is_placed = isinstance(self.trials.mode, Placed)
        if is_placed and is_clear(self._test.drift) and self._step() >= self._drift.ready_step:
            self._look_at_drift(self._test.drift)
        elif self.monitor.is_slow:
            if self.monitor.has_eased():
                self._gone_or_alarmed(True)
        elif not self.monitor.is_sure or self._step() % LONG == 0:
            self.monitor.calm()

    def _look_at_drift(self, drift: float) -> None:
        """Steps drift slowly where a load grows, and where the whole machine slows: probes tell one from the other.
        Looks that find nothing are further and further apart.
        """
        found = self.monitor.diagnose([self.monitor.take()], 1.0)
        if found.may_gain and found.has_eased == (drift < 1):
            self._ratio *= drift
            self.monitor.alarmed()
            self.say("alarm", f"steps have come to take {drift:.2f}x as long, {found.why}.", ratio=drift)
            self._gone_or_alarmed(drift < 1)
            self._learn()
        else:
            self._drift = self._drift.missed(self._step())

    def _learn(self) -> None:
        """Restart the change test with the incumbent's latest steps."""
        self._drift = Backoff(DRIFT)
        self._test.restart()
        for step_s in list(self.trials.latest_s):
            self._test.add(step_s)

    def _adapt(self) -> Steps[None]:
        """Find out what slowed, and whether another mapping is worth moving to."""
        self._returning = False
        self._refinement.drop()
        ratio, self._ratio = self._ratio, 1.0
        self._unsolved *= ratio if is_clear(ratio) else 1.0
        readings, is_placed = (yield from self._readings()), isinstance(self.trials.mode, Placed)
        found = self._diagnosed(readings, self._unsolved if self._is_unsolved else ratio)
        self.trials.renew(list(self.trials.latest_s)[-LATEST:])
        if found.kind == "nothing" and self._is_unsolved and is_placed and not self.settings.dry_run:
            names, known = self.monitor.baseline.device_s, self.monitor.acted_on.devices
            found = yield from self._single_devices.diagnose(names, known, self._unsolved)
        if not found.may_gain and (is_placed or not self._is_unsolved):
            self._nothing_to_gain(found, readings)
            return
        before = self.monitor.acted_on
        self.monitor.act_on(readings, found)
        if self.settings.dry_run:
            yield from self._only_say(found)
        else:
            lost_s = self.trials.lost_s
            if not (yield from self._place_anew(found)):
                self.monitor.acted_on = before
            self._refinement.begin_anew(self.trials.lost_s - lost_s)

    def _diagnosed(self, readings: Sequence[LoadReading], ratio: float) -> Diagnosis:
        """What changed. The untouched step need not run on the devices, so its pace says nothing of theirs: each clear
        change of it is a reason to look at mappings.
        """
        if isinstance(self.trials.mode, Placed):
            return self.monitor.diagnose(readings, ratio)
        found = self.monitor.diagnose(readings, 1.0)
        said = f"untouched steps take {ratio:.2f}x as long"
        return replace(found, why=said if found.kind == "nothing" else f"{said}, {found.why}")

    @property
    def _is_unsolved(self) -> bool:
        """Whether steps have clearly changed, and nothing was done about it."""
        return is_clear(self._unsolved)

    @property
    def _is_loaded(self) -> bool:
        """Whether a load is known, and the incumbent runs on the devices."""
        return self.monitor.is_slow and isinstance(self.trials.mode, Placed) and not self.settings.dry_run

    def _ask_again(self) -> Steps[None]:
        """Ask for a better mapping under the load of now."""
        self.monitor.look_again((yield from self._readings()))
        self.trials.renew(list(self.trials.latest_s)[-LATEST:])
        if isinstance(self.trials.mode, Placed):
            self._refinement.ask(self.monitor.load, self.trials.mode)

    def _look_again(self) -> Steps[None]:
        """Look at what was asked for."""
        mode = self.trials.mode
        yield from self._refinement.look()
        if self.trials.mode is not mode:
            self._learn()

    def _nothing_to_gain(self, found: Diagnosis, readings: list[LoadReading]) -> None:
        if found.kind == "alike":
            self.monitor.take_for_usual(readings)
            self._unsolved = 1.0
        self._stay(found.why)

    def _readings(self) -> Steps[list[LoadReading]]:
        readings = [self.probes.take()]
        while len(readings) < READINGS:
            self.trials.latest_s.append((yield self.trials.mode))
            readings.append(self.probes.take())
        return readings

    def _place_anew(self, found: Diagnosis) -> Steps[bool]:
        """Look at what was built before and what is proposed first, then at what is predicted to be better still;
        returns whether it moved. Tries less than a search would, because the load may go meanwhile.
        """
        trials, before, spent_s, begin = self.trials, self.trials.mode, self.trials.lost_s, self._step()
        trials.only_incumbent()
        asked, quick = self._ask(trials.known_s(before)), self.settings.quick
        if found.has_eased and self._may_return and trials.favourite is not None:
            yield from trials.try_out(trials.favourite, quick)
        if asked:
            proposals = yield from trials.meanwhile(asked.pop(0))
            if not isinstance(before, Placed):  # it is no measure of how far predictions are off now
                proposals = below(trials.known_s(before) / self.settings.optimism, proposals)
            yield from trials.enter(proposals, quick)
        yield from self._look_at_known()
        if asked:
            yield from self._look_at_more(asked.pop(0))
        yield from trials.race_near(trials.built, self.settings.quick)
        yield from self._compare(before)
        return self._conclude(found, before, trials.lost_s - spent_s, begin)

    def _look_at_more(self, asked: Answer[list[Proposal]]) -> Steps[None]:
        """Look at what was proposed before the first was measured, then at new proposals as long as they help."""
        trials, settings = self.trials, self.settings
        mode = trials.mode
        bar_s = trials.known_s(mode)
        if isinstance(mode, Placed):  # predicted at the same time, so both err alike
            bar_s = (1 - LEAST_PREDICTED) * min(bar_s, trials.predicted_s(mode))
        yield from trials.rest(REST)  # each build and look slows several steps; let the training profit first
        yield from trials.enter(below(bar_s, (yield from trials.meanwhile(asked))), settings.quick)
        for _ in range(ROUNDS):
            mode, known_s = trials.mode, trials.known_s(trials.mode)
            proposals = yield from trials.meanwhile(self.planner.propose(settings.replan, settings.replan_s))
            yield from trials.enter(below(known_s / settings.optimism, proposals)[:1], settings.quick)
            if trials.mode is mode:
                break

    def _ask(self, now_s: float) -> list[Answer[list[Proposal]]]:
        """Tell the planner the load and what the incumbent takes under it, which says more than probes. Ask for one
        mapping quickly and then for more, unless there is no load and a mapping found without one runs.
        """
        load, settings = self.monitor.load, self.settings
        self.planner.slowed(load.devices, load.links)
        if not load.devices and not load.links and isinstance(self.trials.mode, Placed):
            self._predict()
            return []
        if isinstance(self.trials.mode, Placed) and now_s < math.inf:
            self.planner.tell(self.trials.mode.plan, [(self.trials.mode.devices, Measured(now_s))])
        first = self.planner.propose(1, HASTE * settings.replan_s)
        self._predict()
        return [first, self.planner.propose(settings.replan, settings.replan_s)]

    def _predict(self) -> None:
        self._predicted = {}
        self._asked = [(built, self.planner.predict(built.plan, built.devices)) for built in self.trials.current]

    def _look_at_known(self) -> Steps[None]:
        """Look at the best built before, if it is predicted to be better than the incumbent."""
        best, best_s = yield from self._best_known()
        if best is not None and best_s < (1 - LEAST_PREDICTED) * self.trials.known_s(self.trials.mode):
            yield from self.trials.try_out(best, self.settings.quick)

    def _best_known(self) -> Steps[tuple[Placed | None, float]]:
        """The best built before the load changed, and its predicted seconds of a step now."""
        while self._asked:
            built, future = self._asked.pop()
            self._predicted[built] = yield from self.trials.meanwhile(future)
        new = [built for built in self._predicted if built not in self.trials.step_s]
        best = min(new, key=self._predicted.__getitem__, default=None)
        return best, math.inf if best is None else self._predicted[best]

    def _compare(self, before: Mode) -> Steps[None]:
        """Compare with the mode of before, unless the gain is clear, and with the single device predicted fastest and
        the untouched step where these may be faster.
        """
        trials, quick = self.trials, self.settings.quick
        if trials.mode is not before and trials.known_s(trials.mode) > (1 - CLEAR_GAIN) * trials.known_s(before):
            yield from trials.race([before, trials.mode], quick)
        single = min(trials.singles, key=lambda single: self._predicted.get(single, math.inf), default=None)
        bar_s = math.inf if isinstance(trials.mode, Placed) else trials.known_s(trials.mode)
        if single is not None and single not in trials.step_s and self._predicted.get(single, math.inf) <= bar_s:
            yield from trials.try_out(single, quick)
        if trials.untouched_competes and UNTOUCHED not in trials.step_s:
            yield from trials.try_out(UNTOUCHED, quick)

    def _conclude(self, found: Diagnosis, before: Mode, cost_s: float, begin: int) -> bool:
        trials, now_s = self.trials, self.trials.known_s(self.trials.mode)
        gain_s = trials.known_s(before) - now_s
        moved = trials.mode is not before and gain_s > 0
        if moved:
            pays_back = max(1, math.ceil(cost_s / gain_s))
            self._unsolved = 1.0
            self._backoff = self._backoff.moved(begin, pays_back)
            self._look_step = self._step() + self._wait
            self._say_moved(found, cost_s, gain_s / trials.known_s(before), pays_back)
        else:
            self._stay(f"{found.why}; nothing that was tried is better than {ms(now_s, 1)} a step: staying")
        load = self.monitor.load
        if not (load.devices or load.links) and found.has_eased and trials.favourite is not UNTOUCHED:
            trials.favourite = trials.mode  # the untouched step stays it: what slows that is no load on a device
        trials.forget(self.settings.kept)
        self._learn()
        return moved

    def _say_moved(self, found: Diagnosis, cost_s: float, gain: float, pays_back: int) -> None:
        self.say(
            "moved", f"{found.why}; {self.trials.describe(self.trials.mode)} gains {gain:.0%} a step; finding it cost "
            f"{cost_s:.2g} s, pays back in {pays_back} steps.",
            cost_s=cost_s, gain=gain, pays_back_steps=pays_back,
        )  # fmt: skip

    def _only_say(self, found: Diagnosis) -> Steps[None]:
        """Only report what would be tried."""
        asked = self._ask(self.trials.known_s(self.trials.mode))
        best, best_s = yield from self._best_known()
        hopes = [f"{self.trials.describe(best)}, built before, {ms(best_s, 1)} a step predicted"] if best else []
        for future in asked[-1:]:
            proposals = yield from self.trials.meanwhile(future)
            hopes += [f"one of {p.searcher}, {ms(p.predicted_s, 1)} a step predicted" for p in proposals[:1]]
        self._stay(f"{found.why}; would try {' and '.join(hopes) or 'nothing else'}, but only watches")

    def _stay(self, why: str) -> None:
        """Change nothing; look again after a while if steps have clearly changed."""
        self._backoff = self._backoff.missed(self._step())
        if self._is_unsolved:
            self._backoff = self._backoff.alarmed(self._step())
        self.say("stayed", f"{why}.")
