"""The model-only commands: plan a mapping from files, and simulate one. Neither ever loads TensorFlow."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

from experiments.jobs.interrupt import interruptible
from experiments.jobs.search_folder import GROUPS
from placer import __version__
from placer.errors import BadInputError, PlacerError
from placer.graph.graph_files import read_graph, read_topology
from placer.graph.held_memory import Lack, fullest_bytes, most_bytes
from placer.graph.mapping import Mapping
from placer.graph.mapping_files import MappingFile, mapping_file, read_mapping, read_mapping_file
from placer.graph.memory_limits import NO_LIMITS, MemoryLimits
from placer.graph.op_graph import OpGraph
from placer.graph.pins import parse_pin, pinned
from placer.graph.schedules import FIFO, RANK
from placer.graph.topology import Link
from search.defaults import DEFAULT_SEARCHER
from search.offline.plan import Plan, plan
from search.problem.memory_fit import with_tensors
from search.problem.problem import OBJECTIVES, Problem
from search.session.session import LackOf, nothing
from surrogate.costs.cost_matrix import cost_matrix
from surrogate.simulate.max_load import loads
from surrogate.simulate.run_order import run_order
from surrogate.simulate.simulator import Simulator
from surrogate.simulate.timeline import Timeline

UNCOUNTED = "Of memory, only memory_bytes of ops are counted, and no tensors:"
FREE = Link("*", "*", latency_s=0.0, bandwidth_bytes_per_s=float("inf"))


class Planned(NamedTuple):
    """A planned mapping."""

    facts: dict[str, Any]  # what `placer plan --json` prints
    file: MappingFile  # what `--out` writes


class Simulated(NamedTuple):
    """One predicted step."""

    facts: dict[str, Any]  # what `placer simulate --json` prints
    timeline: Timeline


def plan_command(
    graph_path: str | Path,
    topology_path: str | Path,
    objective: str = "makespan",
    searcher: str = DEFAULT_SEARCHER,
    schedule: str = RANK,
    seconds: float = 10.0,
    seed: int = 0,
    pins: Sequence[str] = (),
    max_memory: MemoryLimits = NO_LIMITS,
) -> Planned:
    """Plan a mapping from files. A signal ends the search with the best mapping so far.

    pins: each 'PATTERN=DEVICE', see placer/graph/pins.py. max_memory: lowers the memory of the topology's devices and
    makes the search count tensors, too. By its format, the memory in a topology file limits only `memory_bytes` of ops.
    Raises BadInputError for bad files or options, and PlacerError if no mapping that was asked for fits.
    """
    check_seconds(seconds)
    topology = max_memory.on(read_topology(topology_path))
    graph = pinned(read_graph(graph_path), [parse_pin(pin) for pin in pins], topology)
    problem = Problem(graph, topology, objective, schedule)
    room = counting_tensors(problem) if max_memory.by_device else Room(problem)
    with interruptible(quick=True) as pressed:
        found = plan(room.problem, searcher, seconds, seed, over=pressed, lack=room.lack)
    return planned(found, objective, schedule, seed, room.notes)


class Room(NamedTuple):
    """A problem, and the function that returns the memory which a mapping lacks if tensors are counted, too."""

    problem: Problem
    lack: LackOf = nothing
    notes: tuple[str, ...] = ()


def counting_tensors(problem: Problem) -> Room:
    """The problem in which devices must have memory for all that they hold at once, as simulated. If tensors cannot be
    counted, the problem is unchanged and a note says why.
    """
    graph, headroom = problem.graph, problem.headroom
    if most_bytes(graph) <= min(problem.capacity_bytes):
        return Room(problem)
    if problem.objective == "max-load":
        return Room(problem, notes=(f"{UNCOUNTED} how many batches are under way in a pipeline is not known.",))
    if not any(graph.tensor_bytes.values()):
        return Room(problem, notes=(f"{UNCOUNTED} the graph's edges have no bytes.",))
    roomier = with_tensors(problem, fullest_bytes(graph))
    return Room(roomier, lambda mapping: roomier.simulator.timeline(mapping.devices).lack(headroom))


def check_seconds(seconds: float) -> None:
    """Raises BadInputError unless `seconds` is a number >= 0."""
    if not seconds >= 0:
        raise BadInputError(f"--seconds is {seconds}; give a number >= 0.")


def planned(found: Plan, objective: str, schedule: str, seed: int, notes: Sequence[str] = ()) -> Planned:
    """The facts and the file of a plan. notes: lines to add to the searcher's own notes."""
    timeline = timeline_of(found.mapping, objective, schedule)
    lack = timeline.lack() if objective == "makespan" else None
    facts = {
        **_facts(found.mapping, timeline, objective, schedule, found.value),
        "lower_bound": found.lower_bound,
        "best_single": found.best_single,
        "searcher": found.searcher,
        "evaluations": found.evaluations,
        "seconds": found.seconds,
        "notes": [*(f"{found.searcher}: {note}" for note in found.notes), *notes, *([_over(lack)] if lack else [])],
    }
    order = [] if objective == "max-load" or schedule == FIFO else run_order(timeline)
    return Planned(facts, _file(found, objective, seed, order))


