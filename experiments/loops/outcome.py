"""The outcome of a run of a loop, and the differences between two runs."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from collections.abc import Mapping as MappingABC
from dataclasses import dataclass, field
from typing import Any

import numpy as np

Array = np.ndarray[Any, Any]
SHOWN = 12  # differences that are described


@dataclass
class Outcome:
    """Everything that a loop is judged by."""

    steps: int = 0
    metrics: list[dict[str, Array]] = field(default_factory=list)  # in the order in which the loop noted them
    variables: dict[str, Array] = field(default_factory=dict)  # at the end: weights, slots, counters, metrics, streams
    draws: dict[str, Array] = field(
        default_factory=dict
    )  # the next numbers of Python's, NumPy's and TensorFlow's streams
    effects: list[str] = field(default_factory=list)  # what the step did outside of variables, in order
    placed: int = 0  # calls that were placed
    mappings: int = 0  # distinct mappings of these calls
    alone: list[str] = field(default_factory=list)  # for each wrapped step that was left alone, why
    said: list[str] = field(default_factory=list)  # warnings that were raised or logged
    journal: list[tuple[str, str]] = field(default_factory=list)  # kind and sentence


def differences(wrapped: Outcome, alone: Outcome, bound: float = 0.0) -> list[str]:
    """The differences between a wrapped run and a run of the loop alone, a line for each, SHOWN at most.

    bound: how much a float may differ, relative to the largest value of its tensor; 0 = to the last bit.
    """
    found = list(_differences(wrapped, alone, bound))
    return found[:SHOWN] + ([f"and {len(found) - SHOWN} more"] if len(found) > SHOWN else [])


def repeated(metrics: Sequence[MappingABC[str, Array]]) -> int:
    """The number of values of the random metric `noise` that are equal to an earlier value."""
    seen = [noted["noise"].tobytes() for noted in metrics if "noise" in noted]
    return len(seen) - len(set(seen))


def _differences(wrapped: Outcome, alone: Outcome, bound: float) -> Iterator[str]:
    if wrapped.steps != alone.steps:
        yield f"{wrapped.steps} steps, and {alone.steps} alone"
    if len(wrapped.metrics) != len(alone.metrics):
        yield f"metrics were noted {len(wrapped.metrics)} times, and {len(alone.metrics)} times alone"
    for i, (mine, theirs) in enumerate(zip(wrapped.metrics, alone.metrics, strict=False)):
        yield from _apart(f"metric at {i}:", mine, theirs, bound)
    yield from _apart("variable", wrapped.variables, alone.variables, bound)
    yield from _apart("next draw of", wrapped.draws, alone.draws, 0.0)
    if wrapped.effects != alone.effects:
        yield f"{len(wrapped.effects)} effects, and {len(alone.effects)} alone; {_first_apart(wrapped, alone)}"


def _apart(what: str, mine: MappingABC[str, Array], theirs: MappingABC[str, Array], bound: float) -> Iterator[str]:
    if mine.keys() != theirs.keys():
        yield f"{what} {sorted(mine.keys() ^ theirs.keys())} only on one side"
    for name in mine.keys() & theirs.keys():
        apart = _distance(mine[name], theirs[name])
        if apart > bound:
            yield f"{what} {name}: {_short(mine[name])}, and {_short(theirs[name])} alone (relative {apart:.1e})"


def _distance(x: Array, y: Array) -> float:
    """The largest difference relative to the largest value; 0 if all bits are the same, infinite for other types."""
    if x.dtype != y.dtype or x.shape != y.shape:
        return float("inf")
    if x.tobytes() == y.tobytes():
        return 0.0
    if not np.issubdtype(x.dtype, np.floating):
        return float("inf")
    wide, other = x.astype(np.float64), y.astype(np.float64)
    if not np.array_equal(np.isfinite(wide), np.isfinite(other)):
        return float("inf")
    with np.errstate(invalid="ignore"):
        apart = float(np.max(np.abs(wide - other), initial=0.0, where=np.isfinite(wide)))
        size = float(np.max(np.abs(other), initial=0.0, where=np.isfinite(other)))
    return apart / size if size else float("inf" if apart else 0.0)


def _short(value: Array) -> str:
    return str(value.ravel()[:3].tolist())


def _first_apart(wrapped: Outcome, alone: Outcome) -> str:
    pairs = zip(wrapped.effects, alone.effects, strict=False)
    return next((f"first: {a!r}, and {b!r} alone" for a, b in pairs if a != b), "one list begins with the other")
