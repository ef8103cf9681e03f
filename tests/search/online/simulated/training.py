"""Trainings on a simulated machine, and what happens to them: loads land, devices get lost and come back."""

from types import SimpleNamespace

import numpy as np

from placer.graph.topology import Topology
from placer.train.steps.modes import UNTOUCHED, Placed
from search.online.controller import Controller
from search.online.journal import Journal
from search.online.replan.replanner import Replanner
from search.online.settings import OnlineSettings
from tests.clock import Clock
from tests.search.online.simulated.machine import FakeStep, Machine
from tests.search.online.simulated.mappings import GRAPH, TOPOLOGY
from tests.search.online.simulated.planners import DividedPlanner, RealPlanner
from tests.search.online.towers import LINK

SEEDS = range(20)
LOOK_S = 4e-5  # that pass for a plan of the product whenever it looks at its clock, however busy the real machine is


class Training:
    """A controller and its machine, and the steps they took."""

    def __init__(self, machine, **settings):
        self.machine = machine
        self.journal = Journal(clock=machine.clock)
        self.controller = Controller(
            machine, self.journal, OnlineSettings(**{"beat_untouched": machine.competes, **settings}),
            clock=machine.clock, planner=self.planner_of,
        )  # fmt: skip
        self.planners = [machine.planner]
        self.is_alone = False
        self.script = self.controller.script()
        self.machine.mode = next(self.script)

    def planner_of(self, graph, topology, settings):
        if settings.plan:
            self.planners.append(DividedPlanner(self.machine, settings.plan))
        elif isinstance(self.machine.planner, RealPlanner):
            self.machine.planner.plan = Replanner(GRAPH, TOPOLOGY, settings, Clock(tick_s=LOOK_S))
        return self.planners[settings.plan]

    def steps(self, count):
        for _ in range(count):
            step_s = self.machine.run(self.machine.mode)
            self.controller.narrator.step = self.machine.step
            if not self.is_alone:
                self.machine.mode = self.script.send(step_s)
                self._leave_alone()
        return self

    def every_other(self, count):
        """So many steps of the main signature, each after a call of another one, of which the script is sent nothing.

        The main ones are the odd ones, so that no multiple of ten is among them.
        """
        for _ in range(count):
            self.controller.narrator.step = 2 * (self.machine.step + 1)
            self.controller.look_aside()
            step_s = self.machine.run(self.machine.mode)
            self.controller.narrator.step = 2 * self.machine.step + 1
            self.machine.mode = self.script.send(step_s)
        return self

    def _leave_alone(self):
        """As an AutoStep does where the script has found a reason."""
        if self.machine.left_alone is not None:
            self.is_alone, self.machine.mode = True, UNTOUCHED
            self.controller.end_for_good()

    def until(self, phase, most=3000):
        """Steps until it is in that phase."""
        while self.controller.narrator.phase != phase:
            assert self.machine.step < most
            self.steps(1)
        return self

    @property
    def mode(self):
        return self.controller.mode

    @property
    def true_s(self):
        return self.machine.true_s(self.mode)

    @property
    def moves(self):
        """How often the incumbent changed."""
        return sum(sentence.startswith("to ") for sentence in self.said("moved"))

    def said(self, kind):
        return [entry.sentence for entry in self.journal.entries if entry.kind == kind]


def settled(seed, load, lasts, quiet=60, **machine):
    """A training on which that load lands after the search, and how many steps later it lands."""
    training = Training(Machine(seed, **machine)).until("steady").steps(quiet)
    begin = training.machine.step
    training.machine.loads.append((begin, begin + lasts, load))
    return training, begin


def steps_until_good(training, begin, load, most=150):
    """Steps until the median of five is within 95 % of the optimum."""
    limit_s = training.machine.best_s(load) / 0.95
    took = [true_s for _, true_s, _ in training.machine.ran[begin : begin + most]]
    return next((k for k in range(5, most) if np.median(took[k - 5 : k]) <= limit_s), most)


def rejoined(training, names):
    """What AutoStep does after devices were joined anew."""
    machine, controller = training.machine, training.controller
    machine.generation += 1
    devices = tuple(d for d in TOPOLOGY.devices if d.name in names)
    machine.session.devices = SimpleNamespace(topology=Topology(devices, (LINK,)), has_local=False) if names else None
    machine.session.missing = tuple(n for n in TOPOLOGY.names if n not in names)
    machine.session.back = tuple
    alone = (TOPOLOGY.index[names[0]],) * len(GRAPH) if names else None
    name, generation = machine.mode.name, machine.generation
    machine.mode = Placed(alone, (), name, FakeStep(), generation, 0.0, use=None) if names else UNTOUCHED
    training.script = controller.script_after_joining()
    machine.mode = next(training.script)


def away(machine, lasts):
    """A device is missing in the next steps; none of the machine's that needs it may be used meanwhile."""
    begin, session = machine.step, machine.session
    session.missing, session.back = ("worker:1",), lambda: session.missing if machine.step >= begin + lasts else ()
    session.rejoin = lambda: setattr(session, "missing", ())

    def whole(use):
        def used(*args):
            assert not session.missing, "a device is used that is missing"
            return use(*args)

        return used

    for name in ("join", "wake", "profile", "build"):
        setattr(machine, name, whole(getattr(machine, name)))
        getattr(machine, name).__name__ = name
