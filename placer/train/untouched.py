"""The user's own function, run as written, on the user's own variables."""

from __future__ import annotations

import time
import warnings
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from typing import Any

import tensorflow as tf

from placer.devices.gpu_wait import drain
from placer.execute.outputs import returned
from placer.trace.iterator_inputs import Feeding, unrepeatable
from placer.train.session import DeviceSession
from placer.train.variable_hooks import unwatched
from placer.train.variant import Variant


class UntouchedFunction:
    """Runs `step` untouched, whatever else happens to its variables between calls."""

    def __init__(
        self,
        step: Callable[..., Any],
        session: DeviceSession,
        name: str,
        clock: Callable[[], float] = time.perf_counter,
    ) -> None:
        self.step, self.session, self.name, self.clock = step, session, name, clock
        # What is called and captured: a tf.function wherever that can be.
        self.function: Any = step if hasattr(step, "get_concrete_function") else tf.function(step)
        self._warned = False

    def trace(self, variant: Variant) -> str | None:
        """Trace the step; returns why it cannot be traced or repeated, None where it can."""
        try:
            concrete = self.function.get_concrete_function(*variant.args, **variant.kwargs)
        except Exception as error:  # whatever the user's code raises under tracing
            line = next(iter(str(error).strip().splitlines()), "")
            self.function = self.step
            return f"TensorFlow cannot trace it: {type(error).__name__}: {line}"
        return unrepeatable(variant.layout, concrete)

    def run(self, variant: Variant, args: Sequence[Any], kwargs: dict[str, Any]) -> tuple[Any, float]:
        """A call as the user made it: what it returns, and its seconds."""
        self.session.replicas.pull()
        with unwatched(self.session.replicas):
            return self._timed(variant, args, kwargs)

    def run_flat(self, variant: Variant, tensors: Sequence[Any]) -> tuple[Any, float]:
        """The same on flat tensors, batches already taken from iterators."""
        self.session.replicas.pull()
        with unwatched(self.session.replicas), lent(variant.feeding, tensors) as flat:
            args, kwargs = variant.layout.filled(flat)
            return self._timed(variant, args, kwargs)

    def within(self, args: Sequence[Any], kwargs: dict[str, Any]) -> Any:
        """A call under a gradient tape, or within another function's trace."""
        if tf.inside_function():
            return self.function(*args, **kwargs)
        if not self._warned:
            self._warned = True
            warnings.warn(
                f"{self.name} is called under a tf.GradientTape, which cannot see into a placed step: such calls run "
                "untouched.", stacklevel=6,
            )  # fmt: skip
        with self.session.lock:
            self.session.replicas.pull()
            with unwatched(self.session.replicas):
                outputs = self._eagerly(args, kwargs)
            self.session.after_untouched()
        return outputs

    def _timed(self, variant: Variant, args: Sequence[Any], kwargs: dict[str, Any]) -> tuple[Any, float]:
        """Run the step on variables that are true: what it returns, and its seconds."""
        begin = self.clock()
        try:
            if self.session.fragile and not variant.compiled:
                outputs = self._eagerly(args, kwargs)
            else:
                outputs = self.function(*args, **kwargs)
                variant.compiled = True
            returned(outputs)
            drain()
            return outputs, self.clock() - begin
        finally:
            self.session.after_untouched()

    def _eagerly(self, args: Sequence[Any], kwargs: dict[str, Any]) -> Any:
        """Op by op in this process: functions first compiled while workers are joined lose updates."""
        function = getattr(self.function, "python_function", self.function)
        return function(*args, **kwargs)


def lent(feeding: Feeding | None, tensors: Sequence[Any]) -> AbstractContextManager[Sequence[Any]]:
    """Flat tensors as the user's step takes them: an iterator over its batch where it takes an iterator."""
    return nullcontext(tensors) if feeding is None else feeding.lent(tensors)
