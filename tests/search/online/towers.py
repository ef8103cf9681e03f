"""Uneven towers: a small graph whose best mapping takes a search, and the link between the devices that run it."""

import numpy as np

from placer.graph.op_graph import Edge, Op, OpGraph
from placer.graph.topology import Link

LINK = Link("*", "*", 2e-4, 1e9, send_s=1.5e-4, send_s_per_byte=5e-10, receive_s=1.5e-4, receive_s_per_byte=5e-10)


def towers(count=3, length=8, seed=1, op_s=(4e-3, 12e-3), memory_bytes=0):
    """Towers of so many uneven ops between a fork and a join; as given here, a step takes about 100 ms on two devices,
    and 190 ms on one. op_s: the least and the most seconds of an op. memory_bytes: of each.
    """
    rng = np.random.default_rng(seed)
    ops, edges = [Op("fork", cost_s={"cpu": 1e-4})], []
    for t in range(count):
        first, costs = len(ops), rng.uniform(*op_s, length)
        ops += [Op(f"tower{t}/{i}", cost_s={"cpu": float(s)}, memory_bytes=memory_bytes) for i, s in enumerate(costs)]
        edges += [Edge(0, first, 10_000), *(Edge(v, v + 1, 10_000) for v in range(first, first + length - 1))]
    ops.append(Op("join", cost_s={"cpu": 1e-4}))
    edges += [Edge((t + 1) * length, len(ops) - 1, 10_000) for t in range(count)]
    return OpGraph("towers", tuple(ops), tuple(edges))
