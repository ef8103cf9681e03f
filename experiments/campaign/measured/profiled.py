"""A profiled step as it is stored: all that the problem of its searches depends on."""

from __future__ import annotations

import zlib
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import msgspec

from placer.errors import PlacerError
from placer.graph.coarsen import Groups
from placer.graph.op_graph import OpGraph
from placer.graph.topology import Topology
from placer.result import Result
from search.problem.problem import Placement, Problem
from search.session.prediction import Prediction
from surrogate.calibrate.calibration import Calibration


@dataclass(frozen=True)
class Profiled:
    """A step's ops with their costs, the groups they were joined to, and the devices with their links as measured.

    made_on: tells the machine and its devices from others (placer.measure.store.topology_key). machine: its name; "" in
    stores of an older Placer.
    """

    fine: OpGraph
    graph: OpGraph
    members: tuple[tuple[int, ...], ...]
    topology: Topology
    headroom: float
    made_on: str
    machine: str = ""

    @classmethod
    def of(cls, prediction: Prediction, made_on: str, machine: str = "") -> Profiled:
        """Of a prediction by the profiled costs alone."""
        groups = prediction.groups
        topology, headroom = prediction.topology, prediction.headroom
        return cls(groups.fine, groups.graph, groups.members, topology, headroom, made_on, machine)

    @classmethod
    def decoded(cls, content: bytes) -> Profiled:
        """What `encoded` wrote. Raises PlacerError where it is damaged, or of another version."""
        try:
            return msgspec.json.decode(zlib.decompress(content), type=cls)
        except (zlib.error, msgspec.DecodeError) as error:
            raise PlacerError(f"a stored profile cannot be read ({error}); name another store.") from None

    def encoded(self) -> bytes:
        """Compressed JSON; every number comes back as it was, to the last bit."""
        fields = {name: getattr(self, name) for name in self.__match_args__}
        return zlib.compress(msgspec.json.encode(fields, enc_hook=_number))

    @cached_property
    def prediction(self) -> Prediction:
        """By the profiled costs alone."""
        return Prediction.profiled(Groups(self.fine, self.graph, self.members), self.topology, self.headroom)

    @cached_property
    def units(self) -> Problem:
        """What a search moves; which placements there are does not depend on a calibration."""
        return self.prediction.problem

    def calibrated(self, calibration: dict[str, Any] | None) -> Prediction:
        """With the corrections that `plain_calibration` made data of; None for none."""
        if calibration is None:
            return self.prediction
        given = msgspec.convert(calibration, Calibration)
        return replace(self.prediction, predictor=replace(self.prediction.predictor, given=given))

    def recalibrated(self, told: list[tuple[Placement, Result]], calibration: dict[str, Any] | None) -> Prediction:
        """Corrected by all that was measured, starting from `calibration`."""
        measured = [(self.units.mapping(placement), result) for placement, result in told]
        return self.calibrated(calibration).calibrated(measured)


def plain_calibration(prediction: Prediction) -> dict[str, Any]:
    """A prediction's corrections as plain data."""
    return msgspec.to_builtins(prediction.predictor.calibration)  # type: ignore[no-any-return]


def _number(value: Any) -> Any:
    """NumPy's numbers as Python's."""
    return value.item()
