"""Graphs like those of training steps of large networks, made by rule: cells of short branches, blocks, layers.

Costs are like those of a GPU: some ops take a few microseconds whatever they do, others a millisecond. Each op has a
gradient that takes twice as long and needs what the op needed. Each op with weights has an update on its device.
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass, field

from placer.graph.op_graph import Edge, Op, OpGraph
from placer.graph.topology import Device, Link, Topology

MEGA = 1 << 20  # bytes
LAUNCH_S, UPDATE_S = 5e-6, 8e-6
LATENCY_S, BYTES_PER_S, PORT_BYTES_PER_S = 1e-5, 12e9, 12e9  # PCI Express 3.0, about


@dataclass
class Network:
    """Forward ops in order; `step` adds gradients and updates."""

    rng: random.Random
    names: list[str] = field(default_factory=list)
    cost_s: list[float] = field(default_factory=list)
    inputs: list[list[int]] = field(default_factory=list)
    out_bytes: list[int] = field(default_factory=list)
    weight_bytes: list[int] = field(default_factory=list)

    def add(self, name: str, inputs: Sequence[int], cost_s: float, out_bytes: float, weight_bytes: float = 0) -> int:
        """Add an op, whose cost varies by a third around `cost_s`. Returns its number."""
        self.names.append(f"{name}_{len(self.names)}")
        self.cost_s.append(LAUNCH_S + cost_s * self.rng.uniform(0.67, 1.33))
        self.inputs.append(list(inputs))
        self.out_bytes.append(int(out_bytes))
        self.weight_bytes.append(int(weight_bytes))
        return len(self.names) - 1

    def inference(self, name: str) -> OpGraph:
        """The forward ops alone."""
        ops = [self._op(v, self.names[v], self.cost_s[v], None) for v in range(len(self.names))]
        return OpGraph(name, tuple(ops), tuple(self._forward_edges()))

    def step(self, name: str) -> OpGraph:
        """A training step."""
        forward = len(self.names)
        ops = [self._op(v, self.names[v], self.cost_s[v], self._pair(v)) for v in range(forward)]
        edges = self._forward_edges()
        gradient = {}
        for v in reversed(range(forward)):
            gradient[v] = len(ops)
            ops.append(Op(f"{self.names[v]}/gradient", cost_s={"gpu": 2 * self.cost_s[v], "cpu": 40 * self.cost_s[v]}))
            edges += [Edge(u, gradient[v], self.out_bytes[u]) for u in self.inputs[v]]
            users = [w for w in range(v + 1, forward) if v in self.inputs[w]] if v else []
            edges += [Edge(gradient[w], gradient[v], self.out_bytes[v], self.inputs[w].index(v)) for w in users]
            if not users:
                edges.append(Edge(v, gradient[v], self.out_bytes[v]))
            if self.weight_bytes[v]:
                ops.append(
                    Op(f"{self.names[v]}/update", cost_s={"gpu": UPDATE_S, "cpu": 4 * UPDATE_S}, colocate=self._pair(v))
                )
                edges.append(Edge(gradient[v], len(ops) - 1, self.weight_bytes[v], len(self.inputs[v])))
        return OpGraph(name, tuple(ops), tuple(dict.fromkeys(edges)))

    def _op(self, v: int, name: str, cost_s: float, pair: str | None) -> Op:
        costs = {"gpu": cost_s, "cpu": 20 * cost_s}
        return Op(name, cost_s=costs, memory_bytes=3 * self.weight_bytes[v] + self.out_bytes[v], colocate=pair)

    def _pair(self, v: int) -> str | None:
        return self.names[v] if self.weight_bytes[v] else None

    def _forward_edges(self) -> list[Edge]:
        return [Edge(u, v, self.out_bytes[u]) for v, inputs in enumerate(self.inputs) for u in inputs]


def cells(count: int, seed: int = 0) -> Network:
    """Cells of five blocks, each the sum of two short branches over any earlier blocks, as NASNet has them."""
    net = Network(random.Random(seed))
    before = last = net.add("stem", [], 4e-4, 4 * MEGA, MEGA)
    for cell in range(count):
        size, work_s = MEGA * (1.5 if cell % 4 else 3), net.rng.uniform(5e-5, 1e-4)
        blocks = [before, last]
        for _ in range(5):
            ends = [_separable(net, net.rng.choice(blocks), work_s, size) for _ in range(2)]
            blocks.append(net.add("add", ends, 1e-5, size))
        before, last = last, net.add("concat", blocks[2:], 2e-5, 4 * size)
    net.add("loss", [net.add("dense", [last], 1e-4, MEGA / 8, 4 * MEGA)], 1e-5, 64)
    return net


def _separable(net: Network, u: int, work_s: float, size: float) -> int:
    for _ in range(net.rng.choice((0, 1, 2))):
        u = net.add("relu", [u], 1e-5, size)
        u = net.add("depthwise", [u], work_s, size, size / 100)
        u = net.add("pointwise", [u], work_s, size, size / 10)
        u = net.add("norm", [u], 2e-5, size, 4096)
    return u


def inception(count: int) -> Network:
    """Blocks of four branches of one to four convolutions."""
    net = Network(random.Random(0))
    u = net.add("stem", [], 1e-3, 6 * MEGA, MEGA)
    for _ in range(count):
        ends = []
        for length in (1, 2, 3, 2):
            v = u
            for _ in range(length):
                v = net.add("conv", [v], net.rng.uniform(5e-5, 3e-4), MEGA, MEGA / 2)
                v = net.add("relu", [v], 1e-5, MEGA)
            ends.append(v)
        u = net.add("concat", ends, 3e-5, 4 * MEGA)
    net.add("loss", [net.add("dense", [u], 1e-4, MEGA / 8, 8 * MEGA)], 1e-5, 64)
    return net


def attention(layers: int) -> Network:
    """Layers of attention with four heads, head by head, and two dense layers, each with a shortcut."""
    net = Network(random.Random(0))
    u = net.add("embedding", [], 3e-5, 2 * MEGA, 48 * MEGA)
    for _ in range(layers):
        ends = []
        for _ in range(4):
            q, k, v = (net.add(name, [u], 4e-5, MEGA / 2, MEGA / 2) for name in ("query", "key", "value"))
            scores = net.add("softmax", [net.add("scores", [q, k], 3e-5, 2 * MEGA)], 2e-5, 2 * MEGA)
            ends.append(net.add("values", [scores, v], 3e-5, MEGA / 2))
        w = net.add("output", [net.add("concat", ends, 1e-5, 2 * MEGA)], 8e-5, 2 * MEGA, 2 * MEGA)
        u = net.add("norm", [net.add("add", [u, w], 1e-5, 2 * MEGA)], 1e-5, 2 * MEGA, 8192)
        w = net.add("gelu", [net.add("dense", [u], 2e-4, 8 * MEGA, 8 * MEGA)], 2e-5, 8 * MEGA)
        w = net.add("dense", [w], 2e-4, 2 * MEGA, 8 * MEGA)
        u = net.add("norm", [net.add("add", [u, w], 1e-5, 2 * MEGA)], 1e-5, 2 * MEGA, 8192)
    net.add("loss", [net.add("logits", [u], 3e-4, 16 * MEGA)], 3e-5, 64)
    return net


def residual(blocks: int) -> Network:
    """Blocks of three convolutions, each with a norm, and a shortcut around them."""
    net = Network(random.Random(0))
    u = net.add("stem", [], 4e-4, 8 * MEGA, MEGA)
    for block in range(blocks):
        size, weight = MEGA * 8 / (1 + block // 4), MEGA / 8 * (1 + block // 4)
        v = u
        for _ in range(3):
            v = net.add("conv", [v], net.rng.uniform(1e-4, 4e-4), size, weight)
            v = net.add("norm", [v], 4e-5, size, 4096)
            v = net.add("relu", [v], 2e-5, size)
        u = net.add("add", [u, v], 2e-5, size)
    net.add("loss", [net.add("dense", [u], 5e-5, MEGA / 8, 8 * MEGA)], 1e-5, 64)
    return net


def gpus(count: int, memory_bytes: float | None = None, cpus: int = 0) -> Topology:
    """Equal GPUs over PCI Express, and CPUs, which are 20 times slower and hold everything."""
    limit = None if memory_bytes is None else int(memory_bytes)
    cards = [_device(f"gpu:{i}", "gpu", limit) for i in range(count)]
    return _joined(*cards, *(_device(f"cpu:{i}", "cpu") for i in range(cpus)))


def alike(kind: str, count: int) -> Topology:
    """Equal devices of a kind, joined as GPUs are."""
    return _joined(*(_device(f"{kind}:{i}", kind) for i in range(count)))


def _device(name: str, kind: str, memory_bytes: int | None = None) -> Device:
    ports = PORT_BYTES_PER_S
    return Device(name, kind, memory_bytes, ingress_bytes_per_s=ports, egress_bytes_per_s=ports)


def _joined(*devices: Device) -> Topology:
    return Topology(devices, (Link("*", "*", LATENCY_S, BYTES_PER_S),), counts_tensors=False)  # as if read from a file