def _over(lack: Lack) -> str:
    """The note on a mapping that lacks memory because the search counted `memory_bytes` of ops alone."""
    limit = f"--max-memory {lack.device}={lack.limit_bytes:.0f}"
    return f"{lack}, as simulated: only memory_bytes of ops were limited; {limit} limits that."


def simulate_command(
    graph_path: str | Path,
    topology_path: str | Path,
    mapping_path: str | Path,
    schedule: str = RANK,
    objective: str = "makespan",
    match_by_name: bool = False,
) -> Simulated:
    """Predict one step. Raises BadInputError for bad files or options."""
    if objective not in OBJECTIVES:
        raise BadInputError(f"the objective {objective!r} is none of {', '.join(OBJECTIVES)}.")
    graph, topology = read_graph(graph_path), read_topology(topology_path)
    try:
        mapping = read_mapping(mapping_path, graph, topology, match_by_name)
    except BadInputError:
        _point_to_groups(Path(mapping_path), graph)
        raise
    timeline = timeline_of(mapping, objective, schedule)
    return Simulated(_facts(mapping, timeline, objective, schedule), timeline)


def _point_to_groups(path: Path, graph: OpGraph) -> None:
    """Raises BadInputError if `path` is of another graph, but the file GROUPS beside it is of `graph`. Then the folder
    is that of a search, and GROUPS is the file to give.
    """
    beside = path.parent / GROUPS
    try:
        given, other = read_mapping_file(path).graph, read_mapping_file(beside).graph
    except PlacerError:
        return
    if given is not None and other is not None and given.fingerprint != graph.fingerprint == other.fingerprint:
        raise BadInputError(f"{path} is of ops, and this graph of their groups; give {beside} instead.")


def _facts(
    mapping: Mapping, timeline: Timeline, objective: str, schedule: str, value: float | None = None
) -> dict[str, Any]:
    """The objective's value, and the load, busy time and memory of each device."""
    costs = cost_matrix(mapping.graph, mapping.topology)
    load = loads(mapping.graph, costs.tolist(), mapping.topology, mapping.devices)
    if value is None:
        value = max(load) if objective == "max-load" else timeline.makespan_s
    devices = {
        name: {
            "load": load[d],
            "busy_s": timeline.busy_s[d],
            "memory_bytes": mapping.memory_bytes[d],
            "memory_peak_bytes": timeline.memory_peak_bytes[d],
        }
        for d, name in enumerate(mapping.topology.names)
    }
    return {"objective": objective, "value": value, "schedule": schedule, "devices": devices}


def timeline_of(mapping: Mapping, objective: str, schedule: str) -> Timeline:
    """The timeline of one step. Max-load needs no links, so with it tensors cross missing links at no cost."""
    topology = mapping.topology
    if objective == "max-load":
        topology = replace(topology, links=(FREE, *topology.links))
    return Simulator(mapping.graph, topology, schedule).timeline(mapping.devices)


def _file(found: Plan, objective: str, seed: int, order: Sequence[str]) -> MappingFile:
    return mapping_file(
        found.mapping,
        objective=objective,
        predicted_s=found.value,
        baseline={} if found.best_single is None else {"best_single": found.best_single},
        lower_bound_s=found.lower_bound,
        seed=seed,
        searcher=found.searcher,
        versions={"placer": __version__},
        order=order,
    )
