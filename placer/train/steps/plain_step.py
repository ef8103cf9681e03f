"""A step in plain Python: the state of Python before each of its calls, and whether a trace may stand for them."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager
from functools import cached_property, partial
from typing import Any

import tensorflow as tf

from placer.trace.eager.array_changes import watched_array_changes
from placer.trace.eager.branches import watched_branches, watched_loops
from placer.trace.eager.gradients import watched_gradients
from placer.trace.eager.keras_functions import watched_keras
from placer.trace.eager.library_effects import no_new_variables, watched_losses, watched_optimizers
from placer.trace.eager.object_contents import Places
from placer.trace.eager.tensor_reads import patching, watched_shapes, watched_values
from placer.trace.eager.type_questions import watched_types
from placer.trace.keras_ties import attribute_in, tie_in, with_ties
from placer.trace.python.arguments import Parameters, Subjects, changed, is_repeated, tensors_in
from placer.trace.python.impure import ONCE
from placer.trace.python.kinds import KERAS_VARIABLES, has_base, is_tensor
from placer.trace.python.state import PythonState, is_plain_step, why_not
from placer.trace.python.streams import GlobalStreams

Watch = Callable[[Callable[[str], None]], AbstractContextManager[None]]
WATCHES: tuple[Watch, ...] = (
    watched_shapes, watched_values, watched_branches, watched_loops, watched_gradients, watched_losses, watched_keras,
    watched_optimizers, no_new_variables,
)  # fmt: skip
Types = Mapping[int, type]
"""Position of a leaf of a call's arguments that is an array or a number, and a tensor to a trace -> its type."""
WATCHES_OF_NUMBERS: tuple[Watch, ...] = (watched_shapes, watched_values, watched_branches, watched_gradients)


