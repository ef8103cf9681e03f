"""Checks that a placed step returns what the untouched step returns, and turns exceptions into Failed values."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import tensorflow as tf

from placer.execute.rewrite import PlacementError
from placer.result import Failed

TOLERANCE = 1e-3  # relative; other device kinds and thread counts round differently
TF32_TOLERANCE = 1e-2  # where a GPU multiplies in TensorFloat-32, which keeps three digits
MOST_TOLERANCE = 0.1
SPREAD = 2.0  # allowed multiple of how far the untouched step's references differ among themselves

Returned = Sequence[Sequence["np.ndarray[Any, Any]"]]
"""For each of the first steps, the values that it returned."""

OUT_OF_MEMORY = ("Dst tensor is not initialized", "ALLOC_FAILED", "OUT_OF_MEMORY", "out of memory")


class LossDiffersError(Exception):
    """The placed step and the untouched step return different values."""


REASONS: tuple[tuple[type[Exception], str], ...] = (
    (LossDiffersError, "loss"),
    (PlacementError, "placement"),
    (tf.errors.ResourceExhaustedError, "memory"),
    (tf.errors.UnavailableError, "device"),
    (tf.errors.AbortedError, "device"),
    (tf.errors.OpError, "error"),
)


class Agreement:
    """Compares what first steps returned with the untouched step's values on the same batches and state.

    references: what the untouched step returned under one or more configurations; a placed step has to agree with one
    of them within `tolerance` (relative), because thread counts may differ. exact: the devices give the same bits, so
    every mapping must also return exactly the bits of the first one checked. random: steps draw from hidden state, no
    two are alike, and nothing is checked.
    """

    def __init__(
        self, references: Sequence[Returned], *, exact: bool, random: bool, tolerance: float = TOLERANCE
    ) -> None:
        self.references, self.exact, self.random, self.tolerance = references, exact, random, tolerance
        self.first: Returned | None = None

    def check(self, returned: Returned) -> None:
        """Raises LossDiffersError where the values differ."""
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
        """A description of the first difference; empty where the values agree."""
        for number, (a, b) in enumerate(zip(mine, theirs, strict=True), start=1):
            for x, y in zip(a, b, strict=True):
                if not same(x, y, exact=exact, tolerance=self.tolerance):
                    return f"step {number} returned {x!r}, and {y!r}"
        return ""


def same(a: np.ndarray[Any, Any], b: np.ndarray[Any, Any], *, exact: bool, tolerance: float = TOLERANCE) -> bool:
    """Whether two values are equal; unless `exact`, floats may differ by `tolerance` times the largest of `b`."""
    if exact or not np.issubdtype(a.dtype, np.floating):
        return bool(np.array_equal(a, b, equal_nan=np.issubdtype(a.dtype, np.floating)))
    return bool(np.allclose(a, b, rtol=0.0, atol=tolerance * _largest(b), equal_nan=True))


def rounds_coarsely() -> bool:
    """Whether a GPU of this process multiplies in TensorFloat-32, TensorFlow's default."""
    return tf.config.experimental.tensor_float_32_execution_enabled() and bool(tf.config.list_logical_devices("GPU"))


def tolerance(references: Sequence[Returned]) -> float:
    """The relative difference allowed to a placed step. Some steps magnify TensorFloat-32's rounding; these may differ
    by `SPREAD` times as much as the references do among themselves.
    """
    if not rounds_coarsely():
        return TOLERANCE
    apart = [_apart(a, b) for other in references[1:] for a, b in zip(_flat(references[0]), _flat(other), strict=True)]
    return min(max(TF32_TOLERANCE, SPREAD * max(apart, default=0.0)), MOST_TOLERANCE)


def _flat(reference: Returned) -> list[np.ndarray[Any, Any]]:
    return [value for step in reference for value in step if np.issubdtype(value.dtype, np.floating)]


def _apart(a: np.ndarray[Any, Any], b: np.ndarray[Any, Any]) -> float:
    """The largest difference of two arrays relative to the largest value of `b`; non-finite values are ignored."""
    with np.errstate(invalid="ignore"):
        return _largest(a - b) / _largest(b) if _largest(b) else 0.0


def _largest(a: np.ndarray[Any, Any]) -> float:
    """The largest finite absolute value, 0 where there is none."""
    return float(np.max(np.abs(a), initial=0.0, where=np.isfinite(a)))


def attempted(run: Callable[[], Any]) -> Any:
    """What `run` returns, or a Failed with the reason for its exception."""
    try:
        return run()
    except tuple(kind for kind, _ in REASONS) as error:
        reason = next(reason for kind, reason in REASONS if isinstance(error, kind))
        if isinstance(error, tf.errors.OpError) and is_out_of_memory(error):
            reason = "memory"
        return Failed(reason, str(error).strip().splitlines()[0])


def is_out_of_memory(error: tf.errors.OpError) -> bool:
    """Whether a device ran out of memory; CUDA's libraries and copies to a GPU use messages of their own."""
    return isinstance(error, tf.errors.ResourceExhaustedError) or any(text in error.message for text in OUT_OF_MEMORY)


def values(outputs: Sequence[Any]) -> list[np.ndarray[Any, Any]]:
    """Returned tensors as arrays; waits until they are there."""
    return [np.asarray(tensor.numpy()) for tensor in outputs]


def returned(outputs: Any) -> list[np.ndarray[Any, Any]]:
    """The tensors in whatever a step returned as arrays; waits until they are there."""
    return values([t for t in tf.nest.flatten(outputs, expand_composites=True) if tf.is_tensor(t)])
