"""A training step that stays live while its mode changes: untouched, or placed by one mapping or another.

Every call is one real step. What takes long (capturing, building, scratch runs: placer/train/builder.py) can be done by
another thread; which mode runs next is decided elsewhere (search/online/controller.py).
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from typing import Any, TypeVar

import tensorflow as tf

from placer.devices.load.load_probes import LoadProbes
from placer.errors import BadInputError, PlacerError
from placer.execute.outputs import attempted, out_of_memory
from placer.graph.held_memory import has_room_for_trials
from placer.graph.mapping import Mapping
from placer.graph.op_graph import OpGraph
from placer.graph.topology import Topology
from placer.result import Failed
from placer.splits.plan import SplitPlan
from placer.trace.capture import Captured
from placer.train.background import BackgroundThread
from placer.train.builder import Builder
from placer.train.calls import Calls
from placer.train.device_session import DeviceSession
from placer.train.joined_step import JoinedStep
from placer.train.scratch_room import room_beside
from placer.train.steps.modes import UNTOUCHED, WHOLE, Built, MappedStep, Mode, Placed, Wanted
from placer.train.steps.untouched import UntouchedFunction
from placer.train.steps.variant import Variant
from placer.train.steps.variants import Variants
from placer.train.variables.replicas import Use

T = TypeVar("T")
LEAVING_ALONE_LIMIT_S = 2.0  # for background work to end when the step is left alone; the training waits meanwhile
PROFILE_LIMIT_S = 60.0  # for one traced step, on workers that may get lost


class LiveStep:
    """A user's step, and the modes it can run in. The training thread uses `call`; `background` uses another thread."""

    def __init__(
        self,
        step: Callable[..., Any],
        session: DeviceSession,
        name: str,
        clock: Callable[[], float] = time.perf_counter,
        plans: Sequence[SplitPlan] = (),
    ) -> None:
        """plans: the plans of splits that may be used, numbered from 1."""
        self.session, self.name, self.clock = session, name, clock
        self.untouched = UntouchedFunction(step, session, name, clock)
        self.variants = Variants(self.untouched, session, name)
        self._joined: JoinedStep | None = None
        self._builder = Builder(self.untouched, session, name, clock, plans)
        self._calls = Calls(session, self.untouched, self.variants, self._builder, lambda: self._joined)
        self.thread = BackgroundThread()
        self._is_resting = False
        self._probe_products: dict[str, int] = {}  # `products` of the latest load probes
        self.entry = session.enter(self)

    @property
    def joined(self) -> JoinedStep:
        """The state of the step since its devices were joined. Raises PlacerError before `join`."""
        if self._joined is None:
            raise PlacerError(f"{self.name} has not joined its devices yet.")
        return self._joined

    @property
    def is_joined(self) -> bool:
        """Whether `join` has succeeded once."""
        return self._joined is not None

    @property
    def graph(self) -> OpGraph | None:
        """The main signature's graph with costs, once profiled."""
        return None if self._joined is None else self._joined.graphs.get(WHOLE)

    @property
    def main(self) -> Variant | None:
        """The signature whose mapping is searched; others follow it."""
        return self.variants.main

    @property
    def left_alone(self) -> str | None:
        """Why the step runs untouched for good; None if it does not."""
        return self.variants.left_alone

    def leave_alone(self, why: str) -> None:
        """Run the step untouched for good; the caller says why."""
        self.variants.left_alone = self.variants.left_alone or why

    def let_go(self) -> None:
        """Free what was held for placing this step, which is left alone. Leave the devices unless other steps or
        background work use them. The training thread only, between steps.
        """
        with self.session.lock:
            is_idle = self.thread.cancel(LEAVING_ALONE_LIMIT_S)
            self._calls.end()
            self._calls.recorder.clear()
            self.variants.let_go()
            if self._joined is not None:
                self._joined.scratch_run.close()
            self._forget_built()
            self.session.let_go(leaves=is_idle)
            self.variants.forget()  # not before: if a device is lost, steps are repeated by their signatures

    # The training thread.

    @property
    def mode(self) -> Mode:
        """The mode in which calls of the main signature run."""
        return self._calls.mode

    @mode.setter
    def mode(self, mode: Mode) -> None:
        with self.session.lock:
            self._calls.mode = mode

    @property
    def overlaps(self) -> bool:
        """Whether calls are now timed without waiting for GPUs, so that their seconds compare only with each other."""
        return self._calls.overlaps

    @property
    def failed(self) -> tuple[Placed, str] | None:
        """A placed step that could not train, and why. The caller sets this to None once it has dealt with it."""
        return self._calls.failed

    @failed.setter
    def failed(self, failed: tuple[Placed, str] | None) -> None:
        self._calls.failed = failed

    @property
    def successor(self) -> Variant | None:
        """The signature to `go_over` to, if any; None while background work goes on or a device is missing."""
        if self.session.missing or not self.thread.finish(0.0):
            return None
        return self.variants.successor

    @property
    def scattered(self) -> str | None:
        """A message if hardly any call is of the main signature, else None."""
        return self.variants.scattered

    def go_over(self, successor: Variant) -> None:
        """Make another signature the main one, untouched until it is captured and joined; the training thread only."""
        with self.session.lock:
            self.mode, self.failed = UNTOUCHED, None
            self.variants.forget_placed()
            self._calls.recorder.clear()
            self.variants.go_over_to(successor)
            del self._builder.plans[WHOLE + 1 :]  # they divide the former main signature

    def call(self, args: Sequence[Any], kwargs: dict[str, Any], timed: bool = True) -> tuple[Any, float | None]:
        """As `Calls.call`: run one step."""
        found = self._calls.call(args, kwargs, timed)
        self.variants.warn()
        return found

    # Either thread.

    def background(self, work: Callable[[], T]) -> Future[T]:
        """Run `work` on the other thread. Waits for the session's lock first, because a thread that reads variables may
        be recovering from a lost device.
        """
        with self.session.lock:
            return self.thread.submit(work)

    def capture(self) -> OpGraph:
        """Capture the main signature and return its graph. Raises BadInputError if the step cannot be placed.

        Never waits for the session's lock, because the thread that holds it may wait for the background thread.
        """
        main = self.variants.settle()
        if main is None:
            raise BadInputError(f"{self.name} was not called yet, so its signature is not known.")
        if self.left_alone:
            raise BadInputError(f"{self.name} must run untouched: {self.left_alone}.")
        if self.untouched.plain is not None and main.traced is None:
            raise BadInputError(f"{self.name} was not called often enough to be traced.")
        main.captured = self._builder.capture(main)
        self._builder.check_plans(main)
        return main.captured.graph

    @property
    def is_ready(self) -> bool:
        """Whether enough undisturbed untouched steps ran for `capture` and `join`; also True if the step is left alone,
        because then there will be no more.
        """
        return self.variants.is_ready and (self.left_alone is not None or not self._calls.recorder.disturbed)

    def join(self) -> Topology:
        """Join the devices; the training thread only, between steps."""
        with self.session.lock:
            main = self.main
            if main is None or main.captured is None:
                raise PlacerError(f"{self.name} joins devices once it is captured.")
            devices = self.session.join()
            self._is_resting = False
            captured = main.captured
            self.session.adopt(captured.variables.values())
            self._builder.template(main)
            scratch_run = self._builder.scratch_run(main, captured, self._calls.recorder)
            self._calls.recorder.clear()
            if self.session.fragile:
                self.session.save()
            if self._joined is not None:
                self._joined.scratch_run.close()
            self._joined = JoinedStep(main, captured, scratch_run, devices.topology)
            return devices.topology

    @property
    def is_resting(self) -> bool:
        """As in `Member`."""
        return self._is_resting or self.left_alone is not None

    @property
    def runs_directly(self) -> bool:
        """Whether a call may go straight to the user's tf.function: it rests, and the devices are left."""
        return self._is_resting and self.session.is_away and self.untouched.plain is None

    def rest(self) -> str | None:
        """Run untouched until `wake`, and forget what was built; leave the devices unless other steps use them. The
        training thread only, between steps. Returns why the devices cannot be left yet, so that the caller can try
        again later; None if they are left.
        """
        with self.session.lock:
            if not self._is_resting:
                self.mode, self._is_resting = UNTOUCHED, True
                self._forget_built()
            return self.session.go_away()

    def wake(self) -> None:
        """Join the devices again; the training thread only, between steps. Raises as `DeviceSession.join`."""
        with self.session.lock:
            self.session.join()
            if self.session.fragile:
                self.session.save()
            self._is_resting = False

    def profile(self, plan: int = WHOLE) -> tuple[OpGraph, Topology]:
        """Profile the main signature, divided by a plan of splits. Returns its graph with costs, and the topology with
        measured links.
        """
        devices = self.session.join()
        if plan == WHOLE:
            self._joined = self.joined.with_links_of(devices)
        limit_s = PROFILE_LIMIT_S if self.session.fragile else None
        self._joined = self.joined.profiled(plan, self.captured(plan), devices, limit_s)
        return self._joined.graphs[plan], self._joined.topology

    def divide(self, plan: SplitPlan) -> int:
        """Add a plan of splits and return its number. Raises PlanError if it does not fit the main signature."""
        return self._builder.add_plan(self.joined.main, plan)

    def plan(self, number: int) -> SplitPlan:
        """The plan of splits with this number."""
        return self._builder.plans[number]

    def divided_in_words(self, plan: int) -> str:
        """A description of what a plan of splits divides in the main signature's step."""
        return self.plan(plan).described(len(self.captured().graph), len(self.captured(plan).divided))

    def captured(self, plan: int = WHOLE) -> Captured:
        """The main signature's step, divided by a plan. Raises PlacerError before `join`."""
        return self._builder.divided(self.joined.main, plan)

    def build(self, devices: Sequence[int], order: Sequence[str], name: str, plan: int = WHOLE) -> Built | Failed:
        """Build the main signature under a mapping and try it; `settle` makes it ready to train. Returns a failure as
        Failed.
        """
        joined, wanted = self.joined, Wanted(devices, order, name, plan)
        if (absent := self._builder.absent(joined.topology, devices)) is not None:
            return Failed("device", absent)
        template = self._builder.template(joined.main, plan)
        graph, mode = template.captured.graph, self.mode
        sparing, at_once = not has_room_for_trials(graph, joined.topology), dict[str, float]()
        name_of = self.session.present.name_of
        if sparing:
            running = self.mapping(mode.op_devices, mode.plan) if isinstance(mode, Placed) else None
            room = room_beside(self.session, joined, graph, wanted, running)
            if isinstance(room, Failed):
                return room
            at_once = room
        built: Built | Failed = attempted(
            lambda: self._builder.build(template, joined.topology, wanted, joined.scratch_run, sparing)
        )
        if isinstance(built, Failed) and built.reason == "device":
            self.session.suspect()
        return out_of_memory(built, name_of, at_once) if isinstance(built, Failed) else built

    def settle(self, built: Built | Failed) -> Placed | Failed:
        """Let a step that was built train the live variables; the training thread only. Fails as `Builder.settle`; a
        failure of `build` is returned as it is.
        """
        if isinstance(built, Failed):
            return built
        with self.session.lock:
            settled = self._builder.settle(built)
        if isinstance(settled, Failed) and settled.reason == "device":
            self.session.suspect()
        return settled

    def release(self, keep: Sequence[Placed]) -> None:
        """Free the replicas that no step in `keep`, no following signature and no other live step needs; the training
        thread only.
        """
        with self.session.lock:
            self._builder.forget_all_but([*keep, *(v.following[1] for v in self.variants if v.following)])
            if self._joined is not None:  # the main signature may change before the first `join`
                self._joined.scratch_run.forget()
            self.session.release()

    @property
    def uses(self) -> list[Use]:
        """As in `Member`."""
        return self._builder.uses

    @property
    def variables(self) -> list[tf.Variable]:
        """As in `Member`."""
        captured = [v.captured for v in self.variants if v.captured is not None and self.left_alone is None]
        return [variable for one in captured for variable in one.variables.values()]

    @property
    def shares_cores(self) -> bool:
        """Whether devices compute on cores of this machine, so that measuring and training disturb each other."""
        return self.session.shares_cores

    def load_probes(self) -> LoadProbes:
        """Probes of the devices that are present."""
        return self._probes({})

    def load_probes_again(self) -> LoadProbes:
        """New probes after devices were joined again. The probe of each device computes as many products as in the
        latest probes, so that their seconds can be compared.
        """
        return self._probes(self._probe_products)

    def _probes(self, products: dict[str, int]) -> LoadProbes:
        probes = LoadProbes(self.session.present, products=products)
        self._probe_products = probes.products
        return probes

    def mapping(self, devices: tuple[int, ...], plan: int = WHOLE) -> Mapping:
        """The main signature's ops, divided by a plan, on these devices."""
        return self.joined.mapping(devices, plan, self.captured(plan))

    def is_current(self, step: MappedStep) -> bool:
        """Whether a step may still be called: no device was joined or left since it was built, and it did not fail."""
        return self._builder.is_current(step)

    # When devices are lost, or come back.

    def pause(self) -> None:
        """As in `Member`."""
        self.thread.cancel()

    def finish(self) -> None:
        """As in `Member`."""
        self.thread.finish()

    def rebuild(self) -> None:
        """As in `Member`: build the same mapping if its devices are present, else what `Builder.rebuilt` says."""
        self.variants.forget_placed()
        if self._joined is None:
            return
        joined = self._joined
        joined.scratch_run.forget()
        if not isinstance(self.mode, Placed):
            return
        if self.session.devices is None:
            self.mode = UNTOUCHED
            return
        self.mode = self._builder.rebuilt(joined.main, joined.topology, self.mode)

    def close(self) -> None:
        """Leave the session, with the user's variables up to date. Background work that does not end is abandoned."""
        self.session.end_thread(self.thread, self)
        with self.session.lock:
            self.session.leave(self)
            self._calls.end()
            if self._joined is not None:
                self._joined.scratch_run.close()
            self._forget_built()

    def end(self, limit_s: float) -> None:
        """As in `Member`."""
        if self.thread.cancel(limit_s):
            self.leave_alone("the program ends")
            self.close()

    def _forget_built(self) -> None:
        self.variants.forget_placed()
        self._builder.forget_all_but(())
