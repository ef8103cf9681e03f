"""Networks that are alike (blocks of branches; larger, deeper, wider, renamed), and a machine of unlike devices."""

from __future__ import annotations

import random
from dataclasses import dataclass
from itertools import pairwise
from math import exp

from placer.graph.op_graph import Edge, Op, OpGraph
from placer.graph.topology import Device, Link, Topology

KINDS = ("Conv", "Norm", "Relu")
MEDIAN_S = 3e-4  # median cost of an op on a GPU
PROFILE_OFF = 0.05  # standard deviation of log(profiled cost / drawn cost)


@dataclass(frozen=True)
class Network:
    """A training step: blocks of branches that fork and join, forward, then backward.

    An op's costs and output size are drawn from its name without the prefix, so that ops with the same name are alike
    in two networks.
    """

    blocks: int = 3
    branches: int = 3
    batch: float = 1.0  # factor of costs and tensor sizes
    prefix: str = ""
    profile: int = 0  # each profile has its own errors

    def graph(self, clock_off: float = 0.0) -> OpGraph:
        """The step with profiled costs, or, with `clock_off`, with true costs: drawn costs times exp(clock_off * z).

        z is from the standard normal distribution, and the same for the same name and kind of device.
        """
        names = [("input", "Pad")]
        edges: list[tuple[int, int]] = []
        last = 0
        for b in range(self.blocks):
            ends = []
            for i in range(self.branches):
                chain = [last, *range(len(names), len(names) + len(KINDS))]
                names += [(f"block{b}/{i}/{kind}", kind) for kind in KINDS]
                edges += pairwise(chain)
                ends.append(chain[-1])
            last = len(names)
            names.append((f"block{b}/join", "Concat"))
            edges += [(end, last) for end in ends]
        return self._trained(names, edges, clock_off)

    def _trained(self, names: list[tuple[str, str]], edges: list[tuple[int, int]], clock_off: float) -> OpGraph:
        """The graph of these ops and their gradients.

        The gradient of an op is on the op's device, and takes the op's output and its consumers' gradients.
        """
        n = len(names)
        both = [*names, *((f"{name}/grad", f"{kind}Grad") for name, kind in names)]
        ops = tuple(
            Op(self.prefix + name, kind, self._cost_s(name, clock_off), colocate=name.removesuffix("/grad"))
            for name, kind in both
        )
        pairs = [*edges, *((n + dst, n + src) for src, dst in edges), *((v, n + v) for v in range(n))]
        sizes = [int(random.Random(f"bytes of {name}").uniform(1e5, 2e6) * self.batch) for name, _ in both]
        return OpGraph("network", ops, tuple(Edge(src, dst, sizes[src]) for src, dst in pairs))

    def _cost_s(self, name: str, clock_off: float) -> dict[str, float]:
        """Seconds by kind of device. A CPU takes about three times as long as a GPU; the ratio depends on the op."""
        gpu_s = MEDIAN_S * exp(random.Random(f"cost of {name}").gauss(0, 1)) * self.batch
        ratio = 3 * exp(random.Random(f"ratio of {name}").gauss(0, 0.7))
        return {
            kind: cost_s * self._error(name, kind, clock_off)
            for kind, cost_s in (("gpu", gpu_s), ("cpu", gpu_s * ratio))
        }

    def _error(self, name: str, kind: str, clock_off: float) -> float:
        if clock_off:
            return exp(random.Random(f"{name} on the clock of a {kind}").gauss(0, clock_off))
        return exp(random.Random(f"{name} on a {kind} in profile {self.profile}").gauss(0, PROFILE_OFF))


MACHINE = Topology((Device("gpu:0", "gpu"), Device("cpu:0", "cpu")), (Link("*", "*", 1e-5, 1e9),))
FIRST = Network()
ALIKE = {
    "another batch size": Network(batch=1.7, profile=1),
    "two blocks deeper": Network(blocks=5, profile=2),
    "a branch more": Network(branches=4, profile=4),
    "under other names": Network(prefix="model/", profile=5),
}
