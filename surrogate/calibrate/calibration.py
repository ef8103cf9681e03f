"""Calibration: what real steps say about the costs that a simulator was given.

Ops are profiled one device at a time and links by themselves. In a placed step both take a little more or less, and the
call has a price of its own. A few numbers say how much; they are fitted to measured mappings, and what is not
measured stays as it was profiled.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from placer.graph.op_graph import OpGraph
from placer.graph.topology import CONTENTIONS, Topology
from surrogate.costs.cost_matrix import Costs
from surrogate.simulate.simulator import Simulator

Floats = NDArray[np.float64]

NOISE = 0.03  # relative, of a measured step time
# How far each number may be from where it starts before that alone costs as much as a residual of one NOISE.
FACTOR_SPREAD, LINK_SPREAD, OP_SPREAD_S, BASE_SPREAD = 0.1, 0.7, 2e-6, 0.02
MOST_ROUNDS = 12
STEP = 0.05  # of finite differences, in spreads: wide enough to look over the makespan's small kinks
MOST_FACTOR = 20.0
CLEARLY = 0.95  # of the present contention model's error: another one is fitted where it misses by less before its fit


@dataclass(frozen=True)
class Calibration:
    """Corrections to profiled costs, and to the step they predict.

    Where devices differ in kind, op_s may be negative, because tracing makes launches longer than they are; a cost
    never falls below 0.
    """

    device_factor: tuple[float, ...]  # by which the costs on each device are multiplied
    op_s: float | tuple[float, ...] = 0.0  # seconds that launching one op adds, on every device or on each
    tensor_factor: float = 1.0  # by which what a transfer takes per tensor is multiplied
    byte_factor: float = 1.0  # and per byte
    base_s: float = 0.0  # seconds of a step that no op accounts for (the call, its inputs)
    contention: str = "none"  # the topology's, or the one that fits better

    def costs(self, costs: Costs, launches: Floats) -> Costs:
        """[ops, devices] seconds, corrected. launches: [ops], how many kernels each op (or group of ops) starts."""
        corrected: Costs = costs * np.array(self.device_factor) + launches[:, None] * np.array(self.op_s)
        return np.maximum(corrected, 0.0) if np.min(self.op_s) < 0 else corrected

    def topology(self, topology: Topology) -> Topology:
        """The same devices with corrected links."""
        links = tuple(link.slowed(self.tensor_factor, self.byte_factor) for link in topology.links)
        return replace(topology, links=links, contention=self.contention)


@dataclass(frozen=True)
class Predictor:
    """Predicts step times: a simulator as profiled, and what calibration corrects about it.

    launches: [ops], how many kernels each op (or group of ops) starts.
    """

    profiled: Simulator
    launches: Floats
    given: Calibration | None = None

    @property
    def calibration(self) -> Calibration:
        """The corrections; none to begin with."""
        topology = self.profiled.topology
        return self.given or Calibration((1.0,) * len(topology), contention=topology.contention)

    @cached_property
    def simulator(self) -> Simulator:
        """With corrected costs and links. To its makespan comes the calibration's base_s."""
        fixed = self.calibration
        costs = fixed.costs(self.profiled.costs, self.launches)
        return self.profiled.revalued(costs, fixed.topology(self.profiled.topology))

    def step_s(self, rows: ArrayLike) -> Floats:
        """Predicted seconds under each of `rows`, [mappings, ops] device indices."""
        found: Floats = self.calibration.base_s + self.simulator.makespans(rows)
        return found

    def calibrated(
        self, rows: ArrayLike, step_s: Sequence[float] | Floats, errors: Sequence[float] | Floats | None = None
    ) -> Predictor:
        """The predictor that replays what was measured: step_s[i] seconds under rows[i].

        rows: [mappings, ops] device indices. errors: relative standard errors of the measurements, beside NOISE; None =
        there are none. Least squares on relative errors, each by how well it is known, outliers damped, with a pull
        towards the present corrections, so that few measurements change little. Another contention model is fitted
        only where it predicts clearly better before its fit, because to simulate queues takes several times as long;
        it is taken where its fit is better.
        """
        begin = self.calibration
        measured_s = np.array(step_s)
        noise = np.hypot(NOISE, np.zeros(len(measured_s)) if errors is None else np.array(errors))
        missed = {c: self._missed(rows, measured_s, noise, replace(begin, contention=c)) for c in CONTENTIONS}
        tried = [c for c in CONTENTIONS if c == begin.contention or missed[c] < CLEARLY * missed[begin.contention]]
        fits = [self._fit(rows, measured_s, noise, replace(begin, contention=c)) for c in tried]
        return replace(self, given=min(fits, key=lambda fit: fit[0])[1])

    def _missed(self, rows: ArrayLike, step_s: Floats, noise: Floats, given: Calibration) -> float:
        """Mean absolute error, in logarithms, by the noise of each measurement."""
        return float(np.abs(np.log(replace(self, given=given).step_s(rows) / step_s) / noise).mean())

    def _fit(self, rows: ArrayLike, step_s: Floats, noise: Floats, begin: Calibration) -> tuple[float, Calibration]:
        """(what is left of the error, the best numbers) under one contention model."""
        from scipy.optimize import least_squares  # slow to import, and needed by nothing else here

        scale_s = float(np.median(step_s))
        kinds = [device.kind for device in self.profiled.topology.devices]

        def residuals(x: Floats) -> Floats:
            found = replace(self, given=_unpacked(x, begin, kinds, scale_s)).step_s(rows)
            return np.concatenate([np.log(found / step_s) / noise, x - 1])

        numbers = len(kinds) + len(set(kinds)) + 3
        solved: Any = least_squares(residuals, np.ones(numbers), loss="soft_l1", diff_step=STEP, max_nfev=MOST_ROUNDS)
        return float(solved.cost), _unpacked(solved.x, begin, kinds, scale_s)


