"""Carrying over: the mapping of a step for another capture of it, whose ops have mostly the same names."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from placer.graph import Op, OpGraph
from placer.mapping_files import carried_over
from placer.topology import Topology
from search.memory import fitted
from search.prediction import SCHEDULE, Prediction
from search.problem import Problem
from surrogate.calibration import Predictor, launches
from surrogate.run_order import run_order
from surrogate.simulator import Simulator


def carried(
    prediction: Prediction, assignment: Mapping[str, str], graph: OpGraph
) -> tuple[tuple[int, ...], tuple[str, ...], float]:
    """(device of each op of `graph`, run order, predicted seconds), by `assignment`, {op name: device name}.

    An op without a namesake goes where the neighbour is that it shares most bytes with. What does not fit into memory,
    or cannot run where its namesake does, is moved to where it costs least. Raises BadInputError where no op has a
    namesake, or nothing fits.
    """
    topology = prediction.topology
    costed = _costed(graph, prediction.groups.fine, topology)
    by_name = carried_over(graph.name, dict(assignment), costed, topology)
    simulator = Simulator(costed, topology, SCHEDULE)
    fine = Predictor(simulator, launches(costed), prediction.fine.calibration)
    problem = Problem(costed, topology, schedule=SCHEDULE, headroom=prediction.headroom, cost_s=fine.simulator.costs)
    wanted = [topology.index[by_name[costed.ops[unit[0]].name]] for unit in problem.units]
    able = [
        d if d in can else min(can, key=lambda f: costs[f])
        for d, can, costs in zip(wanted, problem.feasible, problem.unit_cost_s, strict=True)
    ]
    devices = problem.devices(fitted(problem, able))
    order = () if len(set(devices)) == 1 else tuple(run_order(fine.simulator.timeline(devices)))
    return devices, order, float(fine.step_s([devices])[0])


def _costed(graph: OpGraph, known: OpGraph, topology: Topology) -> OpGraph:
    """`graph` with a cost for every op: its own, else its namesake's by their work, else nothing."""
    ops = tuple(op if op.cost_s else replace(op, cost_s=_cost_s(op, known, topology)) for op in graph.ops)
    return OpGraph(graph.name, ops, graph.edges, graph.source)


def _cost_s(op: Op, known: OpGraph, topology: Topology) -> dict[str, float]:
    """Seconds by device name, before speed."""
    if op.name not in known.index:
        return {d.name: 0.0 for d in topology.devices if op.devices is None or op.runs_on(d)}
    namesake = known.ops[known.index[op.name]]
    work = op.flops / namesake.flops if op.flops and namesake.flops else 1.0
    return {d.name: namesake.cost_on(d) * d.speed * work for d in topology.devices if namesake.runs_on(d)}
