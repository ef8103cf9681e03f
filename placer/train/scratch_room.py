"""Whether devices have memory for a scratch run beside what they hold already."""

from __future__ import annotations

import numpy as np

from placer.devices.memory_room import short_of_room
from placer.execute.outputs import attempted, no_room
from placer.graph.held_memory import peaks_in_order, worst_lack
from placer.graph.mapping import Mapping
from placer.graph.op_graph import OpGraph
from placer.result import Failed
from placer.train.device_session import DeviceSession
from placer.train.joined_step import JoinedStep
from placer.train.steps.modes import Wanted


def room_beside(
    session: DeviceSession, joined: JoinedStep, graph: OpGraph, wanted: Wanted, running: Mapping | None
) -> dict[str, float] | Failed:
    """Return device name -> bytes that it would hold during a scratch run of `wanted`, or Failed if a device has no
    room for them. The scratch variables of earlier runs are dropped.

    graph: of the step that is tried. running: the mapping of the placed step that trains meanwhile.
    """
    names = joined.topology.names
    need = _needed_bytes(session, joined, graph, wanted, running)
    if (lack := worst_lack(joined.topology, need)) is not None:
        return Failed("memory", f"{lack}, while it is tried beside what is there.")
    at_once = dict(zip(names, need, strict=True))
    joined.scratch_run.forget_variables()
    peaks = dict(zip(names, peaks_in_order(graph, wanted.op_devices, len(names)), strict=True))
    present = session.present
    lacking = attempted(lambda: short_of_room(present, peaks))
    return no_room(lacking, at_once[lacking]) if isinstance(lacking, str) else at_once


def _needed_bytes(
    session: DeviceSession, joined: JoinedStep, graph: OpGraph, wanted: Wanted, running: Mapping | None
) -> list[float]:
    """Bytes on each device for a scratch run, the replicas held there, and the step that runs meanwhile."""
    topology = joined.topology
    need = np.array(peaks_in_order(graph, wanted.op_devices, len(topology)))
    there, tf_names = session.replicas.held_bytes(), session.present.tf_names
    need += [there.get(tf_names.get(name, ""), 0) for name in topology.names]
    if running is not None:
        need += np.array(peaks_in_order(running.graph, running.devices, len(topology))) - running.memory_bytes
    found: list[float] = need.tolist()
    return found
