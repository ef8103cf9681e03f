"""Annealing a population: many rows cool side by side, are predicted as one batch, and take parts of each other."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from search.local.moves import Moves
from search.problem.problem import Placement, Problem
from search.problem.searcher import Stop
from surrogate.simulate.critical_path import critical_chain
from surrogate.simulate.max_load import loads

Rows = NDArray[np.int32]
Predict = Callable[[Rows], NDArray[np.float64]]


@dataclass(frozen=True)
class Cooling:
    """How the population cools: whole groups move first, single units last."""

    chains: int = 16  # rows that are changed side by side
    hot: float = 0.02  # relative loss that is accepted about every third time, at the beginning
    cold: float = 0.0002  # and at the end
    large: float = 0.5  # share of the units that one move may concern, at the beginning
    small: float = 0.02  # and at the end
    renewal: int = 25  # rounds after which the worst row becomes a copy of the best
    attention: int = 100  # rounds after which moves turn to what is critical in the best, found for the price of many


@dataclass
class Elites:
    """The best placements seen, with their predicted values; about `room` of them."""

    room: int = 256
    value: dict[bytes, float] = field(default_factory=dict)
    _ranked: list[tuple[float, Placement]] = field(default_factory=list)

    def add(self, rows: Rows, values: NDArray[np.float64]) -> None:
        """Add finite ones; of more than twice `room` the best `room` stay."""
        self._ranked = []
        for row, value in zip(rows, values.tolist(), strict=True):
            if np.isfinite(value):
                self.value[row.tobytes()] = value
        if len(self.value) > 2 * self.room:
            best = sorted(self.value.items(), key=lambda item: (item[1], item[0]))
            self.value = dict(best[: self.room])

    def ranked(self) -> list[tuple[float, Placement]]:
        """(value, placement), the best first."""
        if not self._ranked:
            best = sorted((value, np.frombuffer(key, np.int32).tolist()) for key, value in self.value.items())
            self._ranked = [(value, tuple(devices)) for value, devices in best[: self.room]]
        return self._ranked


def anneal(
    problem: Problem,
    moves: Moves,
    starts: Sequence[Placement],
    predict: Predict,
    elites: Elites,
    *,
    evaluations: int,
    rng: np.random.Generator,
    stop: Stop,
    cooling: Cooling | None = None,
) -> None:
    """Anneal from `starts` (which fit) until `evaluations` predictions are spent or `stop()`; fills `elites`.

    Metropolis et al. 1953 with a temperature per round relative to the best value so far; rows exchange parts and the
    worst is now and then replaced, as in a genetic algorithm.
    """
    cooling = cooling or Cooling()
    rows = np.array([starts[i % len(starts)] for i in range(cooling.chains)], np.int32)
    values = predict(rows)
    elites.add(rows, values)
    best, best_value = rows[values.argmin()].copy(), float(values.min())
    rounds = max(1, evaluations // cooling.chains - 1)
    for turn in range(rounds):
        if stop():
            return
        if turn % cooling.attention == 0:
            moves.attend(critical_units(problem, best))
        done = turn / rounds
        others = [*rows[:], best]
        drawn = rows.copy()
        scale = cooling.large * (cooling.small / cooling.large) ** done
        kinds = np.array([moves.draw(row, others, scale, rng) for row in drawn])
        changed = (drawn != rows).any(axis=1) & problem.fits_many(drawn)
        if not changed.any():
            continue
        found = np.full(len(rows), np.inf)
        found[changed] = predict(drawn[changed])
        heat = cooling.hot * (cooling.cold / cooling.hot) ** done * best_value
        taken = changed & _accepted(found, values, heat, rng)
        moves.learn(kinds, taken & (found < values))
        good = taken & (found < best_value * (1 + cooling.hot))
        elites.add(drawn[good], found[good])
        rows[taken], values[taken] = drawn[taken], found[taken]
        if values.min() < best_value:
            best, best_value = rows[values.argmin()].copy(), float(values.min())
        if turn % cooling.renewal == cooling.renewal - 1:
            worst = values.argmax()
            rows[worst], values[worst] = best, best_value


def critical_units(problem: Problem, row: NDArray[np.int32]) -> list[int]:
    """The units that determine the objective: those on the critical chain, or on the busiest device."""
    devices = row[problem.limits.unit_of]
    if problem.objective == "max-load":
        load_s = loads(problem.graph, problem.simulator.cost_s, problem.topology, devices.tolist())
        return np.flatnonzero(row == int(np.argmax(load_s))).tolist()
    chain = critical_chain(problem.simulator.timeline(devices.tolist()))
    return [problem.unit_of[v] for v in chain]


def _accepted(
    found: NDArray[np.float64], values: NDArray[np.float64], heat: float, rng: np.random.Generator
) -> NDArray[np.bool_]:
    """Metropolis: accept what is no worse, and what is worse by x with probability exp(-x / heat)."""
    with np.errstate(invalid="ignore", divide="ignore"):
        loss = np.where(np.isfinite(found), found - values, np.inf)
        likely = np.exp(-np.maximum(loss, 0.0) / max(heat, 1e-300))
    accepted: NDArray[np.bool_] = (loss <= 0) | (rng.random(len(found)) < likely)
    return accepted & np.isfinite(found)
