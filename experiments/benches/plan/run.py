"""How good the plans of `hybrid` are after 1, 10 and 60 seconds, beside list schedulers, `local` and cuts of a line."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import asdict, dataclass, replace
from functools import cache, partial
from statistics import median

import numpy as np

from experiments import zoo
from experiments.benches.bench import BenchOptions, Facts, say
from experiments.benches.kept_runs import kept
from experiments.benches.plan.graphs import alike, attention, cells, gpus, inception, residual
from experiments.benches.process import alone, tried
from experiments.benches.simulator_speed import layered
from experiments.benches.taken_options import Takes
from placer.errors import BadInputError, PlacerError
from placer.graph.op_graph import OpGraph
from placer.graph.topology import Topology
from search.exact.bounds import lower_bound
from search.initial.contiguous import contiguous_placements
from search.list_scheduling.cpop import cpop
from search.list_scheduling.donf import donf
from search.list_scheduling.heft import heft
from search.list_scheduling.list_scheduler import Schedule, repaired
from search.list_scheduling.peft import peft
from search.offline.plan import plan
from search.problem.problem import Problem

SECONDS = (1, 10, 60)
PEER_SECONDS = 10
TIGHT = 1.35  # memory of all GPUs together divided by what the graph holds, if memory is tight
LIST_SCHEDULERS: dict[str, Callable[[Problem], Schedule]] = {"heft": heft, "peft": peft, "cpop": cpop, "donf": donf}
FLOPS_PER_S, BYTES_PER_S = 8e12, 5e11  # of the GPU whose costs captured graphs get, LAUNCH_S added
LAUNCH_S = 5e-6

MADE: dict[str, Callable[[], OpGraph]] = {
    "cells-1800": lambda: cells(17).step("cells-1800"),
    "cells-2500": lambda: cells(24, seed=1).step("cells-2500"),
    "inception-650": lambda: inception(19).step("inception-650"),
    "layered-1000": lambda: layered(1000, 2500, 20),
    "attention-1200": lambda: attention(14).step("attention-1200"),
    "attention-300": lambda: attention(12).inference("attention-300"),
    "residual-800": lambda: residual(30).step("residual-800"),
    "residual-400": lambda: residual(40).inference("residual-400"),
}


@dataclass(frozen=True)
class Case:
    """A graph on `devices` equal GPUs."""

    graph: str  # one of MADE, or a network of the zoo, whose costs are then those of a GPU by FLOPs and bytes
    devices: int
    objective: str = "makespan"
    tight: bool = False  # whether memory is tight; then a CPU beside the GPUs holds everything

    @property
    def name(self) -> str:
        memory = "-tight" if self.tight else ""
        return f"{self.graph}-{self.devices}-{self.objective}{memory}"

    def problem(self) -> Problem:
        graph = graph_called(self.graph)
        held = sum(op.memory_bytes for op in graph.ops) * TIGHT / self.devices
        return Problem(graph, _machine(graph, self.devices, held if self.tight else None), self.objective)


CASES = (
    *(Case(name, 4) for name in ("cells-1800", "cells-2500", "inception-650", "layered-1000")),
    Case("cells-2500", 8),
    Case("residual-800", 2),
    Case("attention-1200", 8),
    Case("inception-650", 4, tight=True),
    Case("resnet50", 4),
    Case("transformer", 4),
    Case("attention-1200", 3, "max-load", tight=True),
    Case("attention-300", 6, "max-load", tight=True),
    Case("residual-400", 4, "max-load", tight=True),
    Case("residual-800", 6, "max-load"),
    Case("cells-1800", 4, "max-load", tight=True),
    Case("resnet50", 3, "max-load", tight=True),
)


def _known(name: str) -> None:
    """Raise BadInputError for a graph that no case has."""
    known = dict.fromkeys(case.graph for case in CASES)
    if name not in known:
        raise BadInputError(f"--model {name!r}: plan knows {', '.join(known)}.")


TAKES = Takes(models=_known, runs=True)


def bench_facts(options: BenchOptions) -> Facts:
    """Plan every case; with --model, only cases of these graphs. With --runs, no case is planned twice.

    Each plan is a run of its own, because what a search has found when it is stopped is not what it would have found
    on the way to a later stop. Raises PlacerError if no case could be planned.
    """
    cases = [case for case in CASES if options.models is None or case.graph in options.models]
    rows = []
    for case in cases:
        settings = {**asdict(case), "seconds": list(SECONDS), "peer_seconds": PEER_SECONDS}
        row = kept(options, f"plan/{case.name}", settings, partial(tried, partial(planned, case)))
        rows.append({"case": case.name, **row})
        say(f"{case.name}: {_outcome(row)}")
    ran = [row for row in rows if "failed" not in row]
    if not ran:
        raise PlacerError(f"no graph could be planned: {rows[0]['failed']}")
    return {
        "cases": rows,
        "worst_vs_peer": max(row["over_bound_10s"] / row["best_peer"] for row in ran),
        "median_first_s": median(row["first_s"] for row in ran),
        "seconds": list(SECONDS),
        "peer_seconds": PEER_SECONDS,
        "seeds": [0],
        "repeats": 1,  # of each plan
    }


def planned(case: Case) -> Facts:
    """What `placer plan` and the other methods find, all divided by the same lower bound."""
    problem = case.problem()
    found = {f"after_{seconds}s": plan(problem, seconds=seconds) for seconds in SECONDS}
    local = plan(problem, "local", seconds=PEER_SECONDS)
    bound_s = max(lower_bound(problem), *(p.lower_bound for p in found.values()), local.lower_bound)
    peers = {
        **{name: problem.predict(repaired(problem, rule(problem))) for name, rule in LIST_SCHEDULERS.items()},
        "local": local.value,
    }
    cuts = list(contiguous_placements(problem)) if case.objective == "max-load" else []
    if cuts:
        peers["cut"] = min(problem.predict(placement) for placement in cuts)
    best = min(peers, key=lambda name: peers[name])
    searches = {**{f"hybrid_{seconds}s": found[f"after_{seconds}s"] for seconds in SECONDS}, "local": local}
    return {
        "graph": case.graph,
        "ops": len(problem.graph),
        "devices": case.devices,
        "objective": case.objective,
        "tight": case.tight,
        "bound_s": bound_s,
        **{f"over_bound_{seconds}s": found[f"after_{seconds}s"].value / bound_s for seconds in SECONDS},
        "best_peer": peers[best] / bound_s,
        "best_peer_name": best,
        "peers": {name: value / bound_s for name, value in peers.items()},
        "took_s": {name: search.seconds for name, search in searches.items()},
        "evaluations_per_s": found["after_10s"].evaluations / found["after_10s"].seconds,
        "first_s": _first_s(problem),
    }


def graph_called(name: str) -> OpGraph:
    """The graph of this name: made by rule, or a network of the zoo."""
    return MADE[name]() if name in MADE else _captured(name)


@cache
def _captured(model: str) -> OpGraph:
    """A zoo network's step, traced in a process of its own, with the costs that a GPU might have."""
    return alone(gpu_like, model)


