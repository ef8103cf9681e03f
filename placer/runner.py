"""Runs mappings for real and measures them: in turn with the incumbent, checked against the untouched step."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass
from statistics import median
from typing import Any, Protocol

import numpy as np
import tensorflow as tf

from placer.capture import Captured
from placer.devices import Devices
from placer.mapping import Mapping
from placer.measurement import Failed, Measured, Result
from placer.rewrite import PlacedStep, PlacementError, Template

CHECKED_STEPS = 2  # the second loss has seen the first update
TOLERANCE = 1e-3  # relative; another device kind, or another number of threads, rounds differently
REASONS: tuple[tuple[type[Exception], str], ...] = (
    (PlacementError, "placement"),
    (tf.errors.ResourceExhaustedError, "memory"),
    (tf.errors.UnavailableError, "device"),
    (tf.errors.AbortedError, "device"),
    (tf.errors.OpError, "error"),
)

RunOrder = Callable[[Mapping], Sequence[str]]
"""The names of a mapping's ops that are to run in a certain order (docs/decisions/006-run-order.md)."""

Returned = Sequence[Sequence["np.ndarray[Any, Any]"]]
"""For each of the first steps, the values that it returned."""


@dataclass(frozen=True)
class RunnerSettings:
    """How a mapping is measured.

    warm_up: steps dropped after the first call. repeats: steps that count. give_up_after: steps after which a
    candidate that is clearly worse is stopped; clearly worse = a step over `hopeless` times the incumbent's
    median, or its best step slower than the incumbent's worst.
    """

    warm_up: int = 2
    repeats: int = 12
    give_up_after: int = 4
    hopeless: float = 3.0


class Step(Protocol):
    """What can be timed: a placed step, or the step as TensorFlow runs it untouched."""

    def run_flat(self, inputs: Sequence[Any]) -> list[Any]:
        """One training step on flat inputs; flat outputs."""

    def close(self) -> None:
        """Give back what the step holds."""


class UntouchedStep:
    """The caller's step as TensorFlow runs it by default, on the caller's variables, which `close` sets back."""

    def __init__(self, captured: Captured) -> None:
        self.captured = captured
        self.before = {name: variable.numpy() for name, variable in captured.variables.items()}

    def run_flat(self, inputs: Sequence[Any]) -> list[Any]:
        """One training step on flat inputs; flat outputs."""
        return list(tf.nest.flatten(self.captured.call(inputs), expand_composites=True))

    def close(self) -> None:
        """Undo the training that measuring did."""
        for name, variable in self.captured.variables.items():
            variable.assign(self.before[name])


def measure_untouched(
    captured: Captured,
    inputs: Sequence[Any],
    settings: RunnerSettings | None = None,
    clock: Callable[[], float] = time.perf_counter,
) -> tuple[Measured, tuple[Returned, ...]]:
    """The step as TensorFlow runs it here by default, and what its first CHECKED_STEPS steps return.

    What they return comes twice, with and without TensorFlow's graph optimiser, which rounds differently: on
    ResNet-50 the second losses are 0.9 % apart. A placed step has to agree with one of the two.

    Call it before workers are joined: TensorFlow 2.21 drops variable updates of functions that it first compiles
    while it is connected to a cluster (docs/decisions/002-untouched-first.md).
    """
    settings = settings or RunnerSettings()
    with closing(UntouchedStep(captured)) as step, _graph_optimizer(on=False):
        plain = _first_returned(step, inputs)
    with closing(UntouchedStep(captured)) as step:
        returned = _first_returned(step, inputs)
        for _ in range(settings.warm_up):
            timed(step, inputs, clock)
        seconds = [timed(step, inputs, clock) for _ in range(settings.repeats)]
    return summary(seconds), (returned, plain)


def _first_returned(step: Step, inputs: Sequence[Any]) -> Returned:
    return [_values(step.run_flat(inputs)) for _ in range(CHECKED_STEPS)]


@contextmanager
def _graph_optimizer(*, on: bool) -> Iterator[None]:
    """TensorFlow's graph optimiser on or off for what is first called inside."""
    before = tf.config.optimizer.get_experimental_options()
    tf.config.optimizer.set_experimental_options({"disable_meta_optimizer": not on})
    try:
        yield
    finally:
        tf.config.optimizer.set_experimental_options({"disable_meta_optimizer": False, **before})


