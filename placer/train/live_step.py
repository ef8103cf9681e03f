"""A training step that stays live while its mode changes: untouched, or placed by one mapping or another.

Every call is one real step. What takes long (capturing, building, trial runs: placer/train/builder.py) can be done by
another thread; which mode runs next is decided elsewhere (search/online/controller.py).
"""

from __future__ import annotations

import time
import warnings
from collections.abc import Callable, Hashable, Sequence
from concurrent.futures import Future
from dataclasses import replace
from functools import partial
from typing import Any, TypeVar

import tensorflow as tf

from placer import tf_internals
from placer.devices.gpu_wait import drain
from placer.devices.load_probes import LoadProbes
from placer.errors import BadInputError, PlacerError
from placer.execute.outputs import attempted
from placer.graph.mapping import Mapping
from placer.graph.op_graph import OpGraph
from placer.graph.topology import Topology
from placer.result import Failed
from placer.trace.iterator_inputs import Feeding
from placer.trace.signature import Signatures
from placer.trace.untouchable import untouchable
from placer.train.background import BackgroundThread
from placer.train.builder import Builder
from placer.train.joined_step import JoinedStep
from placer.train.modes import UNTOUCHED, Built, MappedStep, Mode, Placed
from placer.train.recorder import Recorder
from placer.train.session import DeviceSession
from placer.train.trial_run import TrialRun
from placer.train.untouched import UntouchedFunction, lent
from placer.train.variant import Variant

T = TypeVar("T")
DRAINED = 64  # calls after a change of mode that are timed until all they started is done; later ones overlap
MOST_VARIANTS = 16  # signatures that are remembered
PLAIN_CALLS = 4  # of a plain step before it is captured: one builds, one is judged, two are recorded
PROFILE_LIMIT_S = 60.0  # for one traced step, on workers that may get lost


