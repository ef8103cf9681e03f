"""Checks that a placed step does what the untouched step does: what it returns, and how it changes every variable.

Returned values alone prove little: with a small learning rate they stay the same for many steps, whatever happens to
the weights. So the change of each variable is compared, too.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Iterator, Sequence
from collections.abc import Mapping as MappingABC
from dataclasses import dataclass
from itertools import combinations
from typing import Any

import ml_dtypes
import numpy as np
import tensorflow as tf

from placer.execute.fingerprints import fingerprint

Array = np.ndarray[Any, Any]
Returned = Sequence[Sequence[Array]]
"""For each of the first steps, the values that it returned."""

TOLERANCE = 1e-3  # relative; other device kinds and thread counts round differently
TF32_TOLERANCE = 1e-2  # if a GPU multiplies in TensorFloat-32, which keeps three digits
MOST_TOLERANCE = 0.1
CHANGE_TOLERANCE = 2e-2  # least tolerance for a variable's change, which is a small difference of large numbers
SPREAD = 2.0  # allowed multiple of how far the untouched step's references differ among themselves
ERRORS = 10.0  # allowed multiple of what one rounding error at the start grows to; a step makes many more of them
PORTION = 1 << 17  # values of a variable that are compared at a time


class LossDiffersError(Exception):
    """The placed step and the untouched step do different things."""


@dataclass(frozen=True)
class Outcome:
    """The outcome of a few consecutive first steps. before, after: name of each variable -> its value."""

    returned: Returned
    before: MappingABC[str, Array]
    after: MappingABC[str, Array]


@dataclass(frozen=True)
class PlacedOutcome:
    """The outcome of a placed step's first steps; the values of its variables are still on its devices."""

    returned: Returned
    fingerprints: Callable[[], MappingABC[str, bytes]]  # of its variables, by name; made on their devices
    fetched: Callable[[Collection[str]], Outcome]  # the outcome with the values of these variables; takes longer


