"""Cases of files: a graph on a topology, judged by the simulator. TensorFlow is never loaded."""

from __future__ import annotations

from dataclasses import replace
from functools import cached_property
from math import inf
from typing import Any

from experiments.campaign.cells import PREDICTED, Case, beside
from experiments.campaign.open_case import Calibration, OpenCase, Told
from placer.graph.graph_files import read_graph, read_topology
from placer.graph.pins import parse_pin, pinned
from placer.result import Measured, Result
from search.exact.bounds import lower_bound
from search.problem.memory_fit import packed
from search.problem.problem import Placement, Problem
from search.session.refusals import NO_LINK


class PredictedCase(OpenCase):
    """A case of files, predicted as `placer plan` predicts it."""

    kind = PREDICTED
    clocked = False

    def __init__(self, case: Case) -> None:
        """Raises BadInputError if the files cannot be used, alone or together, or if no placement fits into memory."""
        terms = case.terms
        topology = read_topology(beside(case.folder, case.where))
        graph = pinned(read_graph(beside(case.folder, case.what)), [parse_pin(pin) for pin in terms["pins"]], topology)
        self._problem = Problem(graph, topology, terms["objective"], terms["schedule"])
        packed(self._problem)

    def __getstate__(self) -> dict[str, Any]:
        """The state for another process, without values computed from the problem: sending them takes longer than
        computing them again.
        """
        return {**self.__dict__, "_problem": replace(self._problem)}

    def opened(self) -> dict[str, Any]:
        """The devices, the value on each single device, the bound and the number of ops."""
        names = self._problem.topology.names
        results = [(names[placement[0]], result) for placement, result in self.singles]
        return {
            "devices": list(names),
            "singles": [[name, result.step_s if isinstance(result, Measured) else None] for name, result in results],
            "bound_s": self.bound_s,
            "ops": len(self._problem.graph),
        }

    @cached_property
    def singles(self) -> Told:
        """The placement on each single device, with its result."""
        return [(placement, self.evaluate(placement, None)) for placement in self._problem.singles()]

    @cached_property
    def bound_s(self) -> float:
        """Lower bound of the predicted seconds of any placement."""
        return float(lower_bound(self._problem))

    def problem(self, calibration: Calibration) -> Problem:
        """The same problem for every calibration."""
        return self._problem

    def calibrated(self, told: Told, calibration: Calibration) -> Calibration:
        """None: nothing is measured, so nothing is corrected."""
        return None

    def evaluate(self, placement: Placement, calibration: Calibration) -> Result:
        """The objective's value, or a failure if a tensor has no link to cross."""
        value = self._value(placement)
        return Measured(value) if value < inf else NO_LINK

    def _value(self, placement: Placement) -> float:
        return float(self._problem.predict(placement))
