"""A mapping: which device runs which op. Immutable, total, and checked when it is made."""

from __future__ import annotations

from collections.abc import Mapping as MappingABC
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cached_property
from html import escape

from placer.errors import BadInputError, listed, plain, short
from placer.graph.op_graph import OpGraph
from placer.graph.topology import Topology
from placer.number_format import mib


class MappingError(BadInputError):
    """The mapping does not fit its graph or topology."""


ROUNDING = 1e-12  # relative: how much a sum of fractional bytes may differ if added in another order


@dataclass(frozen=True)
class Mapping:
    """Op i of `graph` runs on device `devices[i]` of `topology`. Only `devices` is compared for equality.

    Raises MappingError if an op cannot run on its device, colocation is broken, or memory is not enough.
    """

    graph: OpGraph = field(compare=False, repr=False)
    topology: Topology = field(compare=False, repr=False)
    devices: tuple[int, ...]
    headroom: float = field(default=0.0, compare=False)  # share of each device's memory that must stay free

    def __post_init__(self) -> None:
        if len(self.devices) != len(self.graph):
            raise MappingError(f"the mapping places {len(self.devices)} ops; the graph has {len(self.graph)}.")
        for op, d in zip(self.graph.ops, self.devices, strict=True):
            if not 0 <= d < len(self.topology):
                raise MappingError(f"op {short(op.name)} is on device {d}; the topology has {len(self.topology)}.")
            if not op.runs_on(self.topology.devices[d]):
                raise MappingError(
                    f"op {short(op.name)} ({plain(op.type)}) cannot run on {short(self.topology.names[d])}."
                )
        for unit in self.graph.colocated:
            if len({self.devices[i] for i in unit}) > 1:
                self._refuse_split(unit)
        for d, used_bytes in enumerate(self.memory_bytes):
            limit = self.topology.devices[d].memory_bytes
            if limit is not None and used_bytes > limit * (1 - self.headroom) * (1 + ROUNDING):
                name = self.topology.names[d]
                raise MappingError(
                    f"device {short(name)} would hold {used_bytes} bytes of its {limit} "
                    f"({self.headroom:.0%} kept free); move some ops elsewhere."
                )

    @classmethod
    def of(cls, graph: OpGraph, topology: Topology, assignment: MappingABC[str, str], headroom: float = 0.0) -> Mapping:
        """Build from {op name: device name}. Raises MappingError if it leaves out an op or names something unknown."""
        missing = [op.name for op in graph.ops if op.name not in assignment]
        if missing:
            raise MappingError(f"the mapping leaves out {len(missing)} of {len(graph)} ops, first {short(missing[0])}.")
        for name, device in assignment.items():
            if name not in graph.index:
                raise MappingError(
                    f"the mapping places {short(name)}, which the graph {short(graph.name)} does not have."
                )
            if device not in topology.index:
                known = listed(topology.names)
                raise MappingError(f"op {short(name)} is on {short(device)}; the topology has {known}.")
        devices = tuple(topology.index[assignment[op.name]] for op in graph.ops)
        return cls(graph, topology, devices, headroom)

    @classmethod
    def single(cls, graph: OpGraph, topology: Topology, device: int, headroom: float = 0.0) -> Mapping:
        """The mapping of every op to one device. Raises MappingError if that device cannot run them all."""
        return cls(graph, topology, (device,) * len(graph), headroom)

    @cached_property
    def assignment(self) -> dict[str, str]:
        """{op name: device name}, in the graph's order."""
        return {op.name: self.topology.names[d] for op, d in zip(self.graph.ops, self.devices, strict=True)}

    @cached_property
    def memory_bytes(self) -> tuple[int, ...]:
        """For each device, the sum of its ops' `memory_bytes`."""
        used = [0] * len(self.topology)
        for op, d in zip(self.graph.ops, self.devices, strict=True):
            used[d] += op.memory_bytes
        return tuple(used)

    @property
    def is_single(self) -> bool:
        """Whether one device runs everything."""
        return len(set(self.devices)) == 1

    def _repr_html_(self) -> str:
        """A table for notebooks: how many ops each device runs, and the memory that they keep there."""
        rows = "".join(
            f"<tr><td>{escape(name)}</td><td>{self.devices.count(d)}</td><td>{mib(self.memory_bytes[d])}</td></tr>"
            for d, name in enumerate(self.topology.names)
        )
        head = "<tr><th>device</th><th>ops</th><th>memory</th></tr>"
        return f"<b>{escape(self.graph.name)}</b><table>{head}{rows}</table>"

    def _refuse_split(self, unit: Sequence[int]) -> None:
        first = self.graph.ops[unit[0]]
        other = next(i for i in unit if self.devices[i] != self.devices[unit[0]])
        names = self.topology.names
        raise MappingError(
            f"{short(first.name)} on {short(names[self.devices[unit[0]]])} and {short(self.graph.ops[other].name)} on "
            f"{short(names[self.devices[other]])} are colocated ({short(str(first.colocate))}); put them on one device."
        )


def ops_by_device(mapping: Mapping) -> str:
    """How many ops run on each device, such as "12 ops on worker:0, 3 ops on worker:1". Devices without ops are left
    out.
    """
    count = {name: mapping.devices.count(d) for d, name in enumerate(mapping.topology.names)}
    return ", ".join(f"{count[name]} ops on {name}" for name in count if count[name])
