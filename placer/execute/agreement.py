"""Whether a placed step does what the untouched step does: what it returns, and what it makes of every variable.

Returned values alone prove little: with a small learning rate they stay the same for many steps, whatever happens to
the weights. So the change of each variable is compared, too.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from collections.abc import Mapping as MappingABC
from dataclasses import dataclass
from hashlib import blake2b
from itertools import combinations
from typing import Any

import ml_dtypes
import numpy as np
import tensorflow as tf

Array = np.ndarray[Any, Any]
Returned = Sequence[Sequence[Array]]
"""For each of the first steps, the values that it returned."""
Size = Callable[[Array], float]
"""The largest value, or the norm."""
Part = Callable[["Outcome"], Array]
"""A value that a step returned, or the change of a variable."""

TOLERANCE = 1e-3  # relative; other device kinds and thread counts round differently
TF32_TOLERANCE = 1e-2  # where a GPU multiplies in TensorFloat-32, which keeps three digits
MOST_TOLERANCE = 0.1
CHANGE_TOLERANCE = 2e-2  # the least for the change of a variable, a small difference of large numbers
SPREAD = 2.0  # allowed multiple of how far the untouched step's references differ among themselves
ERRORS = 10.0  # and of what one rounding error at the start grows to: a step makes many more on its way


class LossDiffersError(Exception):
    """The placed step and the untouched step do different things."""


@dataclass(frozen=True)
class Outcome:
    """What some first steps did, one after another. before, after: name of each variable -> its value."""

    returned: Returned
    before: MappingABC[str, Array]
    after: MappingABC[str, Array]


class Agreement:
    """Compares outcomes of placed steps with those of the untouched step on the same batches, draws and variables.

    references: outcomes of the untouched step under one or more configurations, because thread counts and optimisers
    round differently. What a step returned, and by how much it changed each variable, has to agree with one of them
    within `tolerance`, or within SPREAD times what they differ by among themselves.
    exact: the devices give the same bits, so every mapping must do exactly what the first one did that was checked.
    random: steps draw numbers that cannot be repeated, and nothing is checked.
    tolerance: relative.
    shaken: called at the first disagreement, and never again. It makes two outcomes that differ by a rounding error at
    the start, to see what such an error grows to; others may differ from references by ERRORS times that. The gradient
    of a bias before batch normalization is nothing but such errors, and Adam makes updates of it.
    """

    def __init__(
        self,
        references: Sequence[Outcome],
        *,
        exact: bool,
        random: bool = False,
        tolerance: float = TOLERANCE,
        shaken: Callable[[], tuple[Outcome, Outcome]] | None = None,
    ) -> None:
        self.references, self.exact, self.random, self.tolerance = list(references), exact, random, tolerance
        self._shaken = shaken
        self._pairs = list(combinations(self.references, 2))
        self._shaken_pairs: list[tuple[Outcome, Outcome]] = []
        self._first: tuple[Returned, dict[str, bytes]] | None = None  # returned values and digests of variables

    def check(self, outcome: Outcome) -> None:
        """Raises LossDiffersError where the untouched step, or another mapping, did something else."""
        if self.random:
            return
        if self.exact and self._first is not None:
            self._check_bits(outcome, *self._first)
            return
        apart = self._apart(outcome)
        if apart and self._shaken is not None:
            self._shaken_pairs.append(self._shaken())
            self._shaken = None
            apart = self._apart(outcome)
        if apart:
            raise LossDiffersError(f"{apart} untouched")
        self._first = outcome.returned, {name: _digest(value) for name, value in outcome.after.items()}

    def forget_references(self) -> None:
        """Where all mappings must do the same to the bit, free the references once one mapping agreed with them."""
        if self.exact and self._first is not None:
            self.references, self._pairs, self._shaken_pairs, self._shaken = [], [], [], None

    def _check_bits(self, outcome: Outcome, returned: Returned, digests: MappingABC[str, bytes]) -> None:
        for number, (mine, theirs) in enumerate(zip(outcome.returned, returned, strict=True), start=1):
            for x, y in zip(mine, theirs, strict=True):
                if not np.array_equal(x, y, equal_nan=is_float(x)):
                    raise LossDiffersError(f"step {number} returned {x!r}, and {y!r} under another mapping")
        for name, value in outcome.after.items():
            if _digest(value) != digests[name]:
                raise LossDiffersError(f"variable {name!r} has other values than under another mapping")

    def _apart(self, mine: Outcome) -> str:
        """A description of the first difference from all references; empty where there is none."""
        if not self.references:
            return ""
        for step, values in enumerate(mine.returned):
            for i in range(len(values)):
                x, *others = (outcome.returned[step][i] for outcome in (mine, *self.references))
                if not self._agrees(x, others, _returned_at(step, i), largest):
                    return f"step {step + 1} returned {x!r}, and {others[0]!r}"
        for name, value in mine.after.items():
            x, *others = (_changed(outcome, name) for outcome in (mine, *self.references))
            if not self._agrees(x, others, _change_of(name), norm, _rounding(value)):
                return f"variable {name!r} changed by {_in_words(x)}, and by {_in_words(others[0])}"
        return ""

    def _agrees(self, x: Array, others: Sequence[Array], part: Part, size: Size, rounding: float = 0.0) -> bool:
        """Whether x is one of `others`; floats may differ. part: what of an outcome they are."""
        if not is_float(x):
            return any(np.array_equal(x, y) for y in others)
        least = max(self.tolerance, CHANGE_TOLERANCE) if size is norm else self.tolerance
        with np.errstate(invalid="ignore"):
            among = SPREAD * _farthest(self._pairs, part, size)
            spread = max(among, ERRORS * _farthest(self._shaken_pairs, part, size))
            return any(
                _same_kind(x, y) and size(_wide(x) - _wide(y)) <= max(least * size(_wide(y)), spread) + rounding
                for y in others
            )


def tolerance(references: Sequence[Outcome]) -> float:
    """The relative difference allowed to a placed step. Some steps magnify TensorFloat-32's rounding; these may differ
    by `SPREAD` times as much as the references do among themselves.
    """
    if not rounds_coarsely():
        return TOLERANCE
    flat = [[v for step in outcome.returned for v in step if is_float(v)] for outcome in references]
    apart = [_relative(a, b) for other in flat[1:] for a, b in zip(flat[0], other, strict=True)]
    return min(max(TF32_TOLERANCE, SPREAD * max(apart, default=0.0)), MOST_TOLERANCE)


def rounds_coarsely() -> bool:
    """Whether a GPU of this process multiplies in TensorFloat-32, TensorFlow's default."""
    return tf.config.experimental.tensor_float_32_execution_enabled() and bool(tf.config.list_logical_devices("GPU"))


