"""`placer plan` of a model that was never profiled: traced without running, its ops' times predicted, then planned."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

from experiments import zoo
from experiments.jobs.interrupt import interruptible
from experiments.jobs.operator_store import OperatorStore
from experiments.jobs.plan import Planned, Room, check_seconds, counting_tensors, planned
from experiments.jobs.search.stages import check_several
from placer.errors import BadInputError, short
from placer.graph.coarsen import Groups, coarsen
from placer.graph.defaults import GROUPS, HEADROOM
from placer.graph.graph_files import is_graph_file, read_topology
from placer.graph.memory_limits import NO_LIMITS, MemoryLimits
from placer.graph.op_graph import OpGraph
from placer.graph.pins import parse_pin, pinned
from placer.graph.schedules import RANK, check_schedule
from placer.graph.topology import Topology
from search.defaults import DEFAULT_SEARCHER
from search.exact.bounds import lower_bound
from search.offline.plan import Plan, plan
from search.problem.problem import OBJECTIVES, Problem
from search.session.prediction import Prediction
from search.session.registry import searcher_type

if TYPE_CHECKING:
    from placer.trace.capture import Captured


@dataclass(frozen=True)
class ModelToPlan:
    """A model, the devices to place it on, and the store of op times from which its costs are predicted."""

    model: str  # as experiments.zoo.load takes it
    operators: Path
    topology: Path | None = None  # a topology file; None = the devices of `devices`, whose links are measured
    devices: str | None = None  # as placer.devices.opening.open_devices takes it
    batch: int | None = None  # examples per step; None = the network's own
    pins: tuple[str, ...] = ()
    max_memory: MemoryLimits = NO_LIMITS  # lowers the memory of devices

    def check(self) -> None:
        """Raises BadInputError for what can be refused before anything is traced."""
        if is_graph_file(self.model):
            raise BadInputError(
                f"{self.model}: a graph file has no shapes, by which times are predicted; name the model itself, or "
                "leave out --costs predicted where the file has costs."
            )
        if self.topology is not None and self.devices is not None:
            raise BadInputError("TOPOLOGY and --workers or --devices both name the devices; give one of them.")
        zoo.find(self.model)
        for pin in self.pins:
            parse_pin(pin)


def plan_model(
    wanted: ModelToPlan,
    objective: str = "makespan",
    searcher: str = DEFAULT_SEARCHER,
    schedule: str = RANK,
    seconds: float = 10.0,
    seed: int = 0,
    clock: Callable[[], float] = time.perf_counter,
) -> Planned:
    """Plan a model with predicted costs; the model never runs. The mapping is of the step's ops, for `placer.place`.

    A signal ends the search with the best mapping so far. Raises BadInputError for a model, topology, devices, store or
    options that cannot be used, and PlacerError if there is only one device.
    """
    begin_s = clock()
    wanted.check()
    _check_options(objective, searcher, schedule, seconds)
    store = OperatorStore.read(wanted.operators, wanted.devices)
    topology, graph = _predicted(wanted, store, seed)
    groups = coarsen(pinned(graph, [parse_pin(pin) for pin in wanted.pins], topology), GROUPS, topology)
    room = _room(groups, topology, objective, schedule)
    prepared_s = clock() - begin_s
    with interruptible(quick=True) as pressed:
        found = plan(room.problem, searcher, seconds, seed, over=pressed, lack=room.lack)
    facts, file = planned(_of_ops(found, groups, room), objective, schedule, seed, room.notes)
    counts = {"model": wanted.model, "ops": len(graph), "groups": len(groups.graph)}
    notes = [graph.source, *facts["notes"]]
    return Planned({**counts, **facts, "prepared_s": prepared_s, "notes": notes}, file)


def _check_options(objective: str, searcher: str, schedule: str, seconds: float) -> None:
    """Raises BadInputError, before anything is traced, for options that a search would refuse."""
    check_seconds(seconds)
    searcher_type(searcher)
    check_schedule(schedule)
    if objective not in OBJECTIVES:
        raise BadInputError(f"the objective {short(objective)} is none of {', '.join(OBJECTIVES)}.")


def _room(groups: Groups, topology: Topology, objective: str, schedule: str) -> Room:
    """The problem of placing the groups, and the function that returns the memory which a mapping lacks."""
    if objective == "makespan":
        prediction = Prediction.profiled(groups, topology, HEADROOM, schedule)  # counts the memory of single ops
        return Room(prediction.problem, prediction.lack)
    return counting_tensors(Problem(groups.graph, topology, objective=objective, schedule=schedule, headroom=HEADROOM))


def _of_ops(found: Plan, groups: Groups, room: Room) -> Plan:
    """The plan of ops instead of groups: its mapping, or a single device if that is predicted to be faster op by op."""
    problem = room.problem
    ops = Problem(
        groups.fine, problem.topology, objective=problem.objective, schedule=problem.schedule, headroom=HEADROOM
    )
    singles = (
        mapping for mapping in map(problem.mapping, problem.of_variables.singles()) if room.lack(mapping) is None
    )
    coarse = [found.mapping, *singles]
    mappings = [groups.expand_mapping(mapping) for mapping in coarse]
    values = ops.predict_many([ops.placement(mapping) for mapping in mappings]).tolist()
    value, best = min(zip(values, range(len(values)), strict=True))
    single = min(values[1:], default=None)
    return replace(found, mapping=mappings[best], value=value, lower_bound=lower_bound(ops), best_single=single)


def _predicted(wanted: ModelToPlan, store: OperatorStore, seed: int) -> tuple[Topology, OpGraph]:
    """The devices, and the model's ops with their predicted costs on them."""
    if wanted.topology is not None:
        topology = replace(wanted.max_memory.on(read_topology(wanted.topology)), counts_tensors=True)
        return topology, store.on_topology(_captured(wanted, seed), topology).graph
    from placer.devices.logical import split
    from placer.devices.opening import open_devices
    from placer.devices.specs import check_spec

    check_spec(wanted.devices)
    split(wanted.devices)  # before the model's variables are made
    captured = _captured(wanted, seed)
    with open_devices(wanted.devices, deadlines=True, max_memory=wanted.max_memory) as devices:
        check_several(devices.topology)
        return devices.topology, store.on_devices(captured, devices).graph


def _captured(wanted: ModelToPlan, seed: int) -> Captured:
    from placer.trace.capture import capture

    training = zoo.load(wanted.model, batch=wanted.batch, seed=seed)
    return capture(training.step, training.example_inputs, training.name)
