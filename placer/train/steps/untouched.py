"""The user's own function, run as written, on the user's own variables."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from typing import Any

import tensorflow as tf

from placer import tf_internals
from placer.devices.gpu_wait import drain
from placer.errors import BadInputError, PlacerError, warn
from placer.execute.outputs import returned
from placer.trace.capture import trains_nothing
from placer.trace.eager.number_use import (
    branch_number_misused,
    has_short_floats,
    in_short_floats,
    number_misused,
)
from placer.trace.eager.ops import eager_difference
from placer.trace.effects import unrepeatable_effect
from placer.trace.handle_owners import owners
from placer.trace.iterator_inputs import Feeding, several, unrepeatable
from placer.trace.keras_ties import lost_tie, ties_of
from placer.trace.random_streams import repeating_draws
from placer.trace.signature import Layout
from placer.trace.tracing import given_to, trace
from placer.train.device_session import DeviceSession
from placer.train.steps.plain_step import PlainStep
from placer.train.steps.variant import Variant
from placer.train.variables.hooks import unwatched

IN_A_FUNCTION = (
    "it is called within a tf.function, of which it becomes a part, so that it is not placed; wrap that function, or "
    "call the step outside of any; for Keras's fit there is placer.keras.AutoPlace"
)
OF_DOUBLES = (
    "it is given an array of float64, which is a tensor of float64 once the step is traced, and meets no float32; pass"
    " an array of float32, or a tensor"
)
OF_NUMBERS = (
    "a number among its arguments changes from call to call, and is a tensor of int32 or float32 once the step is"
    " traced, which mixes with no other type; pass a tensor of the type that it is computed with"
)
_here = threading.local()


@contextmanager
def within_a_step() -> Iterator[None]:
    """In the block, this thread runs or traces a step that Placer has wrapped. Another wrapped step that it calls is
    placed as a part of it.
    """
    before, _here.in_step = getattr(_here, "in_step", False), True
    try:
        yield
    finally:
        _here.in_step = before


class UntouchedFunction:
    """Runs `step` untouched, wherever its variables are up to date before a call."""

    def __init__(
        self,
        step: Callable[..., Any],
        session: DeviceSession,
        name: str,
        clock: Callable[[], float] = time.perf_counter,
    ) -> None:
        self.step: Any = step  # what is called and captured, always as the user wrote it
        self.session, self.name, self.clock = session, name, clock
        self.plain = PlainStep.of(step)  # None for a tf.function
        # TensorFlow traces a tf.function again for each number, and each trace reads Python's state.
        traces_anew = self.plain is None and getattr(step, "input_signature", None) is None
        python = tf_internals.autograph.python_function(step) if traces_anew else None
        self.retraced = PlainStep(python, ran=True) if python is not None else None
        self._warned: set[str] = set()
        self.unsaid: list[str] = []  # messages about calls, for the journal
        self.calls = 0  # that were timed

    def trace(self, variant: Variant) -> str | None:
        """Trace the step; returns why it cannot be traced or repeated, None if it can.

        A tf.function keeps the trace, and calls use it. The trace of a plain step is only for placing it.
        """
        with within_a_step():
            return self._traced(variant)

    def _traced(self, variant: Variant) -> str | None:
        if self.plain is not None:
            self.plain.before()
        if self.retraced is not None and variant.layout.numbers and self.retraced.why_by_code is not None:
            return f"a number among its arguments changes, and {self.retraced.why_by_code}."
        try:
            if self.plain is not None or variant.layout.numbers:
                variant.traced = trace(self._traceable(variant), variant.layout, self.name)
                concrete = variant.traced[0]
            else:
                concrete = variant.own = self.step.get_concrete_function(*variant.args, **variant.kwargs)
            graph_def = concrete.graph.as_graph_def()
            why = self._widened(variant, graph_def)
            variant.trains_nothing = trains_nothing(concrete)
        except BadInputError as error:
            return (self.plain and self.plain.why) or _with_hint(error, variant.layout)
        except Exception as error:  # whatever the user's code raises under tracing
            line = next(iter(str(error).strip().splitlines()), "")
            return f"TensorFlow cannot trace it: {type(error).__name__}: {line}"
        if self.plain is not None:
            why = self.plain.after_trace() or why or eager_difference(concrete) or _unseen_array(variant)
            why = why or several(variant.layout) or _lost_tie(variant, concrete)
        elif self.retraced is not None and variant.layout.numbers and self.retraced.why is not None:
            why = f"a number among its arguments changes, and {self.retraced.why}."
        why = why or _misused(variant) or unrepeatable(variant.layout, concrete)
        why = why or repeating_draws(graph_def) or unrepeatable_effect(graph_def)
        if self.plain is not None and why is None:
            self.plain.traced(concrete)
        return why

    def _widened(self, variant: Variant, graph_def: Any) -> str | None:
        """Why numbers must not become tensors of a step that computes in short floats, in words; None if they may.
        Keras keeps float16 beside a Python number, but turns it into float32 beside a tensor of float32.
        """
        if not (variant.layout.numbers and has_short_floats(graph_def)):
            return None
        if self.plain is not None:
            traced = trace(self._traceable(variant), Layout.of(variant.args, variant.kwargs), self.name)[0]
        else:
            traced = self.step.get_concrete_function(*variant.args, **variant.kwargs)
        if in_short_floats(graph_def) >= in_short_floats(traced.graph.as_graph_def()):
            return None
        return (
            "a number among its arguments changes from call to call, and as a tensor it would make float32 of short "
            "floats; pass it as a tensor of their type"
        )

    def _traceable(self, variant: Variant) -> Any:
        """What to trace for a signature. With numbers as tensors it is not the tf.function itself, which might return
        its trace of another state of Python.
        """
        if self.plain is not None:
            return self.plain.traceable(_types(variant, (*variant.layout.numbers, *variant.layout.arrays)))
        if self.retraced is None or not variant.layout.numbers:
            return self.step
        python = tf_internals.autograph.python_function(self.step)
        converted = tf_internals.autograph.uses_autograph(self.step)
        python = python if converted else tf.autograph.experimental.do_not_convert(python)
        return self.retraced.with_numbers(python, _types(variant, variant.layout.numbers))

    def trained(self, variant: Variant) -> Sequence[tf.Variable]:
        """The variables that a traced signature uses. Raises BadInputError if one of them cannot be found."""
        # The trace with numbers as tensors also has the variables of branches on these numbers.
        concrete = variant.traced[0] if variant.traced is not None else variant.own
        return list({id(variable): variable for variable in owners(concrete).values()}.values())

    def run(self, variant: Variant, args: Sequence[Any], kwargs: dict[str, Any]) -> tuple[Any, float]:
        """Run a call as the user made it. Returns its outputs and its seconds."""
        with self._own_variables():
            return self._timed(variant, args, kwargs)

    def run_untimed(self, args: Sequence[Any], kwargs: dict[str, Any]) -> Any:
        """As `run`, without waiting for the outputs. For a tf.function, and for calls that are not recorded."""
        with self._own_variables():
            try:
                return self.step(*args, **kwargs)
            finally:
                self.session.after_untouched()

    def run_flat(
        self,
        variant: Variant,
        tensors: Sequence[Any],
        numbers: Sequence[float] | None = None,
        asked: Collection[int] | None = None,
    ) -> tuple[Any, float]:
        """As `run`, on flat tensors, with batches that were already taken from iterators. numbers: the user's own
        Python numbers among them, if at hand. asked: positions of the iterators whose batches were taken; None = all.
        """
        with self._own_variables(), lent(variant.feeding, tensors, asked) as flat:
            found = variant.layout.numbers_in(flat) if numbers is None else numbers
            args, kwargs = variant.layout.filled(flat, found, arrays=self.plain is not None)
            return self._timed(variant, args, kwargs)

    def repeat(self, variant: Variant, tensors: Sequence[Any]) -> None:
        """Take a lost step again. Raises PlacerError if Python's state changed, so that it would be another step."""
        if self.plain is not None and not self.plain.is_in(variant.key):
            raise PlacerError(
                f"{self.name}: all devices were lost, and steps since the last snapshot cannot be taken again, because "
                "the Python state that they read has changed; go on from a checkpoint."
            )
        self.run_flat(variant, tensors)

    def within(self, args: Sequence[Any], kwargs: dict[str, Any]) -> Any:
        """Run a call under a gradient tape, or within another function's trace."""
        if tf.inside_function():
            if not getattr(_here, "in_step", False) and self._is_new(IN_A_FUNCTION):
                self.unsaid.append(IN_A_FUNCTION)
            return self.step(*args, **kwargs)
        if self._is_new("tape"):
            warn(
                f"{self.name} is called under a tf.GradientTape, which cannot see into a placed step: such calls run "
                "untouched."
            )
        with self.session.lock:
            return self.run_untimed(args, kwargs)

    def _is_new(self, said: str) -> bool:
        known = said in self._warned
        self._warned.add(said)
        return not known

    @contextmanager
    def _own_variables(self) -> Iterator[None]:
        """In the block, the user's own variables are up to date, and their uses are not reported."""
        self.session.replicas.pull()
        before, self.session.runs_untouched = self.session.runs_untouched, True
        try:
            with unwatched(self.session.replicas), self.session.replicas.lent(), within_a_step():
                yield
        finally:
            self.session.runs_untouched = before

    def _timed(self, variant: Variant, args: Sequence[Any], kwargs: dict[str, Any]) -> tuple[Any, float]:
        """Run the step on variables that are up to date. Returns its outputs and its seconds."""
        self.calls += 1
        if self.plain is not None:
            self.plain.before()
        begin = self.clock()
        try:
            outputs = self.step(*args, **kwargs)
            returned(outputs)
            drain()
            step_s = self.clock() - begin
            if self.plain is not None:
                self.plain.after(variant.calls, outputs)
                variant.ties = ties_of(outputs)
            return outputs, step_s
        finally:
            self.session.after_untouched()