def gpu_like(model: str) -> OpGraph:
    """A zoo network's step. An op takes LAUNCH_S and the time of its FLOPs or of its bytes, whichever is longer."""
    from placer.trace.capture import capture

    zoo.find(model)
    training = zoo.load(model)
    graph = capture(training.step, training.example_inputs, training.name).graph
    moved = np.zeros(len(graph))
    for e in graph.edges:
        moved[[e.src, e.dst]] += e.edge_bytes
    ops = [
        replace(op, cost_s={"gpu": (cost_s := LAUNCH_S + max((op.flops or 0) / FLOPS_PER_S, nbytes / BYTES_PER_S)),
                            "cpu": 20 * cost_s}, devices=None)
        for op, nbytes in zip(graph.ops, moved.tolist(), strict=True)
    ]  # fmt: skip
    return replace(graph, ops=tuple(ops))


def _machine(graph: OpGraph, devices: int, memory_bytes: float | None) -> Topology:
    """GPUs, with a CPU beside them if memory is tight; or `devices` CPUs, if no op has a cost on GPUs."""
    if not any("gpu" in op.cost_s for op in graph.ops):
        return alike("cpu", devices)
    return gpus(devices, memory_bytes, cpus=0 if memory_bytes is None else 1)


def _first_s(problem: Problem) -> float:
    """Seconds until there is a mapping, tables included."""
    fresh = Problem(problem.graph, problem.topology, problem.objective)
    begin_s = time.perf_counter()
    repaired(fresh, heft(fresh))
    return time.perf_counter() - begin_s


def _outcome(row: Facts) -> str:
    if "failed" in row:
        return f"failed: {row['failed']}"
    after = ", ".join(f"{row[f'over_bound_{seconds}s']:.3f}" for seconds in SECONDS)
    return f"{after} of the bound; best peer {row['best_peer']:.3f} ({row['best_peer_name']})"
