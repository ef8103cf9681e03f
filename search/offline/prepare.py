"""Compile what plans need, so that the first plan on a machine does not wait: python -m search.offline.prepare.

The compiled code is kept beside the sources (docs/decisions/013-kernel-cache.md); afterwards this takes seconds.
"""

from __future__ import annotations

import numpy as np

from placer.graph.op_graph import Edge, Op, OpGraph
from placer.graph.topology import Device, Link, Topology
from placer.result import Measured
from search.learned.hybrid import Hybrid, HybridSettings
from search.local.moves import Moves
from search.offline.plan import plan
from search.problem.problem import OBJECTIVES, Problem

OPS = 14


def main() -> None:
    """Plan a small graph for every objective, including what `hybrid` otherwise does only for larger graphs."""
    ops = tuple(Op(f"v{i}", cost_s={"gpu": 1.0 + 7 * i % 5, "cpu": 3.0 + 5 * i % 7}) for i in range(OPS))
    edges = tuple(Edge(i, i + k, 10 * i) for k in (2, 3) for i in range(OPS - k))
    devices = (Device("x", "gpu"), Device("y", "gpu"), Device("z", "cpu"))
    machine = Topology(devices, (Link("*", "*", 0.1, 100.0),))
    for objective in OBJECTIVES:
        problem = Problem(OpGraph("small", ops, edges), machine, objective)
        plan(problem, seconds=0.0)
        searcher = Hybrid(problem, settings=HybridSettings(enumerate=0))
        for _ in range(3):
            mapping = searcher.ask()
            searcher.tell(mapping, Measured(problem.predict(problem.placement(mapping))))
        row = np.zeros(len(problem.units), np.int32)
        Moves(problem).draw(row, [row], 1.0, np.random.default_rng(0))


if __name__ == "__main__":
    main()
