"""The predicted load of each device under a mapping: what it has to do and to hold."""

from __future__ import annotations

from search.page.record import DeviceLoad
from surrogate.simulate.timeline import Timeline


def loads_of(after: Timeline, before: Timeline | None = None) -> tuple[DeviceLoad, ...]:
    """Return the load of each device of the topology. before: the step on the best single device."""
    memory = [0] * len(after.topology)
    for op, d in zip(after.graph.ops, after.devices, strict=True):
        memory[d] += op.memory_bytes
    return tuple(
        DeviceLoad(
            device.name, device.kind, after.devices.count(d), after.busy_s[d], memory[d], after.memory_peak_bytes[d],
            device.memory_bytes, None if before is None else before.busy_s[d],
        )
        for d, device in enumerate(after.topology.devices)
    )  # fmt: skip
