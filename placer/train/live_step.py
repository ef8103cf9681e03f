"""A training step that stays live while its mode changes: untouched, or placed by one mapping or another.

Every call is one real step. What takes long (capturing, building, trial runs: placer/train/builder.py) can be done by
another thread; which mode runs next is decided elsewhere (search/online/controller.py).
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from dataclasses import replace
from functools import partial
from typing import Any, TypeVar

from placer import tf_internals
from placer.devices.gpu_wait import drain
from placer.devices.load_probes import LoadProbes
from placer.errors import BadInputError, PlacerError
from placer.execute.outputs import attempted
from placer.graph.mapping import Mapping
from placer.graph.op_graph import OpGraph
from placer.graph.topology import Topology
from placer.result import Failed
from placer.splits.plan import SplitPlan
from placer.train.background import BackgroundThread
from placer.train.builder import Builder
from placer.train.joined_step import JoinedStep
from placer.train.session import DeviceSession
from placer.train.steps.modes import UNTOUCHED, Built, MappedStep, Mode, Placed
from placer.train.steps.placed_run import PlacedRun
from placer.train.steps.recorder import Recorder
from placer.train.steps.untouched import UntouchedFunction
from placer.train.steps.variant import Variant
from placer.train.steps.variants import Variants
from placer.train.variables.replicas import Use

T = TypeVar("T")
CLOSE_LIMIT_S = 60.0  # for work in the background to end
PROFILE_LIMIT_S = 60.0  # for one traced step, on workers that may get lost


class LiveStep:
    """A user's step, and the modes it can run in. The training thread uses `call`; `background` is one other thread."""

    def __init__(
        self,
        step: Callable[..., Any],
        session: DeviceSession,
        name: str,
        clock: Callable[[], float] = time.perf_counter,
        plan: SplitPlan | None = None,
    ) -> None:
        self.session, self.name, self.clock = session, name, clock
        self.untouched = UntouchedFunction(step, session, name, clock)
        self.variants = Variants(self.untouched, session, name)
        self.failed: tuple[Placed, str] | None = None  # a placed step that could not train, and why
        self._mode: Mode = UNTOUCHED
        self._joined: JoinedStep | None = None
        self._placed_run = PlacedRun(session, clock)
        self._recorder = Recorder(session)
        self._builder = Builder(self.untouched, session, name, clock, plan)
        self._background = BackgroundThread()
        session.members.append(self)

    @property
    def joined(self) -> JoinedStep:
        """What is known since `join`. Raises PlacerError before it."""
        if self._joined is None:
            raise PlacerError(f"{self.name} has not joined its devices yet.")
        return self._joined

    @property
    def is_joined(self) -> bool:
        """Whether `join` is done."""
        return self._joined is not None

    @property
    def graph(self) -> OpGraph | None:
        """The main signature's graph with costs, once profiled."""
        return None if self._joined is None else self._joined.graph

    @property
    def main(self) -> Variant | None:
        """The signature whose mapping is searched; others follow it."""
        return self.variants.main

    @property
    def left_alone(self) -> str | None:
        """Why the step runs untouched for good; None where it does not."""
        return self.variants.left_alone

    def leave_alone(self, why: str) -> None:
        """Run the step untouched for good; the caller says why."""
        self.variants.left_alone = self.variants.left_alone or why

    # The training thread.

    @property
    def mode(self) -> Mode:
        """How calls of the main signature run."""
        return UNTOUCHED if self.left_alone else self._mode

    @mode.setter
    def mode(self, mode: Mode) -> None:
        """Change the mode. A placed step that must not be called is ignored: it was built on the devices of before a
        loss, or of another signature, it has failed, or the step is left alone.
        """
        if mode is self._mode or (isinstance(mode, Placed) and (self.left_alone or not self._may_run(mode))):
            return
        drain()
        self._mode = mode
        self._placed_run.mode_changed()

    def _may_run(self, mode: Placed) -> bool:
        return self.is_current(mode) and self.main is not None and mode.step.captured is self.main.captured

    @property
    def successor(self) -> Variant | None:
        """The signature to `go_over` to, while nothing is done in the background and no device is missing."""
        if self.session.missing or not self._background.finish(0.0):
            return None
        return self.variants.successor

    def go_over(self, successor: Variant) -> None:
        """Make another signature the main one, untouched until it is captured and joined; the training thread only."""
        with self.session.lock:
            self.mode, self.failed = UNTOUCHED, None
            self.variants.forget_placed()
            self._recorder.clear()
            self.variants.go_over_to(successor)

    def call(self, args: Sequence[Any], kwargs: dict[str, Any]) -> tuple[Any, float | None]:
        """Run one step: what it returns, and its seconds if it is of the main signature.

        Within another function's trace, or under a gradient tape, the user's own function is called.
        """
        if tf_internals.is_recorded():
            return self.untouched.within(args, kwargs), None
        with self.session.lock:
            main = self.main
            variant, tensors = self.variants.of(args, kwargs)
            if self.main is not main:
                self._recorder.clear()  # it holds steps of another signature
            self._give_way_to_readers()
            takes_batch = self._takes_batch(variant)
        # A reader in another thread, which the batch may wait for, may need the lock.
        given = variant.taken(tensors, plain=self.untouched.plain is not None) if takes_batch else None
        with self.session.lock:
            if self.session.suspected:
                self.session.check_for_losses()
            if self.left_alone:
                return self.untouched.run(variant, args, kwargs)
            numbers = variant.layout.numbers_of(args, kwargs)
            if given is None:
                outputs, step_s = self.untouched.run(variant, args, kwargs)
            elif variant is self.main and isinstance(self.mode, Placed):
                outputs, step_s = self._placed(variant, self.mode, given)
            elif variant is self.main and not self._recorder.is_full:
                outputs, step_s = self._recorded(self._recorder, variant, given, numbers)
            elif variant is not self.main and isinstance(self.mode, Placed):
                outputs, step_s = self._followed(variant, self.mode, given, numbers)
            else:
                outputs, step_s = self.untouched.run_flat(variant, given, numbers)
            if self.untouched.plain is not None:
                self.variants.leave_alone(self.untouched.plain.why)
            return outputs, step_s if variant is self.main else None

    def _takes_batch(self, variant: Variant) -> bool:
        """Whether a call runs on flat tensors: it is placed, or recorded, so that it can be repeated."""
        if self.left_alone or not self.variants.may_trace(variant) or not self.variants.is_traced(variant):
            return False
        is_known = self._joined is not None and self._joined.main is variant
        recorded = variant is self.main and not is_known and not self._recorder.is_full
        return recorded or isinstance(self.mode, Placed)

    def _give_way_to_readers(self) -> None:
        """Run nothing placed any more where somebody reads the variables who cannot be stopped meanwhile."""
        if self.session.replicas.aside and not self.left_alone:
            self.variants.leave_alone(f"{self.session.replicas.aside} reads its variables while steps run")

    def repeat(self, key: Any, tensors: Sequence[Any]) -> None:
        """As in `Member`."""
        variant = self.variants[key]
        mode = self._mode_of(variant)
        if isinstance(mode, Placed):
            self._placed_run.run(mode, tensors)
        else:
            self.untouched.repeat(variant, tensors)

    def _recorded(
        self, recorder: Recorder, variant: Variant, tensors: Sequence[Any], numbers: Sequence[float]
    ) -> tuple[Any, float]:
        """An untouched step that trial runs repeat."""
        try:
            self.session.adopt(self.untouched.trained(variant))
        except BadInputError as error:
            self.variants.leave_alone(str(error))
            return self.untouched.run_flat(variant, tensors, numbers)
        run = partial(self.untouched.run_flat, variant, tensors, numbers)
        return recorder.record(self.untouched.trained(variant), tensors, run)

    def _placed(self, variant: Variant, mode: Placed, tensors: Sequence[Any]) -> tuple[Any, float]:
        if self.session.fragile:
            self.session.before_placed()
            if mode.generation != self.session.generation:  # a loss showed in that
                return self._placed_anew(variant, tensors)
        kept = self._placed_run.kept(mode)
        try:
            outputs, step_s = self._placed_run.run(mode, tensors)
        except BaseException as error:
            if self.session.is_loss(error):
                self.session.recover()
                return self._placed_anew(variant, tensors)
            if kept is None or not isinstance(error, Exception):
                self.session.after_failed()
                raise
            self.session.replicas.roll_back(mode.use, kept)
            return self._untouched_instead(variant, mode, tensors, error)
        self._placed_run.trained(mode)
        if self.session.fragile:
            self.session.after_placed(self, variant.key, tensors, step_s)
        return mode.step.captured.pack(outputs), step_s

    def _untouched_instead(
        self, variant: Variant, mode: Placed, tensors: Sequence[Any], error: Exception
    ) -> tuple[Any, float]:
        """A placed step failed when it first trained, and was undone. If the step is to blame, it raises here, too."""
        self._mode = UNTOUCHED
        found = self.untouched.run_flat(variant, tensors)
        self._builder.reject(mode)
        why = str(error).strip().splitlines()[0]
        if variant is self.main:
            self.failed = mode, why
        else:
            self.variants.refuse(variant, why)
        return found

    def _placed_anew(self, variant: Variant, tensors: Sequence[Any]) -> tuple[Any, float]:
        """Run a step in the mode of now: devices may have been lost since it began."""
        mode = self._mode_of(variant)
        if isinstance(mode, Placed):
            return self._placed(variant, mode, tensors)
        return self.untouched.run_flat(variant, tensors)

    def _followed(
        self, variant: Variant, mode: Placed, tensors: Sequence[Any], numbers: Sequence[float]
    ) -> tuple[Any, float]:
        """A step of another signature than the main one: under each mapping the first is recorded, and the others are
        placed if a trial does what that did.
        """
        if variant.placed_by(mode) is None:
            if variant.recorder is None:
                variant.recorder = Recorder(self.session)
                return self._recorded(variant.recorder, variant, tensors, numbers)
            why = self._builder.follow(variant, mode, self.joined.topology, variant.recorder)
            variant.recorder = None
            if why is not None:
                self.variants.refuse(variant, why)
                return self.untouched.run_flat(variant, tensors, numbers)
        return self._placed_anew(variant, tensors)

    def _mode_of(self, variant: Variant) -> Mode:
        """How a call of this signature runs now: others than the main one follow its mapping."""
        if variant is self.main or not isinstance(self.mode, Placed):
            return self.mode
        return variant.placed_by(self.mode) or UNTOUCHED

    # Either thread.

    def background(self, work: Callable[[], T]) -> Future[T]:
        """Run `work` on the other thread."""
        return self._background.submit(work)

    def capture(self) -> OpGraph:
        """Capture the main signature: its graph. Raises BadInputError where the step cannot be placed."""
        with self.session.lock:
            main, self.variants.is_settled = self.main, True
        if main is None:
            raise BadInputError(f"{self.name} was not called yet, so its signature is not known.")
        if self.left_alone:
            raise BadInputError(f"{self.name} must run untouched: {self.left_alone}.")
        if self.untouched.plain is not None and main.traced is None:
            raise BadInputError(f"{self.name} was not called often enough to be traced.")
        main.captured = self._builder.capture(main)
        return main.captured.graph

    @property
    def is_ready(self) -> bool:
        """Whether enough steps ran untouched for `capture` and `join`, or none ever will."""
        return self.variants.is_ready

    def join(self) -> Topology:
        """Join the devices; the training thread only, between steps."""
        with self.session.lock:
            main = self.main
            if main is None or main.captured is None:
                raise PlacerError(f"{self.name} joins devices once it is captured.")
            devices = self.session.join()
            captured = main.captured
            self.session.adopt(captured.variables.values())
            self._builder.template(main)
            trial_run = self._builder.trial_run(main, captured, self._recorder)
            self._recorder.clear()
            if self.session.fragile:
                self.session.save()
            if self._joined is not None:
                self._joined.trial_run.close()
            self._joined = JoinedStep(main, captured, trial_run, devices.topology)
            return devices.topology

    def profile(self) -> tuple[OpGraph, Topology]:
        """The main signature's graph with costs, and the topology with its links as measured."""
        devices = self.session.join()
        self._joined = joined = self.joined.with_links_of(devices)
        graph = joined.profile(devices, PROFILE_LIMIT_S if self.session.fragile else None)
        self._joined = replace(joined, graph=graph)
        return graph, joined.topology

    def build(self, devices: Sequence[int], order: Sequence[str], name: str) -> Built | Failed:
        """Place the main signature and try it; `settle` makes it ready to run. A failure is a value."""
        joined = self.joined
        template = self._builder.template(joined.main)
        built: Built | Failed = attempted(
            lambda: self._builder.build(template, joined.topology, devices, order, name, joined.trial_run)
        )
        if isinstance(built, Failed) and built.reason == "device":
            self.session.suspected = True
        return built

    def settle(self, built: Built) -> Placed | Failed:
        """Let a step that was built train the live variables; the training thread only. Failed where devices were
        joined anew since.
        """
        return self._builder.settle(built)

    def release(self, keep: Sequence[Placed]) -> None:
        """Free the replicas of variables that none of these needs; the training thread only."""
        self._builder.forget_all_but([*keep, *(v.following[1] for v in self.variants if v.following)])
        self.joined.trial_run.forget()
        self.session.release()

    @property
    def uses(self) -> list[Use]:
        """As in `Member`."""
        return self._builder.uses

    @property
    def shares_cores(self) -> bool:
        """Whether the devices compute on cores of this process, so measuring and training disturb each other."""
        return self.session.shares_cores

    def load_probes(self) -> LoadProbes:
        """Probes of the devices that are there."""
        return LoadProbes(self.session.present)

    def mapping(self, devices: tuple[int, ...]) -> Mapping:
        """The main signature's ops on these devices."""
        return self.joined.mapping(devices)

    def is_current(self, step: MappedStep) -> bool:
        """Whether a step may still be called: devices were not joined anew since it was built."""
        return self._builder.is_current(step)

    # When devices are lost, or come back.

    def pause(self) -> None:
        """As in `Member`."""
        self._background.cancel()

    def finish(self) -> None:
        """As in `Member`."""
        self._background.finish()

    def rebuild(self) -> None:
        """As in `Member`: the same mapping where its devices are there, else everything on the first one that is."""
        self.variants.forget_placed()
        if self._joined is None:
            return
        joined = self._joined
        joined.trial_run.forget()
        template = self._builder.template(joined.main)
        if not isinstance(self.mode, Placed):
            return
        if self.session.devices is None:
            self.mode = UNTOUCHED
            return
        self.mode = self._builder.rebuilt(template, joined.topology, self.mode)

    def close(self) -> None:
        """Leave the session, with the user's variables true. Background work that does not end is left to itself."""
        if not self._background.close(CLOSE_LIMIT_S):
            self.session.connection.end_workers()  # it may wait for one that no longer answers
            self._background.finish(CLOSE_LIMIT_S)
        with self.session.lock:
            self.session.leave(self)
            self._mode = UNTOUCHED
            if self._joined is not None:
                self._joined.trial_run.close()
            self.variants.forget_placed()
            self._builder.forget_all_but(())