def as_it_comes(_: Mapping) -> Sequence[str]:
    """No order: TensorFlow's executor decides."""
    return ()


class Runner:
    """Measures mappings of one captured step on real devices.

    The first mapping measured is the anchor, the fastest so far the incumbent. Every later one is stepped in turn
    with both, and its result is told in the anchor's time: anchor's first step time x median / the anchor's median
    now. So results compare although the machine drifts, and each is a side-by-side figure. order: in which the ops of a
    mapping run.
    """

    def __init__(
        self,
        captured: Captured,
        devices: Devices,
        inputs: Sequence[Any],
        references: Sequence[Returned],
        settings: RunnerSettings | None = None,
        clock: Callable[[], float] = time.perf_counter,
        order: RunOrder = as_it_comes,
    ) -> None:
        self.captured = captured
        self.order = order
        self.devices = devices
        self.inputs = list(inputs)
        self.references = references
        self.placed_returned: Returned | None = None
        self.settings = settings or RunnerSettings()
        self.clock = clock
        self.template = Template(captured)
        self.anchor: PlacedStep | None = None
        self.anchor_s = 0.0
        self.incumbent: PlacedStep | None = None

    def measure(self, mapping: Mapping) -> Result:
        """The step time of a mapping of the captured graph, or why it has none. A faster one becomes incumbent."""
        placed = self.ready(mapping)
        if isinstance(placed, Failed):
            return placed
        step, switch_s = placed
        result: Result = self._try(lambda: self._in_turn(step, switch_s))
        if step not in (self.anchor, self.incumbent):
            step.close()
        return result

    def compare(self, steps: Sequence[Step], repeats: int) -> list[Measured]:
        """Steps side by side, in turn, none stopped early: the figures that a report may quote."""
        for step in steps:
            for _ in range(self.settings.warm_up):
                timed(step, self.inputs, self.clock)
        seconds: list[list[float]] = [[] for _ in steps]
        for _ in range(repeats):
            for step, into in zip(steps, seconds, strict=True):
                into.append(timed(step, self.inputs, self.clock))
        return [summary(s) for s in seconds]

    def ready(self, mapping: Mapping) -> tuple[PlacedStep, float] | Failed:
        """`prepare`, with a failure as a value."""
        placed: tuple[PlacedStep, float] | Failed = self._try(lambda: self.prepare(mapping))
        return placed

    def prepare(self, mapping: Mapping) -> tuple[PlacedStep, float]:
        """A placed step that was run and checked, and the seconds until its first step had ended."""
        begin = self.clock()
        step = PlacedStep(self.template, self._names(mapping), order=self.order(mapping))
        try:
            first = _values(step.run_flat(self.inputs))
            switch_s = self.clock() - begin
            returned = [first, *(_values(step.run_flat(self.inputs)) for _ in range(CHECKED_STEPS - 1))]
            self._check(returned)
        except BaseException:
            step.close()
            raise
        return step, switch_s

    def switch(self, step: PlacedStep, mapping: Mapping) -> tuple[PlacedStep, float]:
        """Go on from `step` under a mapping that was measured before: the new step, and the seconds until its first
        step has ended. Variables that stay where they are are taken over; `step` must not be called again.
        """
        begin = self.clock()
        switched = PlacedStep(
            self.template, self._names(mapping), step.variables, order=self.order(mapping), proven=True
        )
        _values(switched.run_flat(self.inputs))
        seconds = self.clock() - begin
        step.close()
        return switched, seconds

    def close(self) -> None:
        """Give back the variables and functions of the steps kept for comparison."""
        for step in (self.anchor, self.incumbent):
            if step is not None:
                step.close()
        self.anchor = self.incumbent = None

    def _names(self, mapping: Mapping) -> list[str]:
        return [self.devices.tf_name(d) for d in mapping.devices]

    def _in_turn(self, step: PlacedStep, switch_s: float) -> Measured:
        """Step the candidate in turn with the incumbent and the anchor, and see which of them stays."""
        peers = list(dict.fromkeys(peer for peer in (self.anchor, self.incumbent) if peer is not None))
        for _ in range(self.settings.warm_up):
            timed(step, self.inputs, self.clock)
        mine: list[float] = []
        theirs: list[list[float]] = [[] for _ in peers]
        for _ in range(self.settings.repeats):
            for peer, into in zip(peers, theirs, strict=True):
                into.append(timed(peer, self.inputs, self.clock))
            mine.append(timed(step, self.inputs, self.clock))
            if theirs and self._is_clearly_worse(mine, theirs[-1]):
                break
        result = self._in_anchor_time(mine, theirs, switch_s)
        self._keep_the_faster(step, mine, theirs, result)
        return result

    def _is_clearly_worse(self, mine: Sequence[float], theirs: Sequence[float]) -> bool:
        if mine[-1] > self.settings.hopeless * median(theirs) and len(mine) > 1:
            return True
        return len(mine) >= self.settings.give_up_after and min(mine) > max(theirs)

    def _in_anchor_time(self, mine: Sequence[float], theirs: Sequence[Sequence[float]], switch_s: float) -> Measured:
        found = summary(mine)
        scale = self.anchor_s / median(theirs[0]) if theirs else 1.0
        early = len(mine) < self.settings.repeats
        return Measured(found.step_s * scale, found.spread_s * scale, found.repeats, switch_s, early)

    def _keep_the_faster(
        self, step: PlacedStep, mine: Sequence[float], theirs: Sequence[Sequence[float]], result: Measured
    ) -> None:
        if self.anchor is None:
            self.anchor = self.incumbent = step
            self.anchor_s = result.step_s
        elif median(mine) < median(theirs[-1]):
            if self.incumbent is not None and self.incumbent is not self.anchor:
                self.incumbent.close()
            self.incumbent = step

    def _check(self, returned: Returned) -> None:
        """Hold what the first steps returned against the untouched step's on the same batch and state.

        The untouched step may run on another number of threads, so TOLERANCE applies. On one device kind every
        mapping must also return the very bits that the first placed step returned.
        """
        if self.captured.is_random:
            return
        apart = [_difference(returned, reference, exact=False) for reference in self.references]
        if apart and all(apart):
            raise _LossDiffersError(f"{apart[0]} untouched")
        if self.devices.single_kind:
            self.placed_returned = self.placed_returned or returned
            bits = _difference(returned, self.placed_returned, exact=True)
            if bits:
                raise _LossDiffersError(f"{bits} under another mapping")

    def _try(self, run: Callable[[], Any]) -> Any:
        """What `run` returns, or a Failed that says why it did not."""
        try:
            return run()
        except _LossDiffersError as error:
            return Failed("loss", str(error))
        except tuple(kind for kind, _ in REASONS) as error:
            reason = next(reason for kind, reason in REASONS if isinstance(error, kind))
            return Failed(reason, str(error).strip().splitlines()[0])


