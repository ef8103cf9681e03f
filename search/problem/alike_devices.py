"""Devices that are alike: they differ only in their names."""

from __future__ import annotations

from collections.abc import Sequence

from placer.graph.topology import Topology
from surrogate.costs.cost_matrix import Costs


def alike_devices(topology: Topology, costs: Costs, capacity_bytes: Sequence[float]) -> tuple[int, ...]:
    """Return for each device the first one that is alike. costs: [ops, devices]. capacity_bytes: [devices], the most
    bytes that each may hold.
    """

    def is_like(a: int, b: int) -> bool:
        return (
            bool((costs[:, a] == costs[:, b]).all())
            and capacity_bytes[a] == capacity_bytes[b]
            and _ports(topology, a) == _ports(topology, b)
            and _have_like_links(topology, a, b)
        )

    first: list[int] = []
    for d in range(len(topology)):
        first.append(next((a for a in first if is_like(a, d)), d))
    return tuple(first)


def _have_like_links(topology: Topology, a: int, b: int) -> bool:
    """Whether all links stay the same if devices a and b exchange their names."""
    others = [d for d in range(len(topology)) if d not in (a, b)]
    pairs = [(a, b, b, a), *((a, d, b, d) for d in others), *((d, a, d, b) for d in others)]
    return all(_link(topology, s, d) == _link(topology, s2, d2) for s, d, s2, d2 in pairs)


def _ports(topology: Topology, d: int) -> Sequence[float | None]:
    device = topology.devices[d]
    return device.ingress_bytes_per_s, device.egress_bytes_per_s


def _link(topology: Topology, src: int, dst: int) -> Sequence[float] | None:
    """Return a link's numbers without its device names; None if there is no link."""
    link = topology.table[src][dst]
    if link is None:
        return None
    way = (link.latency_s, link.bandwidth_bytes_per_s, link.send_s, link.send_s_per_byte)
    return (*way, link.receive_s, link.receive_s_per_byte)