def largest(a: Array) -> float:
    """The largest finite absolute value, 0 where there is none."""
    return float(np.max(np.abs(a), initial=0.0, where=np.isfinite(a)))


def norm(a: Array) -> float:
    """The Euclidean norm of the finite values."""
    return float(np.linalg.norm(np.where(np.isfinite(a), a, 0).ravel()))


def is_float(a: Array) -> bool:
    """Whether an array holds floats, TensorFlow's short ones included, which NumPy does not know as such."""
    return bool(tf.as_dtype(a.dtype).is_floating)


def eps_of(a: Array) -> float:
    """The relative distance of neighbouring numbers of the array's type."""
    return float(ml_dtypes.finfo(a.dtype).eps)  # type: ignore[no-untyped-call]


def _farthest(pairs: Sequence[tuple[Outcome, Outcome]], part: Part, size: Size) -> float:
    """The largest difference within a pair; 0 where there is none."""
    return max((size(_wide(part(a)) - _wide(part(b))) for a, b in pairs), default=0.0)


def _same_kind(x: Array, y: Array) -> bool:
    """Whether the same values are infinite or not a number."""
    finite = np.isfinite(y)
    return bool(np.array_equal(np.isfinite(x), finite) and np.array_equal(x[~finite], y[~finite], equal_nan=True))


def _returned_at(step: int, position: int) -> Part:
    return lambda outcome: outcome.returned[step][position]


def _change_of(name: str) -> Part:
    return lambda outcome: _changed(outcome, name)


def _changed(outcome: Outcome, name: str) -> Array:
    """By how much a variable changed; the value itself where it is no float."""
    before, after = outcome.before[name], outcome.after[name]
    with np.errstate(invalid="ignore"):
        return _wide(after) - _wide(before) if is_float(after) else after


def _rounding(value: Array) -> float:
    """What rounding alone may add to the change of a variable in some steps."""
    return eps_of(value) * norm(_wide(value)) if is_float(value) else 0.0


def _wide(a: Array) -> Array:
    return a if a.dtype.itemsize >= 4 else a.astype(np.float32)


def _relative(a: Array, b: Array) -> float:
    """The largest difference of two arrays relative to the largest value of `b`; non-finite values are ignored."""
    with np.errstate(invalid="ignore"):
        return largest(a - b) / largest(b) if largest(b) else 0.0


def _digest(a: Array) -> bytes:
    return blake2b(np.ascontiguousarray(a).tobytes() if a.dtype != object else repr(a.tolist()).encode()).digest()


def _in_words(change: Array) -> str:
    return f"{norm(change):.4g} in all" if is_float(change) else repr(change)
