"""Whether a placed step computes what the untouched one does: the values that both return, and failures as values."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import tensorflow as tf

from placer.execute.rewrite import PlacementError
from placer.result import Failed

TOLERANCE = 1e-3  # relative; another device kind, or another number of threads, rounds differently
TF32_TOLERANCE = 1e-2  # where a GPU multiplies in TensorFloat-32, which keeps three digits
MOST_TOLERANCE = 0.1
SPREAD = 2.0  # how many times as far off as the untouched step is from itself when rounded differently

Returned = Sequence[Sequence["np.ndarray[Any, Any]"]]
"""For each of the first steps, the values that it returned."""


OUT_OF_MEMORY = ("Dst tensor is not initialized", "ALLOC_FAILED", "OUT_OF_MEMORY", "out of memory")


class LossDiffersError(Exception):
    """The placed step computes something else than the untouched one."""


REASONS: tuple[tuple[type[Exception], str], ...] = (
    (LossDiffersError, "loss"),
    (PlacementError, "placement"),
    (tf.errors.ResourceExhaustedError, "memory"),
    (tf.errors.UnavailableError, "device"),
    (tf.errors.AbortedError, "device"),
    (tf.errors.OpError, "error"),
)


class Agreement:
    """Holds what first steps returned against the untouched step's on the same batches and state.

    references: what the untouched step returned, in one or more ways to run it; a placed step has to agree with one
    of them within `tolerance` (relative), for the untouched step may run on another number of threads. exact: the
    devices give the same bits, so every mapping must also return the very bits of the first that was checked. random:
    steps draw from hidden state, no two are alike, and nothing can be checked.
    """

    def __init__(
        self, references: Sequence[Returned], *, exact: bool, random: bool, tolerance: float = TOLERANCE
    ) -> None:
        self.references, self.exact, self.random, self.tolerance = references, exact, random, tolerance
        self.first: Returned | None = None

    def check(self, returned: Returned) -> None:
        """Raises LossDiffersError."""
        if self.random:
            return
        apart = [self._difference(returned, reference, exact=False) for reference in self.references]
        if apart and all(apart):
            raise LossDiffersError(f"{apart[0]} untouched")
        if self.exact:
            self.first = self.first or returned
            bits = self._difference(returned, self.first, exact=True)
            if bits:
                raise LossDiffersError(f"{bits} under another mapping")

    def _difference(self, mine: Returned, theirs: Returned, *, exact: bool) -> str:
        """Where the returned values first differ, in words; empty where they agree."""
        for number, (a, b) in enumerate(zip(mine, theirs, strict=True), start=1):
            for x, y in zip(a, b, strict=True):
                if not same(x, y, exact=exact, tolerance=self.tolerance):
                    return f"step {number} returned {x!r}, and {y!r}"
        return ""


def same(a: np.ndarray[Any, Any], b: np.ndarray[Any, Any], *, exact: bool, tolerance: float = TOLERANCE) -> bool:
    """Whether two returned values agree: to the last bit, or floats within `tolerance`, relative to the largest."""
    if exact or not np.issubdtype(a.dtype, np.floating):
        return bool(np.array_equal(a, b, equal_nan=np.issubdtype(a.dtype, np.floating)))
    return bool(np.allclose(a, b, rtol=0.0, atol=tolerance * _largest(b), equal_nan=True))


def rounds_coarsely() -> bool:
    """Whether a GPU of this process multiplies in TensorFloat-32, as TensorFlow lets it unless told otherwise."""
    return tf.config.experimental.tensor_float_32_execution_enabled() and bool(tf.config.list_logical_devices("GPU"))


def tolerance(references: Sequence[Returned]) -> float:
    """How far off a placed step may be, relative. In TensorFloat-32, some steps magnify what is rounded away; then
    `SPREAD` times what the references differ among themselves.
    """
    if not rounds_coarsely():
        return TOLERANCE
    apart = [_apart(a, b) for other in references[1:] for a, b in zip(_flat(references[0]), _flat(other), strict=True)]
    return min(max(TF32_TOLERANCE, SPREAD * max(apart, default=0.0)), MOST_TOLERANCE)


def _flat(reference: Returned) -> list[np.ndarray[Any, Any]]:
    return [value for step in reference for value in step if np.issubdtype(value.dtype, np.floating)]


def _apart(a: np.ndarray[Any, Any], b: np.ndarray[Any, Any]) -> float:
    """How far two arrays differ, relative to the largest; what is not finite is left out."""
    with np.errstate(invalid="ignore"):
        return _largest(a - b) / _largest(b) if _largest(b) else 0.0


def _largest(a: np.ndarray[Any, Any]) -> float:
    """The largest finite absolute value, 0 where there is none."""
    return float(np.max(np.abs(a), initial=0.0, where=np.isfinite(a)))


def attempted(run: Callable[[], Any]) -> Any:
    """What `run` returns, or a Failed that says why it did not."""
    try:
        return run()
    except tuple(kind for kind, _ in REASONS) as error:
        reason = next(reason for kind, reason in REASONS if isinstance(error, kind))
        if isinstance(error, tf.errors.OpError) and is_out_of_memory(error):
            reason = "memory"
        return Failed(reason, str(error).strip().splitlines()[0])


def is_out_of_memory(error: tf.errors.OpError) -> bool:
    """Whether a device ran out of memory; CUDA's libraries and copies to a GPU say so in words of their own."""
    return isinstance(error, tf.errors.ResourceExhaustedError) or any(text in error.message for text in OUT_OF_MEMORY)


def values(outputs: Sequence[Any]) -> list[np.ndarray[Any, Any]]:
    """Returned tensors as arrays; waits until they are there."""
    return [np.asarray(tensor.numpy()) for tensor in outputs]


def returned(outputs: Any) -> list[np.ndarray[Any, Any]]:
    """The tensors in whatever a step returned as arrays; waits until they are there."""
    return values([t for t in tf.nest.flatten(outputs, expand_composites=True) if tf.is_tensor(t)])
