"""Runs the calls of a live step. Each call is one real step, run in the current mode."""

from __future__ import annotations

import weakref
from collections.abc import Callable, Sequence
from contextlib import suppress
from functools import partial
from typing import Any, NamedTuple

import tensorflow as tf

from placer import tf_internals
from placer.devices.gpu_wait import drain
from placer.devices.links.staging import on_gpus
from placer.errors import BadInputError, PlacerError, what_failed
from placer.trace.arrays import as_tensors
from placer.trace.graph_def.access_order import RAISED
from placer.trace.iterator_inputs import NoBatchError
from placer.train.builder import Builder
from placer.train.device_session import DeviceSession
from placer.train.joined_step import JoinedStep
from placer.train.steps.modes import UNTOUCHED, WHOLE, Mode, Placed
from placer.train.steps.placed_run import PlacedRun
from placer.train.steps.recorder import WRITES, Recorder
from placer.train.steps.untouched import UntouchedFunction
from placer.train.steps.variant import Variant
from placer.train.steps.variants import Variants
from placer.train.variables.hooks import trains_here

MOST_DISTURBED = 16  # steps in a row during which another thread writes; then the step is left alone
HALF_WAY = (
    "and may have written variables that the step as it is written had not reached; check them before you go on, or "
    "decorate the step with @tf.function if that is meant"
)
UNLIKE_ALONE = (
    "and may have written others of its variables than it would have alone, because nothing orders what failed and "
    "what writes; check them before you go on"
)


AsCalled = Callable[[], tuple[Any, float]]
"""Runs the untouched step as the user called it: what it returns, and its seconds."""


class Taken(NamedTuple):
    """The inputs of one call for a captured step: flat tensors, or why there are none; neither if none were taken."""

    tensors: Sequence[Any] | None = None
    none: NoBatchError | None = None


def _taken(variant: Variant, tensors: Sequence[Any]) -> Taken:
    try:
        return Taken(tensors=variant.taken(as_tensors(tensors)))
    except NoBatchError as none:
        return Taken(none=none)


def _failing(run: AsCalled, error: tf.errors.OpError) -> tuple[Any, float]:
    """Raise `error` of an iterator that failed when asked for the batch. First run the step on an iterator that has
    ended, because what the step does before it asks for a batch has to happen nevertheless.
    """
    with suppress(tf.errors.OutOfRangeError, StopIteration):
        run()
    raise error


def _repeat_by(calls: weakref.ref[Calls], key: Any, tensors: Sequence[Any]) -> None:
    """Run a step again that a loss undid. Raises PlacerError if the program has dropped the live step since."""
    found = calls()
    if found is None:
        raise PlacerError("a step that a lost device undid was dropped meanwhile; go on from a checkpoint.")
    found.repeat(key, tensors)


