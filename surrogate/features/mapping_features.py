"""The features of a mapping: the simulated step, the tensors that cross, and the partition of each device.

HTF-MPR (Albaqsami 2020) predicts the time of an iteration from its mapping. SPOC (Langerman 2022) explains run times by
Size, Parameters, Operations and Critical datapath length of a graph (surrogate/features/spoc.py). Here each device's
partition is a graph with these numbers; if one device has all ops, they are the numbers of the whole graph.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from placer.graph.op_graph import OpGraph
from surrogate.costs.cost_matrix import Costs, mean_cost_s
from surrogate.features.spoc import operations as counted
from surrogate.simulate.simulator import Simulator

Floats = NDArray[np.float64]


class Feature(NamedTuple):
    """One number that describes a mapping. unit: as written in names; `1` for ratios and counts."""

    name: str
    unit: str
    meaning: str


TINY_S = 1e-30
MAKESPAN = 0  # the column of the simulated step
OF_STEP = (
    Feature("makespan_s", "s", "the simulated step: makespan and the seconds beside it"),
    Feature("path_s", "s", "critical path: the longest chain of costs as placed, with the crossings on it"),
    Feature("path_crossings", "1", "the most crossings on any chain of ops"),
    Feature("cut_tensors", "1", "distinct tensors that cross, each once per device that receives it"),
    Feature("cut_bytes", "bytes", "bytes of these"),
    Feature("way_s", "s", "seconds that all of these are on their way, queues not counted"),
    Feature("imbalance", "1", "the busiest device over the mean of all, minus 1"),
)
"""The features of the whole step, in the order of the columns."""
OF_DEVICE = (
    Feature("ops", "1", "ops on the device (SPOC: Size)"),
    Feature("busy_s", "s", "seconds of work: costs as placed, and what its transfers take of its compute"),
    Feature("ends_s", "s", "of these, what sending and receiving take"),
    Feature("bytes_in", "bytes", "bytes it receives"),
    Feature("bytes_out", "bytes", "bytes it sends"),
    Feature("tensors_in", "1", "tensors it receives"),
    Feature("tensors_out", "1", "tensors it sends, once per receiver"),
    Feature("memory_bytes", "bytes", "bytes held for the whole step (SPOC: Parameters)"),
    Feature("held_bytes", "bytes", "these and every tensor made or received there: its peak if nothing were freed"),
    Feature("operations", "FLOP", "floating-point operations (SPOC: Operations); see `operations`"),
    Feature("chain_ops", "1", "ops on the longest chain that stays on the device (SPOC: Critical datapath length)"),
    Feature("chain_s", "s", "seconds of the heaviest such chain"),
)
"""The features of each device, in the order of the columns."""
SUMMARIES = ("max", "min", "mean")


class MappingFeatures:
    """The features of mappings of one graph on one topology, by one simulator's costs and links.

    base_s: seconds of a step beside its makespan. Columns: OF_STEP; then OF_DEVICE as `name.max`, `name.min`,
    `name.mean` over devices, which do not change if equal devices trade places; then OF_DEVICE per device, as
    `name@device`.
    """

    def __init__(self, simulator: Simulator, base_s: float = 0.0) -> None:
        self.simulator, self.base_s = simulator, base_s
        graph = simulator.graph
        self._order = np.array(graph.order, np.int32)
        self._memory = np.array([op.memory_bytes for op in graph.ops], np.float64)
        self._operations = operations(graph, simulator.costs)

    @property
    def features(self) -> tuple[Feature, ...]:
        """Return the feature of each column."""
        where = [f".{summary}" for summary in SUMMARIES] + [f"@{name}" for name in self.simulator.topology.names]
        meant = [f"{s} over devices" for s in SUMMARIES] + [f"of {name}" for name in self.simulator.topology.names]
        parts = [
            Feature(part.name + at, part.unit, f"{part.meaning}; {of}")
            for at, of in zip(where, meant, strict=True)
            for part in OF_DEVICE
        ]
        return (*OF_STEP, *parts)

    @property
    def names(self) -> tuple[str, ...]:
        return tuple(feature.name for feature in self.features)

    def of(self, rows: ArrayLike) -> Floats:
        """Return the features of `rows`, [mappings, features]. rows: [mappings, ops] device indices.

        Features are infinite if a link is missing or an op cannot run. Raises BadInputError for a wrong shape and for
        an invalid device index.
        """
        from surrogate.features.partitions import PARTS, WHOLE, Weights, measure  # numba is slow to import

        given = np.ascontiguousarray(rows, dtype=np.int32)
        makespan_s = self.simulator.makespans(given) + self.base_s
        parts, whole = np.zeros((len(given), PARTS, len(self.simulator.topology))), np.zeros((len(given), WHOLE))
        measure(self.simulator.tables, Weights(self._order, self._memory, self._operations), given, parts, whole)
        step = np.column_stack([makespan_s, whole, _imbalance(parts[:, 1])])
        over = [parts.max(axis=2), parts.min(axis=2), parts.mean(axis=2)]
        each = parts.transpose(0, 2, 1).reshape(len(given), parts.shape[1] * parts.shape[2])
        return np.hstack([step, *over, each])


def operations(graph: OpGraph, costs: Costs) -> Floats:
    """Return the floating-point operations of each op, [ops]. costs: [ops, devices] seconds.

    An op of unknown count gets its seconds of work times the graph's mean operations per second. If no count is known,
    the result is seconds of work.
    """
    work_s = mean_cost_s(costs)
    counts = counted(graph)
    known = np.isfinite(counts)
    if not known.any():
        return work_s
    counted_s = max(float(work_s[known].sum()), TINY_S)
    found = counts.copy()
    found[~known] = counts[known].sum() * (work_s[~known] / counted_s)
    return found


def _imbalance(busy_s: Floats) -> Floats:
    """Return the imbalance, [mappings]: 0 if all devices are equally busy, devices - 1 if one device works alone.

    busy_s: [mappings, devices].
    """
    most_s, mean_s = busy_s.max(axis=1), busy_s.mean(axis=1)
    found = np.where(np.isinf(mean_s), np.inf, 0.0)
    np.divide(most_s, mean_s, out=found, where=np.isfinite(mean_s) & (mean_s > 0))
    return np.where(mean_s > 0, found - 1, 0.0)
