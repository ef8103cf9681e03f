"""The simulator: predicted seconds of one training step under a mapping, event-driven and exact.

`surrogate/simulate/reference.py` defines the makespan; `surrogate/simulate/kernels/event_loop.py` computes the same
about a hundred times faster. The event loop needs numba, which is imported at the first makespan.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from functools import cached_property
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import ArrayLike, NDArray

from placer.errors import BadInputError, short
from placer.graph.held_memory import is_tight
from placer.graph.mapping import Mapping
from placer.graph.op_graph import OpGraph
from placer.graph.schedules import DONF, FIFO, RANK, check_schedule
from placer.graph.topology import Topology
from surrogate.costs.cost_matrix import Costs, cost_matrix
from surrogate.parallel import Floats, Rows, by_row
from surrogate.simulate.kernels.arrays import Needs, Tables, needs_of, tables_of
from surrogate.simulate.priority import (
    by_earliest_start,
    freeing,
    micro_batch_of,
    positions,
    topological,
    upward_rank,
    weighted_out_degree,
)
from surrogate.simulate.reference import ReferenceSimulator
from surrogate.simulate.timeline import Timeline

if TYPE_CHECKING:
    from surrogate.simulate.kernels.fixed_order import Line


class _OfGraph:
    """The tables that depend on the graph alone, which a simulator shares with all that `revalued` makes from it."""

    def __init__(self, graph: OpGraph) -> None:
        self.graph = graph

    @cached_property
    def needs(self) -> Needs:
        return needs_of(self.graph)

    @cached_property
    def by_out_degree(self) -> NDArray[np.int32]:
        """Return each op's place in line for donf."""
        return positions(weighted_out_degree(self.graph))


class Simulator:
    """A simulator of mappings of one graph on one topology. Tables that all mappings share are made once.

    costs: [ops, devices] seconds; None = the graph's own. schedule: rank, donf or fifo.
    Raises BadInputError for an unknown schedule and for an op that no device can run.
    """

    def __init__(self, graph: OpGraph, topology: Topology, schedule: str = RANK, costs: Costs | None = None) -> None:
        check_schedule(schedule)
        self.graph = graph
        self.topology = topology
        self.schedule = schedule
        self.costs = cost_matrix(graph, topology) if costs is None else costs
        self._of_graph = _OfGraph(graph)

    def makespan(self, devices: Sequence[int] | NDArray[np.integer]) -> float:
        """Seconds of one training step with op i on device `devices[i]`; infinity if a link is missing."""
        return float(self.makespans(np.array(devices, dtype=np.int32)[None])[0])

    def makespans(self, rows: ArrayLike) -> Floats:
        """Return the makespan of each of `rows`, [mappings, ops] device indices; on all cores if the work is worth it.

        A makespan is infinity if a link is missing or an op cannot run. Raises BadInputError for a wrong shape and for
        an invalid device index.
        """
        from surrogate.simulate.kernels.event_loop import makespans  # numba is slow to import

        tables = self.tables
        return self._all(rows, lambda some, out: makespans(tables, some, out))

    def screen(self, rows: ArrayLike) -> Floats:
        """Estimate `makespans` several times faster, with ops in one fixed order (see `kernels.fixed_order`).

        Use the estimate to rank mappings, never as a prediction.
        """
        from surrogate.simulate.kernels.fixed_order import screen

        line = self.line
        return self._all(rows, lambda some, out: screen(line, some, out))

    def timeline(self, devices: Sequence[int]) -> Timeline:
        """Return the whole schedule.

        Raises BadInputError if the makespan is infinite: a tensor must cross and the topology has no link, an op has no
        cost on its device, or numbers are out of all measure.
        """
        timeline = self.reference.timeline(devices)
        if math.isinf(timeline.makespan_s):
            self._refuse_crossing(devices)
        return timeline

    def revalued(self, costs: Costs, topology: Topology | None = None) -> Simulator:
        """Return this simulator with other costs, [ops, devices] seconds, and another topology if one is given.

        Both share the tables that depend on the graph alone, so that a fit can afford hundreds of simulators.
        """
        other = Simulator(self.graph, topology or self.topology, self.schedule, costs)
        other._of_graph = self._of_graph
        return other

    @cached_property
    def cost_s(self) -> list[list[float]]:
        """Return the costs as lists, [ops][devices] seconds."""
        return self.costs.tolist()  # type: ignore[no-any-return]

    @cached_property
    def place(self) -> NDArray[np.int32] | None:
        """Return each op's place in line; None for fifo, because there the place depends on the mapping."""
        if self.schedule == FIFO:
            return None
        if self.schedule == DONF:
            return self._of_graph.by_out_degree
        first = freeing(self.graph) if is_tight(self.graph, self.topology) else None
        return positions(self.rank, micro_batch_of(self.graph), first)

    @cached_property
    def rank(self) -> list[float]:
        """Return the upward rank of each op, in seconds."""
        return upward_rank(self.graph, self.costs, self.topology)

    @cached_property
    def reference(self) -> ReferenceSimulator:
        """Return the simulator in plain Python, which defines the makespan."""
        place = None if self.place is None else self.place.tolist()
        return ReferenceSimulator(self.graph, self.topology, self.cost_s, place)

    @cached_property
    def tables(self) -> Tables:
        """Return the inputs of the compiled event loop."""
        return tables_of(self.needs, self.costs, self.topology, self.place)

    @cached_property
    def line(self) -> Line:
        """Return the inputs of `screen`: the tables in one fixed order of the ops."""
        from surrogate.simulate.kernels.fixed_order import line_up

        if self.schedule == RANK and self.place is not None:
            order = topological(self.graph, self.place)
        else:  # start times are a better order than out-degrees, which do not depend on costs
            order = by_earliest_start(self.graph, self.costs)
        return line_up(self.tables, order)

    @property
    def needs(self) -> Needs:
        """Return which op needs which tensor."""
        return self._of_graph.needs

    @property
    def _size(self) -> int:
        return len(self.graph) + len(self.needs.dst)

    def _all(self, rows: ArrayLike, compute: Callable[[Rows, Floats], None]) -> Floats:
        return by_row(compute, rows, len(self.graph), len(self.topology), self._size)

    def _refuse_crossing(self, devices: Sequence[int]) -> None:
        for e in self.graph.edges:
            if devices[e.src] != devices[e.dst]:
                self.topology.link(devices[e.src], devices[e.dst])
        worst = next((v for v, d in enumerate(devices) if math.isinf(self.cost_s[v][d])), None)
        if worst is None:
            raise BadInputError("the step would take for ever; correct the costs or links that are out of all measure.")
        op, device = self.graph.ops[worst].name, self.topology.names[devices[worst]]
        raise BadInputError(f"op {short(op)} has no cost on {short(device)}; give it a cost_s there.")


def simulate(graph: OpGraph, costs: Costs, mapping: Mapping, schedule: str = RANK) -> Timeline:
    """Return the timeline of one training step of `graph` under `mapping`. costs: [ops, devices] seconds.

    Raises BadInputError for an unknown schedule, and as `Simulator.timeline`.
    """
    return Simulator(graph, mapping.topology, schedule, costs).timeline(mapping.devices)
