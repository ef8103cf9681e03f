"""The predictions of a search: of the groups it moves and the ops behind them, calibrated by what was measured."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from placer.graph.coarsen import Groups
from placer.graph.mapping import Mapping
from placer.graph.topology import Topology
from placer.result import Measured, Result
from search.exact.bounds import lower_bound
from search.problem.problem import Problem
from surrogate.calibrate.calibration import Predictor, launches
from surrogate.costs.cost_matrix import cost_matrix, with_cost_matrix
from surrogate.simulate.priority import FIFO, RANK
from surrogate.simulate.run_order import run_order
from surrogate.simulate.simulator import Simulator
from surrogate.simulate.timeline import Timeline


@dataclass(frozen=True, eq=False)
class Prediction:
    """Predicts placed steps of one captured step: op by op for reports, group by group for searchers.

    topology: as its links were measured. fine: the predictor of the ops; placed steps run their ops in the order in
    which its simulator does, except that with FIFO TensorFlow's executor decides. headroom: as in Problem.
    """

    groups: Groups
    topology: Topology
    fine: Predictor
    headroom: float

    @classmethod
    def profiled(cls, groups: Groups, topology: Topology, headroom: float, schedule: str = RANK) -> Prediction:
        """Predict by the profiled costs alone. Raises BadInputError for an unknown schedule."""
        simulator = Simulator(groups.fine, topology, schedule)
        return cls(groups, topology, Predictor(simulator, launches(groups.fine)), headroom)

    @property
    def schedule(self) -> str:
        """What decides the order of ops on a device."""
        return self.fine.profiled.schedule

    def calibrated(self, measured: Sequence[tuple[Mapping, Result]]) -> Prediction:
        """Corrected by what was measured: mappings of the groups, and what each came to."""
        return self.corrected([(self.groups.expand(mapping), result) for mapping, result in measured])

    def corrected(self, measured: Sequence[tuple[tuple[int, ...], Result]]) -> Prediction:
        """Corrected by what was measured: the device of each op, and what it came to."""
        known = [(devices, result.step_s) for devices, result in measured if isinstance(result, Measured)]
        if not known:
            return self
        return replace(self, fine=self.fine.calibrated([d for d, _ in known], [step_s for _, step_s in known]))

    @cached_property
    def problem(self) -> Problem:
        """The groups to place, with the costs as they are calibrated by now."""
        calibration = self.fine.calibration
        kernels = np.array([self.fine.launches[list(members)].sum() for members in self.groups.members])
        costs = calibration.costs(cost_matrix(self.groups.graph, self.topology), kernels)
        graph = with_cost_matrix(self.groups.graph, self.topology, costs)
        topology = calibration.topology(self.topology)
        return Problem(
            graph,
            topology,
            schedule=self.schedule,
            headroom=self.headroom,
            base_s=calibration.base_s,
            judge=self._judge,
        )

    def _judge(self, rows: NDArray[np.int32]) -> NDArray[np.float64]:
        """Predicted seconds of steps op by op. rows: [placements, units of `problem`]."""
        return self.fine.step_s(rows[:, self.problem.limits.unit_of][:, list(self.groups.group_of)])

    def step_s(self, mapping: Mapping) -> float:
        """Predicted seconds of a step under a mapping of the groups."""
        return float(self.fine.step_s([self.groups.expand(mapping)])[0])

    def lacks_memory(self, mapping: Mapping) -> str:
        """Which device cannot hold all that it has at once under a mapping of the groups, tensors too; "" for none.

        Only steps in micro-batches are looked at: their plan decides how many activations are kept at once, while in
        other steps all are kept, whatever the mapping.
        """
        if self._is_roomy:
            return ""
        timeline = self.fine.simulator.timeline(self.groups.expand(mapping))
        for d in timeline.overfull(self.headroom):
            device, peak = self.topology.devices[d], timeline.memory_peak_bytes[d]
            return (
                f"{device.name} would hold {peak / 2**20:.1f} MiB at once, and may hold "
                f"{(device.memory_bytes or 0) * (1 - self.headroom) / 2**20:.1f}"
            )
        return ""

    @cached_property
    def _is_roomy(self) -> bool:
        """Whether nothing is in micro-batches, or each device could hold every tensor of a step at once."""
        graph, limits = self.groups.fine, [device.memory_bytes for device in self.topology.devices]
        known = [limit for limit in limits if limit is not None]
        if not known or all(op.micro_batch is None for op in graph.ops):
            return True
        everything = sum(op.memory_bytes for op in graph.ops) + sum(graph.tensor_bytes.values())
        return everything <= min(known) * (1 - self.headroom)

    def timeline(self, mapping: Mapping) -> Timeline:
        return self.fine.simulator.timeline(mapping.devices)

    def order(self, mapping: Mapping) -> list[str]:
        """The run order of a mapping of the ops; empty where TensorFlow's executor decides."""
        return self.order_of(mapping.devices)

    def order_of(self, devices: tuple[int, ...]) -> list[str]:
        """The run order of ops on these devices."""
        if self.schedule == FIFO or len(set(devices)) == 1:
            return []
        return run_order(self.fine.simulator.timeline(devices))

    def bound_s(self) -> float:
        """Seconds that no mapping of the ops is predicted below; one that splits groups may beat a bound of groups."""
        simulator, base_s = self.fine.simulator, self.fine.calibration.base_s
        graph, topology, costs = self.groups.fine, simulator.topology, simulator.costs
        return lower_bound(Problem(graph, topology, schedule=self.schedule, cost_s=costs, base_s=base_s))
