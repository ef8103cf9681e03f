"""What is known of a live step once its devices are joined."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from placer.devices.cluster import Devices
from placer.devices.link_probes import QUICK_PROBES, QUICK_REPEATS, measure_links
from placer.graph.mapping import Mapping
from placer.graph.op_graph import OpGraph
from placer.graph.topology import Topology
from placer.profile.profiler import profile
from placer.trace.capture import Captured
from placer.train.steps.trial_run import TrialRun
from placer.train.steps.variant import Variant

PROFILED = 3  # traced steps on each device


@dataclass(frozen=True)
class JoinedStep:
    """A step whose main signature can be placed, tried and profiled."""

    main: Variant  # the signature whose mapping is searched
    captured: Captured  # its graph
    trial_run: TrialRun
    topology: Topology  # all devices, lost ones included, so that indices stay what they are
    graph: OpGraph | None = None  # the captured one with costs, once profiled

    def with_links_of(self, devices: Devices) -> JoinedStep:
        """The same with the links between `devices`, which are all of them, measured now; they keep them, too."""
        names = devices.topology.names
        tf_names = [devices.tf_names[name] for name in names]
        links = measure_links(names, tf_names, probes=QUICK_PROBES, repeats=QUICK_REPEATS)
        devices.topology = topology = Topology(devices.topology.devices, links, devices.topology.contention)
        return replace(self, topology=topology)

    def profile(self, devices: Devices, limit_s: float | None) -> OpGraph:
        """The main signature's graph with costs, from the steps recorded. limit_s: seconds for one traced step."""
        return profile(
            self.captured,
            devices,
            self.trial_run.batches[-1],
            runs=PROFILED,
            start=self.trial_run.start,
            warm_up=1,
            limit_s=limit_s,
        )

    def mapping(self, devices: Sequence[int]) -> Mapping:
        """The main signature's ops on these devices, indices into `topology`."""
        return Mapping(self.graph or self.captured.graph, self.topology, tuple(devices))