def launches(graph: OpGraph) -> Floats:
    """[ops]: 1 for an op that takes time anywhere, 0 for one that was fused into another."""
    return np.array([float(any(op.cost_s.values())) for op in graph.ops])


def _unpacked(x: Floats, begin: Calibration, kinds: Sequence[str], scale_s: float) -> Calibration:
    """The numbers that x stands for: 1 is where each began, a unit is its spread. kinds: of each device."""
    away, count = x - 1, len(kinds)
    factors = np.array(begin.device_factor) * np.exp(away[:count] * FACTOR_SPREAD)
    tensor, byte = np.exp(np.clip(away[count : count + 2] * LINK_SPREAD, -np.log(MOST_FACTOR), np.log(MOST_FACTOR)))
    return replace(
        begin,
        device_factor=tuple(factors.tolist()),
        tensor_factor=float(begin.tensor_factor * tensor),
        byte_factor=float(begin.byte_factor * byte),
        op_s=_launch_s(away[count + 2 : -1], begin.op_s, kinds),
        base_s=max(0.0, begin.base_s + float(away[-1]) * BASE_SPREAD * scale_s),
    )


def _launch_s(away: Floats, begin_s: float | tuple[float, ...], kinds: Sequence[str]) -> float | tuple[float, ...]:
    """Seconds that launching one op adds: per kind of device, because what launches on a GPU takes long on a CPU.

    away: [kinds, sorted] how far from where they began, in spreads.
    """
    if len(away) == 1 and not isinstance(begin_s, tuple):
        return max(0.0, begin_s + float(away[0]) * OP_SPREAD_S)
    of_kind = dict(zip(sorted(set(kinds)), (away * OP_SPREAD_S).tolist(), strict=True))
    begins = np.broadcast_to(begin_s, len(kinds)).tolist()
    return tuple(begun + of_kind[kind] for begun, kind in zip(begins, kinds, strict=True))
