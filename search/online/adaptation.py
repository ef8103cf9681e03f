"""Adaptation: step times tell that the load changed, probes what slowed, the planner what might be better, and a race
whether it is.

    steps  ~~~~~~~~~~|‾‾‾‾‾‾‾|‾‾‾‾‾‾‾‾|‾‾‾‾‾‾‾|──A──|────────B────
                     load    alarm    probed  what was built before is looked at; then what is new, as it gets built
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from statistics import median

from placer.devices.load_reading import LoadReading
from placer.result import Measured
from placer.train.modes import Placed, Way
from search.online.diagnose.change_detection import Change, ChangeTest
from search.online.diagnose.diagnosis import Backoff, Diagnosis, diagnose
from search.online.diagnose.slowdown_monitor import Gauge, is_clear
from search.online.interfaces import Probes, Proposing, Steps
from search.online.replan.proposal import Proposal
from search.online.settings import OnlineSettings
from search.online.trials.race import look
from search.online.trials.trials import Contest, Say, ms

READINGS = 3  # that say what slowed, a step apart
PROBE_STEPS = 2  # on one device, where probes see nothing
ROUNDS = 3  # at most, of an adaptation
REST = 12  # steps that nothing disturbs, after the first move
LATEST = 5  # steps that say how long one takes now
HASTE = 0.4  # share of the time of a plan in which the first proposal is to be there
LONG = 500  # steps after which the baseline is renewed
CLEAR_GAIN = 0.15  # needs no second look
LEAST_PREDICTED = 0.03  # gain for which what was built before is looked at, or a mapping by the same prediction


class Adaptation:
    """Watches the steps of the incumbent, and finds another one when the load has changed."""

    def __init__(
        self,
        contest: Contest,
        planner: Proposing,
        probes: Probes,
        settings: OnlineSettings,
        say: Say,
        step: Callable[[], int],
    ) -> None:
        """step: how many calls there were."""
        self.contest, self.planner, self.settings, self.say = contest, planner, settings, say
        self.probes = probes
        self._test = ChangeTest()
        self._backoff = Backoff()
        self._ratio = 1.0  # of step times since the last adaptation
        self._unsolved = 1.0  # the same, of those before that changed nothing
        self._step = step
        self._returning = False
        self._asked: list[tuple[Placed, Future[float]]] = []
        self._predicted: dict[Placed, float] = {}  # seconds of a step of what was built, under the load of now

    def begin(self) -> Steps[None]:
        """Learn what is usual."""
        self.gauge = Gauge(self.probes, (yield from self._readings()))
        self._learn()

    def watch(self, step_s: float) -> Steps[None]:
        """After each step of the incumbent: mostly nothing. Raises PlacerError where the planner is gone."""
        step = self._step()
        change = self._test.add(step_s)
        if change is not None:
            self._alarm(change)
        elif step % self.settings.probe_every == 0:
            self._probe()
        if self._returning:
            backoff, way = self._backoff, self.contest.way
            yield from self._adapt()
            if self.contest.way is not way:
                self._backoff = backoff
        elif self._backoff.due(step):
            yield from self._adapt()

    def _alarm(self, change: Change) -> None:
        self._ratio *= change.ratio
        self._gone_or_alarmed(not change.slower)
        self.gauge.alarmed()
        self.say(
            "alarm", f"steps take {change.ratio:.2f}x as long since {change.steps} steps.",
            ratio=change.ratio, steps=change.steps,
        )  # fmt: skip

    def _gone_or_alarmed(self, eased: bool) -> None:
        """A load that goes is followed at once, for the way back is built and costs little; else the backoff says when
        to act.
        """
        favourite = self.contest.favourite
        may_return = favourite in self.contest.current and favourite is not self.contest.way
        if eased and may_return and self._step() >= self._backoff.ready_step:
            self._returning = True
        else:
            self._backoff = self._backoff.alarmed(self._step())

    def _probe(self) -> None:
        """Look whether a load has gone; while there is none, learn what is usual."""
        if self._backoff.pending:
            return
        if self.gauge.slow:
            if self.gauge.has_eased():
                self._gone_or_alarmed(True)
        elif not self.gauge.is_sure or self._step() % LONG == 0:
            self.gauge.calm()

    def _learn(self) -> None:
        """What is normal now: so far the incumbent's latest steps."""
        self._test.restart()
        for step_s in list(self.contest.lately):
            self._test.add(step_s)

    def _adapt(self) -> Steps[None]:
        """Find out what slowed, and whether another mapping is worth moving to."""
        self._returning = False
        ratio, self._ratio = self._ratio, 1.0
        self._unsolved *= ratio if is_clear(ratio) else 1.0
        readings = yield from self._readings()
        found = self.gauge.diagnose(readings, self._unsolved if self._is_unsolved else ratio)
        self.contest.renew(list(self.contest.lately)[-LATEST:])
        if found.kind == "nothing" and self._is_unsolved and not self.settings.dry_run:
            found = yield from self._by_singles()
        if not found.may_gain:
            self._nothing_to_gain(found, readings)
            return
        before = self.gauge.latest
        self.gauge.act_on(readings, found)
        if self.settings.dry_run:
            yield from self._only_say(found)
        elif not (yield from self._place_anew(found)):
            self.gauge.latest = before

    @property
    def _is_unsolved(self) -> bool:
        """Whether steps have changed beyond doubt, and nothing was done about it."""
        return is_clear(self._unsolved)

    def _nothing_to_gain(self, found: Diagnosis, readings: list[LoadReading]) -> None:
        if found.kind == "alike":
            self.gauge.latest = LoadReading.middle(readings)
            self._unsolved = 1.0
        self._stay(found.why)

    def _by_singles(self) -> Steps[Diagnosis]:
        """What slowed, where probes see nothing: by a few steps on one device and the other, beside the incumbent's."""
        contest, factors = self.contest, {}
        for single in contest.singles:
            if single in contest.step_s and contest.stage.is_current(single):
                took = yield from look(single, PROBE_STEPS)
                factors[contest.name_of(single)] = self._unsolved * median(took) / contest.known_s(single)
        return diagnose(factors, {}, self._unsolved)

    def _readings(self) -> Steps[list[LoadReading]]:
        readings = [self.probes.take()]
        while len(readings) < READINGS:
            self.contest.lately.append((yield self.contest.way))
            readings.append(self.probes.take())
        return readings

    def _place_anew(self, found: Diagnosis) -> Steps[bool]:
        """What was built before and what is proposed first, then what is predicted to be better still; whether anything
        was. Not all that the budget of a search would allow: a load may go while one looks for a percent.
        """
        contest, before, spent_s, begin = self.contest, self.contest.way, self.contest.spent_s, self._step()
        contest.only_incumbent()
        asked, quick = self._ask(contest.known_s(before)), self.settings.quick
        if _has_eased(found) and contest.favourite in contest.current and contest.favourite is not before:
            yield from contest.look_at(contest.favourite, quick)
        if asked:
            yield from contest.enter((yield from contest.meanwhile(asked.pop(0))), quick)
        yield from self._look_at_known()
        if asked:
            yield from self._look_at_more(asked.pop(0))
        yield from contest.race_near(contest.built, self.settings.quick)
        yield from self._compare(before)
        return self._conclude(found, before, contest.spent_s - spent_s, begin)

    def _look_at_more(self, asked: Future[list[Proposal]]) -> Steps[None]:
        """At what was proposed before the first was measured, and as long as that helps at what is proposed since."""
        contest, settings = self.contest, self.settings
        way = contest.way
        bar_s = contest.known_s(way)
        if isinstance(way, Placed):  # predicted at the same time, both err alike
            bar_s = (1 - LEAST_PREDICTED) * min(bar_s, contest.predicted_s(way))
        yield from contest.rest(REST)  # builds and looks slow several steps each; the training is to have its gain
        yield from contest.enter(_below(bar_s, (yield from contest.meanwhile(asked))), settings.quick)
        for _ in range(ROUNDS):
            way, known_s = contest.way, contest.known_s(contest.way)
            proposals = yield from contest.meanwhile(self.planner.propose(settings.replan, settings.replan_s))
            yield from contest.enter(_below(known_s / settings.optimism, proposals)[:1], settings.quick)
            if contest.way is way:
                break

    def _ask(self, now_s: float) -> list[Future[list[Proposal]]]:
        """Tell the planner of the load, and what the incumbent takes under it, which says more than probes; ask for a
        mapping in haste, and then for more, unless all is as it was.
        """
        load, settings = self.gauge.load, self.settings
        self.planner.slowed(load.devices, load.links)
        if not load.devices and not load.links:
            self._predict()
            return []
        if isinstance(self.contest.way, Placed) and now_s < math.inf:
            self.planner.tell([(self.contest.way.devices, Measured(now_s))])
        first = self.planner.propose(1, HASTE * settings.replan_s)
        self._predict()
        return [first, self.planner.propose(settings.replan, settings.replan_s)]

    def _predict(self) -> None:
        self._predicted = {}
        self._asked = [(built, self.planner.predict(built.devices)) for built in self.contest.current]

    def _look_at_known(self) -> Steps[None]:
        """At what was built before, if it is predicted to be better than the incumbent."""
        best, best_s = yield from self._best_known()
        if best is not None and best_s < (1 - LEAST_PREDICTED) * self.contest.known_s(self.contest.way):
            yield from self.contest.look_at(best, self.settings.quick)

    def _best_known(self) -> Steps[tuple[Placed | None, float]]:
        """Of what was built before the load changed, and the seconds of a step that are predicted for it now."""
        while self._asked:
            built, future = self._asked.pop()
            self._predicted[built] = yield from self.contest.meanwhile(future)
        new = [built for built in self._predicted if built not in self.contest.step_s]
        best = min(new, key=self._predicted.__getitem__, default=None)
        return best, math.inf if best is None else self._predicted[best]

    def _compare(self, before: Way) -> Steps[None]:
        """With what ran before, unless the gain is clear, and with the single device that should be fastest now."""
        contest, quick = self.contest, self.settings.quick
        if contest.way is not before and contest.known_s(contest.way) > (1 - CLEAR_GAIN) * contest.known_s(before):
            yield from contest.race([before, contest.way], quick)
        single = min(contest.singles, key=lambda single: self._predicted.get(single, math.inf), default=None)
        if single is not None and single not in contest.step_s:
            yield from contest.look_at(single, quick)

    def _conclude(self, found: Diagnosis, before: Way, cost_s: float, begin: int) -> bool:
        contest, now_s = self.contest, self.contest.known_s(self.contest.way)
        gain_s = contest.known_s(before) - now_s
        moved = contest.way is not before and gain_s > 0
        if moved:
            pays_back = max(1, math.ceil(cost_s / gain_s))
            self._unsolved = 1.0
            self._backoff = self._backoff.moved(begin, pays_back)
            self._say_moved(found, cost_s, gain_s / contest.known_s(before), pays_back)
        else:
            self._stay(f"{found.why}; nothing that was tried is better than {ms(now_s)} a step: staying")
        if not self.gauge.load.devices and _has_eased(found) and isinstance(contest.way, Placed):
            contest.favourite = contest.way
        contest.forget(self.settings.kept)
        self._learn()
        return moved

    def _say_moved(self, found: Diagnosis, cost_s: float, gain: float, pays_back: int) -> None:
        self.say(
            "moved", f"{found.why}; {self.contest.describe(self.contest.way)} gains {gain:.0%} a step; finding it cost "
            f"{cost_s:.2g} s, pays back in {pays_back} steps.",
            cost_s=cost_s, gain=gain, pays_back_steps=pays_back,
        )  # fmt: skip

    def _only_say(self, found: Diagnosis) -> Steps[None]:
        """What one would try, and what for."""
        asked = self._ask(self.contest.known_s(self.contest.way))
        best, best_s = yield from self._best_known()
        hopes = [f"{self.contest.describe(best)}, built before, {ms(best_s)} a step predicted"] if best else []
        for future in asked[-1:]:
            proposals = yield from self.contest.meanwhile(future)
            hopes += [f"one of {p.searcher}, {ms(p.predicted_s)} a step predicted" for p in proposals[:1]]
        self._stay(f"{found.why}; would try {' and '.join(hopes) or 'nothing else'}, but only watches")

    def _stay(self, why: str) -> None:
        """To be looked at again after a while, if steps have changed beyond doubt."""
        self._backoff = self._backoff.missed(self._step())
        if self._is_unsolved:
            self._backoff = self._backoff.alarmed(self._step())
        self.say("stayed", f"{why}.")


def _below(bar_s: float, proposals: Sequence[Proposal]) -> list[Proposal]:
    """Those that are predicted to take less than so many seconds a step."""
    return [proposal for proposal in proposals if proposal.predicted_s < bar_s]


def _has_eased(found: Diagnosis) -> bool:
    return min(found.devices.values(), default=1.0) < 1