class LiveStep:
    """A user's step, and the modes it can run in. The training thread uses `call`; `background` is one other thread."""

    def __init__(
        self,
        step: Callable[..., Any],
        session: DeviceSession,
        name: str,
        clock: Callable[[], float] = time.perf_counter,
    ) -> None:
        self.session, self.name, self.clock = session, name, clock
        self.untouched = UntouchedFunction(step, session, name, clock)
        self.main: Variant | None = None  # the signature whose mapping is searched; others follow it
        self._mode: Mode = UNTOUCHED
        self._calls_in_mode = 0  # placed ones since the mode changed
        self._joined: JoinedStep | None = None
        self.left_alone: str | None = None
        self._signatures = Signatures()
        self._variants: dict[Hashable, Variant] = {}
        self._calls = 0
        self._has_settled = False  # on its main signature
        self._recorder = Recorder(session)
        self._builder = Builder(self.untouched, session, name, clock)
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

    # The training thread.

    @property
    def mode(self) -> Mode:
        """How calls of the main signature run."""
        return self._mode

    @mode.setter
    def mode(self, mode: Mode) -> None:
        """Change the mode; what was placed on the devices of before a loss must never be called, so it is ignored, and
        so is any placed step where a trace of the step would not do what the step does.
        """
        if mode is self._mode or (isinstance(mode, Placed) and (self.is_unsafe or not self.is_current(mode))):
            return
        drain()
        self._mode, self._calls_in_mode = mode, 0

    def call(self, args: Sequence[Any], kwargs: dict[str, Any]) -> tuple[Any, float | None]:
        """Run one step: what it returns, and its seconds if it is of the main signature.

        Within another function's trace, or under a gradient tape, the user's own function is called.
        """
        if tf_internals.is_recorded():
            return self.untouched.within(args, kwargs), None
        with self.session.lock:
            variant, tensors = self._variant(args, kwargs)
            if self.session.suspected:
                self.session.check_for_losses()
            if self.is_unsafe:
                return self.untouched.run(variant, args, kwargs)
            if variant is not self.main:
                return self._aside(variant, args, kwargs, tensors), None
            mode = self._mode
            if isinstance(mode, Placed):
                return self._placed(variant, mode, self._given(variant, tensors))
            return self._untouched(variant, args, kwargs, tensors)

    @property
    def is_unsafe(self) -> bool:
        """Whether a trace of the step would not do what the step does."""
        return self.untouched.plain is not None and self.left_alone is not None

    def _variant(self, args: Sequence[Any], kwargs: dict[str, Any]) -> tuple[Variant, Sequence[Any]]:
        """The signature of a call, and its flat tensors."""
        plain = self.untouched.plain
        if self.is_unsafe and self.main is not None:  # its signature no longer matters
            return self.main, ()
        key, tensors = self._signatures.of(args, kwargs)
        if plain is not None:
            key = plain.keyed(key)
            self._leave_alone(plain.why)
        variant = self._variants.get(key)
        if variant is None:
            variant = self._first_call(key, args, kwargs)
        self._calls += 1
        variant.calls, variant.last = variant.calls + 1, self._calls
        assert self.main is not None
        if not self._has_settled and variant.calls > self.main.calls + 1 and not variant.refused:
            self._change_main(variant)
        return variant, tensors

    def _leave_alone(self, why: str | None) -> None:
        """Run the step untouched for good, and say why, once."""
        if why is None or self.left_alone is not None:
            return
        self.left_alone = why
        if self.untouched.plain is not None:
            warnings.warn(f"placer: {self.name} runs untouched: {why}.", stacklevel=6)
            self.untouched.plain.end()
            self._mode = UNTOUCHED

    def _change_main(self, variant: Variant) -> None:
        """The main signature of the first call did not come again as often as this one."""
        if self.left_alone is None and self._traced(variant):
            self.main = variant
            self._recorder.clear()

    def _traced(self, variant: Variant) -> bool:
        """Whether a signature can be placed, as far as tracing it shows; says why not, once."""
        if variant.refused:
            return False
        if not variant.is_traced:
            variant.is_traced = True
            why = self.untouched.trace(variant)
            if why is None:
                variant.feeding = Feeding.of(variant.layout)
            elif variant is self.main and not self.is_joined:
                self._leave_alone(why)
            else:
                self._refuse(variant, why)
            return why is None
        return True

    def _refuse(self, variant: Variant, why: str) -> None:
        variant.refused = True
        warnings.warn(f"{self.name}: {why} Calls of this signature run untouched.", stacklevel=6)

    def _given(self, variant: Variant, tensors: Sequence[Any]) -> Sequence[Any]:
        """What a placed step takes: a batch where the user gave an iterator. Raises what the step raises at its end."""
        if variant.feeding is None:
            return tensors
        try:
            return variant.feeding.taken(tensors)
        except tf.errors.OutOfRangeError:
            if self.untouched.plain is None:
                raise
        raise StopIteration  # as next(iterator) in Python

    def repeat(self, key: Any, tensors: Sequence[Any]) -> None:
        """As in `Member`."""
        variant = self._variants[key]
        mode = self._mode_of(variant)
        if isinstance(mode, Placed):
            self._run(mode, tensors)
        elif self.untouched.plain is not None and not self.untouched.plain.is_in(variant.key):
            raise PlacerError(
                f"{self.name}: all devices were lost, and steps since the last snapshot cannot be taken again, because "
                "the Python state that they read has changed; go on from a checkpoint."
            )
        else:
            self.untouched.run_flat(variant, tensors)

    def _first_call(self, key: Hashable, args: Sequence[Any], kwargs: dict[str, Any]) -> Variant:
        variant = self._variants[key] = Variant(key, args, kwargs, self._signatures.layout(args, kwargs))
        plain = self.untouched.plain
        if self.main is None:
            self.main = variant
            self.left_alone = untouchable(self.untouched.step)
            if self.left_alone is None:
                variant.is_traced = plain is None
            self._leave_alone(self.untouched.trace(variant) if plain is None else plain.look_through())
        if self.left_alone is None and plain is None:
            variant.feeding = Feeding.of(variant.layout)
        if len(self._variants) > MOST_VARIANTS:
            self._drop_one()
        return variant

    def _drop_one(self) -> None:
        """Forget the signature that was not called for longest, with what was captured and placed for it."""
        others = (variant for variant in self._variants.values() if variant is not self.main)
        oldest = min(others, key=lambda variant: variant.last or self._calls + 1)
        if self.session.fragile:
            self.session.save()  # no step of it need be repeated
        del self._variants[oldest.key]

    def _untouched(
        self, variant: Variant, args: Sequence[Any], kwargs: dict[str, Any], tensors: Sequence[Any]
    ) -> tuple[Any, float]:
        wanted = variant is self.main and not self.is_joined and not self._recorder.is_full
        if not wanted or self.left_alone or not self._may_trace(variant) or not self._traced(variant):
            outputs, step_s = self.untouched.run(variant, args, kwargs)
            if self.untouched.plain is not None:
                self._leave_alone(self.untouched.plain.why)
            return outputs, step_s
        given = self._given(variant, tensors)
        if variant.feeding is not None:
            variant.shapes = variant.feeding.shapes(given)
        trained = self.untouched.trained(variant)
        numbers = variant.layout.numbers_of(args, kwargs)
        return self._recorder.record(trained, given, lambda: self.untouched.run_flat(variant, given, numbers))

    def _may_trace(self, variant: Variant) -> bool:
        """Whether enough calls ran untouched: the first of a plain step may build layers, the second is judged."""
        return variant.calls > (1 if self.untouched.plain is None else 2)

    def _placed(self, variant: Variant, mode: Placed, tensors: Sequence[Any]) -> tuple[Any, float]:
        if self.session.fragile:
            self.session.before_placed()
            if mode.generation != self.session.generation:  # a loss showed in that
                return self._placed_anew(variant, tensors)
        try:
            outputs, step_s = self._run(mode, tensors)
        except BaseException as error:
            if not self.session.is_loss(error):
                self.session.after_failed()
                raise
            self.session.recover()
            return self._placed_anew(variant, tensors)
        if self.session.fragile:
            self.session.after_placed(self, variant.key, tensors, step_s)
        return mode.step.captured.pack(outputs), step_s

    def _placed_anew(self, variant: Variant, tensors: Sequence[Any]) -> tuple[Any, float]:
        """Run a step in the mode of now: devices may have been lost since it began."""
        mode = self._mode_of(variant)
        if isinstance(mode, Placed):
            return self._placed(variant, mode, tensors)
        return self.untouched.run_flat(variant, tensors)

    def _run(self, mode: Placed, tensors: Sequence[Any]) -> tuple[list[Any], float]:
        """One placed step; its seconds do not include fetching variables."""
        self.session.replicas.before(mode.use)
        begin = self.clock()
        try:
            outputs = mode.step.run_flat(tensors)
            self._calls_in_mode += 1
            if self._calls_in_mode <= DRAINED:
                drain()
            step_s = self.clock() - begin
        finally:  # a step that failed may have written
            self.session.replicas.after(mode.use)
        return outputs, step_s

    def _aside(self, variant: Variant, args: Sequence[Any], kwargs: dict[str, Any], tensors: Sequence[Any]) -> Any:
        """A step of another signature than the main one."""
        placed = isinstance(self.mode, Placed) and not variant.refused
        if placed and self.untouched.plain is not None:
            placed = self._may_trace(variant) and self._traced(variant)
        if not placed:
            return self._untouched(variant, args, kwargs, tensors)[0]
        given = self._given(variant, tensors)
        if variant.feeding is not None:
            variant.shapes = variant.feeding.shapes(given)
        try:
            return self._placed_anew(variant, given)[0]
        except PlacerError as error:
            self._refuse(variant, str(error))
        return self.untouched.run_flat(variant, given, variant.layout.numbers_of(args, kwargs))[0]

    def _mode_of(self, variant: Variant) -> Mode:
        """How a call of this signature runs now: others than the main one follow its mapping."""
        if variant is self.main or not isinstance(self.mode, Placed):
            return self.mode
        return self._builder.following(variant, self.mode, self.joined.topology)

    # Either thread.

    def background(self, work: Callable[[], T]) -> Future[T]:
        """Run `work` on the other thread."""
        return self._background.submit(work)

    def capture(self) -> OpGraph:
        """Capture the main signature: its graph. Raises BadInputError where the step cannot be placed."""
        with self.session.lock:
            main, self._has_settled = self.main, True
        if main is None:
            raise BadInputError(f"{self.name} was not called yet, so its signature is not known.")
        if self.is_unsafe:
            raise BadInputError(f"{self.name} must run untouched: {self.left_alone}.")
        if self.untouched.plain is not None and main.traced is None:
            raise BadInputError(f"{self.name} was not called often enough to be traced.")
        main.captured = self._builder.capture(main)
        return main.captured.graph

    @property
    def is_ready(self) -> bool:
        """Whether enough steps ran untouched for `capture` and `join`, or none ever will."""
        if self.untouched.plain is None or self.left_alone is not None or self.main is None:
            return True
        return self.main.traced is not None and self.main.calls >= PLAIN_CALLS

    def join(self) -> Topology:
        """Join the devices; the training thread only, between steps."""
        with self.session.lock:
            devices, main = self.session.join(), self.main
            if main is None or main.captured is None:
                raise PlacerError(f"{self.name} joins devices once it is captured.")
            captured = main.captured
            self.session.adopt(captured.variables.values())
            self._builder.template(main)
            recording = self._recorder.recording(captured, self.name)
            unpack = partial(lent, main.feeding)
            trial_run = TrialRun(captured, recording, exact=self.session.present.same_bits, unpack=unpack)
            self._recorder.clear()
            if self.session.fragile:
                self.session.save()
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
        self.session.replicas.drop_unused([placed.use for placed in keep])

    @property
    def shares_cores(self) -> bool:
        """Whether the devices compute on cores of this process, so measuring and training disturb each other."""
        return (
            self.session.devices is not None and self.session.devices.workers is not None
        ) or not self.session.fragile

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
        for variant in self._variants.values():
            variant.following = variant.template = None
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
        there = [joined.topology.index[name] for name in self.session.devices.topology.names]
        same = set(self.mode.devices) <= set(there)
        devices = self.mode.devices if same else (there[0],) * len(self.mode.devices)
        order = self.mode.order if same else ()
        self.mode = self._builder.build_settled(template, joined.topology, devices, order, self.mode.name)

    def close(self) -> None:
        """Leave the session, with the user's variables true."""
        self._background.close()
        if self._joined is not None:
            self._joined.trial_run.forget()
        with self.session.lock:
            self.session.leave(self)
        self.mode = UNTOUCHED
