"""The work of all units, divided over the devices as if units could be cut at will."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from search.problem.searcher import Stop, never
from surrogate.costs.cost_matrix import Costs

Floats = NDArray[np.float64]

ROUNDS, ROUNDS_AT_ONCE = 120, 16  # rounds of fitting weights, and rounds between two checks of the clock
TINY = 1e-30


class _Columns(NamedTuple):
    """Devices with the same costs, as one column: they share the best weight, and fewer columns take less time."""

    cost_s: Costs  # [units, columns]
    devices: Floats  # [columns] how many there are of each
    of: NDArray[np.int64]  # [devices] column


class _Ascent(NamedTuple):
    """What some rounds led to: the best value, in seconds, its weights, and the weights for the next round."""

    value_s: float
    best: Floats  # [columns], as is `weights`
    weights: Floats


def divided_work(unit_cost_s: Costs, rounds: int = ROUNDS, stop: Stop = never) -> tuple[float, Floats]:
    """Return a lower bound of the largest load if units could be cut at will, and the device weights that prove it,
    [devices]. unit_cost_s: [units, devices] seconds, infinite where a unit cannot run. After `stop()` fewer rounds run.

    This is the linear relaxation of unrelated machines. By duality every set of device weights w >= 0 with sum 1 gives
    the bound: sum over units of min_d w_d * cost_s[u, d]. Multiplicative updates raise the weights of the devices that
    the minimum loads most. They begin from each of `_starts`, and go on from the better one.
    """
    columns = _columns(unit_cost_s)
    if len(columns.devices) == 1:
        rounds = 1
    trial = min(rounds, ROUNDS_AT_ONCE)
    found: list[_Ascent] = []
    for start in _starts(columns):
        found.append(_ascend(columns, start, range(1, trial + 1)))
        if stop():
            break
    ascent = best = max(found, key=lambda it: it.value_s)
    for done in range(trial, rounds, ROUNDS_AT_ONCE):
        if stop():
            break
        ascent = _ascend(columns, ascent.weights, range(done + 1, min(done + ROUNDS_AT_ONCE, rounds) + 1))
        best = max(best, ascent, key=lambda it: it.value_s)
    return best.value_s, best.best[columns.of]


def _columns(unit_cost_s: Costs) -> _Columns:
    known: dict[bytes, int] = {}
    of = np.array([known.setdefault(column.tobytes(), len(known)) for column in np.ascontiguousarray(unit_cost_s.T)])
    _, first, count = np.unique(of, return_index=True, return_counts=True)
    return _Columns(np.ascontiguousarray(unit_cost_s[:, first]), count.astype(np.float64), of)


def _starts(columns: _Columns) -> Iterator[Floats]:
    """Yield the weights to begin from: by mean speed, and equal ones. Mean speeds are best if all devices run the same
    units. A device that runs only cheap units seems so fast that the rounds cannot raise the others' weights again.
    """
    can = np.isfinite(columns.cost_s)
    mean_s = np.where(can, columns.cost_s, 0.0).sum(axis=0) / np.maximum(can.sum(axis=0), 1)
    able = can.any(axis=0)
    yield _normal(columns, np.where(able, 1 / np.maximum(mean_s, TINY), 0.0))
    if np.ptp(mean_s[able]) > 0:
        yield _normal(columns, np.where(able, 1.0, 0.0))


def _ascend(columns: _Columns, weights: Floats, rounds: range) -> _Ascent:
    """Run some rounds of updates. Units go to the device where they weigh least, in equal parts if there are several:
    if one device got them all, only its weight would grow.
    """
    cost_s, devices = columns.cost_s, columns.devices
    each, best_s, best = np.arange(len(cost_s)), -1.0, weights
    for round_ in rounds:
        weighted = cost_s * weights
        column = weighted.argmin(axis=1)
        least = weighted[each, column]
        value_s = float(least.sum())
        if value_s > best_s:
            best_s, best = value_s, weights
        tied = weighted == least[:, None]
        if np.count_nonzero(tied) == len(each):
            load_s: Floats = np.bincount(column, cost_s[each, column], len(devices)) / devices
        else:
            load_s = (np.where(tied, cost_s, 0.0) / (tied @ devices)[:, None]).sum(axis=0)
        weights = _normal(columns, weights * np.exp(load_s / max(load_s.max(), TINY) / np.sqrt(round_)))
    return _Ascent(best_s, best, weights)


def _normal(columns: _Columns, weights: Floats) -> Floats:
    """Return weights whose sum over all devices is 1, without 0, because 0 times infinity is not a number."""
    weights = np.maximum(weights / (columns.devices @ weights), TINY)
    normal: Floats = weights / (columns.devices @ weights)
    return normal
