"""The controller of a live step: decides which way the next call runs. It is one long script, a generator: it yields a
way to run a step and is sent the seconds that the step took, so that a race within the training reads like a race.

    untouched ──capture, join, profile, plan──▶ singles race ──▶ proposals race, until none promises more ──▶ keep
                                                                      ▲                                        │
    step times change ──probe──▶ what slowed ──new costs──▶ plan ─────┘◀───────────────────────────────────────┘
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Generator, Sequence
from concurrent.futures import Future
from dataclasses import dataclass
from statistics import median
from typing import TYPE_CHECKING, TypeVar

from placer.errors import PlacerError, listed
from placer.live import UNTOUCHED, LiveStep, Placed, Untouched, Way
from placer.measurement import Failed, Measured, Result, heats, summary
from placer.pace import Pace, Reading
from search.online.change import ChangeTest
from search.online.decide import Backoff, Diagnosis, MoveSettings, Verdict, diagnose, relative_spread, worth_moving
from search.online.journal import Journal
from search.online.planner import Planner
from search.online.proposal import PlanSettings, Proposal

if TYPE_CHECKING:
    from placer.graph import OpGraph
    from placer.store import Store
    from placer.topology import Topology

T = TypeVar("T")
Steps = Generator[Way, float, T]


@dataclass(frozen=True)
class OnlineSettings:
    """How much to try, and when to move.

    budget: mappings measured at most before the search ends. batch: raced together. repeats: steps that count of one
    that comes through all heats. replan: mappings asked for when the load changed, within `replan_s` seconds.
    quick_repeats: steps that count then. hopeless: a step so many times the incumbent's ends a try. probe_every: steps
    between looks at a device that is slow. search, adapt: whether to do either at all.
    """

    budget: int = 16
    seed: int = 0
    groups: int = 192
    batch: int = 4
    repeats: int = 8
    replan: int = 3
    replan_s: float = 1.0
    quick_repeats: int = 4
    hopeless: float = 2.0
    probe_every: int = 10
    eased: float = 0.4
    least_gain: float = 0.01
    kept: int = 4
    search: bool = True
    adapt: bool = True
    dry_run: bool = False


@dataclass(frozen=True)
class Tried:
    """A way that was measured within the training, or why it could not be."""

    name: str
    devices: tuple[int, ...]
    result: Result
    predicted_s: float | None


class Controller:
    """Writes the script of one live step."""

    def __init__(
        self,
        live: LiveStep,
        journal: Journal,
        settings: OnlineSettings,
        store: Store | None = None,
        clock: Callable[[], float] = time.perf_counter,
    ) -> None:
        self.live, self.journal, self.settings, self.store, self.clock = live, journal, settings, store, clock
        self.step = 0
        self.way: Way = UNTOUCHED
        self.best_single: Placed | None = None
        self.tried: list[Tried] = []
        self.step_s: dict[Way, float] = {}  # each in the time of the anchor
        self.phase = "starting"
        self.planner: Planner | None = None
        self.topology: Topology | None = None
        self.moves = 0
        self._built: list[Placed] = []
        self._predicted: dict[tuple[int, ...], float] = {}
        self._pace: Pace | None = None
        self._baseline: Reading | None = None
        self._latest: Reading | None = None
        self._slow: dict[str, float] = {}
        self._test = ChangeTest()
        self._backoff = Backoff()

    # Scripts.

    def script(self) -> Steps[None]:
        """From the first call on."""
        if (yield from self._begin()):
            if self.settings.search:
                yield from self._search()
            yield from self._keep()
        self.phase = "left alone"
        while True:
            yield self.way

    def script_after_joining(self) -> Steps[None]:
        """After devices were lost or came back: what was built is gone but the way that runs."""
        self.way = self.live.way
        self._built = [self.way] if isinstance(self.way, Placed) else []
        self.best_single = None
        self._test.restart()
        self._pace = self._baseline = self._latest = None
        self._slow = {}
        there = self._there()
        if self.planner is not None and self.settings.adapt and there:
            yield from self._meanwhile(self.planner.only(there))
            if isinstance(self.way, Untouched) or len(there) > 1:
                yield from self._replace_lost()
        yield from self._keep()

    def place(self, mapping: Callable[[], Sequence[int]]) -> Steps[None]:
        """One mapping given, and nothing else. mapping: called once the step is captured and the devices joined."""
        yield UNTOUCHED
        yield UNTOUCHED
        self._now("capturing")
        self.live.capture()
        self.live.site.prepare()
        self.topology = self.live.join()
        self._now("building")
        built = self.live.build(mapping(), (), "given")
        if isinstance(built, Failed):
            raise PlacerError(f"the mapping cannot run: {built.detail}")
        self.way = self.live.settle(built)
        self.journal.entry(self.step, "moved", f"placed by the mapping given, {self._spread_over(built)}.")
        while True:
            yield self.way

    # The search.

    def _begin(self) -> Steps[bool]:
        """Untouched steps, until everything is known that planning needs; whether there is something to place."""
        yield UNTOUCHED
        if self.live.left_alone:
            self.journal.entry(self.step, "error", f"the step runs untouched: {self.live.left_alone}.")
            return False
        ready = self.live.background(self.live.site.prepare)
        yield UNTOUCHED
        yield UNTOUCHED
        self._now("capturing")
        yield from self._meanwhile(self.live.background(self.live.capture))
        self._now("starting devices")
        yield from self._meanwhile(ready)
        topology = self.live.join()
        if len(topology) < 2:
            self.journal.entry(self.step, "end", f"{topology.names[0]} is the only device: nothing to place.")
            return False
        self._now("profiling")
        if self.live.shares_cores:  # the training stands still: together both would take twice as long, and be wrong
            graph, self.topology = self.live.background(self.live.profile).result()
        else:
            graph, self.topology = yield from self._meanwhile(self.live.background(self.live.profile))
        yield from self._plan(graph, self.topology)
        return True

    def _plan(self, graph: OpGraph, topology: Topology) -> Steps[None]:
        self._now("planning")
        self.planner = Planner(graph, topology, PlanSettings(groups=self.settings.groups, seed=self.settings.seed))
        yield from self._meanwhile(self.planner.start())
        self.journal.entry(
            self.step, "plan", f"{len(graph)} ops over {listed(topology.names)}: looking for a better mapping.",
            ops=len(graph), devices=len(topology),
        )  # fmt: skip

    def _search(self) -> Steps[None]:
        """Race the single devices, then what the planner proposes, and end on the fastest."""
        assert self.planner is not None
        self._now("measuring single devices")
        singles = yield from self._meanwhile(self.planner.singles())
        ways: list[Way] = [*(yield from self._made(singles))]
        if self._untouched_competes():
            ways.append(UNTOUCHED)
        if ways:
            self.way = ways[0]
            yield from self._race(ways, self.settings.repeats)
            self.best_single = min((w for w in ways if isinstance(w, Placed)), key=self._known_s, default=None)
        while len(self.tried) < self.settings.budget:
            if not (yield from self._round(min(self.settings.batch, self.settings.budget - len(self.tried)))):
                break
        yield from self._settle()

    def _round(self, count: int, seconds: float | None = None, repeats: int | None = None) -> Steps[bool]:
        """Ask for mappings, build and race them; whether there were any."""
        assert self.planner is not None
        self._now("searching")
        proposals = yield from self._meanwhile(self.planner.propose(count, seconds))
        made = yield from self._made(proposals)
        if made:
            yield from self._race([self.way, *made], repeats or self.settings.repeats)
        return bool(proposals)

    def _settle(self) -> Steps[None]:
        """Side by side with the fastest single device once more; then free what is not needed."""
        if self.best_single is not None and self.best_single is not self.way:
            yield from self._race([self.way, self.best_single], self.settings.repeats)
        self._forget()
        at_s, single = self._known_s(self.way), self.best_single
        gain = f", {self._known_s(single) / at_s:.2f}x the fastest single device" if single else ""
        self.journal.entry(
            self.step, "end", f"{len(self.tried)} mappings measured; {_ms(at_s)} a step{gain}.",
            step_s=at_s, measured=len(self.tried),
        )  # fmt: skip

    def _made(self, proposals: Sequence[Proposal]) -> Steps[list[Placed]]:
        """Build proposals while the training goes on; those that cannot run are told to the planner."""
        made = []
        for p in proposals:
            self._predicted[p.devices] = p.predicted_s
            known = next((b for b in self._built if b.devices == p.devices and b.order == p.order), None)
            work = self.live.background(lambda p=p: self.live.build(p.devices, p.order, p.searcher))  # type: ignore[misc]
            built: Placed | Failed = known or (yield from self._meanwhile(work))
            if isinstance(built, Failed):
                self._tell(p.searcher, p.devices, built)
                self.journal.entry(self.step, "error", f"a mapping of {p.searcher} cannot run: {built.detail}")
                continue
            made.append(self.live.settle(built))
            if known is None:
                self._built.append(built)
        return made

    def _race(self, ways: Sequence[Way], repeats: int) -> Steps[None]:
        """Real steps of each in turn, the slower half dropping out heat after heat; the fastest becomes the way.

        ways[0] is the incumbent and stays in to the end. Seconds are told in the anchor's time, as the incumbent was
        beside them.
        """
        took = yield from self._heats(ways, repeats)
        first = summary(took[ways[0]])
        scale = self._known_s(ways[0], first.step_s) / first.step_s
        results = {way: _scaled(took[way], scale, repeats, way) for way in ways if took[way]}
        for way, result in results.items():
            self.step_s[way] = result.step_s
            if way is not ways[0] or len(self.tried) == 0:
                self._tell(way.name, way.devices if isinstance(way, Placed) else (), result)
        best = min(results, key=lambda way: results[way].step_s)
        if best is not ways[0] and self._is_better(results[best], results[ways[0]]):
            self._move(best, f"{_ms(results[best].step_s)} a step against {_ms(results[ways[0]].step_s)}")

    def _heats(self, ways: Sequence[Way], repeats: int) -> Steps[dict[Way, list[float]]]:
        took: dict[Way, list[float]] = {way: [] for way in ways}
        running = list(ways)
        for until in heats(len(ways), repeats):
            for way in list(running):
                yield way  # not counted: its variables and caches come
                while len(took[way]) < until and way in running:
                    took[way].append((yield way))
                    if way is not ways[0] and took[way][-1] > self.settings.hopeless * median(took[ways[0]]):
                        running.remove(way)
            ranked = sorted(running, key=lambda way: median(took[way]))
            half = ranked[: (len(ranked) + 1) // 2]
            running = [way for way in ways if way in half or way is ways[0]]
        return took

    def _is_better(self, one: Measured, other: Measured) -> bool:
        """By more than a standard deviation of the two medians, and than is worth the change."""
        least = max(self.settings.least_gain, math.sqrt(2) * relative_spread(one, other))
        return 1 - one.step_s / other.step_s > min(least, 0.05)

    # Keeping it.

    def _keep(self) -> Steps[None]:
        """Steady steps, until the load changes or devices come back."""
        self._now("steady")
        self._test.restart()
        if self.settings.adapt and len(self._there()) > 1 and isinstance(self.way, Placed):
            yield from self._read_pace()
        while True:
            step_s = yield self.way
            if not self.settings.adapt or self._pace is None:
                self._look_for_lost()
                continue
            change = self._test.add(step_s)
            if change is not None:
                self.journal.entry(
                    self.step, "alarm", f"steps take {change.ratio:.2f}x as long since {change.steps} steps.",
                    ratio=change.ratio,
                )  # fmt: skip
                self._backoff = self._backoff.alarmed(self.step)
            if self._backoff.due(self.step):
                yield from self._adapt(change.ratio if change else 1.0)
            elif self._slow and self.step % self.settings.probe_every == 0 and self._has_eased():
                yield from self._adapt(1.0)
            self._look_for_lost()

    def _read_pace(self) -> Steps[None]:
        """How fast devices and links are now that all is well."""
        devices = self.live.site.devices
        assert devices is not None
        self._pace = yield from self._meanwhile(self.live.background(lambda: Pace(devices)))
        self._baseline = self._latest = self._pace.take()

    def _adapt(self, ratio: float) -> Steps[None]:
        """Find out what slowed, and whether another mapping is worth moving to."""
        assert self._pace is not None and self._latest is not None and self._baseline is not None
        assert self.planner is not None
        reading = self._pace.take()
        changed = reading.against(self._latest)
        found = diagnose(changed.devices, changed.links, ratio)
        if not found.may_gain:
            self.journal.entry(self.step, "stayed", f"{found.why}.", ratio=ratio)
            self._backoff = self._backoff.missed(self.step)
            return
        self._latest = reading
        against = reading.against(self._baseline)
        self._slow = {name: factor for name, factor in against.devices.items() if factor > 1.15}
        if self.settings.dry_run:
            self.journal.entry(self.step, "stayed", f"{found.why}: would look for another mapping (dry run).")
            self._backoff = self._backoff.missed(self.step)
            return
        yield from self._meanwhile(self.planner.slowed(against.devices, against.links))
        before, begin_s = self.way, self.clock()
        yield from self._try_known(found)
        self.step_s.clear()  # seconds of before mean nothing now
        yield from self._round(self.settings.replan, self.settings.replan_s, self.settings.quick_repeats)
        if self.way is before:
            self.journal.entry(self.step, "stayed", f"{found.why}; no mapping tried is better: staying.")
            self._backoff = self._backoff.missed(self.step)
        else:
            self._backoff = self._backoff.moved(self.step, 30)
        self._forget()
        self._test.restart()
        self._now("steady")
        self.journal.scalar(self.step, "adaptation_s", self.clock() - begin_s)

    def _try_known(self, found: Diagnosis) -> Steps[None]:
        """Of the ways built already the one that is best now by prediction, against the present one."""
        assert self.planner is not None
        others = [b for b in self._built if b is not self.way and self.live.is_current(b)]
        if not others or not isinstance(self.way, Placed):
            return
        predicted: dict[Placed, float] = {}
        for b in [self.way, *others]:
            predicted[b] = yield from self._meanwhile(self.planner.predict(b.devices))
        best = min(others, key=lambda b: predicted[b])
        if predicted[best] > 0.97 * predicted[self.way]:
            return
        took = yield from self._heats([self.way, best], self.settings.quick_repeats)
        now, then = summary(took[self.way]), summary(took[best])
        verdict = worth_moving(
            now.step_s, then.step_s, relative_spread(now, then), 0.0, cause=found.why, settings=MoveSettings()
        )
        self._decide(verdict, best)

    def _decide(self, verdict: Verdict, best: Placed) -> None:
        if verdict.move:
            self._move(best, verdict.why)
        else:
            self.journal.entry(self.step, "stayed", verdict.why, gain=verdict.gain)

    def _has_eased(self) -> bool:
        """Whether the device that slowed most is near its old pace."""
        assert self._pace is not None and self._baseline is not None
        name = max(self._slow, key=lambda n: self._slow[n])
        factor = self._pace.device(name) / self._baseline.device_s[name]
        return factor - 1 < self.settings.eased * (self._slow[name] - 1)

    def _look_for_lost(self) -> None:
        site = self.live.site
        if site.missing and self.step % self.settings.probe_every == 0 and site.is_back():
            site.rejoin()

    def _replace_lost(self) -> Steps[None]:
        """A mapping for the devices that are there now."""
        assert self.planner is not None
        self.step_s.clear()
        if isinstance(self.way, Untouched):
            singles = yield from self._meanwhile(self.planner.singles())
            made = yield from self._made(singles[:1])
            if not made:
                return
            self._move(made[0], "a device is there again")
        yield from self._round(self.settings.replan, self.settings.replan_s, self.settings.quick_repeats)

    # Small things.

    def _meanwhile(self, future: Future[T]) -> Steps[T]:
        """Steps as they are until `future` is done."""
        while not future.done():
            yield self.way
        return future.result()

    def _move(self, way: Way, why: str) -> None:
        self.way = way
        self.moves += 1
        where = self._spread_over(way) if isinstance(way, Placed) else "untouched"
        self.journal.entry(self.step, "moved", f"to a mapping of {way.name} ({where}): {why}.")

    def _tell(self, name: str, devices: tuple[int, ...], result: Result) -> None:
        self.tried.append(Tried(name, devices, result, self._predicted.get(devices)))
        if not devices:
            return
        if self.planner is not None:
            self.planner.tell([(devices, result)])
        if isinstance(result, Measured):
            self.journal.entry(
                self.step, "measured", f"{name}: {_ms(result.step_s)} a step.", step_s=result.step_s, searcher=name
            )
        if self.store is not None and self.live.graph is not None and self.tried:
            anchor = next((t.result.step_s for t in self.tried if isinstance(t.result, Measured)), None)
            if anchor is not None:
                self.store.add(self.live.mapping(devices), result, anchor, name)

    def _known_s(self, way: Way, default: float = math.inf) -> float:
        return self.step_s.get(way, default)

    def _forget(self) -> None:
        """Keep the way that runs, the best single device and the latest few; free the rest."""
        keep = [self.way, self.best_single, *self._built[-self.settings.kept :]]
        for built in self._built:
            if built not in keep:
                built.step.close()
                self.step_s.pop(built, None)
        self._built = [built for built in self._built if built in keep]
        self.live.release(self._built)

    def _untouched_competes(self) -> bool:
        devices = self.live.site.devices
        return devices is not None and devices.has_local

    def _there(self) -> list[str]:
        devices = self.live.site.devices
        return [] if devices is None else list(devices.topology.names)

    def _spread_over(self, placed: Placed) -> str:
        names = self.topology.names if self.topology is not None else ()
        count = {name: placed.devices.count(d) for d, name in enumerate(names)}
        return ", ".join(f"{count[name]} ops on {name}" for name in names if count[name])

    def _now(self, phase: str) -> None:
        self.phase = phase


def _scaled(seconds: Sequence[float], scale: float, repeats: int, way: Way) -> Measured:
    found = summary(seconds)
    switch_s = way.switch_s if isinstance(way, Placed) else 0.0
    return Measured(found.step_s * scale, found.spread_s * scale, found.repeats, switch_s, found.repeats < repeats)


def _ms(seconds: float) -> str:
    return f"{seconds * 1e3:.1f} ms"
