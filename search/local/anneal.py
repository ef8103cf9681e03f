"""Annealing of a population: many compiled chains cool side by side on all cores and take parts of each other."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from placer.graph.op_graph import Edge, Op, OpGraph
from placer.graph.topology import Device, Link, Topology
from search.local.moves import Moves
from search.problem.problem import Placement, Problem
from search.problem.searcher import Stop, never
from surrogate.parallel import in_pieces

if TYPE_CHECKING:
    from search.local.kernels.chain import Chain, Stretch
    from search.local.kernels.move_shares import MoveShares

Rows = NDArray[np.int32]
Cool = Callable[["Chain", "MoveShares", "Stretch"], None]
"""A function that continues a chain for a stretch."""


@dataclass(frozen=True)
class Cooling:
    """Settings of how the population cools: many units move at once first, single units last."""

    chains: int = 16  # rows that are changed side by side at the beginning
    survivors: int = 16  # the same at the end: the worst rows are given up one by one
    hot: float = 0.02  # relative loss that is accepted about every third time, at the beginning
    cold: float = 0.0002  # the same at the end
    large: float = 0.5  # the largest share of the units that one move may change, at the beginning
    small: float = 0.02  # the same at the end
    stretch: int = 100  # steps of each chain until the worst becomes a copy of the best
    load_stretch: int = 2_000  # the same for the largest load, whose steps take far less time
    work: int = 4_000_000  # the most ops and edges times steps of a stretch, after which the clock is checked
    load_work: int = 40_000_000  # the same for the largest load
    good: float = 0.02  # placements that are within this of the best are handed over
    afresh: bool = False  # whether rounds that explore begin from the starts alone, without the best known
    apart: float = 0.0  # the share of all stretches, the first ones, in which no chain becomes a copy of the best


# If the simulator is the clock, every thousandth counts. So there is little heat, and few chains, so that each takes
# many steps; they cool apart at first, because after four copies all would be in the best one's valley. The largest
# load has more valleys, so more chains pay there. If the simulator errs by some percent (the defaults above), heat
# finds more mappings that are worth measuring.
_AS_CLOCK = Cooling(cold=3e-5, large=0.1, small=0.01, afresh=True)
SIMULATOR_AS_CLOCK = {
    "makespan": replace(_AS_CLOCK, chains=4, survivors=4, hot=0.002, apart=0.5),
    "max-load": replace(_AS_CLOCK, chains=16, survivors=2, hot=0.003),
}


@dataclass
class Elites:
    """The best placements seen, with their predicted values; about `room` of them."""

    room: int = 256
    value: dict[bytes, float] = field(default_factory=dict)
    _ranked: list[tuple[float, Placement]] = field(default_factory=list)

    def add(self, rows: Rows, values: NDArray[np.float64]) -> None:
        """Add the rows of finite value. If there are more than twice `room`, only the best `room` stay."""
        self._ranked = []
        for row, value in zip(rows, values.tolist(), strict=True):
            if np.isfinite(value):
                self.value[row.tobytes()] = value
        if len(self.value) > 2 * self.room:
            best = sorted(self.value.items(), key=lambda item: (item[1], item[0]))
            self.value = dict(best[: self.room])

    def ranked(self) -> list[tuple[float, Placement]]:
        """Return (value, placement) of each, the best first."""
        if not self._ranked:
            best = sorted((value, np.frombuffer(key, np.int32).tolist()) for key, value in self.value.items())
            self._ranked = [(value, tuple(devices)) for value, devices in best[: self.room]]
        return self._ranked


def anneal(
    problem: Problem,
    moves: Moves,
    starts: Sequence[Placement],
    elites: Elites,
    *,
    evaluations: int,
    rng: np.random.Generator,
    stop: Stop,
    cooling: Cooling | None = None,
) -> int:
    """Anneal from `starts` (which fit) until `evaluations` moves are judged or `stop()`. Fills `elites`.

    Metropolis et al. 1953, with a temperature per stretch relative to the best value so far. Chains take parts of each
    other's rows, and the worst continues from the best after each stretch, as in a genetic algorithm, but not
    in the first stretches (`Cooling.apart`). A chain may pass through placements that do not fit; elites fit. Returns
    how many rows and moves were judged, including moves that change nothing.
    """
    cooling = cooling or Cooling()
    rows = np.array([starts[i % len(starts)] for i in range(cooling.chains)], np.int32)
    population = _Population(problem, moves, elites, rows, rng)
    steps, work = (
        (cooling.load_stretch, cooling.load_work)
        if problem.objective == "max-load"
        else (cooling.stretch, cooling.work)
    )
    steps = max(1, min(steps, evaluations // cooling.chains, work // problem.ops_and_edges))
    judged, most = cooling.chains, cooling.chains + max(evaluations, steps * cooling.survivors)
    while judged + steps * cooling.survivors <= most and not stop():
        done = (judged - cooling.chains) / (most - cooling.chains)
        population.keep(round(cooling.chains * (cooling.survivors / cooling.chains) ** done))
        population.cool(population.stretch(cooling, steps, done))
        population.hand_over()
        if done >= cooling.apart:
            population.replace_worst()
        judged += steps * len(population.chains)
    return judged


class _Population:
    """Chains that cool side by side, and the best row that any of them has had."""

    def __init__(self, problem: Problem, moves: Moves, elites: Elites, rows: Rows, rng: np.random.Generator) -> None:
        from search.local.kernels.chain import new_chain  # numba is slow to import
        from search.local.kernels.rng_state import rng_states

        values = problem.predict_many(rows)
        elites.add(rows, values)
        self.best, self.best_value = rows[values.argmin()].copy(), float(values.min())
        states = rng_states(rng, len(rows))
        self.chains = [new_chain(moves.space, row, state) for row, state in zip(rows, states, strict=True)]
        self._moves, self._elites, self._beside_s = moves, elites, problem.beside_s
        self._cool, self._looked_at = _cooler(problem, moves)

    def stretch(self, cooling: Cooling, steps: int, done: float) -> Stretch:
        """Return the conditions of the next stretch. done: the share of all stretches that is over."""
        from search.local.kernels.chain import Stretch

        heat = cooling.hot * (cooling.cold / cooling.hot) ** done
        return Stretch(
            steps,
            heat_s=heat * self.best_value if self.best_value < np.inf else 0.0,
            scale=cooling.large * (cooling.small / cooling.large) ** done,
            good_s=self.best_value * (1 + cooling.good) - self._beside_s,
        )

    def cool(self, stretch: Stretch) -> None:
        """Continue each chain for a stretch, on all cores."""
        move_shares = self._moves.move_shares([*(chain.row for chain in self.chains), self.best])
        each = partial(_each, self._cool, self.chains, move_shares, stretch)
        in_pieces(each, len(self.chains), stretch.steps * self._looked_at)

    def hand_over(self) -> None:
        """Give the placements found to the elites, and tell the moves which kinds gained."""
        for chain in self.chains:
            self._elites.add(chain.found, chain.found_s + self._beside_s)
        self._moves.learn(np.sum([chain.gained for chain in self.chains], axis=0))
        first = min(self.chains, key=lambda chain: float(chain.found_s[0]))
        value = float(first.found_s[0] + self._beside_s)
        if value < self.best_value:
            self.best, self.best_value = first.found[0].copy(), value

    def keep(self, count: int) -> None:
        """Give up all but the best `count` chains."""
        if count < len(self.chains):
            self.chains = sorted(self.chains, key=lambda chain: float(chain.value_s[0]))[:count]

    def replace_worst(self) -> None:
        """Let the worst chain continue from the best row."""
        worst = max(self.chains, key=lambda chain: float(chain.value_s[0]))
        worst.row[:] = self.best


def prepare(objective: str) -> None:
    """Compile the code that `anneal` needs for an objective, unless the cache on disk has it."""
    problem = two_ops(objective)
    anneal(problem, Moves(problem), [(0, 0)], Elites(), evaluations=1, rng=np.random.default_rng(0), stop=never)


def two_ops(objective: str) -> Problem:
    """Return a small problem to compile with. Its types are those of any other problem."""
    ops = (Op("a", cost_s={"cpu": 1.0}), Op("b", cost_s={"cpu": 1.0}))
    machine = Topology((Device("x", "cpu"), Device("y", "cpu")), (Link("*", "*", 1.0, 1.0),))
    return Problem(OpGraph("two ops", ops, (Edge(0, 1, 1),)), machine, objective)


def _cooler(problem: Problem, moves: Moves) -> tuple[Cool, int]:
    """Return the function that continues a chain, and about how many ops and edges one step visits."""
    size = problem.ops_and_edges
    if problem.objective == "max-load":
        from search.local.kernels.load_chain import cool_loads

        ends = problem.max_load.ends
        return lambda chain, t, x: cool_loads(ends, moves.space, t, chain, x), 1 + size // 100
    from search.local.kernels.makespan_chain import cool_makespan

    tables = problem.simulator.tables._replace(tail_s=problem.tail_s.min(axis=1))
    return lambda chain, t, x: cool_makespan(tables, moves.space, t, chain, x), size


def _each(cool: Cool, chains: Sequence[Chain], move_shares: MoveShares, stretch: Stretch, part: slice) -> None:
    for chain in chains[part]:
        cool(chain, move_shares, stretch)
