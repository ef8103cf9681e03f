"""The files that Placer reads: a valid file of each kind, how it is made hostile, and the function that reads it."""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from experiments.campaign.spec import read_spec
from experiments.fuzz.judge import Draw, Input, Target
from experiments.fuzz.mutations import garbled, mutated
from experiments.jobs.scale import prediction_facts
from placer.graph.graph_files import read_graph, read_topology, write_graph, write_topology
from placer.graph.mapping import Mapping
from placer.graph.mapping_files import mapping_file, read_mapping, write_mapping
from placer.graph.op_graph import Edge, Op, OpGraph
from placer.graph.topology import Device, Link, Topology
from placer.profile.operators.dataset import Operator, OperatorRow, Tensor, export, load
from placer.splits.plan import Division, SplitPlan
from placer.splits.plan_files import read_plan, regions_of
from search.exact.bounds import lower_bound
from search.list_scheduling.heft import heft_placement
from search.problem.problem import Problem
from surrogate.scaling.files import read_scaling, write_scaling
from surrogate.scaling.form import Coding, Form
from surrogate.scaling.model import ScalingModel
from surrogate.scaling.runs import read_runs

GRAPH = OpGraph(
    "three",
    (
        Op("a", "Conv2D", {"gpu": 1e-3, "cpu": 1e-2}, 100, "a"),
        Op("b", "Relu", {"gpu:1": 1e-4, "cpu": 1e-3}),
        Op("c", "Loss", {"cpu": 1e-5}, devices=("cpu",)),
    ),
    (Edge(0, 1, 4_000), Edge(1, 2, 4), Edge(0, 2, 8, 1)),
)
TOPOLOGY = Topology(
    (Device("gpu:0", "gpu", 10_000, 2.0, 1e9, 1e9), Device("gpu:1", "gpu", 10_000), Device("cpu:0", "cpu")),
    (Link("*", "*", 1e-5, 1e9), Link("gpu:0", "gpu:1", 1e-6, 1e10, 1e-6, 1e-9, 1e-6, 1e-9)),
    "link",
)
SPEC = b"""format = "placer.campaign/1"
searchers = ["random", "local"]
seeds = [0, 1]
measurements = [2, 5]
[[predicted]]
graphs = ["graph.json"]
topologies = ["topology.json"]
objective = "makespan"
"""
RUNS = b"layers,kernel,step_s\n" + b"".join(b"%d,%d,%f\n" % (i, i % 3, 0.1 * i) for i in range(1, 9))
COLUMNS = ["layers", "kernel", "step_s"]  # of RUNS
TENSOR = Tensor((8, 4), "float32")
ROW = OperatorRow(
    Operator("MatMul", (TENSOR, TENSOR), (TENSOR,), {"transpose_a": False}, 64.0),
    "cpu:0", "cpu", "machine", 8, "net", "forward", "step", 1e-3, 9e-4, 2e-4, 5,
)  # fmt: skip
CODING = Coding(Form.parse("layers", "kernel"), {}, {"layers": 4.0, "kernel": 1.0})
MODEL = ScalingModel(
    coding=CODING, target="step_s", scale=0.1, constants=np.ones(len(CODING.names)),
    samples=np.ones((2, len(CODING.names))), errors=np.array([0.01, 0.02]), bounds=(-3.0, 3.0),
    ranges={"layers": (1.0, 8.0), "kernel": (1.0, 3.0)}, usual={"layers": 4.0, "kernel": 1.0}, rows=8, penalty="l2",
    weight=0.1, seed=0, mape=0.1, mape_cv=0.1,
)  # fmt: skip


def write_valid(folder: Path) -> None:
    """Write a valid file of each kind: graph.json, topology.json, mapping.json, splits.json, campaign.toml, runs.csv,
    operators.csv, scaling.json.
    """
    write_graph(folder / "graph.json", GRAPH)
    write_topology(folder / "topology.json", TOPOLOGY)
    mapping = Mapping.of(GRAPH, TOPOLOGY, {"a": "gpu:0", "b": "gpu:1", "c": "cpu:0"})
    write_mapping(folder / "mapping.json", mapping_file(mapping, objective="makespan", order=["a", "b", "c"]))
    plan = SplitPlan({"a": Division("batch", 4), "b": Division("batch", 4)}, 2)
    write_mapping(
        folder / "splits.json", mapping_file(mapping, objective="makespan", splits=regions_of(plan), in_flight=2)
    )
    (folder / "campaign.toml").write_bytes(SPEC)
    (folder / "runs.csv").write_bytes(RUNS)
    export([ROW], folder / "operators.csv")
    write_scaling(folder / "scaling.json", MODEL)


def planned(graph: OpGraph, topology: Topology) -> None:
    """Do what commands do with a graph and a topology: simulate HEFT's placement, and compute the lower bound."""
    for objective in ("makespan", "max-load"):
        problem = Problem(graph, topology, objective)
        problem.predict(heft_placement(problem))
        lower_bound(problem)


Mutate = Callable[[bytes, random.Random], bytes]


@dataclass(frozen=True)
class HostileFile:
    """One kind of file. name: of the valid file. use: reads a file. mutate: makes a valid file's bytes hostile."""

    name: str
    use: Callable[[Path], Any]
    share: float = 0.15
    mutate: Mutate = mutated

    def opened(self, folder: Path) -> tuple[bytes, Callable[[bytes], Input]]:
        """The valid file's bytes, and a function that writes any bytes to a file in `folder`, as an input."""
        write_valid(folder)
        path = folder / f"hostile-{self.name}"
        self.use(folder / self.name)  # the valid file must be readable, or nothing would be tested

        def given(data: bytes) -> Input:
            path.write_bytes(data)
            return Input(data, lambda: self.use(path))

        return (folder / self.name).read_bytes(), given

    def begin(self, folder: Path) -> Draw:
        """Return what draws hostile files."""
        valid, given = self.opened(folder)
        return lambda rng: given(self.mutate(valid, rng))


HOSTILE = {
    "graph": HostileFile("graph.json", read_graph),
    "graph, planned": HostileFile("graph.json", lambda path: planned(read_graph(path), TOPOLOGY), 0.05),
    "topology": HostileFile("topology.json", read_topology),
    "topology, planned": HostileFile("topology.json", lambda path: planned(GRAPH, read_topology(path)), 0.05),
    "mapping": HostileFile("mapping.json", lambda path: read_mapping(path, GRAPH, TOPOLOGY)),
    "mapping by name": HostileFile(
        "mapping.json", lambda path: read_mapping(path, GRAPH, TOPOLOGY, match_by_name=True), 0.1
    ),
    "splits": HostileFile("splits.json", read_plan),
    "campaign": HostileFile("campaign.toml", read_spec, 0.1, garbled),
    "operators": HostileFile("operators.csv", load, 0.05, garbled),
    "scaling": HostileFile("scaling.json", lambda path: prediction_facts(read_scaling(path), {}, None, [], 0.05), 0.05),
    "runs": HostileFile("runs.csv", lambda path: read_runs(path, COLUMNS), 0.1, garbled),
}
FILES = {name: Target(kind.begin, share=kind.share) for name, kind in HOSTILE.items()}
