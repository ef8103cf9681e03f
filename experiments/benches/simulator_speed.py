"""How fast the simulator, screening and HEFT are, on random layered graphs, and how well screening ranks mappings."""

from __future__ import annotations

import os
import random
import subprocess
import sys
import time
from collections.abc import Callable
from statistics import median

import numpy as np
from numpy.typing import NDArray

from experiments.benches.bench import BenchOptions, Facts
from experiments.benches.taken_options import Takes
from experiments.report.text import markdown_table
from placer.graph.op_graph import Edge, Op, OpGraph
from placer.graph.schedules import SCHEDULES
from placer.graph.topology import CONTENTIONS, Device, Link, Topology
from placer.result import quartiles
from search.list_scheduling.donf import donf
from search.list_scheduling.heft import heft
from search.problem.problem import Problem
from surrogate.simulate.simulator import Simulator

QUESTION = "How long does it take to judge a mapping by simulation, and to plan without a search?"
OPS, EDGES, DEVICES, WIDTH = 1_000, 2_500, 4, 20
LARGER = ((5_000, 12_500, 50), (100_000, 250_000, 300))  # ops, edges, ops per layer
REPEATS = 25
# A repeat takes tens of milliseconds: long compared with the clock's error, short compared with the machine's drift.
MAPPINGS, PLAIN_MAPPINGS, RANKED = 500, 2, 2_000
FIRST_MAKESPAN = """
import time
from experiments.benches.simulator_speed import layered, machine
from surrogate.simulate.simulator import Simulator
simulator = Simulator(layered(50, 100, 5), machine()); ready_s = time.perf_counter()
simulator.makespan([0] * 50); first_s = time.perf_counter()
print(first_s - ready_s)
"""
TAKES = Takes(models=None)


def bench_facts(options: BenchOptions) -> Facts:
    """Measure all figures. Alternatives that are compared are measured in turn."""
    repeats = options.measurements or REPEATS
    graph = layered(OPS, EDGES, WIDTH)
    simulators = {kind: Simulator(graph, machine(kind)) for kind in CONTENTIONS}
    placements = np.random.default_rng(0).integers(0, DEVICES, (MAPPINGS, OPS)).astype(np.int32)
    speeds = _speeds(simulators, placements, repeats)
    heft_s = {OPS: _heft(graph, repeats), **{n: _heft(layered(n, m, w), min(repeats, 7)) for n, m, w in LARGER}}
    free, screening = speeds["none"], _agreement(graph)
    return {
        "us_per_mapping_1000": free["exact_us"]["median"],
        "mappings_per_s_1000": 1e6 / free["all_cores_us"]["median"],
        "us_fixed_order_1000": free["screen_us"]["median"],
        "heft_ms_1000": heft_s[OPS]["heft_s"]["median"] * 1e3,
        "heft_ms_5000": heft_s[5_000]["heft_s"]["median"] * 1e3,
        "heft_s_100000": heft_s[100_000]["heft_s"]["median"],
        "plain_ratio_1000": free["plain_us"]["median"] / free["exact_us"]["median"],
        "by_contention": speeds,
        "by_ops": {str(n): row for n, row in heft_s.items()},
        "screen_kendall_tau": screening["rank"]["near_heft"]["kendall_tau"],
        "screening": screening,
        "first_makespan_s": _first_makespan_s(),
        "cores": len(os.sched_getaffinity(0)),
        "repeats": repeats,
        "seeds": [0, 1],  # of the graphs and the mappings that are timed, and of those that screening ranks
        "mappings": MAPPINGS,
    }


