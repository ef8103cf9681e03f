"""A profiled step as it is stored: everything that the problem of its searches depends on."""

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
class StoredProfile:
    """A step's ops with their costs, the groups they were joined to, and the devices with their measured links.

    made_on: identifies the machine and its devices (placer.measure.store.topology_key). machine: the machine's name; ""
    in stores of an older Placer.
    """

    fine: OpGraph
    graph: OpGraph
    members: tuple[tuple[int, ...], ...]
    topology: Topology
    headroom: float
    made_on: str
    machine: str = ""

    @classmethod
    def of(cls, prediction: Prediction, made_on: str, machine: str = "") -> StoredProfile:
        """The profiled step of a prediction by the profiled costs alone."""
        groups = prediction.groups
        topology, headroom = prediction.topology, prediction.headroom
        return cls(groups.fine, groups.graph, groups.members, topology, headroom, made_on, machine)

    @classmethod
    def decoded(cls, content: bytes) -> StoredProfile:
        """Decode the bytes of `encoded`. Raises PlacerError if they are damaged or of another version."""
        try:
            return msgspec.json.decode(zlib.decompress(content), type=cls)
        except (zlib.error, msgspec.DecodeError) as error:
            raise PlacerError(f"a stored profile cannot be read ({error}); name another store.") from None

    def encoded(self) -> bytes:
        """Compressed JSON; `decoded` returns every number exact to the last bit."""
        fields = {name: getattr(self, name) for name in self.__match_args__}
        return zlib.compress(msgspec.json.encode(fields, enc_hook=_number))

    @cached_property
    def prediction(self) -> Prediction:
        """The prediction by the profiled costs alone."""
        return Prediction.profiled(Groups(self.fine, self.graph, self.members), self.topology, self.headroom)

    @cached_property
    def units(self) -> Problem:
        """The problem with the units that a search moves. The possible placements do not depend on a calibration."""
        return self.prediction.problem

    def calibrated(self, calibration: dict[str, Any] | None) -> Prediction:
        """The prediction with corrections from `plain_calibration`; None means no corrections."""
        if calibration is None:
            return self.prediction
        given = msgspec.convert(calibration, Calibration)
        return replace(self.prediction, predictor=replace(self.prediction.predictor, given=given))

    def recalibrated(self, told: list[tuple[Placement, Result]], calibration: dict[str, Any] | None) -> Prediction:
        """The prediction corrected by everything that was measured, starting from `calibration`."""
        measured = [(self.units.mapping(placement), result) for placement, result in told]
        return self.calibrated(calibration).calibrated(measured)


def plain_calibration(prediction: Prediction) -> dict[str, Any]:
    """A prediction's corrections as plain data."""
    return msgspec.to_builtins(prediction.predictor.calibration)  # type: ignore[no-any-return]


def _number(value: Any) -> Any:
    """Convert a NumPy number to a Python number."""
    return value.item()
