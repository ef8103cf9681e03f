"""The contest of mappings within the training: what is proposed gets built aside, looked at for a few steps, and raced
against the incumbent, which all other calls run.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import Future
from dataclasses import dataclass, replace
from statistics import median
from typing import Any, Protocol, TypeVar

from placer.result import Failed, Measured, Result, summary
from placer.train.modes import UNTOUCHED, Placed, Way
from search.online.interfaces import Stage, Steps
from search.online.journal import Kind
from search.online.replan.proposal import Proposal
from search.online.trials.race import is_faster, look, race

T = TypeVar("T")
W = TypeVar("W", bound=Way)
LEAST_S, MOST_TIMES = 0.02, 4  # short steps are counted so many times more, at most
LATELY = 24  # steps of the incumbent that are remembered
NEAR = 1.06  # by a look as good as the incumbent, as far as a look tells
SINGLES = 2  # that stay built
MOST_NEAR = 3  # that race the incumbent


@dataclass(frozen=True)
class ContestSettings:
    """repeats: steps that count of each in a race. looks: at one that is new. hopeless: a step so many times the
    incumbent's ends a look. least_gain: share of a step worth a move, and sigmas: of the noise that it must exceed.
    """

    repeats: int = 8
    looks: int = 3
    hopeless: float = 2.0
    least_gain: float = 0.01
    sigmas: float = 1.0

    def at(self, step_s: float) -> ContestSettings:
        """More steps where they are short: they are noisier, and cost nothing."""
        times = min(MOST_TIMES, max(1, math.floor(LEAST_S / step_s))) if step_s > 0 else 1
        return replace(self, repeats=self.repeats * times, looks=self.looks * times)


@dataclass(frozen=True)
class Tried:
    """A way that was measured within the training, or why it could not be."""

    name: str
    devices: tuple[int, ...]
    result: Result
    predicted_s: float | None


class Say(Protocol):
    """Notes a decision in the journal."""

    def __call__(self, kind: Kind, sentence: str, **numbers: Any) -> None: ...


class Contest:
    """Keeps the incumbent, what was built, and how long steps take.

    built: all that can run; of these favourite is the best of all devices while all is well.
    step_s: by way, all comparable: in the time of the first race, and since the load changed, in that of now.
    told: called with each result, and whether it is the first of its way. lately: seconds of the incumbent's latest
    steps that nothing disturbed. spent_s: seconds lost to building and to steps of others.
    """

    def __init__(self, stage: Stage, say: Say, told: Callable[[Tried, bool], None]) -> None:
        self.stage, self.say, self.told = stage, say, told
        self.way: Way = UNTOUCHED
        self.built: list[Placed] = []
        self.favourite: Placed | None = None
        self.step_s: dict[Way, float] = {}
        self.tried: list[Tried] = []
        self.lately: deque[float] = deque(maxlen=LATELY)
        self.moves = 0
        self.spent_s = 0.0
        self._predicted: dict[tuple[int, ...], float] = {}

    # Steps of the incumbent.

    def meanwhile(self, future: Future[T]) -> Steps[T]:
        """Steps as they are until `future` is done; they count for nothing, but what they take longer is spent.

        Raises what the future holds.
        """
        usual_s = median(self.lately) if self.lately else math.inf
        while not future.done():
            self.spent_s += max(0.0, (yield self.way) - usual_s)
        return future.result()

    def rest(self, steps: int) -> Steps[None]:
        """So many steps of the incumbent that nothing disturbs."""
        for _ in range(steps):
            self.lately.append((yield self.way))

    def go_on_with(self, way: Way, lately: Iterable[float] = ()) -> None:
        """From now on that is the incumbent. lately: seconds of its latest steps."""
        self.way = way
        self.lately = deque(lately, LATELY)

    def move(self, way: Way, lately: Iterable[float], why: str) -> None:
        """Go on with `way`, and say so."""
        self.go_on_with(way, lately)
        self.moves += 1
        self.say("moved", f"to {self.describe(way)}: {why}.", step_s=self.known_s(way))

    # What is new.

    def enter(self, proposals: Iterable[Proposal], settings: ContestSettings) -> Steps[list[Placed]]:
        """Build each that was not measured yet while the training goes on, look at it, and go on with the fastest.

        One after the other: steps beside a build take longer, and tell nothing. What cannot run is left out.
        """
        entered = []
        for proposal in proposals:
            if not self._is_known(proposal):
                built = yield from self._made(proposal)
                if built is not None:
                    entered.append(built)
                    yield from self.look_at(built, settings)
        return entered

    def look_at(self, way: Way, settings: ContestSettings) -> Steps[None]:
        """A few steps of `way` against the incumbent's latest; it is the incumbent if it is clearly faster."""
        self.lately.append((yield self.way))
        settings = settings.at(self.lately[-1])
        for _ in range(settings.looks - 1):
            self.lately.append((yield self.way))
        beside = self._beside(settings)
        scale = self.step_s.setdefault(self.way, beside.step_s) / beside.step_s
        took = yield from look(way, settings.looks, settings.hopeless * self.bar_s / scale)
        found = summary(took)
        self._note({self.way: list(self.lately), way: took}, self.way, beside, [way])
        self._spend(took, beside.step_s)
        if len(took) == settings.looks and is_faster(found, beside, max(0.03, settings.least_gain), 2.0):
            self.move(way, took, _against(found, beside))

    def race(self, ways: Sequence[Way], settings: ContestSettings, bars: int = 1) -> Steps[None]:
        """Race them; go on with the fastest, but with one of the first `bars` where it is not faster beyond doubt."""
        if len(ways) < 2:
            return
        settings = settings.at(self.known_s(self.way))
        took = yield from race(ways, settings.repeats, settings.hopeless)
        results = {way: summary(steps_s) for way, steps_s in took.items()}
        self._note(took, ways[0], results[ways[0]], ways)
        best = min(ways, key=lambda way: results[way].step_s)
        for steps_s in took.values():
            self._spend(steps_s, results[best].step_s)
        bar = min(ways[:bars], key=lambda way: results[way].step_s)
        if not is_faster(results[best], results[bar], settings.least_gain, settings.sigmas):
            best = bar
        if best is self.way:
            self.lately.extend(took[best])
        else:
            self.move(best, took[best], _against(results[best], results.get(self.way, results[bar])))

    def race_near(self, ways: Sequence[Way], settings: ContestSettings) -> Steps[None]:
        """Race the incumbent against those of `ways` that are nearly as fast."""
        limit_s = NEAR * self.bar_s
        near = sorted((w for w in ways if w is not self.way and self.known_s(w) <= limit_s), key=self.known_s)
        yield from self.race([self.way, *near[:MOST_NEAR]], settings)

    # What is known.

    def known_s(self, way: Way) -> float:
        """Seconds of a step, comparable; infinite where unknown."""
        return self.step_s.get(way, math.inf)

    def renew(self, steps_s: Sequence[float]) -> None:
        """The incumbent's steps take so long now, and all others change with them."""
        if self.way in self.step_s and steps_s:
            ratio = median(steps_s) / self.step_s[self.way]
            self.step_s = {way: step_s * ratio for way, step_s in self.step_s.items()}

    def only_incumbent(self) -> None:
        """The load changed for some: what is known of others is void."""
        self.step_s = {way: step_s for way, step_s in self.step_s.items() if way is self.way}
        self.lately.clear()

    def fastest(self, ways: Iterable[W]) -> W | None:
        """Of those that were measured."""
        return min((way for way in ways if way in self.step_s), key=self.known_s, default=None)

    @property
    def singles(self) -> list[Placed]:
        """What is built on one device each."""
        return [placed for placed in self.built if len(set(placed.devices)) == 1]

    @property
    def best_single(self) -> Placed | None:
        """The fastest device that runs everything, as far as measured."""
        return self.fastest(self.singles)

    @property
    def current(self) -> list[Placed]:
        """What is built for the devices of now."""
        return [placed for placed in self.built if self.stage.is_current(placed)]

    @property
    def untouched_competes(self) -> bool:
        """Whether this process is one of the devices; else the step untouched only runs until it is placed."""
        devices = self.stage.session.devices
        return devices is not None and devices.has_local

    @property
    def bar_s(self) -> float:
        """Seconds of a step that is to be beaten: the incumbent's; if that may not stay, the fastest's of what may."""
        if isinstance(self.way, Placed) or self.untouched_competes:
            return self.known_s(self.way)
        return min((step_s for way, step_s in self.step_s.items() if isinstance(way, Placed)), default=math.inf)

    def predicted_s(self, way: Placed) -> float:
        """As predicted when it was proposed; infinite where it was not."""
        return self._predicted.get(way.devices, math.inf)

    def forget(self, count: int) -> None:
        """Free what was built, but the incumbent, the favourite, the fastest single devices and the latest `count`."""
        singles = sorted(self.singles, key=self.known_s)[:SINGLES]
        keep = {self.way, self.favourite, *singles, *self.built[-count:]}
        for built in self.built:
            if built not in keep:
                built.step.close()
                self.step_s.pop(built, None)
        self.built = [built for built in self.built if built in keep]
        self.stage.release(self.built)

    def start_anew(self, way: Way) -> None:
        """Devices were joined anew: what was built is void but `way`."""
        self.built = [way] if isinstance(way, Placed) else []
        self.step_s = {}
        self.go_on_with(way)

    def name_of(self, single: Placed) -> str:
        """The device that runs everything."""
        return self.stage.mapping(single.devices).topology.names[single.devices[0]]

    def describe(self, way: Way) -> str:
        """Whose mapping it is, and where its ops run."""
        if not isinstance(way, Placed) or self.stage.graph is None:
            return "the step untouched" if not isinstance(way, Placed) else f"a mapping of {way.name}"
        names = self.stage.mapping(way.devices).topology.names
        count = {name: way.devices.count(d) for d, name in enumerate(names)}
        where = ", ".join(f"{count[name]} ops on {name}" for name in names if count[name])
        return f"a mapping of {way.name} ({where})"

    # Within.

    def _is_known(self, p: Proposal) -> bool:
        """Whether that was measured, under the load of now."""
        return any(w.devices == p.devices for w in self.step_s if isinstance(w, Placed) and self.stage.is_current(w))

    def _made(self, p: Proposal) -> Steps[Placed | None]:
        """The mapping proposed, ready to run; None where it cannot, which is told."""
        self._predicted[p.devices] = p.predicted_s
        known = next((b for b in self.current if (b.devices, b.order) == (p.devices, p.order)), None)
        if known is not None:
            return known
        work = self.stage.background(lambda: self.stage.build(p.devices, p.order, p.searcher))
        built = yield from self.meanwhile(work)
        if isinstance(built, Failed):
            if built.reason != "device":  # a device was lost meanwhile: that is not the mapping's fault
                self._tell(p.searcher, p.devices, built)
            self.say("error", f"a mapping of {p.searcher} cannot run and is left out: {built.detail}")
            return None
        self.built.append(built)
        return self.stage.settle(built)

    def _beside(self, settings: ContestSettings) -> Measured:
        """The latest steps of the incumbent."""
        return summary(list(self.lately)[-max(settings.repeats, settings.looks) :])

    def _note(self, took: dict[Way, list[float]], anchor: Way, beside: Measured, told: Sequence[Way]) -> None:
        """Keep the figures of these steps, taken beside `beside` of `anchor`, whose figure stays as it is."""
        scale = self.step_s.setdefault(anchor, beside.step_s) / beside.step_s
        for way in told:
            found = summary(took[way])
            switch_s = way.switch_s if isinstance(way, Placed) else 0.0
            scaled = replace(found, step_s=found.step_s * scale, spread_s=found.spread_s * scale, switch_s=switch_s)
            self.step_s[way] = scaled.step_s
            self._tell(way.name, way.devices if isinstance(way, Placed) else (), scaled)

    def _tell(self, name: str, devices: tuple[int, ...], result: Result) -> None:
        """Keep a result, in place of an earlier one of the same way."""
        tried = Tried(name, devices, result, self._predicted.get(devices))
        known = next((i for i, t in enumerate(self.tried) if (t.devices, t.name) == (devices, name)), None)
        if known is None:
            self.tried.append(tried)
        else:
            self.tried[known] = tried
        self.told(tried, known is None)

    def _spend(self, steps_s: Sequence[float], beside_s: float) -> None:
        """The first, which did not count, taken for another like the rest."""
        over_s = [max(0.0, s - beside_s) for s in steps_s]
        self.spent_s += sum(over_s) + (max(over_s) if over_s else 0.0)


def _against(one: Measured, other: Measured) -> str:
    return f"{ms(one.step_s)} a step against {ms(other.step_s)}"


def ms(seconds: float) -> str:
    """For people."""
    return f"{seconds * 1e3:.1f} ms"