def layered(ops: int, edges: int, width: int, seed: int = 0) -> OpGraph:
    """Layers of `width` ops; each op needs one tensor of the layer before, the other edges span up to 3 layers.

    Costs are uniform from 10 us to 1 ms, tensors from 1 kB to 1 MB.
    """
    rng = random.Random(seed)
    layer = [v // width for v in range(ops)]
    pairs = {(rng.randrange((layer[v] - 1) * width, layer[v] * width), v) for v in range(width, ops)}
    while len(pairs) < edges:
        v = rng.randrange(width, ops)
        pairs.add((rng.randrange(max(0, layer[v] - 3) * width, layer[v] * width), v))
    sizes = [rng.randrange(1_000, 1_000_000) for _ in range(ops)]
    nodes = tuple(Op(f"v{v}", cost_s={"cpu": rng.uniform(1e-5, 1e-3)}) for v in range(ops))
    return OpGraph(f"layered{ops}", nodes, tuple(Edge(u, v, sizes[u]) for u, v in sorted(pairs)))


def machine(contention: str = "none") -> Topology:
    """Equal devices, links of 10 us and 1 GB/s."""
    devices = tuple(Device(f"cpu:{d}", "cpu") for d in range(DEVICES))
    return Topology(devices, (Link("*", "*", 1e-5, 1e9),), contention)


def _speeds(simulators: dict[str, Simulator], placements: NDArray[np.int32], repeats: int) -> dict[str, Facts]:
    """Microseconds a mapping, by contention: exact on one core and on all, screened, and in plain Python."""
    from surrogate.simulate.kernels.event_loop import makespans
    from surrogate.simulate.kernels.fixed_order import screen

    out = np.empty(len(placements))
    plain = placements[:PLAIN_MAPPINGS].tolist()
    many = np.tile(placements, (4, 1))
    seconds: dict[str, dict[str, list[float]]] = {kind: {} for kind in simulators}
    for _ in range(repeats + 1):
        for kind, simulator in simulators.items():
            tables, line, reference = simulator.tables, simulator.line, simulator.reference
            for name, count, call in (
                ("exact_us", len(placements), lambda t=tables: makespans(t, placements, out)),
                ("all_cores_us", len(many), lambda s=simulator: s.makespans(many)),
                ("screen_us", len(placements), lambda s=line: screen(s, placements, out)),
                ("plain_us", len(plain), lambda r=reference: [r.makespan(row) for row in plain]),
            ):
                seconds[kind].setdefault(name, []).append(_timed(call) / count * 1e6)
        print(".", end="", file=sys.stderr, flush=True)
    print(file=sys.stderr)
    return {kind: {name: _spread(values[1:]) for name, values in row.items()} for kind, row in seconds.items()}


def _heft(graph: OpGraph, repeats: int) -> Facts:
    """Seconds of HEFT and Donf with the tables built, and of building them from the graph."""
    heft(Problem(layered(50, 100, 5), machine()))  # compiles
    begin_s = time.perf_counter()
    problem = Problem(graph, machine())
    _ = problem.simulator.tables, problem.limits, problem.ranked  # all that HEFT reads
    tables_s = time.perf_counter() - begin_s
    times = [(_timed(lambda: heft(problem)), _timed(lambda: donf(problem))) for _ in range(repeats)]
    heft_s, donf_s = (_spread(list(column)) for column in zip(*times, strict=True))
    return {"heft_s": heft_s, "donf_s": donf_s, "tables_s": tables_s}


def _agreement(graph: OpGraph) -> dict[str, dict[str, Facts]]:
    """How well screening ranks random mappings, and mappings that agree more or less with HEFT's, by schedule."""
    rng = np.random.default_rng(1)
    anywhere = rng.integers(0, DEVICES, (RANKED, OPS))
    best = np.array(heft(Problem(graph, machine())).devices)
    moved = rng.random((RANKED, OPS)) < rng.random((RANKED, 1))
    populations = {"random": anywhere, "near_heft": np.where(moved, anywhere, best)}
    return {
        schedule: {name: _ranking(Simulator(graph, machine(), schedule), rows) for name, rows in populations.items()}
        for schedule in SCHEDULES
    }


def _ranking(simulator: Simulator, rows: NDArray[np.int64]) -> Facts:
    """Kendall's tau, and the share of the best 1 % by exact makespan that is in the best 10 % by screening."""
    from scipy.stats import kendalltau

    exact, screened = simulator.makespans(rows), simulator.screen(rows)
    best = np.argsort(exact, kind="stable")[: len(rows) // 100]
    kept = np.argsort(screened, kind="stable")[: len(rows) // 10]
    return {
        "kendall_tau": float(kendalltau(exact, screened).statistic),
        "top_1_in_top_10": float(np.isin(best, kept).mean()),
    }


def _first_makespan_s() -> float:
    """Seconds to the first makespan in a new process, with compiled code in the cache."""
    command = [sys.executable, "-c", FIRST_MAKESPAN]
    return median(float(subprocess.run(command, capture_output=True, text=True, check=True).stdout) for _ in range(3))


def _timed(call: Callable[[], object]) -> float:
    begin_s = time.perf_counter()
    call()
    return time.perf_counter() - begin_s


def _spread(values: list[float]) -> Facts:
    low, middle, high = quartiles(values)
    return {"min": min(values), "median": middle, "iqr": high - low}


def headline(facts: Facts) -> str:
    """The speed of exact simulation, beside the wanted speed, and of HEFT."""
    ops = f"{OPS:,} ops and {DEVICES} devices"
    others = " and ".join(
        f"{row['exact_us']['median']:.0f} us with `{kind}`"
        for kind, row in facts["by_contention"].items() if kind != "none"
    )  # fmt: skip
    heft = ", ".join(
        f"{(row['heft_s']['median'] + row['tables_s']) * 1e3:.0f} ms of {int(ops):,}"
        for ops, row in facts["by_ops"].items()
    )
    return (
        f"exact simulation of {ops}: {facts['us_per_mapping_1000']:.0f} us without contention (wanted: 50), {others}; "
        f"{facts['mappings_per_s_1000']:,.0f} a second on {facts['cores']} cores (wanted: 40,000); HEFT with its "
        f"tables, by ops: {heft}"
    )


def page_lines(facts: Facts) -> list[str]:
    """Speed by contention, HEFT by size, and the agreement of screening."""
    speeds = [
        [kind, *(_us(row[name]) for name in ("exact_us", "all_cores_us", "screen_us", "plain_us")),
         f"{row['plain_us']['median'] / row['exact_us']['median']:.0f}"]
        for kind, row in facts["by_contention"].items()
    ]  # fmt: skip
    schedulers = [
        [f"{int(ops):,}", *(f"{row[name]['median'] * 1e3:.2f} ms" for name in ("heft_s", "donf_s")),
         f"{row['tables_s'] * 1e3:.0f} ms"]
        for ops, row in facts["by_ops"].items()
    ]  # fmt: skip
    agreement = [
        [schedule, name, f"{row['kendall_tau']:.2f}", f"{row['top_1_in_top_10']:.0%}"]
        for schedule, rows in facts["screening"].items()
        for name, row in rows.items()
    ]
    return [
        f"Random layered graphs, {OPS:,} ops, {EDGES:,} edges, {DEVICES} devices, schedule `rank`, random mappings. "
        f"Microseconds a mapping: medians of {facts['repeats']} repeats in turn, with the interquartile range. "
        "*Contention*: whether transfers wait for each other (`none`: never; `link`: on one link; `port`: at one "
        "device). *Fixed order*: a faster estimate that takes the ops in one order for all mappings; searchers may "
        "screen mappings by it, and judge the best of them exactly.",
        "",
        *markdown_table(
            ("contention", "exact, one core", f"exact, {facts['cores']} cores", "fixed order", "plain Python", "ratio"),
            speeds,
        ),
        "",
        f"All cores: {facts['mappings_per_s_1000']:,.0f} mappings/s. First makespan of a process: "
        f"{facts['first_makespan_s'] * 1e3:.0f} ms.",
        "",
        *markdown_table(("ops", "HEFT", "Donf", "tables from the graph, once"), schedulers, left=()),
        "",
        "How well screening agrees with exact simulation, on random mappings and on HEFT's with some ops moved "
        "(`near_heft`):",
        "",
        *markdown_table(
            ("schedule", "mappings", "Kendall tau of screening", "of the best 1 % in the screened best 10 %"),
            agreement,
            left=(0, 1),
        ),
    ]


def _us(spread: Facts) -> str:
    return f"{spread['median']:.1f} +- {spread['iqr']:.1f}"
