"""Planners on a simulated machine, with the times that real ones take."""

import math
from dataclasses import replace

import numpy as np

from placer.errors import PlacerError
from placer.result import Measured
from search.online.replan.proposal import Proposal
from tests.search.online.simulated.background import Line
from tests.search.online.simulated.mappings import CALM, SINGLES, TOPOLOGY, linked, makespan, pool


class TablePlanner:
    """Proposes from the pool what is predicted best; knows loads by probes, and better by what it is told."""

    def __init__(self, machine):
        self.machine, self.line, self.calls = machine, Line(machine.clock), []
        self.load = self.probed = CALM
        self.link = 1.0  # how many times as slow
        self.names = TOPOLOGY.names
        self.told = {CALM: {}}
        self.known = self.told[CALM]
        self.dies_at_s = math.inf
        self.closed = False

    def _later(self, name, seconds, work):
        self.calls.append(name)
        seconds *= self.machine.rng.uniform(0.7, 1.3)
        return self.line.submit(seconds, lambda: self._alive(work))

    def _alive(self, work):
        if self.machine.clock.now_s >= self.dies_at_s:
            raise PlacerError("the planner's process ended with code -9; start another to search on.")
        return work()

    def start(self):
        return self._later("start", 2.0, lambda: None)

    def close(self):
        self.closed = True

    def singles(self):
        return self._later("singles", 0.2, lambda: [self._proposal(d, "single") for d in self._on_those(SINGLES)])

    def tell(self, measured):
        return self._later("tell", 0.0, lambda: self._told(measured))

    def propose(self, count, seconds=None):
        return self._later("propose", seconds or 2.0, lambda: self._proposed(count))

    def ended(self):
        return self._later("ended", 0.0, lambda: None)

    def predict(self, devices):
        return self._later("predict", 0.02, lambda: self._predicted_s(devices))

    def _predicted_s(self, devices):
        return self.machine.scale * makespan(devices, self.load) * linked(devices, self.link)

    def slowed(self, device_factor, link_factor):
        return self._later("slowed", 0.05, lambda: self._slowed(device_factor, link_factor))

    def only(self, names):
        return self._later("only", 0.05, lambda: setattr(self, "names", tuple(names)))

    def _on_those(self, mappings):
        """Those that only use devices which are there."""
        return [devices for devices in mappings if {TOPOLOGY.names[d] for d in set(devices)} <= set(self.names)]

    def _slowed(self, factors, links=None):
        self.link = max((links or {}).values(), default=1.0)
        self.probed = self.load = tuple(round(factors.get(name, 1.0), 2) for name in TOPOLOGY.names)
        if self.load != CALM or self.link != 1.0:
            self.told[self.load] = {}
        self.known = self.told[self.load]

    def _told(self, measured):
        for devices, result in measured:
            self.known[devices] = result
            if self.probed != CALM:
                self.load = min(self._powers(), key=self._misfit)

    def _powers(self):
        """Probes understate a load by some power."""
        return [tuple(max(0.01, round(f**power, 2)) for f in self.probed) for power in np.arange(0.5, 4, 0.1)]

    def _misfit(self, load):
        known = [(d, r) for d, r in self.known.items() if isinstance(r, Measured)]
        return sum(
            math.log(self.machine.scale * makespan(devices, load) / result.step_s) ** 2 for devices, result in known
        )

    def _proposed(self, count):
        new = [d for d in self._on_those(pool()) if d not in self.known]
        best = sorted(new, key=self._predicted_s)[:count]
        return [self._proposal(d, "hybrid") for d in best]

    def _proposal(self, devices, name):
        return Proposal(devices, (), self._predicted_s(devices), name)


class DividedPlanner(TablePlanner):
    """Proposes mappings of a divided step."""

    def __init__(self, machine, plan):
        super().__init__(machine)
        self.plan = plan

    def predict(self, devices):
        return self._later("predict", 0.02, lambda: self.machine.divided * makespan(devices, self.load))

    def _proposal(self, devices, name):
        predicted_s = self.machine.divided * makespan(devices, self.load)
        return replace(super()._proposal(devices, name), predicted_s=predicted_s, plan=self.plan)

    def _told(self, measured):
        share = self.machine.divided
        super()._told([(d, replace(r, step_s=r.step_s / share) if isinstance(r, Measured) else r) for d, r in measured])


class RealPlanner(TablePlanner):
    """The plan of the product, with the times of its process."""

    def __init__(self, machine):
        super().__init__(machine)
        self.plan = None

    def _later(self, name, seconds, work):
        return super()._later(name, seconds, work)

    def singles(self):
        return self._later("singles", 0.2, self.plan.singles)

    def tell(self, measured):
        return self._later("tell", 0.0, lambda: self.plan.tell(measured))

    def propose(self, count, seconds=None):
        return self._later("propose", seconds or 2.0, lambda: self.plan.propose(count, 0.2))

    def ended(self):
        return self._later("ended", 0.0, lambda: self.plan.ended)

    def predict(self, devices):
        return self._later("predict", 0.02, lambda: self.plan.predict(devices))

    def slowed(self, device_factor, link_factor):
        return self._later("slowed", 0.05, lambda: self.plan.slowed(device_factor, link_factor))

    def only(self, names):
        return self._later("only", 0.05, lambda: self.plan.only(names))
