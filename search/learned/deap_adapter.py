"""The only file that imports deap: it breeds a generation of children by deap's tournaments and variation."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import cache
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

Row = NDArray[np.int32]
"""[units] the device of each unit."""


class Individual:
    """A row and its fitness, in the form that deap needs."""

    def __init__(self, row: Row, value: float | None) -> None:
        self.row = row
        self.fitness = _lower_is_better()() if value is None else _lower_is_better()((value,))

    def clone(self) -> Self:
        """Return a copy whose row may be changed."""
        return type(self)(self.row.copy(), self.fitness.values[0] if self.fitness.valid else None)


@contextmanager
def own_random(seed: int) -> Iterator[None]:
    """Seed Python's global random generator, from which deap draws, and restore its state afterwards."""
    found = random.getstate()
    random.seed(seed)
    try:
        yield
    finally:
        random.setstate(found)


def bred(
    rows: Sequence[Row],
    values: Sequence[float],
    count: int,
    *,
    mate: Callable[[Row, Row], None],
    mutate: Callable[[Row], None],
    tournament: int,
    mating: float,
    mutating: float,
    seed: int,
) -> list[Row]:
    """Return at most `count` children of `rows`: copies that were mated or mutated.

    values: the lower the better, infinity allowed. mate, mutate: change their rows in place and draw no global random
    numbers. tournament: the best of this many random rows becomes a parent. mating, mutating: the probabilities that a
    pair mates and that a child mutates.
    """
    from deap import algorithms, base, tools  # slow to import

    def mated(one: Individual, other: Individual) -> tuple[Individual, Individual]:
        mate(one.row, other.row)
        return one, other

    def mutated(one: Individual) -> tuple[Individual]:
        mutate(one.row)
        return (one,)

    toolbox = base.Toolbox()
    toolbox.register("clone", Individual.clone)
    toolbox.register("mate", mated)
    toolbox.register("mutate", mutated)
    parents = [Individual(row, value) for row, value in zip(rows, values, strict=True)]
    with own_random(seed):
        chosen = tools.selTournament(parents, count, tournament)
        children = algorithms.varAnd(chosen, toolbox, mating, mutating)
    return [child.row for child in children if not child.fitness.valid]


@cache
def _lower_is_better() -> Any:
    from deap import base

    return type("LowerIsBetter", (base.Fitness,), {"weights": (-1.0,)})
