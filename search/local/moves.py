"""Moves: small random changes of a placement that keep neighbouring units together."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
from numpy.typing import NDArray

from search.local.clusters import clusters, neighbours
from search.problem.problem import Problem

Row = NDArray[np.int32]
"""[units] the device of each unit."""
Rng = np.random.Generator

FLOOR, MOST = 0.05, 0.4  # the least and the largest share of a kind of move
GRAFTS = 0.3  # the share of grafts, always
FOCUSED = 0.5  # of single units so many are drawn from those of `attend`
LEARNING = 0.02  # how fast shares follow success


class Moves:
    """Draws moves of all kinds, more often those that have led to gains.

    A move changes a row in place; units that the new device cannot run stay where they are.
    """

    def __init__(self, problem: Problem) -> None:
        self.can: NDArray[np.bool_] = problem.limits.feasible
        self.units, self.devices = self.can.shape
        self.free = np.flatnonzero(self.can.sum(axis=1) > 1)
        talk_s = neighbours(problem)
        self.pairs = np.array(list(talk_s), np.int64).reshape(-1, 2)
        self.clusters = clusters(problem)
        self.sizes = np.array([len(c) for c in self.clusters])
        work_s = np.array(problem.unit_mean_s)
        self.by_work = np.cumsum(work_s[self.free]) / max(work_s[self.free].sum(), 1e-30)
        self.kinds: list[Callable[[Row, Sequence[Row], float, Rng], None]] = [self._flip, self._run, self._edge]
        if len(self.pairs):
            self.kinds.append(self._follow)
        if self.clusters:
            self.kinds.append(self._cluster)
        if len(self.free) > 1:
            self.kinds += [self._swap, self._graft]
        self.forget()

    def forget(self) -> None:
        """Reset the shares and the focus."""
        self.share = np.full(len(self.kinds), 1 / len(self.kinds))
        self.focus = np.zeros(0, np.int64)

    def draw(self, row: Row, others: Sequence[Row], scale: float, rng: Rng) -> int:
        """Change `row` by one move; returns its kind. others: rows to take parts from. scale: 0 < scale <= 1, the
        share of the units that a move may at most concern.
        """
        kind = int(np.searchsorted(np.cumsum(self.share), rng.random() * self.share.sum()))
        kind = min(kind, len(self.kinds) - 1)
        self.kinds[kind](row, others, scale, rng)
        return kind

    def learn(self, kinds: NDArray[np.int64], gained: NDArray[np.bool_]) -> None:
        """Shift the shares towards the kinds that gained."""
        for kind in kinds[gained]:
            self.share *= 1 - LEARNING
            self.share[kind] += LEARNING
        self.share = np.clip(self.share, FLOOR, MOST)
        if len(self.kinds) > 1 and self.kinds[-1] == self._graft:  # it gains what the other row has gained before
            self.share[-1] = GRAFTS
        self.share /= self.share.sum()

    def attend(self, units: Sequence[int]) -> None:
        """Draw single units more often from these from now on."""
        able = np.array(sorted(set(units)), np.int64)
        self.focus = able[self.can[able].sum(axis=1) > 1] if len(able) else able

    def _flip(self, row: Row, others: Sequence[Row], scale: float, rng: Rng) -> None:
        """Move one unit."""
        u = self._unit(rng)
        self._send(row, np.array([u]), self._device(u, int(row[u]), rng))

    def _run(self, row: Row, others: Sequence[Row], scale: float, rng: Rng) -> None:
        """Move units that follow each other."""
        units = self._stretch(scale, rng)
        u = int(units[len(units) // 2])
        self._send(row, units, self._device(u, int(row[u]), rng))

    def _edge(self, row: Row, others: Sequence[Row], scale: float, rng: Rng) -> None:
        """Shift the border between two runs."""
        borders = np.flatnonzero(row[1:] != row[:-1])
        if not len(borders):
            self._run(row, others, scale, rng)
            return
        at = int(borders[rng.integers(len(borders))])
        length = self._length(scale, rng)
        if rng.random() < 0.5:
            self._send(row, np.arange(at + 1, min(at + 1 + length, self.units)), int(row[at]))
        else:
            self._send(row, np.arange(max(0, at + 1 - length), at + 1), int(row[at + 1]))

    def _follow(self, row: Row, others: Sequence[Row], scale: float, rng: Rng) -> None:
        """Move one end of a cut edge to the other's device."""
        ends = self.pairs[rng.integers(len(self.pairs), size=8)]
        cut = ends[row[ends[:, 0]] != row[ends[:, 1]]]
        if not len(cut):
            self._flip(row, others, scale, rng)
            return
        u, w = cut[0] if rng.random() < 0.5 else cut[0][::-1]
        self._send(row, np.array([u]), int(row[w]))

    def _cluster(self, row: Row, others: Sequence[Row], scale: float, rng: Rng) -> None:
        """Move a cluster."""
        count = int(np.searchsorted(self.sizes, max(2, scale * self.units), side="right")) or 1
        units = self.clusters[int(rng.integers(count))]
        u = int(units[rng.integers(len(units))])
        self._send(row, units, self._device(u, int(row[u]), rng))

    def _swap(self, row: Row, others: Sequence[Row], scale: float, rng: Rng) -> None:
        """Let two units exchange their devices, which is possible where memory is full."""
        u, w = self._unit(rng), self._unit(rng)
        a, b = row[u], row[w]
        if self.can[u, b] and self.can[w, a]:
            row[u], row[w] = b, a

    def _graft(self, row: Row, others: Sequence[Row], scale: float, rng: Rng) -> None:
        """Copy the devices of a run or a cluster from another row."""
        other = others[int(rng.integers(len(others)))]
        if self.clusters and rng.random() < 0.5:
            units = self.clusters[int(rng.integers(len(self.clusters)))]
        else:
            units = self._stretch(1.0, rng)
        row[units] = other[units]

    def _send(self, row: Row, units: NDArray[np.int64], device: int) -> None:
        able = units[self.can[units, device]]
        row[able] = device

    def _unit(self, rng: Rng) -> int:
        if not len(self.free):
            return 0
        if len(self.focus) and rng.random() < FOCUSED:
            return int(self.focus[rng.integers(len(self.focus))])
        if rng.random() < 0.5:
            at = int(np.searchsorted(self.by_work, rng.random()))
            return int(self.free[min(at, len(self.free) - 1)])
        return int(self.free[rng.integers(len(self.free))])

    def _device(self, u: int, now: int, rng: Rng) -> int:
        """A random device that can run u, other than `now` if there is one."""
        able = np.flatnonzero(self.can[u])
        able = able[able != now]
        return int(able[rng.integers(len(able))]) if len(able) else now

    def _length(self, scale: float, rng: Rng) -> int:
        """Of a run: uniform in its logarithm."""
        return max(1, int(2 ** rng.uniform(0, np.log2(max(2.0, scale * self.units)))))

    def _stretch(self, scale: float, rng: Rng) -> NDArray[np.int64]:
        length = self._length(scale, rng)
        first = int(rng.integers(max(1, self.units - length + 1)))
        return np.arange(first, min(first + length, self.units))
