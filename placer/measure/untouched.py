"""Times the untouched step, and notes what it computes, because placed steps have to do the same."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from typing import Any, NamedTuple

import numpy as np
import tensorflow as tf

from placer import tf_internals
from placer.devices.connecting import times_connected
from placer.devices.host.suspends import Suspends
from placer.execute.agreement import Outcome, Returned, is_float, rounds_coarsely
from placer.execute.outputs import values
from placer.execute.untouched_outcome import captures, own_variables, untouched_outcome
from placer.measure.settings import RunnerSettings
from placer.measure.step_check import CHECKED_STEPS
from placer.measure.timing import timed
from placer.result import Measured, summary
from placer.trace.capture import Captured


class UntouchedStep:
    """The user's step as TensorFlow runs it by default, on the user's variables, which `close` restores. Once workers
    were joined, it runs on variables of its own, because assignments to older variables are lost from then on
    (docs/decisions/002-untouched-first.md).
    """

    def __init__(self, captured: Captured, start: Mapping[str, Any] | None = None) -> None:
        """start: node name of each variable -> other values to begin with."""
        self.captured = captured.whole
        users = {name: variable.numpy() for name, variable in self.captured.variables.items()}
        self.before = dict(users if start is None else start)
        self._users = None if times_connected() else users
        self.variables = dict(self.captured.variables)
        if self._users is None:
            self.variables = own_variables(self.captured, self.before)
        elif start is not None:
            self._assign(start)
        self._captures = captures(self.captured, self.variables)
        self.steps = 0
        self.last: list[Any] = []  # what the last step returned

    def run_flat(self, inputs: Sequence[Any]) -> list[Any]:
        """Run one training step on flat inputs, and return its flat outputs."""
        outputs = self.captured.traced.call(inputs, self._captures)
        self.last = list(tf.nest.flatten(outputs, expand_composites=True))
        self.steps += 1
        return self.last

    def close(self) -> None:
        """Restore the values that the user's variables had before, or release this step's own variables."""
        if self._users is not None:
            self._assign(self._users)
        self.variables, self._captures = {}, []

    def _assign(self, values_of: Mapping[str, Any]) -> None:
        for name, value in values_of.items():
            with tf.device(
                tf_internals.variables.handle_of(self.variables[name]).device
            ):  # else an array goes to a GPU first
                self.variables[name].assign(value)

    def outcome(self, inputs: Sequence[Any], steps: int) -> Outcome:
        """The outcome of the first `steps` steps, from the values that the variables had when this was made."""
        if self.captured.traced.seeded is not None:  # the user's own function draws other numbers each time
            return untouched_outcome(self.captured, self.before, [inputs] * steps)
        returned = [values(self.run_flat(inputs)) for _ in range(steps)]
        after = {name: tf_internals.variables.array_of(variable) for name, variable in self.variables.items()}
        return Outcome(returned, self.before, after)


class UntouchedMeasurement(NamedTuple):
    """The step time and the outcomes of the untouched step.

    references: outcomes of its first CHECKED_STEPS steps with the graph optimiser, without it and, if a GPU rounds to
    TensorFloat-32, without that rounding. diverged: what its loss became, and when, if it is not finite after these and
    the timed steps.
    """

    measured: Measured
    references: tuple[Outcome, ...]
    diverged: str | None


def measure_untouched(
    captured: Captured,
    inputs: Sequence[Any],
    settings: RunnerSettings | None = None,
    clock: Callable[[], float] = time.perf_counter,
    suspends: Suspends | None = None,
) -> UntouchedMeasurement:
    """Time the untouched step, and note its outcomes: a placed step has to agree with one of these references. There
    are several because rounding differs. The graph optimiser changes it: on ResNet-50 the second losses are 0.9 %
    apart. So does TensorFloat-32, which no CPU has: on a machine with an H100, the zoo's transformer differed on the
    CPU by more than was allowed.

    Call this before workers are joined: TensorFlow 2.21 drops variable updates of functions that it first compiles
    while it is connected to a cluster (docs/decisions/002-untouched-first.md).
    """
    settings, suspends = settings or RunnerSettings(), suspends or Suspends()
    with closing(UntouchedStep(captured)) as step, _without_graph_optimizer():
        references = [step.outcome(inputs, CHECKED_STEPS)]
    if rounds_coarsely():
        with closing(UntouchedStep(captured)) as step, _full_floats():
            references.append(step.outcome(inputs, CHECKED_STEPS))
    with closing(UntouchedStep(captured)) as step:
        optimised = step.outcome(inputs, CHECKED_STEPS)
        for _ in range(settings.warm_up):
            timed(step, inputs, clock, suspends)
        seconds = [timed(step, inputs, clock, suspends) for _ in range(settings.repeats)]
        diverged = _diverged([*optimised.returned, values(step.last)], step.steps)
    return UntouchedMeasurement(summary(seconds), (optimised, *references), diverged)


def _diverged(returned: Returned, steps: int) -> str | None:
    """The first loss that is not finite, and after how many steps, in words; None if there is none. returned: what the
    first steps and step number `steps` returned.
    """
    for number, values_of in zip([*range(1, len(returned)), steps], returned, strict=True):
        for loss in (value for value in values_of if is_float(value) and value.size == 1):
            if not np.isfinite(loss).all():
                return f"{'NaN' if np.isnan(loss).all() else 'infinite'} after {number} step{'s' * (number > 1)}"
    return None


@contextmanager
def _without_graph_optimizer() -> Iterator[None]:
    """Switch TensorFlow's graph optimiser off for functions first called in the block."""
    before = tf.config.optimizer.get_experimental_options()
    tf.config.optimizer.set_experimental_options({"disable_meta_optimizer": True})
    try:
        yield
    finally:
        tf.config.optimizer.set_experimental_options({"disable_meta_optimizer": False, **before})


@contextmanager
def _full_floats() -> Iterator[None]:
    """In the block, GPUs multiply in float32, not TensorFloat-32; nothing else may use them meanwhile."""
    tf.config.experimental.enable_tensor_float_32_execution(False)
    try:
        yield
    finally:
        tf.config.experimental.enable_tensor_float_32_execution(True)
