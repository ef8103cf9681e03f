"""A network of the zoo trained under autoplace, call after call, and mappings of it held beside the training."""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from statistics import median
from types import TracebackType
from typing import Any, Self

import tensorflow as tf

from experiments import zoo
from experiments.benches.bench import say
from placer.devices.links.link_probes import QUICK_PROBES, measure_links
from placer.errors import PlacerError
from placer.execute.outputs import values
from placer.graph.topology import Topology
from placer.phase_names import LEFT_ALONE, STEADY
from placer.profile.profiler import profile
from placer.result import Failed, Measured, summary
from placer.train.joined_step import PROFILED
from placer.train.steps.modes import MappedStep, Placed
from search.online.autoplace import autoplace
from search.online.replan.planner_client import Planner
from search.online.replan.proposal import PlanSettings

STEADY_LIMIT_S = 240.0  # for the search to end
PLAN_LIMIT_S = 60.0  # for one answer of a planner
PAUSE_S = 0.02  # between calls of a search that is not timed
BATCHES = 8  # different ones, in turn


@dataclass(frozen=True, eq=False)
class Held:
    """A mapping built beside the training. Its steps train scratch variables, not those of the training."""

    name: str
    built: MappedStep
    inputs: Sequence[Any]

    def step(self, clock: Callable[[], float] = time.perf_counter) -> float:
        """Take one bare step and fetch its outputs. Returns the seconds."""
        begin = clock()
        values(self.built.step.run_flat(self.inputs))
        return clock() - begin


@dataclass(frozen=True)
class Moment:
    """A training after `at` steps: the values of all its variables."""

    at: int
    values: Sequence[tuple[tf.Variable, Any]]


def loaded(model: str, seed: int) -> tuple[zoo.TrainingStep, list[Sequence[Any]]]:
    """The network of this name, which may include a batch size, and BATCHES different batches."""
    name, _, batch = model.partition("@")
    if batch.isdecimal():
        labels = zoo.load(name, seed=seed).example_inputs[-1]
        work = zoo.load(name, batch=int(batch), seed=seed)
    else:
        work = zoo.load(model, seed=seed)
        labels = work.example_inputs[-1]
    return work, [relabelled(work.example_inputs, labels, seed + i) for i in range(BATCHES)]


def untouched_s(model: str, calls: int = 2 + BATCHES, clock: Callable[[], float] = time.perf_counter) -> float:
    """Seconds of a network's step as TensorFlow runs it: the median without the first two calls. Call it before there
    is a Training, whose workers start on the same cores.
    """
    work, batches = loaded(model, 0)
    step, took = tf.function(work.step), []
    for call in range(calls):
        begin = clock()
        values(tf.nest.flatten(step(*batches[call % BATCHES])))
        took.append(clock() - begin)
    return median(took[2:])


