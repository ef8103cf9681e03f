"""Finds the nodes of a Ray cluster and reserves whole nodes, so that no other work shares their CPUs and GPUs."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations, islice
from typing import Any, Protocol

from placer.devices.ray.spec import RaySpec
from placer.errors import BadInputError, PlacerError

RESERVE_S = 20.0
# How many choices of node sizes are requested one after the other, and from how many combinations of nodes they come.
MOST_CHOICES, MOST_LOOKED_AT = 8, 10_000


@dataclass(frozen=True)
class Node:
    """A node as Ray knows it. host: the machine's name, which several nodes may share. ip: where others reach it."""

    id: str
    host: str
    ip: str
    cpus: int
    gpus: int

    @property
    def size(self) -> tuple[int, int]:
        """(GPUs, CPUs), to compare nodes: more GPUs make a larger node."""
        return self.gpus, self.cpus


class PlacementGroup(Protocol):
    """A placement group: bundles of CPUs and GPUs, each reserved on a node of its own."""

    def wait(self, timeout_seconds: float) -> bool:
        """Wait; return whether all bundles are reserved within that time."""


class PlacementGroups(Protocol):
    """An object that makes placement groups."""

    def make(self, bundles: Sequence[Mapping[str, float]]) -> PlacementGroup:
        """Request a group of these bundles, each on a node of its own."""

    def nodes_of(self, group: PlacementGroup) -> Sequence[str]:
        """The ids of a reserved group's nodes, in the order of its bundles."""

    def remove(self, group: PlacementGroup) -> None:
        """Give the group back, or withdraw the request for it."""


def nodes_of(facts: Iterable[Mapping[str, Any]]) -> tuple[Node, ...]:
    """The nodes that are alive and may compute. facts: what `ray.nodes()` returns."""
    found = []
    for fact in facts:
        has = fact.get("Resources", {})
        if fact["Alive"] and has.get("CPU", 0) >= 1:
            ip = fact["NodeManagerAddress"]
            found.append(
                Node(fact["NodeID"], fact.get("NodeManagerHostname") or ip, ip, int(has["CPU"]), int(has.get("GPU", 0)))
            )
    return tuple(found)


def first_core(node: Node, nodes: Iterable[Node]) -> int:
    """Where the node's share of its machine's cores begins: nodes on one machine have disjoint shares."""
    return sum(other.cpus for other in nodes if other.host == node.host and other.id < node.id)


def reserve(
    spec: RaySpec,
    nodes: Sequence[Node],
    groups: PlacementGroups,
    where: str,
    clock: Callable[[], float] = time.monotonic,
) -> tuple[PlacementGroup, list[Node]]:
    """Reserve `spec.count` whole nodes; return their placement group and the nodes, in the order of its bundles.

    where: the cluster's address. Raises BadInputError if the cluster has fewer nodes, PlacerError if too few are free
    within RESERVE_S seconds.
    """
    if len(nodes) < spec.count:
        raise BadInputError(
            f"{spec} needs {spec.count} nodes, the cluster at {where} has {len(nodes)}; "
            f"for several workers on one machine write workers:{spec.count}."
        )
    choices, begin_s = sizes(nodes, spec.count), clock()
    for i, choice in enumerate(choices):
        group = groups.make([_bundle(*size) for size in choice])
        left_s = RESERVE_S - (clock() - begin_s)
        if group.wait(max(0.0, left_s / (len(choices) - i))):
            taken = [next(node for node in nodes if node.id == id) for id in groups.nodes_of(group)]
            if [node.size for node in taken] == list(choice):
                return group, taken
        groups.remove(group)
    raise PlacerError(
        f"{spec} needs {spec.count} nodes on which nothing else runs, and of the {len(nodes)} at {where} fewer became "
        f"free within {RESERVE_S:.0f} s; wait until other work there ends, or ask for fewer."
    )


def sizes(nodes: Iterable[Node], count: int) -> list[tuple[tuple[int, int], ...]]:
    """The choices of sizes that `count` of the nodes may have, the largest first; at most MOST_CHOICES."""
    ordered = sorted((node.size for node in nodes), reverse=True)
    return list(dict.fromkeys(islice(combinations(ordered, count), MOST_LOOKED_AT)))[:MOST_CHOICES]


def _bundle(gpus: int, cpus: int) -> dict[str, float]:
    return {"CPU": float(cpus)} | ({"GPU": float(gpus)} if gpus else {})
