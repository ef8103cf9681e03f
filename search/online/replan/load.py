"""The load on a machine: how much slower its devices and links are now than when they were profiled."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace

import numpy as np

from placer.errors import BadInputError, short
from placer.graph.topology import Link, Topology
from search.session.prediction import Prediction
from surrogate.calibrate.calibration import Calibration, Predictor
from surrogate.costs.cost_matrix import with_cost_matrix

# Two factors that differ by less than this belong to the same load: probes of an unchanged machine differ as much.
SAME = 1.08

Factors = tuple[tuple[str, float], ...]
LinkFactors = tuple[tuple[str, str, float], ...]


@dataclass(frozen=True)
class Load:
    """The factors by which ops on devices, and transfers over links, take longer than profiled; 1 if not named.

    device: (name, factor). link: (source, destination, factor), one way.
    """

    device: Factors = ()
    link: LinkFactors = ()

    @classmethod
    def of(
        cls, topology: Topology, device_factor: Mapping[str, float], link_factor: Mapping[tuple[str, str], float]
    ) -> Load:
        """Return the load with the factors that differ from 1 by more than probes err. A link's factor holds both ways,
        unless the way back has its own. Raises BadInputError for an unknown device, and unless all factors are positive
        and finite.
        """
        _check(topology, device_factor, link_factor)
        ways = {(dst, src): factor for (src, dst), factor in link_factor.items()} | dict(link_factor)
        devices = sorted((name, factor) for name, factor in device_factor.items() if not _close(factor, 1.0))
        links = sorted((*way, factor) for way, factor in ways.items() if not _close(factor, 1.0))
        return cls(tuple(devices), tuple(links))

    def is_like(self, other: Load) -> bool:
        """Whether both loads have the same factors, as far as probes can tell."""
        mine, theirs = self._all(), other._all()
        return all(_close(mine.get(key, 1.0), theirs.get(key, 1.0)) for key in mine.keys() | theirs.keys())

    def topology(self, topology: Topology) -> Topology:
        """Return the same devices, with links slowed by their factors."""
        index = topology.index
        ways = [way for way in self.link if way[0] in index and way[1] in index]
        slower = [_slower(topology.table[index[s]][index[d]], s, d, factor) for s, d, factor in ways]
        return replace(topology, links=(*topology.links, *(link for link in slower if link is not None)))

    def on(self, prediction: Prediction) -> Prediction:
        """Return `prediction`, as calibrated so far, under this load. Later calibrations start from there."""
        problem, predictor = prediction.problem, prediction.predictor
        factors = dict(self.device)
        factor = np.array([factors.get(name, 1.0) for name in prediction.topology.names])
        topology = self.topology(problem.topology)
        graph = with_cost_matrix(problem.graph, topology, problem.costs * factor)
        simulator = predictor.simulator.revalued(predictor.simulator.costs * factor, topology)
        begun = Calibration((1.0,) * len(topology), base_s=predictor.calibration.base_s, contention=topology.contention)
        groups = replace(prediction.groups, graph=graph)
        under_load = Predictor(simulator, predictor.launches, begun)
        return replace(prediction, groups=groups, topology=topology, predictor=under_load)

    def _all(self) -> dict[tuple[str, ...], float]:
        return {(name,): factor for name, factor in self.device} | {(s, d): factor for s, d, factor in self.link}


def _slower(link: Link | None, src: str, dst: str, factor: float) -> Link | None:
    """Return the link slowed by `factor`, for this direction alone; None if there is no link."""
    return link and replace(link.slowed(factor, factor), src=src, dst=dst)


def _close(a: float, b: float) -> bool:
    return b / SAME < a < b * SAME


def _check(
    topology: Topology, device_factor: Mapping[str, float], link_factor: Mapping[tuple[str, str], float]
) -> None:
    for name in (*device_factor, *(end for way in link_factor for end in way)):
        if name not in topology.index:
            raise BadInputError(f"a load is on {short(name)}, which the topology does not have; name its devices.")
    for factor in (*device_factor.values(), *link_factor.values()):
        if not 0 < factor < math.inf:
            raise BadInputError(f"a load of {factor} was given; give a factor > 0, 1 for what runs as profiled.")