def _with_hint(error: BadInputError, layout: Layout) -> str:
    """Why a step of these arguments cannot be traced, with what may have kept TensorFlow from it, if that is known."""
    hint = OF_NUMBERS if layout.numbers else OF_DOUBLES if layout.has_doubles else ""
    return f"{str(error).rstrip('.')} ({hint})" if hint else str(error)


def _types(variant: Variant, leaves: Sequence[int]) -> dict[int, type]:
    """Position of each of these leaves -> the type of the argument that the user's step is given there."""
    given = tf.nest.flatten((tuple(variant.args), dict(variant.kwargs)))
    return {i: type(given[i]) for i in leaves}


def _misused(variant: Variant) -> str | None:
    """Why numbers must not become tensors of this signature's step, in words; None if they may."""
    if not variant.layout.numbers or variant.traced is None:
        return None
    concrete, order = variant.traced
    names = given_to(concrete)
    numbers = [names[order.index(position)] for position in variant.layout.number_tensors]
    graph_def = concrete.graph.as_graph_def()
    why = number_misused(graph_def, numbers) or branch_number_misused(graph_def)
    return why and f"a number among its arguments changes from call to call, and {why}; pass it as a tensor"


def _lost_tie(variant: Variant, concrete: Any) -> str | None:
    """What Keras ties to the outputs of a plain step but not to those of its trace, in words; None if nothing."""
    lost = lost_tie(variant.ties, concrete.structured_outputs)
    return lost and (
        f"it returns a tensor with {lost}, which a branch or loop gives and a placed step would lose; return that, too"
    )


def _unseen_array(variant: Variant) -> str | None:
    """Why a plain step of this signature cannot be given its caller's own arrays, in words; None if it can. If it also
    takes an iterator, the batch is taken before the step runs. The step then gets copies of arrays, and its changes to
    them would be lost.
    """
    if not variant.layout.arrays or Feeding.of(variant.layout) is None:
        return None
    return "it takes an array beside an iterator, so that what it does to the array could not be seen; pass a tensor"


def lent(
    feeding: Feeding | None, tensors: Sequence[Any], asked: Collection[int] | None = None
) -> AbstractContextManager[Sequence[Any]]:
    """Flat tensors as the user's step takes them: in place of an iterator's batch, an iterator over that batch."""
    return nullcontext(tensors) if feeding is None else feeding.lent(tensors, asked)
