"""Whether a placed step computes what the untouched one does: the values that both return, and failures as values."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import tensorflow as tf

from placer.measurement import Failed
from placer.rewrite import PlacementError

TOLERANCE = 1e-3  # relative; another device kind, or another number of threads, rounds differently

Returned = Sequence[Sequence["np.ndarray[Any, Any]"]]
"""For each of the first steps, the values that it returned."""


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
    devices are of one kind, so every mapping must also return the very bits of the first that was checked. random:
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
    """Whether two returned values agree: to the last bit, or floats within `tolerance`, relative."""
    if exact or not np.issubdtype(a.dtype, np.floating):
        return bool(np.array_equal(a, b, equal_nan=np.issubdtype(a.dtype, np.floating)))
    return bool(np.allclose(a, b, rtol=tolerance, atol=0.0, equal_nan=True))


def attempted(run: Callable[[], Any]) -> Any:
    """What `run` returns, or a Failed that says why it did not."""
    try:
        return run()
    except tuple(kind for kind, _ in REASONS) as error:
        reason = next(reason for kind, reason in REASONS if isinstance(error, kind))
        return Failed(reason, str(error).strip().splitlines()[0])


def values(outputs: Sequence[Any]) -> list[np.ndarray[Any, Any]]:
    """Returned tensors as arrays; waits until they are there."""
    return [np.asarray(tensor.numpy()) for tensor in outputs]


def returned(outputs: Any) -> list[np.ndarray[Any, Any]]:
    """The tensors in whatever a step returned as arrays; waits until they are there."""
    return values([t for t in tf.nest.flatten(outputs, expand_composites=True) if tf.is_tensor(t)])