class _LossDiffersError(Exception):
    """The placed step computes something else than the untouched one."""


def _difference(mine: Returned, theirs: Returned, *, exact: bool) -> str:
    """Where the returned values first differ, in words; empty where they agree."""
    for number, (a, b) in enumerate(zip(mine, theirs, strict=True), start=1):
        for x, y in zip(a, b, strict=True):
            if not same(x, y, exact=exact):
                return f"step {number} returned {x!r}, and {y!r}"
    return ""


def same(a: np.ndarray[Any, Any], b: np.ndarray[Any, Any], *, exact: bool) -> bool:
    """Whether two returned values agree: to the last bit, or floats within TOLERANCE."""
    if exact or not np.issubdtype(a.dtype, np.floating):
        return bool(np.array_equal(a, b, equal_nan=np.issubdtype(a.dtype, np.floating)))
    return bool(np.allclose(a, b, rtol=TOLERANCE, atol=0.0, equal_nan=True))


def timed(step: Step, inputs: Sequence[Any], clock: Callable[[], float]) -> float:
    """Seconds of one step, up to the returned values being here."""
    begin = clock()
    _values(step.run_flat(inputs))
    return clock() - begin


def summary(seconds: Sequence[float]) -> Measured:
    """Median and interquartile range of step times."""
    low, middle, high = np.percentile(seconds, [25, 50, 75])
    return Measured(float(middle), float(high - low), len(seconds))


def _values(outputs: Sequence[Any]) -> list[np.ndarray[Any, Any]]:
    return [np.asarray(tensor.numpy()) for tensor in outputs]