class Agreement:
    """Compares outcomes of placed steps with those of the untouched step on the same batches, draws and variables.

    references: outcomes of the untouched step under one or more configurations, because thread counts and optimisers
    round differently. What a step returned, and by how much it changed each variable, has to agree with one reference
    within `tolerance`, or within SPREAD times the largest difference among the references.
    exact: the devices give the same bits, so every mapping must do exactly what the first checked mapping did.
    random: steps draw numbers that cannot be repeated, and nothing is checked.
    tolerance: relative.
    shaken: called once, at the first disagreement. It makes two outcomes that differ by a rounding error at the start,
    to see what such an error grows to; placed steps may differ from references by ERRORS times as much. The gradient of
    a bias before batch normalization consists of such errors only, and Adam turns it into updates.
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
        self._spread: dict[str, float] = {}  # by variable: what references allow its change to differ by
        self._agreed: dict[str, set[bytes]] | None = None  # by variable: fingerprints of values that need no comparison
        self._first: tuple[Returned, MappingABC[str, bytes]] | None = None  # what the first mapping did

    def check(self, placed: PlacedOutcome) -> None:
        """Raise LossDiffersError if the untouched step, or another mapping, did something else."""
        if self.random:
            return
        found = placed.fingerprints()
        if self.exact and self._first is not None:
            self._check_bits(placed.returned, found, *self._first)
            return
        agreed = self._known()
        self.compare(placed.fetched([name for name, one in found.items() if one not in agreed.get(name, ())]))
        for name, one in found.items():
            agreed.setdefault(name, set()).add(one)
        self._first = placed.returned, found

    def compare(self, outcome: Outcome) -> None:
        """Raise LossDiffersError if the untouched step returned something else, or did something else to the variables
        of `outcome`.
        """
        apart = self._apart(outcome)
        if apart and self._shaken is not None:
            self._shaken_pairs.append(self._shaken())
            self._shaken = None
            self._spread.clear()
            apart = self._apart(outcome)
        if apart:
            raise LossDiffersError(f"{apart} untouched")

    def _known(self) -> dict[str, set[bytes]]:
        """By variable, the fingerprints of its values after untouched steps, and of values that agreed with these."""
        if self._agreed is None:
            self._agreed = {}
            for outcome in self.references:
                for name, value in outcome.after.items():
                    self._agreed.setdefault(name, set()).add(fingerprint(value))
        return self._agreed

    def forget_references(self) -> None:
        """Free the references if all mappings must do the same to the bit, and one has agreed with the references."""
        if self.exact and self._first is not None:
            self.free()

    def free(self) -> None:
        """Free the references, because nothing is compared with them any more."""
        self.references, self._pairs, self._shaken_pairs, self._shaken = [], [], [], None

    def _check_bits(
        self,
        returned: Returned,
        fingerprints: MappingABC[str, bytes],
        first: Returned,
        first_fingerprints: MappingABC[str, bytes],
    ) -> None:
        for number, (mine, theirs) in enumerate(zip(returned, first, strict=True), start=1):
            for x, y in zip(mine, theirs, strict=True):
                if not np.array_equal(x, y, equal_nan=may_round(x)):
                    raise LossDiffersError(f"step {number} returned {x!r}, and {y!r} under another mapping")
        for name, found in fingerprints.items():
            if found != first_fingerprints[name]:
                raise LossDiffersError(f"variable {name!r} has other values than under another mapping")

    def _apart(self, mine: Outcome) -> str:
        """A description of the first difference from all references; empty if there is none."""
        if not self.references:
            return ""
        for step, values in enumerate(mine.returned):
            count = len(self.references[0].returned[step])
            if len(values) != count:
                return f"step {step + 1} returned {len(values)} tensors, and {count}"
            for i, x in enumerate(values):
                if not self._returned_agrees(x, step, i):
                    return f"step {step + 1} returned {x!r}, and {self.references[0].returned[step][i]!r}"
        for name in mine.after:
            if not self._change_agrees(mine, name):
                own, other = (_in_words(outcome, name) for outcome in (mine, self.references[0]))
                return f"variable {name!r} changed by {own}, and by {other}"
        return ""

    def _returned_agrees(self, x: Array, step: int, i: int) -> bool:
        """Whether `x` is what a reference returned as number `i` of `step`; floats may differ within limits."""
        others = [outcome.returned[step][i] for outcome in self.references]
        if not may_round(x):
            return any(np.array_equal(x, y) for y in others)

        def farthest(pairs: Sequence[tuple[Outcome, Outcome]]) -> float:
            both = ((_wide(a.returned[step][i]), _wide(b.returned[step][i])) for a, b in pairs)
            return max((largest(a - b) for a, b in both), default=0.0)

        with np.errstate(invalid="ignore"):
            own = _wide(x)
            spread = max(SPREAD * farthest(self._pairs), ERRORS * farthest(self._shaken_pairs))
            return any(
                _same_kind(own, y) and largest(own - y) <= max(self.tolerance * largest(y), spread)
                for y in map(_wide, others)
            )

    def _change_agrees(self, mine: Outcome, name: str) -> bool:
        """Whether a variable changed as in a reference; floats may differ within limits."""
        value = mine.after[name]
        if not may_round(value):
            return any(np.array_equal(value, other.after[name]) for other in self.references)
        if name not in self._spread:
            among, shaken = ([_apart(*pair, name)[1] for pair in pairs] for pairs in (self._pairs, self._shaken_pairs))
            self._spread[name] = max(SPREAD * max(among, default=0.0), ERRORS * max(shaken, default=0.0))
        least = max(self.tolerance, CHANGE_TOLERANCE)
        rounding = eps_of(value) * norm(value)  # in some steps the whole change
        compared = (_apart(mine, other, name) for other in self.references)
        return any(
            alike and apart <= max(least * size, self._spread[name]) + rounding for alike, apart, size in compared
        )


def tolerance(references: Sequence[Outcome]) -> float:
    """The relative difference that a placed step may have. Some steps magnify TensorFloat-32's rounding; these may
    differ by SPREAD times as much as the references differ among themselves, up to MOST_TOLERANCE.
    """
    if not rounds_coarsely():
        return TOLERANCE
    flat = [[v for step in outcome.returned for v in step if may_round(v)] for outcome in references]
    apart = [_relative(a, b) for other in flat[1:] for a, b in zip(flat[0], other, strict=True)]
    return min(max(TF32_TOLERANCE, SPREAD * max(apart, default=0.0)), MOST_TOLERANCE)


def rounds_coarsely() -> bool:
    """Whether a GPU of this process multiplies in TensorFloat-32, TensorFlow's default."""
    return tf.config.experimental.tensor_float_32_execution_enabled() and bool(tf.config.list_logical_devices("GPU"))


