"""Hostile files: whatever is in them, they are read, or refused in one line; never a traceback, never without end.

`make fuzz` tries a million. What a run finds is written to the line of its failure: put it into a test of its own.
"""

from __future__ import annotations

import os
import random
import signal
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from experiments.campaign.spec import read_spec
from placer.errors import BadInputError
from placer.graph.graph_files import read_graph, read_topology, write_graph, write_topology
from placer.graph.mapping import Mapping
from placer.graph.mapping_files import mapping_file, read_mapping, read_order, write_mapping
from placer.graph.op_graph import Edge, Op, OpGraph
from placer.graph.topology import Device, Link, Topology
from placer.splits.plan import Division, SplitPlan
from placer.splits.plan_files import read_plan, regions_of
from search.exact.bounds import lower_bound
from search.list_scheduling.heft import heft_placement
from search.problem.problem import Problem
from surrogate.scaling.runs import read_runs
from tests.fuzz.mutations import garbled, mutated

INPUTS = int(os.environ.get("PLACER_FUZZ", "50000"))
LATE_S = 30  # for one file of some hundred bytes
LONGEST = 1_000  # characters of a line that somebody reads

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


@dataclass(frozen=True)
class Target:
    """One kind of file: its name, how it is used, how it is made hostile, and how many of INPUTS it gets."""

    file: str
    use: Callable[[Path], Any]
    mutate: Callable[[bytes, random.Random], bytes] = mutated
    share: float = 0.15


def planned(graph: OpGraph, topology: Topology) -> None:
    """What every command does with both: simulate what HEFT gives, and bound it."""
    for objective in ("makespan", "max-load"):
        problem = Problem(graph, topology, objective)
        problem.predict(heft_placement(problem))
        lower_bound(problem)


TARGETS = {
    "graph": Target("graph.json", read_graph),
    "graph, planned": Target("graph.json", lambda path: planned(read_graph(path), TOPOLOGY), share=0.05),
    "topology": Target("topology.json", read_topology),
    "topology, planned": Target("topology.json", lambda path: planned(GRAPH, read_topology(path)), share=0.05),
    "mapping": Target("mapping.json", lambda path: read_mapping(path, GRAPH, TOPOLOGY)),
    "mapping by name": Target(
        "mapping.json", lambda path: read_mapping(path, GRAPH, TOPOLOGY, match_by_name=True), share=0.1
    ),
    "order": Target("mapping.json", lambda path: read_order(path, GRAPH), share=0.1),
    "splits": Target("splits.json", read_plan),
    "campaign": Target("campaign.toml", read_spec, garbled, share=0.1),
    "runs": Target("runs.csv", lambda path: read_runs(path, ["layers", "kernel", "step_s"]), garbled, share=0.1),
}


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Valid files, from which hostile ones are made."""
    folder = tmp_path_factory.mktemp("fuzz")
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
    return folder


@pytest.fixture
def on_time() -> Iterator[None]:
    """Ends what takes too long."""

    def late(*_: Any) -> None:
        raise TimeoutError(f"a file took longer than {LATE_S} s")

    before = signal.signal(signal.SIGALRM, late)
    yield
    signal.alarm(0)
    signal.signal(signal.SIGALRM, before)


def test_the_files_are_valid(folder: Path) -> None:
    for target in TARGETS.values():
        target.use(folder / target.file)


@pytest.mark.slow
@pytest.mark.parametrize("name", TARGETS)
def test_a_hostile_file_is_read_or_refused_in_one_line(name: str, folder: Path, on_time: None) -> None:
    target, rng = TARGETS[name], random.Random(name)
    valid, path = (folder / target.file).read_bytes(), folder / f"hostile-{target.file}"
    refused = 0
    for _ in range(int(INPUTS * target.share)):
        data = target.mutate(valid, rng)
        path.write_bytes(data)
        signal.alarm(LATE_S)
        try:
            target.use(path)
        except BadInputError as error:
            refused += 1
            line = str(error)
            assert line and len(line.splitlines()) == 1 and len(line) < LONGEST, (data, line)
        except Exception as error:
            raise AssertionError(f"{type(error).__name__} ({error}) of {data!r}") from error
    assert refused > 0.1 * INPUTS * target.share