class Calls:
    """Runs the calls of one live step, and holds their mode; for the training thread."""

    def __init__(
        self,
        session: DeviceSession,
        untouched: UntouchedFunction,
        variants: Variants,
        builder: Builder,
        joined: Callable[[], JoinedStep | None],
    ) -> None:
        """joined: returns the JoinedStep, or None before the devices are joined."""
        self.session, self.untouched, self.variants = session, untouched, variants
        self._builder, self._joined = builder, joined
        self.recorder = Recorder(session)  # of the main signature
        self.failed: tuple[Placed, str] | None = None  # a placed step that could not train, and why
        self._mode: Mode = UNTOUCHED
        self._placed_run = PlacedRun(session, untouched.clock)

    @property
    def mode(self) -> Mode:
        """The mode in which calls of the main signature run."""
        return UNTOUCHED if self.variants.left_alone else self._mode

    @mode.setter
    def mode(self, mode: Mode) -> None:
        """Change the mode. A placed step that must not be called is ignored: one that was built on former devices or
        for another signature, one that has failed, or any if the step is left alone.
        """
        if mode is self._mode or (isinstance(mode, Placed) and (self.variants.left_alone or not self._may_run(mode))):
            return
        drain()
        self._mode = mode
        self._placed_run.mode_changed()

    @property
    def overlaps(self) -> bool:
        """As `PlacedRun.overlaps`; False for the untouched step, because timing it waits for its end."""
        return isinstance(self.mode, Placed) and self._placed_run.overlaps

    def _may_run(self, mode: Placed) -> bool:
        main = self.variants.main
        return self._builder.is_current(mode) and main is not None and mode.step.captured.whole is main.captured

    def end(self) -> None:
        """Run untouched from now on, without waiting for what still runs."""
        self._mode = UNTOUCHED

    def call(self, args: Sequence[Any], kwargs: dict[str, Any], timed: bool = True) -> tuple[Any, float | None]:
        """Run one step. Returns its outputs, and its seconds if they are those of the main signature in the current
        mode, else None. timed: whether the caller needs the seconds; an untouched step that is not timed costs less.

        Within another function's trace, under a gradient tape, or within an untouched step of the session, this calls
        the user's own function.
        """
        if tf_internals.calls.is_recorded():
            return self.untouched.within(args, kwargs), None
        trains_here()
        with self.session.lock:
            if self.session.runs_untouched:
                return self.untouched.step(*args, **kwargs), None
            main = self.variants.main
            variant, tensors = self.variants.of(args, kwargs)
            if self.variants.main is not main:
                self.recorder.clear()  # it holds steps of another signature
            if not timed and self._needs_no_care(variant):
                return self.untouched.run_untimed(args, kwargs), None
            self._give_way_to_readers()
            takes_batch = self._takes_batch(variant)
        # Not under the lock: the batch may wait for another thread, which may need the lock to read variables.
        taken = _taken(variant, tensors) if takes_batch else Taken()
        with self.session.lock:
            if self.session.recovery.is_due:
                self.session.recovery.check()
            as_called = self._as_called(variant, args, kwargs, taken)
            is_main = variant is self.variants.main
            if self.variants.left_alone:
                outputs, own_s = as_called()
                return outputs, own_s if is_main else None
            before = self.untouched.calls
            outputs, step_s = self._stepped(variant, taken.tensors, as_called)
            if self.untouched.plain is not None:
                self.variants.leave_alone(self.untouched.plain.why)
                if taken.tensors is not None and variant.feeding is None and self.untouched.calls > before:
                    self._judge_arrays(variant, args, kwargs, taken.tensors)
            return outputs, step_s if is_main else None

    def _as_called(self, variant: Variant, args: Sequence[Any], kwargs: dict[str, Any], taken: Taken) -> AsCalled:
        if taken.tensors is None and taken.none is None:  # if left alone, `variant` may be of another signature
            return partial(self.untouched.run, variant, args, kwargs)
        numbers, none = variant.layout.numbers_of(args, kwargs), taken.none
        if taken.tensors is not None and variant.feeding is not None:  # the iterator has given its batch
            return partial(self.untouched.run_flat, variant, taken.tensors, numbers)
        if none is not None and none.failed is not None:
            run = partial(self.untouched.run_flat, variant, none.tensors, numbers, none.asked)
            return partial(_failing, run, none.failed)
        if none is not None and none.asked:  # one iterator has ended, but others have given batches
            return partial(self.untouched.run_flat, variant, none.tensors, numbers, none.asked)
        return partial(self.untouched.run, variant, args, kwargs)

    def _stepped(
        self, variant: Variant, tensors: Sequence[Any] | None, as_called: AsCalled
    ) -> tuple[Any, float | None]:
        """Run one step. Returns its outputs, and its seconds if they are of the current mode. tensors: its inputs.

        ========  =========  ======================  =======================================
        tensors   signature  mode                    runs
        ========  =========  ======================  =======================================
        none      any        any                     as called
        there     main       untouched               as called, recorded until there is enough
        there     main       placed                  placed
        there     main       placed, other shape     as called
        there     another    untouched               as called
        there     another    placed                  by the main one's mapping (`_followed`)
        ========  =========  ======================  =======================================
        """
        is_main = variant is self.variants.main
        if tensors is None:
            return as_called()
        if not isinstance(self.mode, Placed):
            if is_main and not self.recorder.is_full:
                return self._recorded(self.recorder, variant, tensors, as_called)
            return as_called()
        if not is_main:
            return self._followed(variant, self.mode, tensors, as_called)
        mode = self._mode_of(variant, tensors)
        return self._placed(variant, mode, tensors) if isinstance(mode, Placed) else (as_called()[0], None)

    def _judge_arrays(
        self, variant: Variant, args: Sequence[Any], kwargs: dict[str, Any], tensors: Sequence[Any]
    ) -> None:
        """Leave a plain step alone if it changed an array of its arguments. `tensors` were made before the change."""
        if variant.layout.changed_array(args, kwargs, tensors):
            self.variants.leave_alone("it changes an array that it is given, which a placed step would not")

    def _needs_no_care(self, variant: Variant) -> bool:
        """Whether a call only has to call the user's function: a tf.function, untouched, with nothing to check."""
        return (
            variant is self.variants.main
            and self._mode is UNTOUCHED
            and self.untouched.plain is None
            and not variant.layout.numbers
            and not (self.session.recovery.is_due or self.session.replicas.aside)
        )

    def _takes_batch(self, variant: Variant) -> bool:
        """Whether a call runs on flat tensors, because it is placed, or recorded so that it can be repeated."""
        if self.variants.left_alone or not self.variants.may_trace(variant):
            return False
        joined = self._joined()
        is_known = joined is not None and joined.main is variant
        recorded = variant is self.variants.main and not is_known and not self.recorder.is_full
        runs = recorded or isinstance(self.mode, Placed)
        if self.variants.is_settled and not runs:  # before, any signature may become the main one, so it is traced
            return False
        return self.variants.is_traced(variant) and runs

    def _give_way_to_readers(self) -> None:
        """Leave the step alone if its variables have a reader that cannot be stopped while steps run."""
        if self.session.replicas.aside and not self.variants.left_alone:
            self.variants.leave_alone(f"{self.session.replicas.aside} reads its variables while steps run")

    def repeat(self, key: Any, tensors: Sequence[Any]) -> None:
        """Run a step again that a loss undid."""
        variant = self.variants[key]
        mode = self._mode_of(variant, tensors)
        if isinstance(mode, Placed):
            self._placed_run.run(mode, tensors)
        else:
            self.untouched.repeat(variant, tensors)

    def _recorded(
        self, recorder: Recorder, variant: Variant, tensors: Sequence[Any], as_called: AsCalled
    ) -> tuple[Any, float]:
        """Run an untouched step and record it, so that scratch runs can repeat it."""
        try:
            trained = self.untouched.trained(variant)
            self.session.adopt(trained)
        except BadInputError as error:
            self.variants.leave_alone(str(error))
            return as_called()
        variant.arrived = on_gpus(tensors)
        found = recorder.record(trained, tensors, as_called)
        if recorder is self.recorder and recorder.disturbed >= MOST_DISTURBED:
            self.variants.leave_alone(f"another thread {WRITES}, so that no step can be tried")
        return found

    def _placed(self, variant: Variant, mode: Placed, tensors: Sequence[Any]) -> tuple[Any, float]:
        if self.session.fragile:
            self.session.before_placed()
        kept = self._placed_run.kept(mode)
        if mode.generation != self.session.generation:  # a loss showed in one of the two calls above
            return self._placed_anew(variant, tensors)
        try:
            outputs, step_s = self._placed_run.run(mode, tensors)
        except BaseException as error:
            if self.session.recovery.is_loss(error):
                self.session.recovery.recover()
                return self._placed_anew(variant, tensors)
            if kept is None or not isinstance(error, Exception):
                self.session.after_failed()
                if isinstance(error, Exception):
                    self._failed(mode, error)
                raise
            self.session.replicas.roll_back(mode.use, kept)
            return self._untouched_instead(variant, mode, tensors, error)
        if kept is not None:
            self._placed_run.trained(mode)
        if self.session.fragile:
            repeat = partial(_repeat_by, weakref.ref(self), variant.key, tensors)
            self.session.after_placed(repeat, tensors, step_s)
        return mode.step.captured.pack(outputs), step_s

    def _failed(self, mode: Placed, error: Exception) -> None:
        """Handle the error of a placed step that had trained before: leave the step alone if it may have written other
        variables than the untouched step would have.
        """
        said = HALF_WAY
        if self.untouched.plain is None:
            if any(text in str(error) for text in RAISED) and not mode.step.captured.has_loose_check:
                return
            said = UNLIKE_ALONE
        self.variants.leave_alone(f"its placed step failed ({type(error).__name__}), {said}")

    def _untouched_instead(
        self, variant: Variant, mode: Placed, tensors: Sequence[Any], error: Exception
    ) -> tuple[Any, float]:
        """Run a step untouched, because its placed step failed when it first trained, and was undone. If the user's
        step itself is to blame, it raises here, too.
        """
        self._mode = UNTOUCHED
        found = self.untouched.run_flat(variant, tensors)
        self._builder.reject(mode)
        why = what_failed(error)
        if variant is self.variants.main:
            self.failed = mode, why
        else:
            self.variants.refuse(variant, why)
        return found

    def _placed_anew(self, variant: Variant, tensors: Sequence[Any]) -> tuple[Any, float]:
        """Run a step in the current mode, which may have changed since the call began, because devices were lost."""
        mode = self._mode_of(variant, tensors)
        if isinstance(mode, Placed):
            return self._placed(variant, mode, tensors)
        return self.untouched.run_flat(variant, tensors)

    def _followed(
        self, variant: Variant, mode: Placed, tensors: Sequence[Any], as_called: AsCalled
    ) -> tuple[Any, float]:
        """Run a step of a signature other than the main one. Under each mapping its first step is recorded, and later
        ones are placed if a scratch run does what the recorded step did.
        """
        if variant.placed_by(mode) is None:
            recorder = variant.recorder = variant.recorder or Recorder(self.session)
            if recorder.is_empty and recorder.disturbed < MOST_DISTURBED:  # not recorded yet, or recording it failed
                return self._recorded(recorder, variant, tensors, as_called)
            joined = self._joined()
            assert joined is not None  # because the main signature is placed
            why = self._builder.follow(variant, mode, joined.topology, recorder)
            variant.recorder = None
            if why is not None:
                self.variants.refuse(variant, why)
                return as_called()
        return self._placed_anew(variant, tensors)

    def _mode_of(self, variant: Variant, tensors: Sequence[Any]) -> Mode:
        """The mode in which a call of this signature runs now on flat tensors. Signatures other than the main one
        follow its mapping. A divided step runs untouched on a batch whose shape differs from the captured one.
        """
        mode: Mode | None = self.mode
        if variant is not self.variants.main and isinstance(mode, Placed):
            mode = variant.placed_by(mode)
        if isinstance(mode, Placed) and mode.plan != WHOLE and not variant.is_alike(tensors):
            return UNTOUCHED
        return mode or UNTOUCHED
