"""The state of a live step whose devices are joined."""

from __future__ import annotations

from collections.abc import Mapping as MappingABC
from collections.abc import Sequence
from dataclasses import dataclass, field, replace

from placer.devices.cluster import Devices
from placer.devices.links.link_probes import QUICK_PROBES, QUICK_REPEATS, measure_links
from placer.graph.mapping import Mapping
from placer.graph.op_graph import OpGraph
from placer.graph.topology import Topology
from placer.profile.host_values import without_host_ops
from placer.profile.profiler import profile
from placer.trace.capture import Captured
from placer.trace.variable_parts import in_parts
from placer.train.steps.scratch_run import ScratchRun
from placer.train.steps.variant import Variant

PROFILED = 3  # traced steps on each device


@dataclass(frozen=True)
class JoinedStep:
    """A step whose main signature can be placed, tried and profiled."""

    main: Variant  # the signature whose mapping is searched
    captured: Captured  # its graph, undivided
    scratch_run: ScratchRun
    topology: Topology  # all devices, lost ones included, so that indices stay what they are
    graphs: MappingABC[int, OpGraph] = field(default_factory=dict)
    """By the number of a plan of splits: the graph that it gives with costs, once profiled."""

    def with_links_of(self, devices: Devices) -> JoinedStep:
        """Return a copy with the links between `devices`, measured now. `devices` must be all devices, and keep the
        links, too.
        """
        names = devices.topology.names
        tf_names = [devices.tf_names[name] for name in names]
        nodes = devices.topology.nodes
        links = measure_links(names, tf_names, probes=QUICK_PROBES, repeats=QUICK_REPEATS, nodes=nodes)
        devices.topology = topology = replace(devices.topology, links=links)
        return replace(self, topology=topology)

    def profiled(self, plan: int, captured: Captured, devices: Devices, limit_s: float | None) -> JoinedStep:
        """Return a copy that also has the graph of `captured` with costs, profiled on the recorded batch. plan: the
        number of the plan of splits that gave `captured`. limit_s: seconds for one traced step.
        """
        batch, start = self.scratch_run.batches[-1], in_parts(self.scratch_run.start, captured.divided)
        if captured.has_tables:  # a session does not find the tables
            captured = without_host_ops(captured, batch, start)
        graph = profile(captured, devices, batch, runs=PROFILED, start=start, warm_up=1, limit_s=limit_s)
        return replace(self, graphs={**self.graphs, plan: graph})

    def mapping(self, devices: Sequence[int], plan: int, captured: Captured) -> Mapping:
        """The mapping of the ops of `captured` onto `devices`, which are indices into `topology`. plan: as in
        `profiled`.
        """
        return Mapping(self.graphs.get(plan, captured.graph), self.topology, tuple(devices))
