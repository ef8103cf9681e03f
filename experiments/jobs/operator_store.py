"""The store of op times behind `--costs predicted`: the rows that it must have, and the models fitted to them."""

from __future__ import annotations

from collections.abc import Mapping as MappingABC
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING

from placer.errors import BadInputError, PlacerError, listed, plain
from placer.graph.topology import Topology
from placer.measure.store import Store
from placer.profile.operators.dataset import YARDSTICKS, OperatorRow
from surrogate.operators.hardware import Hardware, hardware_of
from surrogate.operators.predicted_costs import OperatorTimes, PredictedCosts, predicted_costs

if TYPE_CHECKING:  # graphs and models are loaded without TensorFlow
    from placer.devices.cluster import Devices
    from placer.trace.capture import Captured


@dataclass(frozen=True)
class OperatorStore:
    """The rows of a store, and the models fitted to them, by (kind of device, machine)."""

    path: Path
    rows: tuple[OperatorRow, ...]
    spec: str | None = None  # the devices to profile on if more has to be measured; as `--devices` takes them
    _fitted: dict[tuple[str, str], OperatorTimes] = field(default_factory=dict, repr=False, compare=False)
    _elsewhere: dict[tuple[str, str], Hardware] = field(default_factory=dict, repr=False, compare=False)

    @classmethod
    def read(cls, path: Path, spec: str | None = None) -> OperatorStore:
        """Read a store. Raises BadInputError if the file is missing, is no store, or has no times of ops."""
        if not path.exists():
            raise BadInputError(f"--operators {path}: there is no such file; fill one with {_command(path, spec)}.")
        try:
            with Store(path, reads=True) as store:
                rows = tuple(store.operators())
        except PlacerError as error:
            raise BadInputError(str(error).replace("--store", "--operators")) from None
        if not rows:
            raise BadInputError(f"--operators {path}: it has no times of ops; fill it with {_command(path, spec)}.")
        return cls(path, rows, spec)

    def on_devices(self, captured: Captured, devices: Devices) -> PredictedCosts:
        """The graph of a captured step with costs on open devices; its `source` says where the costs are from.

        If the store has no times from the hardware of a device, yardsticks are measured on it, which takes seconds.
        Raises BadInputError if the store has no times for that kind of device, or no yardsticks of the hardware that
        its times are from, and PlacerError if the yardsticks do not run here.
        """
        machines = {device.name: devices.machine_of(device.name) for device in devices.topology.devices}
        for number, device in enumerate(devices.topology.devices):
            known, machine = self._machines(device.kind), machines[device.name]
            if machine in known or (device.kind, machine) in self._elsewhere:
                continue
            without = [name for name in known if (device.kind, name) not in self._hardware]
            if without:
                raise BadInputError(
                    f"--operators {self.path}: its times of ops on a {plain(device.kind)} are from other hardware "
                    f"({listed(without)}) than {device.name} ({plain(machine)}), and it does not say how fast that is; "
                    f"add some with {_command(self.path, self.spec)}, here or there."
                )
            measured = _measured(devices, number)
            if measured is None:
                raise PlacerError(
                    f"{device.name}: not all of the yardsticks run there that say how fast it is; add times of its own "
                    f"to the store with {_command(self.path, self.spec)}."
                )
            self._elsewhere[device.kind, machine] = measured
        return self._costs(captured, devices.topology, machines)

    def on_topology(self, captured: Captured, topology: Topology) -> PredictedCosts:
        """As `on_devices`, for devices that are only described. Raises BadInputError if the store has no times for a
        kind, or times from several machines and the devices' names do not say which one is meant.
        """
        meant = {kind: self._meant(kind, topology) for kind in dict.fromkeys(d.kind for d in topology.devices)}
        return self._costs(captured, topology, {device.name: meant[device.kind] for device in topology.devices})

    def _meant(self, kind: str, topology: Topology) -> str:
        """The only machine with times for `kind`, or else the only one whose devices had the topology's names."""
        known = self._machines(kind)
        if len(known) == 1:
            return known[0]
        names = {device.name for device in topology.devices if device.kind == kind}
        alike = list(
            dict.fromkeys(
                r.machine for r in self.rows if r.device_kind == kind and r.device in names and r.network != YARDSTICKS
            )
        )
        if len(alike) == 1:
            return alike[0]
        raise BadInputError(
            f"--operators {self.path}: its times of ops on a {plain(kind)} are from several machines "
            f"({listed(known)}); keep each machine's in a store of its own."
        )

    def _machines(self, kind: str) -> list[str]:
        """The machines with times for `kind`. Raises BadInputError if there are none."""
        timed = (row for row in self.rows if row.device_kind == kind and row.network != YARDSTICKS)
        found = list(dict.fromkeys(row.machine for row in timed))
        if not found:
            raise BadInputError(
                f"--operators {self.path}: it has no times of ops on a {plain(kind)}; add some with "
                f"{_command(self.path, self.spec)}, on such a device."
            )
        return found

    def _costs(self, captured: Captured, topology: Topology, machines: MappingABC[str, str]) -> PredictedCosts:
        """The predicted costs. machines: device name -> the machine whose times count for the device."""
        from placer.profile.operators.describe import operators_of

        times = {d.name: self._times(d.kind, machines[d.name]) for d in topology.devices}
        found = predicted_costs(captured.graph, operators_of(captured), topology, times)
        sources = dict.fromkeys((device.kind, machines[device.name]) for device in topology.devices)
        basis = ", ".join(self._basis(*source) for source in sources)
        elsewhere = any((kind, machine) in self._elsewhere for kind, machine in sources)
        profiled = "of the model, nothing was profiled" if elsewhere else "nothing was profiled"
        said = [f"Costs are predicted from {basis} in {self.path}; {profiled}.", *_guessed(found)]
        return replace(found, graph=replace(found.graph, source=" ".join(said)))

    def _basis(self, kind: str, machine: str) -> str:
        models = self._fitted[kind, machine].models
        count, elsewhere = len(models.networks), (kind, machine) in self._elsewhere
        where = listed(self._machines(kind)) if elsewhere else machine
        said = f"{models.rows} times of ops of {count} network{'s' * (count > 1)} on a {kind} ({where})"
        return f"{said}, as fast as yardsticks are on {machine}" if elsewhere else said

    def _times(self, kind: str, machine: str) -> OperatorTimes:
        """The models fitted to the machine's own times, or else to all times of the kind, scaled by yardsticks."""
        if (kind, machine) not in self._fitted:
            elsewhere = self._elsewhere.get((kind, machine))
            rows = self.rows if elsewhere is not None else [r for r in self.rows if r.machine == machine]
            self._fitted[kind, machine] = OperatorTimes.of(rows, kind, elsewhere)
        return self._fitted[kind, machine]

    @cached_property
    def _hardware(self) -> MappingABC[tuple[str, str], Hardware]:
        return hardware_of(self.rows)


def _measured(devices: Devices, number: int) -> Hardware | None:
    """Measure how fast a device is; None if not all yardsticks run on it."""
    from placer.profile.operators.yardsticks import yardsticks

    (profile,) = yardsticks(devices, [number])
    profile.run_pass()
    return next(iter(hardware_of(profile.rows()).values()), None)


def _guessed(found: PredictedCosts) -> list[str]:
    """A sentence that names the types of ops that no model times; empty if there are none."""
    count = sum(found.guessed.values())
    if not count:
        return []
    types = listed([f"{name} x {n}" if n > 1 else name for name, n in found.guessed.items()])
    return [
        f"{count} op{'s' * (count > 1)}, {found.guessed_share:.1%} of the predicted step, can only be guessed, by a "
        f"roofline over all types: {types}."
    ]


def _command(path: Path, spec: str | None) -> str:
    """The command that fills the store."""
    kind, _, count = (spec or "").partition(":")
    devices = "" if spec is None else f" --workers {count}" if kind == "workers" else f" --devices {spec}"
    return f"placer profile MODEL...{devices} --store {path}"
