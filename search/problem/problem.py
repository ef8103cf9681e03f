"""The problem that a searcher solves: a graph to place on a topology, an objective, and which unit may go where."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from placer.errors import BadInputError, listed, short
from placer.graph.mapping import ROUNDING, Mapping
from placer.graph.op_graph import OpGraph
from placer.graph.schedules import RANK
from placer.graph.topology import Topology
from search.problem.alike_devices import alike_devices
from surrogate.costs.cost_matrix import Costs, cost_matrix, mean_cost_s
from surrogate.simulate.max_load import MaxLoad
from surrogate.simulate.simulator import Simulator

if TYPE_CHECKING:
    from surrogate.features.mapping_features import MappingFeatures

OBJECTIVES = ("makespan", "max-load")
# The most units whose memory is added up at once, which bounds the memory that a large batch takes.
AT_ONCE = 1 << 20

Placement = tuple[int, ...]
"""The device of each unit, in the order of `Problem.units`."""


class Limits(NamedTuple):
    """Which unit may go where, as flat arrays for compiled code. u: unit, d: device."""

    unit_of: NDArray[np.int32]  # [ops]
    unit_bytes: NDArray[np.float64]  # [u]
    feasible: NDArray[np.bool_]  # [u, d]
    capacity_bytes: NDArray[np.float64]  # [d]

    def hold_both(self, u: NDArray[np.int32], w: NDArray[np.int32]) -> NDArray[np.bool_]:
        """Whether both units of a pair fit into the memory of each device without other units, [pairs, d]."""
        both_bytes = (self.unit_bytes[u] + self.unit_bytes[w])[:, None]
        fits: NDArray[np.bool_] = both_bytes <= self.capacity_bytes
        return fits


@dataclass(frozen=True, eq=False)
class Problem:
    """A graph to place on a topology, and the predicted objective of its mappings.

    Raises BadInputError for an unknown objective or schedule, an op that no device can run, and colocated ops that no
    device can run together.
    """

    graph: OpGraph
    topology: Topology
    objective: str = "makespan"  # one of OBJECTIVES
    schedule: str = RANK
    headroom: float = 0.0  # the share of each device's memory that must stay free
    cost_s: Costs | None = None  # [ops, devices] seconds in place of the graph's own costs
    base_s: float = 0.0  # seconds of a step beside its makespan
    # Predicts [placements, units] more exactly and more slowly, if the ops of the graph's groups are known.
    judge: Callable[[NDArray[np.int32]], NDArray[np.float64]] | None = None
    # Bytes that each op holds beside its `memory_bytes` when the step holds most (Prediction.problem).
    kept_bytes: tuple[float, ...] | None = None
    # Makes the same problem with costs that no measured step has corrected; None if this problem's are such costs.
    profiled: Callable[[], Problem] | None = None

    def __post_init__(self) -> None:
        if self.objective not in OBJECTIVES:
            raise BadInputError(f"the objective {self.objective!r} is none of {', '.join(OBJECTIVES)}.")
        if not 0 <= self.headroom < 1:
            raise BadInputError(f"the headroom is {self.headroom}; give a share of the memory, 0 <= headroom < 1.")
        for unit, feasible in zip(self.units, self.feasible, strict=True):
            if not feasible:
                raise self._apart(unit)

    @cached_property
    def costs(self) -> Costs:
        """Return the costs, [ops, devices] seconds, infinity where an op cannot run."""
        return cost_matrix(self.graph, self.topology) if self.cost_s is None else self.cost_s

    @cached_property
    def simulator(self) -> Simulator:
        return Simulator(self.graph, self.topology, self.schedule, self.costs)

    @cached_property
    def tail_s(self) -> Costs:
        """The least seconds from the end of each op on each device to the end of the step, [ops, devices]. Infinite
        where an op cannot run, or where a consumer can only be reached over missing links.
        """
        from search.problem.longest_paths import path_tables, tails  # numba is slow to import

        return tails(path_tables(self.simulator.tables, self.limits, self.graph.order))

    @cached_property
    def max_load(self) -> MaxLoad:
        return MaxLoad(self.graph, self.topology, self.costs)

    @cached_property
    def features(self) -> MappingFeatures:
        """Return the features of mappings, from which regressors learn."""
        from surrogate.features.mapping_features import MappingFeatures

        return MappingFeatures(self.simulator, self.base_s)

    @cached_property
    def uncalibrated(self) -> Problem:
        """Return the same problem with costs that no measured step has corrected."""
        return self if self.profiled is None else self.profiled()

    @cached_property
    def units(self) -> tuple[tuple[int, ...], ...]:
        """Return the op indices of each unit, with the units in the topological order of their first ops."""
        place = {v: i for i, v in enumerate(self.graph.order)}
        return tuple(sorted(self.graph.colocated, key=lambda unit: min(place[v] for v in unit)))

    @cached_property
    def unit_of(self) -> tuple[int, ...]:
        """Return op index -> index into `units`."""
        of = [0] * len(self.graph)
        for u, unit in enumerate(self.units):
            for v in unit:
                of[v] = u
        return tuple(of)

    @cached_property
    def unit_ends(self) -> NDArray[np.int64]:
        """Return the units between which each edge passes, [edges, 2]; equal if it stays in one unit."""
        src, dst, _, _ = self.graph.edge_columns
        return np.array(self.unit_of, np.int64)[np.stack([src, dst], axis=1)]

    @cached_property
    def unit_cost_s(self) -> list[list[float]]:
        """Seconds of all ops of each unit, [units, devices], infinity where one of them cannot run."""
        rows = self.costs.tolist()
        devices = range(len(self.topology))
        return [
            rows[unit[0]] if len(unit) == 1 else [math.fsum(rows[v][d] for v in unit) for d in devices]
            for unit in self.units
        ]

    @cached_property
    def feasible(self) -> tuple[tuple[int, ...], ...]:
        """Return for each unit the devices that can run all its ops, regardless of memory."""
        return tuple(tuple(d for d, cost_s in enumerate(row) if not math.isinf(cost_s)) for row in self.unit_cost_s)

    @cached_property
    def unit_mean_s(self) -> tuple[float, ...]:
        """Seconds of each unit, averaged over the devices that can run it."""
        return tuple(mean_cost_s(np.array(self.unit_cost_s)).tolist())

    @cached_property
    def device_total_s(self) -> tuple[float, ...]:
        """Seconds that all units take on each device. A unit that cannot run there counts with its highest cost."""
        total_s = [0.0] * len(self.topology)
        for row in self.unit_cost_s:
            highest_s = max(c for c in row if c < math.inf)
            for d, cost_s in enumerate(row):
                total_s[d] += min(cost_s, highest_s)
        return tuple(total_s)

    @cached_property
    def fastest_first(self) -> tuple[int, ...]:
        """Return the devices sorted by the seconds that all units take there."""
        return tuple(sorted(range(len(self.topology)), key=lambda d: (self.device_total_s[d], d)))

    @cached_property
    def unit_bytes(self) -> tuple[float, ...]:
        """Bytes that each unit holds on its device: `memory_bytes` for the whole step, and `kept_bytes`."""
        kept = self.kept_bytes or (0.0,) * len(self.graph)
        return tuple(sum(self.graph.ops[v].memory_bytes + kept[v] for v in unit) for unit in self.units)

    @cached_property
    def capacity_bytes(self) -> tuple[float, ...]:
        """Bytes that each device may hold, without the head-room; infinity = unlimited."""
        limits = (device.memory_bytes for device in self.topology.devices)
        share = (1 - self.headroom) * (1 + ROUNDING)
        return tuple(math.inf if limit is None else limit * share for limit in limits)

    @cached_property
    def limits(self) -> Limits:
        """Return units, memory and feasible devices as flat arrays."""
        return Limits(
            np.array(self.unit_of, np.int32),
            np.array(self.unit_bytes, np.float64),
            np.isfinite(self.unit_cost_s),
            np.array(self.capacity_bytes, np.float64),
        )

    @cached_property
    def ranked(self) -> NDArray[np.int32]:
        """Return op indices by upward rank, the highest first; among equal ranks, producers first."""
        rank = np.array(self.simulator.rank)
        order = np.array(self.graph.order)
        return order[np.argsort(-rank[order], kind="stable")].astype(np.int32)

    @cached_property
    def is_roomy(self) -> bool:
        """Whether each device could hold all units, so that every placement fits."""
        return sum(self.unit_bytes) <= min(self.capacity_bytes)

    @cached_property
    def space(self) -> int:
        """The number of placements, regardless of memory."""
        return math.prod(len(devices) for devices in self.feasible)

    @cached_property
    def ops_and_edges(self) -> int:
        """The number of ops and edges, which is the work of one prediction."""
        return len(self.graph) + len(self.graph.edges)

    @property
    def beside_s(self) -> float:
        """Seconds of the objective that are not simulated: `base_s` for a makespan, 0 for a largest load."""
        return self.base_s if self.objective == "makespan" else 0.0

    @cached_property
    def alike(self) -> tuple[int, ...]:
        """Return for each device the first one that differs from it only in the name."""
        return alike_devices(self.topology, self.costs, self.capacity_bytes)

    def predict(self, placement: Placement) -> float:
        """The objective in seconds; infinity if a tensor would have to cross a missing link."""
        return float(self.predict_many(placement)[0])

    def predict_many(self, placements: ArrayLike) -> NDArray[np.float64]:
        """Return `predict` of each row of `placements`, [placements, units] devices."""
        devices = self._rows(placements).take(self.limits.unit_of, axis=1)
        if self.objective == "max-load":
            return self.max_load.values(devices)
        return self.base_s + self.simulator.makespans(devices)

    def moved_where_able(self, placement: ArrayLike) -> Placement:
        """Return `placement`, with each unit that cannot run on its device moved to the device of its least cost."""
        wanted = np.asarray(placement)
        can = self.limits.feasible[np.arange(len(wanted)), wanted]
        return tuple(np.where(can, wanted, self._cheapest).tolist())

    @cached_property
    def _cheapest(self) -> NDArray[np.int64]:
        """Return the device where each unit costs least, [units]."""
        cheapest: NDArray[np.int64] = np.array(self.unit_cost_s).argmin(axis=1)
        return cheapest

    def devices(self, placement: Placement) -> tuple[int, ...]:
        """Return the device of each op."""
        return tuple([placement[u] for u in self.unit_of])

    def mapping(self, placement: Placement) -> Mapping:
        """Return the placement as a mapping. Raises MappingError if it does not fit into memory."""
        return Mapping(self.graph, self.topology, self.devices(placement), self.headroom)

    def placement(self, mapping: Mapping) -> Placement:
        """Return the mapping as a placement. Raises BadInputError if it is a mapping of another graph."""
        if mapping.graph.fingerprint != self.graph.fingerprint:
            theirs, ours = mapping.graph.fingerprint, self.graph.fingerprint
            raise BadInputError(f"the mapping is for graph {theirs}; this search is for {ours}.")
        return tuple(mapping.devices[unit[0]] for unit in self.units)

    def check_same_space(self, other: Problem) -> None:
        """Check that both problems have the same placements; costs may differ. Raises BadInputError if not."""
        for what, ours, theirs in (
            ("graph", self.graph.fingerprint, other.graph.fingerprint),
            ("objective", self.objective, other.objective),
            ("set of devices", self.topology.names, other.topology.names),
            ("set of units", self.units, other.units),
            ("choice of devices", self.feasible, other.feasible),
            ("memory", (self.unit_bytes, self.capacity_bytes), (other.unit_bytes, other.capacity_bytes)),
        ):
            if ours != theirs:
                raise BadInputError(f"the search cannot go on with a problem of another {what}; begin a new one.")

    def held_bytes(self, placement: Placement) -> list[float]:
        held = [0.0] * len(self.topology)
        for u, d in enumerate(placement):
            held[d] += self.unit_bytes[u]
        return held

    def fits(self, placement: Placement) -> bool:
        """Whether the memory of every device is enough."""
        if self.is_roomy:
            return True
        held = self.held_bytes(placement)
        return all(h <= c for h, c in zip(held, self.capacity_bytes, strict=True))

    def judge_many(self, placements: ArrayLike) -> NDArray[np.float64]:
        """Predict as `predict_many`, but by the slower judge if there is one."""
        rows = self._rows(placements)
        return self.predict_many(rows) if self.judge is None else self.judge(rows)

    def fits_many(self, placements: ArrayLike) -> NDArray[np.bool_]:
        """Return `fits` of each row of `placements`, [placements, units] devices.

        Raises BadInputError for an invalid device index.
        """
        rows = self._rows(placements)
        if ((rows < 0) | (rows >= len(self.topology))).any():
            raise BadInputError(f"a placement names a device outside 0..{len(self.topology) - 1}.")
        if self.is_roomy:
            return np.ones(len(rows), bool)
        fits = np.empty(len(rows), bool)
        step = max(1, AT_ONCE // len(self.units))
        for i in range(0, len(rows), step):
            held_bytes = self._held_by_row(rows[i : i + step])
            fits[i : i + step] = (held_bytes <= self.limits.capacity_bytes).all(axis=1)
        return fits

    @cached_property
    def of_variables(self) -> Problem:
        """Return this problem without `kept_bytes`, an estimate that may be more than a step holds."""
        return self if self.kept_bytes is None else replace(self, kept_bytes=None)

    def singles(self) -> Iterator[Placement]:
        """Yield the placement of all units on one device, for each device that can run and hold them."""
        for d in np.flatnonzero(self.limits.feasible.all(axis=0)).tolist():
            placement = (d,) * len(self.units)
            if self.fits(placement):
                yield placement

    def unlike_singles(self) -> list[Placement]:
        """Return `singles`, with only the first of devices that are alike."""
        return [placement for placement in self.singles() if self.alike[placement[0]] == placement[0]]

    def canonical(self, placement: Placement) -> Placement:
        """Return the placement with alike devices renamed in order of first appearance. Placements that differ only in
        the names of alike devices become equal.
        """
        unused = {a: [d for d, b in enumerate(self.alike) if a == b] for a in self.alike}
        name: dict[int, int] = {}
        for d in placement:
            if d not in name:
                name[d] = unused[self.alike[d]].pop(0)
        return tuple(name[d] for d in placement)

    def _apart(self, unit: Sequence[int]) -> BadInputError:
        """Return the error for a unit that no device can run. It names a few of its ops with different devices."""
        names, rows = self.topology.names, self.costs[list(unit)]
        where = {
            listed([name for name, cost_s in zip(names, row, strict=True) if cost_s < math.inf]) or "none": v
            for v, row in zip(reversed(unit), rows[::-1].tolist(), strict=True)
        }
        first = sorted(where.items(), key=lambda item: item[1])[:3]
        ops = ", ".join(short(self.graph.ops[v].name) for _, v in first)
        each = ", ".join(f"{short(self.graph.ops[v].name)} on {can}" for can, v in first)
        return BadInputError(
            f"graph {short(self.graph.name)}: the colocated ops {ops} can run together on none of {listed(names)}: "
            f"{each}. Give them a cost on one device, or do not colocate them."
        )

    def _rows(self, placements: ArrayLike) -> NDArray[np.int32]:
        return np.asarray(placements, dtype=np.int32).reshape(-1, len(self.units))

    def _held_by_row(self, rows: NDArray[np.int32]) -> NDArray[np.float64]:
        """Bytes held under each row, [rows, devices], summed in the order of units as in `held_bytes`."""
        n, devices = len(rows), len(self.topology)
        cell = rows + np.arange(0, n * devices, devices)[:, None]
        held = np.bincount(cell.ravel(), np.tile(self.limits.unit_bytes, n), n * devices)
        return held.astype(np.float64, copy=False).reshape(n, devices)
