"""Compiling numba's kernels before a search needs them: on a new machine, compiling takes longer than some searches."""

from __future__ import annotations

from threading import Thread

from placer.graph.coarsen import coarsen
from placer.graph.mapping import Mapping
from placer.graph.op_graph import Edge, Op, OpGraph
from placer.graph.topology import Device, Link, Topology
from placer.result import Measured, Result
from search.session.prediction import Prediction
from search.session.session import SearchSession

LENGTH = 12


def compile_ahead(searchers: tuple[str, ...]) -> Thread:
    """Let these searchers ask for mappings of a small graph in the background; what they compile is cached on disk."""
    thread = Thread(target=_compile, args=(searchers,), daemon=True)
    thread.start()
    return thread


def _compile(searchers: tuple[str, ...]) -> None:
    topology = Topology(
        (Device("gpu:0", "gpu"), Device("cpu:0", "cpu")),
        (Link("*", "*", 1e-5, 1e10, 1e-6, 1e-11, 1e-6, 1e-11),),
        "link",
    )
    prediction = Prediction.profiled(coarsen(_two_chains(), 24, topology), topology, 0.1)
    problem = prediction.problem
    mappings = [problem.mapping(placement) for placement in problem.singles()]
    measured: list[tuple[Mapping, Result]] = []
    for name in ("single", *searchers):
        session = SearchSession(name, problem)
        session.tell(measured)
        asked = mappings if name == "single" else session.ask()
        measured += [(mapping, Measured(prediction.step_s(mapping), 1e-4, 9)) for mapping in asked]
    prediction = prediction.calibrated(measured)
    fine = prediction.groups.expand(measured[-1][0])
    prediction.order_of(fine)
    prediction.bound_s()


def _two_chains() -> OpGraph:
    """Two chains of ops between a fork and a join."""
    cost_s = {"gpu": 1e-3, "cpu": 1e-2}
    ops = [Op(f"v{i}", cost_s=cost_s, memory_bytes=8) for i in range(2 * LENGTH + 2)]
    edges = [Edge(0, 1, 10**6), Edge(0, 2, 10**6), *(Edge(i, i + 2, 10**6) for i in range(1, 2 * LENGTH))]
    return OpGraph("ahead", tuple(ops), tuple(edges))
