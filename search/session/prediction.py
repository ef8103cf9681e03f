"""The predictions of a search: for the groups that it moves and the ops in them, calibrated by what was measured."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from math import inf

import numpy as np
from numpy.typing import NDArray

from placer.graph.coarsen import Groups
from placer.graph.held_memory import Lack, fullest_bytes, most_bytes, worst_lack
from placer.graph.mapping import Mapping
from placer.graph.schedules import FIFO, RANK
from placer.graph.topology import Topology
from placer.result import Failed, Measured, Result, standard_error
from search.exact.bounds import lower_bound
from search.problem.memory_fit import with_tensors
from search.problem.problem import Placement, Problem
from surrogate.calibrate.calibration import Predictor, launches
from surrogate.costs.cost_matrix import cost_matrix, with_cost_matrix
from surrogate.simulate.run_order import run_order
from surrogate.simulate.simulator import Simulator
from surrogate.simulate.timeline import Timeline


@dataclass(frozen=True, eq=False)
class Prediction:
    """Predicts placed steps of one captured step: op by op for reports, group by group for searchers.

    topology: with links as measured. predictor: predicts from ops; placed steps run their ops in the order of its
    simulator, except that with FIFO TensorFlow's executor decides. headroom: as in Problem.

    Methods take four forms of a mapping, and parameters are named for them: `placement` is a device per unit of
    `problem`, `mapping` a Mapping of the groups, `op_mapping` a Mapping of the ops, `op_devices` a device per op.
    """

    groups: Groups
    topology: Topology
    predictor: Predictor
    headroom: float
    ran_out: tuple[
        tuple[str, float], ...
    ] = ()  # devices that ran out of memory, and the least bytes with which they did

    @classmethod
    def profiled(cls, groups: Groups, topology: Topology, headroom: float, schedule: str = RANK) -> Prediction:
        """Predict by the profiled costs alone. Raises BadInputError for an unknown schedule."""
        simulator = Simulator(groups.fine, topology, schedule)
        return cls(groups, topology, Predictor(simulator, launches(groups.fine)), headroom)

    @property
    def schedule(self) -> str:
        """The name of the rule that orders ops on a device."""
        return self.predictor.profiled.schedule

    def calibrated(self, measured: Sequence[tuple[Mapping, Result]]) -> Prediction:
        """Return this prediction, corrected by what was measured: mappings and their results."""
        return self.calibrated_of([(self.groups.expand(mapping), result) for mapping, result in measured])

    def warned(self, failures: Iterable[Result]) -> Prediction:
        """Return this prediction with lower limits: a device that ran out of memory must hold less than it would have
        held then.
        """
        least = dict(self.ran_out)
        for failed in failures:
            if isinstance(failed, Failed) and failed.device in self.topology.index and failed.wanted_bytes > 0:
                least[failed.device] = min(failed.wanted_bytes, least.get(failed.device, inf))
        found = tuple(sorted(least.items()))
        return self if found == self.ran_out else replace(self, ran_out=found)

    def calibrated_of(self, measured: Sequence[tuple[tuple[int, ...], Result]]) -> Prediction:
        """As `calibrated`; mappings are given as op_devices, the index of a device per op."""
        known = [(op_devices, result) for op_devices, result in measured if isinstance(result, Measured)]
        if not known:
            return self
        predictor = self.predictor.calibrated(
            [op_devices for op_devices, _ in known],
            [result.step_s for _, result in known],
            [standard_error(result) for _, result in known],
        )
        return replace(self, predictor=predictor)

    @cached_property
    def problem(self) -> Problem:
        """The groups to place, with costs as calibrated so far."""
        calibration = self.predictor.calibration
        kernels = np.array([self.predictor.launches[list(members)].sum() for members in self.groups.members])
        costs = calibration.costs(cost_matrix(self.groups.graph, self.topology), kernels)
        graph = with_cost_matrix(self.groups.graph, self.topology, costs)
        topology = calibration.topology(self.topology)
        problem = Problem(
            graph,
            topology,
            schedule=self.schedule,
            headroom=self.headroom,
            base_s=calibration.base_s,
            judge=self._judge,
            profiled=None if self.predictor.given is None else self._uncalibrated,
        )
        return problem if self._is_roomy_by_limits else with_tensors(problem, _kept_bytes(self.groups))

    def _uncalibrated(self) -> Problem:
        return replace(self, predictor=replace(self.predictor, given=None)).problem

    def _judge(self, rows: NDArray[np.int32]) -> NDArray[np.float64]:
        """Return the predicted seconds of steps, op by op. rows: [placements, units of `problem`]."""
        return self.predictor.step_s(rows[:, self._unit_of])

    @cached_property
    def _unit_of(self) -> NDArray[np.int32]:
        """The unit of `problem` that each op is in: [ops]."""
        return self.problem.limits.unit_of[list(self.groups.group_of)]

    def op_devices(self, placement: Placement) -> tuple[int, ...]:
        """The device of each op under a placement."""
        devices = self.problem.devices(placement)
        return tuple([devices[group] for group in self.groups.group_of])

    def placement(self, op_devices: tuple[int, ...]) -> Placement | None:
        """Return the placement with each unit where its ops are; None if ops of a unit are on different devices, cannot
        run there, or do not fit there.
        """
        problem = self.problem
        row = np.zeros(len(problem.units), np.int32)
        row[self._unit_of] = op_devices
        placement = tuple(row.tolist())
        together = (row[self._unit_of] == op_devices).all()
        can = together and all(d in feasible for d, feasible in zip(placement, problem.feasible, strict=True))
        return placement if can and problem.fits(placement) else None

    def step_s(self, mapping: Mapping) -> float:
        """Predicted seconds of a step, op by op."""
        return self.step_s_of(self.groups.expand(mapping))

    def step_s_of(self, op_devices: tuple[int, ...]) -> float:
        """As `step_s`, for a device index per op."""
        return float(self.predictor.step_s([op_devices])[0])

    def lack(self, mapping: Mapping) -> Lack | None:
        """Return the largest shortage of memory for the variables and tensors that a device holds at once, as
        simulated; None if all devices have enough.
        """
        return None if self._is_roomy else self.lack_of(self.groups.expand(mapping))

    def lack_of(self, op_devices: tuple[int, ...]) -> Lack | None:
        """As `lack`, for a device index per op."""
        return None if self._is_roomy else self._worst(self.predictor.simulator.timeline(op_devices).memory_peak_bytes)

    def peaks(self, op_mapping: Mapping) -> Sequence[float]:
        """The most bytes that each device holds at once."""
        return self.timeline(op_mapping).memory_peak_bytes

    def _worst(self, peaks_bytes: Sequence[float]) -> Lack | None:
        """The largest shortage of memory over the devices; None if all can hold their peaks. A device's limit is the
        one given, and stays below the bytes with which the device ran out of memory.
        """
        lack = worst_lack(self.topology, peaks_bytes, self.headroom)
        for name, failed_bytes in self.ran_out:
            peak = peaks_bytes[self.topology.index[name]]
            known = Lack(name, peak, failed_bytes - 1)
            if peak >= failed_bytes and (lack is None or known.missing_bytes > lack.missing_bytes):
                lack = known
        return lack

    def hold(self, op_mappings: Sequence[Mapping]) -> bool:
        """Whether the devices have memory for placed steps of all these mappings at once, as simulated: for the
        variables of all, and for the tensors of the one that runs.
        """
        if not op_mappings or self.is_roomy_for(len(op_mappings)):
            return True
        held = np.array([each.memory_bytes for each in op_mappings], np.float64)
        tensors = np.array([self.timeline(each).memory_peak_bytes for each in op_mappings]) - held
        peaks = held.sum(axis=0) + tensors.max(axis=0)
        return self._worst(peaks.tolist()) is None

    def is_roomy_for(self, steps: int) -> bool:
        """Whether each device could hold everything of a step at once, and the variables of `steps` steps, so that no
        mapping has to be simulated to know that it fits.
        """
        return not self.ran_out and self._has_room_for(steps)

    def _has_room_for(self, steps: int) -> bool:
        """As `is_roomy_for`, by the given limits alone."""
        graph = self.groups.fine
        more = (steps - 1) * sum(op.memory_bytes for op in graph.ops)
        return most_bytes(graph) + more <= self.topology.least_memory_bytes * (1 - self.headroom)

    @cached_property
    def _is_roomy(self) -> bool:
        return self.is_roomy_for(1)

    @cached_property
    def _is_roomy_by_limits(self) -> bool:
        return self._has_room_for(1)  # `ran_out` grows during a search, but the problem must not change

    def timeline(self, op_mapping: Mapping) -> Timeline:
        """The simulated step."""
        return self.predictor.simulator.timeline(op_mapping.devices)

    def order(self, op_mapping: Mapping) -> list[str]:
        """Return the names of ops in run order; empty if TensorFlow's executor decides."""
        return self.order_of(op_mapping.devices)

    def order_of(self, op_devices: tuple[int, ...]) -> list[str]:
        """As `order`, for a device index per op."""
        if self.schedule == FIFO or len(set(op_devices)) == 1:
            return []
        return run_order(self.predictor.simulator.timeline(op_devices))

    def bound_s(self) -> float:
        """A lower bound, in seconds, on the predicted step of every mapping of the ops.

        It is not computed from groups, because a mapping that divides a group may be faster than such a bound.
        """
        simulator, base_s = self.predictor.simulator, self.predictor.calibration.base_s
        graph, topology, costs = self.groups.fine, simulator.topology, simulator.costs
        return lower_bound(Problem(graph, topology, schedule=self.schedule, cost_s=costs, base_s=base_s))


def _kept_bytes(groups: Groups) -> tuple[float, ...]:
    """Return the bytes of each group's tensors at the moment at which the step holds most."""
    kept = [0.0] * len(groups.graph)
    for group, held in zip(groups.group_of, fullest_bytes(groups.fine), strict=True):
        kept[group] += held
    return tuple(kept)
