"""The max-load objective: the load of the busiest device in a pipeline that runs one training step after another.

`loads` defines it. `MaxLoad` is as exact and takes many mappings at once. It needs numba, which is imported at the
first call.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import ArrayLike, NDArray

from placer.graph.op_graph import OpGraph
from placer.graph.topology import Topology
from surrogate.costs.cost_matrix import Costs
from surrogate.parallel import by_row
from surrogate.simulate.kernels.arrays import needs_of

if TYPE_CHECKING:
    from surrogate.simulate.kernels.max_load_kernel import Ends


def loads(
    graph: OpGraph, cost_rows: Sequence[Sequence[float]], topology: Topology, devices: Sequence[int]
) -> list[float]:
    """Seconds of load per device: its ops' costs, and the distinct tensors that it receives and sends.

    A tensor is sent once, whatever the number of devices that receive it, and received once per device, whatever the
    number of ops that use it there. Ops are summed in the order of the graph, then tensors in the order of their ops.
    """
    load = [0.0] * len(topology)
    for row, d in zip(cost_rows, devices, strict=True):
        load[d] += row[d]
    crossing = [e for e in graph.edges if devices[e.src] != devices[e.dst]]
    ends = {(e.src, e.output_index, devices[end]) for e in crossing for end in (e.src, e.dst)}
    size = graph.tensor_bytes
    for src, index, d in sorted(ends):
        device = topology.devices[d]
        rate = device.egress_bytes_per_s if d == devices[src] else device.ingress_bytes_per_s
        if rate is not None:
            load[d] += size[src, index] / rate
    return load


class MaxLoad:
    """The max-load of mappings of one graph on one topology. Tables that all mappings share are made once.

    costs: [ops, devices] seconds, infinity where an op cannot run.
    """

    def __init__(self, graph: OpGraph, topology: Topology, costs: Costs) -> None:
        self.graph = graph
        self.topology = topology
        self.costs = costs

    def value(self, devices: Sequence[int] | NDArray[np.integer]) -> float:
        """Seconds of load of the busiest device with op i on device `devices[i]`; infinity if an op cannot run."""
        return float(self.values(np.array(devices, dtype=np.int32)[None])[0])

    def values(self, rows: ArrayLike) -> NDArray[np.float64]:
        """Return the `value` of each of `rows`, [mappings, ops] device indices; on all cores if the work is worth it.

        Raises BadInputError for a wrong shape and for an invalid device index.
        """
        from surrogate.simulate.kernels.max_load_kernel import max_loads  # numba is slow to import

        ends = self.ends
        return by_row(
            lambda some, out: max_loads(ends, some, out), rows, len(self.graph), len(self.topology), self._size
        )

    @cached_property
    def ends(self) -> Ends:
        """Return the inputs of the compiled loop."""
        from surrogate.simulate.kernels.max_load_kernel import ends_of

        return ends_of(needs_of(self.graph), self.costs, self.topology)

    @property
    def _size(self) -> int:
        """Steps of work per mapping. Adding up an op or a need takes about a fourth of the time of simulating it."""
        return (len(self.graph) + len(self.ends.user)) // 4
