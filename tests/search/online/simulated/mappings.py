"""What steps of a small graph take under its mappings, as simulated, and mappings that a search would come upon."""

from functools import cache

import numpy as np

from placer.graph.topology import Device, Topology
from surrogate.simulate.simulator import Simulator
from tests.search.online.towers import LINK, towers

LENGTH = 8
GRAPH = towers(length=LENGTH)
TOPOLOGY = Topology(tuple(Device(f"worker:{i}", "cpu") for i in range(2)), (LINK,))
SINGLES = [(d,) * len(GRAPH) for d in range(2)]
CALM = (1.0, 1.0)


@cache
def simulator(load):
    known = Simulator(GRAPH, TOPOLOGY)
    return known.revalued(known.costs * np.array(load))


@cache
def makespan(devices, load=CALM):
    """Seconds of a step as simulated, with devices that take so many times as long."""
    return float(simulator(load).makespan(devices))


def linked(devices, link):
    """How many times as long a step takes over a link that is so many times as slow: only where it sends anything."""
    return 1.0 if len(set(devices)) == 1 else 1.0 + 0.1 * (link - 1.0)


@cache
def pool():
    """Mappings that a search would come upon: the paths of descents under several loads."""
    found = dict.fromkeys(SINGLES)
    for load in (CALM, (1.5, 1.0), (2.0, 1.0), (1.0, 2.0), (3.0, 1.0)):
        for seed in range(2):
            found |= dict.fromkeys(descent(load, np.random.default_rng(seed)))
    return list(found)


def descent(load, rng):
    """Flips of one op or the rest of its tower, kept where they do not make it worse; the latest mappings."""
    here = SINGLES[0]
    path = [here]
    for _ in range(400):
        v = int(rng.integers(len(GRAPH)))
        end = v + 1 if rng.random() < 0.5 else v + LENGTH - (v - 1) % LENGTH
        there = tuple(1 - d if v <= i < end else d for i, d in enumerate(here))
        if makespan(there, load) <= makespan(here, load):
            here = there
            path.append(here)
    return path[-25:]
