"""A simulated machine: a live step and its probes, with the times that real ones take.

It simulates a small graph op by op; steps are noisy, and what a mapping really takes differs from what is predicted.
"""

import math
from types import SimpleNamespace

import numpy as np

from placer.devices.load.load_reading import LoadReading
from placer.errors import PlacerError
from placer.result import Failed
from placer.train.steps.modes import UNTOUCHED, Built, Placed
from placer.train.steps.placed_run import DRAINED
from tests.clock import Clock
from tests.search.online.simulated.background import Line
from tests.search.online.simulated.mappings import CALM, GRAPH, TOPOLOGY, linked, makespan, pool
from tests.search.online.simulated.planners import TablePlanner


class FakeStep:
    def __init__(self):
        self.closed = False

    def close(self):
        self.closed = True


class Machine:
    """A stage: what steps take, by the loads of the moment; loads: (first step, step after the last, factors).

    hosts: the same of the cores that only the untouched step uses, with one factor. elsewhere: whether it uses no
    others, so that loads of devices are none of its. scale: of all step times.

    error: relative standard deviation of what mappings really take. noise: of a step's logarithm, `hang` of which is
    that of the step before. stragglers: share of steps that take three times as long.
    """

    def __init__(
        self, seed=0, *, error=0.02, noise=0.04, hang=0.0, stragglers=0.01, drift=0.0, untouched_s=0.11,
        competes=False, loads=(), hosts=(), understated=0.6, probe_noise=0.08, disturbed=1.5, planner=TablePlanner,
        overlap=1.0, scale=1.0, elsewhere=False,
    ):  # fmt: skip
        self.rng, self.seed = np.random.default_rng(seed), seed
        self.clock, self.step, self.competes = Clock(), 0, competes
        self.error, self.noise, self.hang, self.stragglers, self.drift = error, noise, hang, stragglers, drift
        self.scale, self.untouched_s, self.loads, self.hosts = scale, scale * untouched_s, list(loads), list(hosts)
        self.elsewhere = elsewhere
        self.links = []  # as loads, with one factor
        self.understated, self.probe_noise, self.disturbed = understated, probe_noise, disturbed
        self.thread = Line(self.clock)
        self.planner = planner(self)
        self.session = SimpleNamespace(
            devices=SimpleNamespace(topology=TOPOLOGY, has_local=False), missing=(), given_up={}, prepare=lambda: None
        )
        self.session.keeps_much, self.session.generation, self.session.suspected = False, 1, False
        self.session.suspect = lambda: setattr(self.session, "suspected", True)
        self.name = "step"
        self.mode, self.left_alone, self.graph, self.shares_cores = UNTOUCHED, None, GRAPH, True
        self.is_ready = True
        self.divided = 1.0  # what a divided step takes, as a share of the whole one's seconds under the same devices
        self.cannot, self.factor_of, self.ran, self.generation = set(), {}, [], 1
        self._last = 0.0
        # What calls of a mapping are timed at, as a share of a step, once GPUs are no longer waited for.
        self.overlap, self._calls_in_mode = overlap, 0
        self.probes, self.probe_s = 0, dict.fromkeys(TOPOLOGY.names, 7e-3)
        self.is_away, self.needed, self.gone = False, None, None  # the last two: why devices cannot be left, or joined

    # As a stage.

    @property
    def overlaps(self):
        return self.overlap < 1 and self._calls_in_mode > DRAINED

    def background(self, work):
        name = getattr(work, "__name__", "")
        known = {"capture": 1.0, "profile": 2.0, "load_probes": 0.5, "load_probes_again": 0.5}
        seconds = known.get(name) or self.rng.uniform(0.5, 2.0)
        return self.thread.submit(seconds, work)

    def leave_alone(self, why):
        self.left_alone = why

    def capture(self):
        return GRAPH

    def join(self):
        return self.session.devices.topology

    def profile(self, plan=0):
        return GRAPH, TOPOLOGY

    def divided_in_words(self, plan):
        return "some ops are divided"

    def load_probes(self):
        """Each is halved as long as it takes 5 ms then."""
        for name, factor in zip(TOPOLOGY.names, self.load, strict=True):
            self.probe_s[name] = 7e-3
            while self.probe_s[name] * factor**self.understated >= 10e-3:
                self.probe_s[name] /= 2
        return self

    def load_probes_again(self):
        return self

    def build(self, devices, order, name, plan=0):
        if tuple(devices) in self.cannot:
            return Failed("memory", "not enough memory on worker:0")
        return Built(tuple(devices), tuple(order), name, FakeStep(), self.generation, 1.0, {}, plan=plan)

    def settle(self, built):
        if isinstance(built, Failed):
            return built
        assert self.is_current(built)
        common = built.op_devices, built.order, built.name, built.step, built.generation, built.switch_s
        return Placed(*common, use=None, plan=built.plan)

    def rest(self):
        if self.needed is None and not self.is_away:
            self.generation, self.is_away = self.generation + 1, True
        return self.needed

    def wake(self):
        if self.gone is not None:
            raise PlacerError(self.gone)
        self.clock.now_s += 0.5
        self.generation, self.is_away = self.generation + self.is_away, False

    def release(self, keep):
        assert all(not placed.step.closed for placed in keep)

    def is_current(self, placed):
        return placed.generation == self.generation

    def mapping(self, devices, plan=0):
        return SimpleNamespace(topology=TOPOLOGY, devices=devices)

    # As probes.

    def take(self):
        self.clock.now_s += 0.05
        self.probes += 1
        load = {name: factor**self.understated for name, factor in zip(TOPOLOGY.names, self.load, strict=True)}
        noise = {name: math.exp(self.rng.normal(0, self.probe_noise)) for name in load}
        probed = {name: self.probe_s[name] * f * noise[name] for name, f in load.items()}
        link_s = 4e-3 * max(load.values()) * self.link_factor * math.exp(self.rng.normal(0, self.probe_noise))
        return LoadReading(probed, {TOPOLOGY.names: link_s})

    def device(self, name):
        self.clock.now_s -= 0.03
        return self.take().device_s[name]

    def link(self, pair):
        self.clock.now_s -= 0.03
        return self.take().link_s[pair]

    # As a machine.

    @property
    def load(self):
        factors = [f for begin, end, f in self.loads if begin <= self.step < end]
        return tuple(np.prod([CALM, *factors], axis=0).tolist())

    @property
    def link_factor(self):
        return math.prod(factor for begin, end, factor in self.links if begin <= self.step < end)

    def true_s(self, mode, load=None):
        """Seconds of a step without noise."""
        load = load or self.load
        if mode is UNTOUCHED:
            host = math.prod(factor for begin, end, factor in self.hosts if begin <= self.step < end)
            return self.untouched_s * (1.0 if self.elsewhere else max(load)) * host
        return (
            self.mapping_s(mode.op_devices, load)
            * linked(mode.op_devices, self.link_factor)
            * (self.divided if mode.plan else 1.0)
        )

    def mapping_s(self, devices, load=CALM):
        if devices not in self.factor_of:
            chance = np.random.default_rng([self.seed, hash(devices) % 2**32])
            self.factor_of[devices] = math.exp(chance.normal(0, self.error))
        return self.scale * makespan(devices, load) * self.factor_of[devices]

    def best_s(self, load=CALM):
        """Of the fastest mapping that there is."""
        return min(self.mapping_s(devices, load) for devices in pool())

    def run(self, mode):
        assert mode is UNTOUCHED or not (mode.step.closed or self.is_away)
        true_s = self.true_s(mode)
        self._last = self.hang * self._last + math.sqrt(1 - self.hang**2) * self.rng.normal(0, self.noise)
        if self.thread.is_busy:
            true_s *= self.disturbed
        step_s = true_s * math.exp(self._last + self.drift * math.sin(self.step / 300))
        if self.rng.random() < self.stragglers:
            step_s *= 3
        same = bool(self.ran) and self.ran[-1][0] is mode and mode is not UNTOUCHED
        self._calls_in_mode = self._calls_in_mode + 1 if same else 1
        if self.overlaps:
            step_s *= self.overlap
        self.clock.now_s += step_s
        self.ran.append((mode, true_s, step_s))
        self.step += 1
        return step_s