class PlainStep:
    """Judges the calls of a plain step that run as the user wrote it. Only the training thread may use it."""

    def __init__(self, step: Callable[..., Any], ran: bool = False) -> None:
        """ran: whether `step` was called before, as the Python function of a tf.function may have been."""
        self._step = step
        self._state = PythonState(step)
        self._parameters = Parameters(step)
        self._subjects: Subjects = ()  # of the latest call
        self._ran = ran  # a first call may build layers, so there is no state before it
        self._is_function = ran  # whether it is a tf.function's, which gets tensors without masks in any case
        self._watches = True
        self._effect: str | None = None
        self._streams = GlobalStreams()  # of its traces

    @classmethod
    def of(cls, step: Callable[..., Any]) -> PlainStep | None:
        """Return the judge of a step; None for a tf.function, which freezes Python's state whether wrapped or not."""
        return cls(step) if is_plain_step(step) else None

    @property
    def why(self) -> str | None:
        """Why the step must be left alone, as far as its calls and states have shown; None if it need not be."""
        return self._effect or self._state.why

    @cached_property
    def why_by_code(self) -> str | None:
        """Why the step must be left alone, as far as its code shows; None if it need not be."""
        return why_not(self._step)

    def why_by_call(self, args: Sequence[Any], kwargs: Mapping[str, Any]) -> str | None:
        """As `why_by_code`, with what the arguments of a call show."""
        return why_not(self._step, self._parameters.subjects(args, kwargs), self._parameters.bound(args, kwargs))

    def keyed(self, key: Hashable, args: Sequence[Any], kwargs: Mapping[str, Any]) -> tuple[int, Hashable]:
        """The key of a call: the number of Python's current state, the arguments included, and `key`."""
        self._subjects = self._parameters.subjects(args, kwargs)
        kind = self._parameters.attributed(args, kwargs)
        if kind is not None:
            self._note(f"it takes {kind}, and a traced step would not see it; pass it as an argument of its own")
        tied = None if self._is_function else tie_in((args, kwargs))
        if tied is not None:
            self._note(f"it takes a tensor with {tied}, which a traced step would not see; pass that, too")
        replaced = self._streams.replaced()
        if replaced is not None:
            self._note(f"{replaced}, which a traced step would not see; use a tf.random.Generator of its own")
        number = self._state.number(self._subjects) if self._ran else 0
        if self._state.asks and not self._is_function:
            self._judge_identities(tensors_in(args, kwargs))
        return number, key

    def _judge_identities(self, tensors: Sequence[Any]) -> None:
        """Judge the tensors and arrays of a step that asks by `is` for such, because a trace has other objects."""
        if self._state.compares and is_repeated(tensors):
            self._note("it takes one tensor as two arguments, which are two in a traced step, and it asks by `is`; "
                       "pass a copy (tf.identity), or what tells the two cases apart")  # fmt: skip
        elif any(map(self._state.holds, tensors)):
            self._note("it takes a tensor that it also reads of Python's state, which are two in a traced step, and it "
                       "asks by `is`; pass what tells the two cases apart")  # fmt: skip

    def is_in(self, key: Any) -> bool:
        """Whether Python is in the state of a key from `keyed`."""
        return not self._ran or self._state.is_in(key[0])

    def end(self) -> None:
        """Judge no more calls and hold nothing of the user's, because the step is left alone."""
        self._effect, self._watches = self.why, False
        self._state, self._subjects, self._streams = PythonState(self._step), (), GlobalStreams()

    def traceable(self, types: Types) -> Any:
        """The step as a function to be traced. It notes what the step does there that eager calls do differently."""
        step: Any = self._step
        if hasattr(type(step), "compute_loss"):  # a Keras model is traced by its training step
            return step
        return self._traceable(step, partial(self._watched, types), with_ties)

    def with_numbers(self, python: Callable[..., Any], types: Types) -> Any:
        """The Python function of a tf.function, to be traced with tensors in place of numbers. It notes what the
        function does that TensorFlow's own traces, one for each number, do differently: in branches and gradients, and
        with shapes, values and types that this trace does not know.
        """
        return self._traceable(python, partial(self._watched_numbers, types))

    def _traceable(
        self,
        step: Callable[..., Any],
        watched: Callable[..., AbstractContextManager[None]],
        returned: Callable[[Any], Any] = lambda outputs: outputs,
    ) -> Any:
        """returned: turns what the step returns into what the trace returns."""
        # AutoGraph converts what it traces, and would convert these two functions as well.
        watched, returned = map(tf.autograph.experimental.do_not_convert, (watched, returned))

        def traced_step(*args: Any, **kwargs: Any) -> Any:
            with watched(args, kwargs):
                outputs = step(*args, **kwargs)
            return returned(outputs)

        return traced_step

    @contextmanager
    def _watched(self, types: Types, args: Sequence[Any], kwargs: Mapping[str, Any]) -> Iterator[None]:
        """In the block, note what a trace does differently from eager calls. A trace gets copies of containers, and
        changes of the copies show what the step would do to the user's own.
        """
        before, places = self._parameters.contents(args, kwargs), Places([("the step", self._step)], in_globals=True)
        eager = _eager(types, args, kwargs)
        watches: list[Watch] = [partial(watched_types, eager=eager), partial(watched_array_changes, eager=eager)]
        try:
            with self._watched_by((*WATCHES, *watches)):
                yield
        finally:
            filled = places.restore()
        if filled is not None:
            self._note(f"it changes what `{filled}` holds, {ONCE}")
        where = changed(before, self._parameters.contents(args, kwargs))
        if where is not None:
            self._note(f"it changes {where}, {ONCE}")

    def _watched_numbers(
        self, types: Types, args: Sequence[Any], kwargs: Mapping[str, Any]
    ) -> AbstractContextManager[None]:
        of_types: Watch = partial(watched_types, eager=_eager(types, args, kwargs))
        # The note leaves out the advice to decorate the step, because it is decorated.
        return self._watched_by((*WATCHES_OF_NUMBERS, of_types), lambda why: self._note(why.partition("; ")[0]))

    @contextmanager
    def _watched_by(self, watches: Sequence[Watch], note: Callable[[str], None] | None = None) -> Iterator[None]:
        with patching, ExitStack() as entered:
            for watch in watches:
                entered.enter_context(watch(note or self._note))
            yield

    def _note(self, why: str) -> None:
        self._effect = self._effect or why

    def before(self) -> None:
        """Before an untouched call."""
        if self._watches:
            self._state.before()

    def after(self, calls: int, outputs: Any) -> None:
        """After an untouched call. calls: number of calls of its signature, this one included; the first may still
        build something. outputs: what the call returned.
        """
        if not self._watches:
            return
        kind = _no_tensor(outputs)
        if kind is not None:
            self._note(f"it returns {kind}, which a placed step would return as a tensor; return tensors only")
        elif (tied := attribute_in(outputs)) is not None:
            self._note(f"it returns a tensor with {tied}, which a placed step would lose; return that, too")
        if not self._ran:
            self._ran = True
            self._state.number(self._subjects)
        elif calls <= 1:
            self._state.built()
        else:
            self._effect = self._effect or self._state.effect()

    def traced(self, concrete: Any) -> None:
        """Note a trace of the step that may stand for its calls."""
        self._streams = self._streams.with_trace(concrete)

    def after_trace(self) -> str | None:
        """What tracing the step has changed, in words; None if it changed nothing."""
        self._effect = self._effect or self._state.effect()
        return self._effect


def _eager(types: Types, args: Sequence[Any], kwargs: Mapping[str, Any]) -> dict[int, type]:
    """id -> eager type, of each argument of a trace that is an array or a number in eager calls."""
    leaves = tf.nest.flatten((tuple(args), dict(kwargs)))
    return {id(leaves[i]): kind for i, kind in types.items() if tf.is_symbolic_tensor(leaves[i])}


def _no_tensor(outputs: Any) -> str | None:
    """The first of a step's outputs that is neither a tensor nor None, in words; None if there is none."""
    try:
        leaves = tf.nest.flatten(outputs, expand_composites=True)
    except Exception:  # such as a dict whose keys have no order, which TensorFlow cannot trace
        return None
    for leaf in leaves:
        if isinstance(leaf, tf.Variable):
            return "a tf.Variable"
        if has_base(type(leaf), KERAS_VARIABLES):
            return "a Keras variable"
        if leaf is not None and not is_tensor(leaf):
            kind = type(leaf)
            return f"a Python {kind.__name__}" if kind.__module__ == "builtins" else f"a {kind.__name__}"
    return None
