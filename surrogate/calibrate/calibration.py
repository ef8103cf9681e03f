"""Calibration: corrections of a simulator's costs, fitted to measured steps.

Ops are profiled one device at a time and links by themselves. In a placed step both take a little more or less time,
and the call itself takes time. A few numbers say how much. They are fitted to measured mappings; a number about which
the measurements say nothing keeps its profiled value.
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

NOISE = 0.03  # the relative error of a measured step time
# How far a number may move from its start until the move costs as much in the fit as a residual of one NOISE.
FACTOR_SPREAD, LINK_SPREAD, OP_SPREAD_S, BASE_SPREAD = 0.1, 0.7, 2e-6, 0.02
MOST_ROUNDS = 12
STEP = 0.05  # of finite differences, in spreads: wide enough to step over the makespan's small kinks
MOST_FACTOR = 20.0
# Another contention model is fitted if its error before the fit is below this share of the current model's error.
CLEARLY = 0.95


@dataclass(frozen=True)
class Calibration:
    """Corrections of profiled costs and of the predicted step.

    If devices differ in kind, op_s may be negative, because launches take longer while they are traced. A corrected
    cost never falls below 0.
    """

    device_factor: tuple[float, ...]  # multiplies the costs on each device
    op_s: float | tuple[float, ...] = 0.0  # seconds that launching one op adds: one number for all devices, or for each
    tensor_factor: float = 1.0  # multiplies the time of a transfer per tensor
    byte_factor: float = 1.0  # multiplies the time of a transfer per byte
    base_s: float = 0.0  # seconds of a step that no op accounts for (the call, its inputs)
    contention: str = "none"  # the topology's contention model, or one that fits better

    def costs(self, costs: Costs, launches: Floats) -> Costs:
        """Return corrected costs, [ops, devices] seconds. launches: [ops], how many kernels an op (or group) starts."""
        corrected: Costs = costs * np.array(self.device_factor) + launches[:, None] * np.array(self.op_s)
        return np.maximum(corrected, 0.0) if np.min(self.op_s) < 0 else corrected

    def topology(self, topology: Topology) -> Topology:
        """Return the topology with corrected links and contention."""
        links = tuple(link.slowed(self.tensor_factor, self.byte_factor) for link in topology.links)
        return replace(topology, links=links, contention=self.contention)


@dataclass(frozen=True)
class Predictor:
    """A predictor of step times: a simulator with profiled costs, and the calibration that corrects it.

    launches: [ops], how many kernels each op (or group of ops) starts.
    """

    profiled: Simulator
    launches: Floats
    given: Calibration | None = None

    @property
    def calibration(self) -> Calibration:
        """Return the corrections. They change nothing before the first calibration."""
        topology = self.profiled.topology
        return self.given or Calibration((1.0,) * len(topology), contention=topology.contention)

    @cached_property
    def simulator(self) -> Simulator:
        """Return the simulator with corrected costs and links. A step takes its makespan plus `calibration.base_s`."""
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
        """Return the predictor that is fitted to the measurements: step_s[i] seconds under rows[i].

        rows: [mappings, ops] device indices. errors: relative standard errors of the measurements, on top of NOISE;
        None = 0 for all. The fit is by least squares on relative errors, weighted by their noise, with outliers damped
        and a pull towards the current corrections, so that few measurements change little. Another contention model is
        fitted only if it predicts clearly better before its fit, because simulating queues takes several times as
        long. The model with the best fit is taken.
        """
        begin = self.calibration
        measured_s = np.array(step_s)
        noise = np.hypot(NOISE, np.zeros(len(measured_s)) if errors is None else np.array(errors))
        missed = {c: self._missed(rows, measured_s, noise, replace(begin, contention=c)) for c in CONTENTIONS}
        tried = [c for c in CONTENTIONS if c == begin.contention or missed[c] < CLEARLY * missed[begin.contention]]
        fits = [self._fit(rows, measured_s, noise, replace(begin, contention=c)) for c in tried]
        return replace(self, given=min(fits, key=lambda fit: fit[0])[1])

    def _missed(self, rows: ArrayLike, step_s: Floats, noise: Floats, given: Calibration) -> float:
        """The mean absolute error of the predicted logarithms, each divided by the noise of its measurement."""
        return float(np.abs(np.log(replace(self, given=given).step_s(rows) / step_s) / noise).mean())

    def _fit(self, rows: ArrayLike, step_s: Floats, noise: Floats, begin: Calibration) -> tuple[float, Calibration]:
        """Return (the remaining error, the best calibration) under the contention model of `begin`."""
        from scipy.optimize import least_squares  # slow to import, and only needed here

        scale_s = float(np.median(step_s))
        kinds = [device.kind for device in self.profiled.topology.devices]

        def residuals(x: Floats) -> Floats:
            found = replace(self, given=_unpacked(x, begin, kinds, scale_s)).step_s(rows)
            return np.concatenate([np.log(found / step_s) / noise, x - 1])

        numbers = len(kinds) + len(set(kinds)) + 3
        solved: Any = least_squares(residuals, np.ones(numbers), loss="soft_l1", diff_step=STEP, max_nfev=MOST_ROUNDS)
        return float(solved.cost), _unpacked(solved.x, begin, kinds, scale_s)


def launches(graph: OpGraph) -> Floats:
    """Return [ops]: 1 for an op that takes time on some device, 0 for an op that was fused into another."""
    return np.array([float(any(op.cost_s.values())) for op in graph.ops])


def _unpacked(x: Floats, begin: Calibration, kinds: Sequence[str], scale_s: float) -> Calibration:
    """Return the calibration that `x` stands for: at 1 a number is where it began, and 1 more adds its spread.

    kinds: the kind of each device. scale_s: the unit of base_s, in seconds.
    """
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
    """Seconds that launching one op adds. Fitted per kind of device, because an op that is a mere launch on a GPU takes
    long on a CPU.

    away: [kinds, sorted] how far each number is from where it began, in spreads.
    """
    if len(away) == 1 and not isinstance(begin_s, tuple):
        return max(0.0, begin_s + float(away[0]) * OP_SPREAD_S)
    of_kind = dict(zip(sorted(set(kinds)), (away * OP_SPREAD_S).tolist(), strict=True))
    begins = np.broadcast_to(begin_s, len(kinds)).tolist()
    return tuple(begun + of_kind[kind] for begun, kind in zip(begins, kinds, strict=True))