class Training:
    """A training of a network under autoplace. Workers start at the first calls.

    model: may include a batch size: towers@2. devices: as for autoplace.
    """

    def __init__(
        self,
        model: str,
        devices: str | None,
        budget: int,
        seed: int = 0,
        clock: Callable[[], float] = time.perf_counter,
    ) -> None:
        self.work, self.batches = loaded(model, seed)  # work is kept: the model dies with it
        self.clock, self.budget = clock, budget
        step = tf.function(self.work.step)
        self.auto = autoplace(step, devices=devices, budget=budget, seed=seed, beat_untouched=False)
        self.live = self.auto._live
        self.losses: list[float] = []

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.auto.close()

    def step(self) -> float:
        """Make one call and fetch its outputs, as a training loop does that prints its loss. Returns the seconds."""
        batch = self.batches[len(self.losses) % BATCHES]
        begin = self.clock()
        found = values(tf.nest.flatten(self.auto(*batch)))
        took = self.clock() - begin
        self.losses.append(float(found[0].ravel()[0]))
        return took

    @property
    def is_steady(self) -> bool:
        """Whether the search ended. Raises PlacerError if the step was left alone."""
        if self.auto.phase == LEFT_ALONE:
            raise PlacerError(f"the step was left alone: {self.live.left_alone or self.auto.journal.lines()}")
        return self.auto.phase == STEADY

    def until_steady(self, limit_s: float = STEADY_LIMIT_S, pause_s: float = PAUSE_S) -> list[float]:
        """Train until the search ends. Returns the seconds of every call. Raises PlacerError after `limit_s`.

        pause_s: between calls, so that a small step is not called thousands of times while workers start.
        """
        begin, took = self.clock(), [self.step()]
        while not self.is_steady:
            took.append(self.step())
            time.sleep(pause_s)
            if self.clock() - begin > limit_s:
                raise PlacerError(f"the search did not end within {limit_s:.0f} s; it is {self.auto.phase}.")
        say(f"the search ended after {len(took)} calls, {self.clock() - begin:.0f} s")
        return took

    def moment(self) -> Moment:
        """The current state of the training."""
        variables = self.live.joined.captured.variables.values()
        return Moment(len(self.losses), [(v, v.numpy()) for v in variables])

    def again(self, start: Moment, count: int) -> list[float]:
        """Repeat `count` steps from `start`, and return their losses. The training goes on from there."""
        for variable, value in start.values:
            variable.assign(value)
        del self.losses[start.at :]
        self.steps(count)
        return self.losses[start.at :]

    def said(self, kind: str, since: int = 0) -> list[str]:
        """The journal's sentences of one kind, from step `since` on."""
        return [e.sentence for e in self.auto.journal.entries if e.kind == kind and e.step >= since]

    @property
    def placed(self) -> Placed:
        """The incumbent, also while another mapping is tried. Raises PlacerError while the step runs untouched."""
        placed = self.auto.controller.mode
        if not isinstance(placed, Placed):
            raise PlacerError(f"the step runs untouched, {self.auto.phase}: nothing to compare with.")
        return placed

    def bare_step(self) -> float:
        """Take one step of the function that trains, without autoplace. Returns the seconds. It trains, too."""
        placed = self.auto.controller.mode
        if isinstance(placed, Placed):
            return Held("bare", placed, self.inputs).step(self.clock)
        function, batch = self.live.untouched.step, self.batches[0]
        begin = self.clock()
        values(tf.nest.flatten(function(*batch)))
        return self.clock() - begin

    def steps(self, count: int) -> None:
        """Make `count` calls."""
        for _ in range(count):
            self.step()

    @property
    def inputs(self) -> Sequence[Any]:
        """The first batch, flat, as the captured step takes it."""
        return list(self.live.joined.captured.flat_inputs(self.batches[0]))

    def hold(self, devices: Sequence[int], order: Sequence[str], name: str) -> Held | None:
        """Build this mapping beside the training, and try it; None if it cannot run."""
        built = self.live.background(lambda: self.live.build(devices, order, name)).result()
        return None if isinstance(built, Failed) else Held(name, built, self.inputs)

    def hold_placed(self) -> Held:
        """Build the incumbent beside the training."""
        return self.hold_again(self.placed)

    def hold_again(self, placed: MappedStep) -> Held:
        """Build beside the training a mapping that trains, or trained. Raises PlacerError if that fails."""
        held = self.hold(placed.op_devices, placed.order, placed.name)
        if held is None:
            raise PlacerError("a mapping that trains cannot be built beside the training.")
        return held

    def hold_singles(self) -> list[Held]:
        """Build beside the training all ops on one device, for each device that can run them."""
        ops, topology = len(self.placed.op_devices), self.live.joined.topology
        found = [self.hold((d,) * ops, (), name) for d, name in enumerate(topology.names)]
        return [held for held in found if held is not None]

    def topology(self) -> Topology:
        """The devices, and their links, which are measured now."""
        devices = self.live.session.present
        names = devices.topology.names
        links = measure_links(names, [devices.tf_names[name] for name in names], probes=QUICK_PROBES)
        return replace(devices.topology, links=links)

    def searched(self, seed: int) -> list[Held]:
        """Search again under the current load, with the whole budget. Returns the mappings found, fastest first."""
        joined, topology = self.live.joined, self.topology()
        inputs, start = joined.scratch_run.batches[-1], joined.scratch_run.start
        graph = profile(joined.captured, self.live.session.present, inputs, start=start, runs=PROFILED, warm_up=1)
        planner = Planner(graph, topology, PlanSettings(seed=seed))
        try:
            return self._raced_by(planner)
        finally:
            planner.close()

    def _raced_by(self, planner: Planner) -> list[Held]:
        planner.start().result(PLAN_LIMIT_S)
        found: dict[Held, Measured] = {}
        proposals = planner.singles().result(PLAN_LIMIT_S)
        while proposals and len(found) < self.budget:
            made = [held for p in proposals if (held := self.hold(p.op_devices, p.order, p.searcher)) is not None]
            took = raced(made, rounds=2, each=4)
            found |= {held: summary(took[held]) for held in made}
            planner.tell([(held.built.op_devices, found[held]) for held in made]).result(PLAN_LIMIT_S)
            proposals = planner.propose(4).result(PLAN_LIMIT_S)
        return sorted(found, key=lambda held: found[held].step_s)


def raced(mappings: Sequence[Held], rounds: int, each: int) -> dict[Held, list[float]]:
    """Seconds of bare steps, in blocks in turn; the first step of a block is not counted."""
    took: dict[Held, list[float]] = {held: [] for held in mappings}
    for _ in range(rounds):
        for held in mappings:
            held.step()
            took[held].extend(held.step() for _ in range(each))
    return took


def fastest(took: dict[Held, list[float]]) -> tuple[Held, float]:
    """The mapping with the lowest median, and that median."""
    best = min(took, key=lambda held: median(took[held]))
    return best, median(took[best])


def relabelled(inputs: Sequence[Any], labels: Any, seed: int) -> tuple[Any, ...]:
    """The batch with its last input drawn again from `labels`. Such batches have one signature but contradict each
    other: no network can memorise them, so a step that is lost or repeated shows in every later loss.
    """
    *others, own = inputs
    rng = random.Random(seed)
    drawn = [rng.randrange(int(labels.shape[0])) for _ in range(int(own.shape[0]))]
    return (*others, tf.gather(labels, drawn))