def largest(a: Array) -> float:
    """The largest finite absolute value; 0 if there is none."""
    return float(np.max(np.abs(a), initial=0.0, where=np.isfinite(a)))


def norm(a: Array) -> float:
    """The Euclidean norm of the finite values."""
    return math.sqrt(sum(_squares(_wide(part)) for (part,) in _portions(a)))


def is_float(a: Array) -> bool:
    """Whether an array holds floats, including TensorFlow's short ones, which NumPy does not know as floats."""
    return bool(tf.as_dtype(a.dtype).is_floating)


def may_round(a: Array) -> bool:
    """Whether an array holds floats, real or complex, so that devices may round its values differently."""
    return is_float(a) or bool(tf.as_dtype(a.dtype).is_complex)


def eps_of(a: Array) -> float:
    """The relative distance of neighbouring numbers of the array's type; of its real type, if the array is complex."""
    return float(ml_dtypes.finfo(a.real.dtype).eps)  # type: ignore[no-untyped-call]


def _apart(one: Outcome, other: Outcome, name: str) -> tuple[bool, float, float]:
    """The difference of a variable's changes in two outcomes: (whether the same values are infinite or not a number,
    norm of the difference, norm of the change in `other`).
    """
    alike, apart, size = True, 0.0, 0.0
    with np.errstate(invalid="ignore"):
        for values in _portions(one.before[name], one.after[name], other.before[name], other.after[name]):
            x0, x1, y0, y1 = map(_wide, values)
            x, y = x1 - x0, y1 - y0
            alike = alike and _same_kind(x, y)
            apart, size = apart + _squares(x - y), size + _squares(y)
    return alike, math.sqrt(apart), math.sqrt(size)


def _portions(*arrays: Array) -> Iterator[tuple[Array, ...]]:
    """Flat portions of arrays of the same shape, small enough for a cache: whole arrays take several times as long."""
    flat = [a.reshape(-1) for a in arrays]
    return (tuple(a[i : i + PORTION] for a in flat) for i in range(0, flat[0].size, PORTION))


def _squares(a: Array) -> float:
    """The sum of the squares of the finite values."""
    finite = np.isfinite(a)
    wide = (a if finite.all() else np.where(finite, a, 0)).astype(np.float64)
    return float(wide @ wide)


def _same_kind(x: Array, y: Array) -> bool:
    """Whether the same values are infinite or not a number."""
    finite = np.isfinite(y)
    if finite.all():
        return bool(np.isfinite(x).all())
    return bool(np.array_equal(np.isfinite(x), finite) and np.array_equal(x[~finite], y[~finite], equal_nan=True))


def _wide(a: Array) -> Array:
    """The values as floats of at least 32 bits; each complex number as its real and its imaginary part."""
    if a.dtype.kind == "c":
        return a.reshape(-1).view(a.real.dtype)
    return a if a.dtype.itemsize >= 4 else a.astype(np.float32)


def _relative(a: Array, b: Array) -> float:
    """The largest difference of two arrays relative to the largest value of `b`; non-finite values are ignored."""
    with np.errstate(invalid="ignore"):
        return largest(a - b) / largest(b) if largest(b) else 0.0


def _in_words(outcome: Outcome, name: str) -> str:
    """The norm of a variable's change, in words; the value itself if it holds no floats, real or complex."""
    before, after = outcome.before[name], outcome.after[name]
    if not may_round(after):
        return repr(after)
    with np.errstate(invalid="ignore"):
        return f"{norm(_wide(after) - _wide(before)):.4g} in all"
