"""Devices that are alike: they differ only in their names."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from placer.graph.topology import Topology
from surrogate.costs.cost_matrix import Costs
from surrogate.simulate.kernels.arrays import links_of

UNLIMITED = -1.0  # stands for a rate that is not given


def alike_devices(topology: Topology, costs: Costs, capacity_bytes: Sequence[float]) -> tuple[int, ...]:
    """Return for each device the first one that is alike. costs: [ops, devices]. capacity_bytes: [devices], the most
    bytes that each may hold.
    """
    ports = [(device.ingress_bytes_per_s, device.egress_bytes_per_s) for device in topology.devices]
    rates = np.array([[UNLIMITED if rate is None else rate for rate in pair] for pair in ports])
    return first_alike(links_of(topology), np.vstack([costs, np.array(capacity_bytes), rates.T]))


def first_alike(link: NDArray[np.float64], own: NDArray[np.float64]) -> tuple[int, ...]:
    """Return for each device the first one with the same numbers, with which it can exchange its links. link: [6,
    devices, devices], see `links_of`. own: [numbers, devices].
    """
    by_sender, by_receiver = (np.ascontiguousarray(link.transpose(axes)) for axes in ((1, 0, 2), (2, 0, 1)))
    links = np.sort(by_sender, axis=2)  # devices that can exchange their links have the same ones in another order
    first: dict[bytes, list[int]] = {}
    found: list[int] = []
    for d, numbers in enumerate(np.ascontiguousarray(own.T)):
        like = first.setdefault(numbers.tobytes() + links[d].tobytes(), [])
        found.append(next((a for a in like if all(_exchange(ends, a, d) for ends in (by_sender, by_receiver))), d))
        if found[d] == d:
            like.append(d)
    return tuple(found)


def _exchange(ends: NDArray[np.float64], a: int, b: int) -> bool:
    """Whether the links to or from device a, [6, others], are those of b if both exchange their names."""
    exchanged = ends[a].copy()
    exchanged[:, [a, b]] = exchanged[:, [b, a]]
    return np.array_equal(exchanged, ends[b])
