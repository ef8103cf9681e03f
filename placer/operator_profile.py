"""The operator profile of one network on one device: passes of traced steps and single ops, then rows."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from contextlib import suppress
from statistics import median, quantiles
from typing import Any

import tensorflow as tf

from placer.capture import Captured
from placer.devices import Devices
from placer.operator_data import OperatorRow
from placer.operator_probes import probes_of
from placer.operator_shapes import SCALES, rescaled
from placer.operator_timing import Samples, single_samples, step_samples
from placer.operators import operators_of
from placer.store import machine_name

RUNS = 5  # a pass; passes minutes apart see more of the machine's moods than more runs at once
WORTH_SCALING_S = 10e-6


class OperatorProfile:
    """One captured step's operators on one device. Each `run_pass` adds repeats; `rows` sums them up.

    batch: examples a step, for the record. scales: also time the slower ops at other sizes.
    """

    def __init__(
        self,
        captured: Captured,
        inputs: Sequence[Any],
        devices: Devices,
        device: int = 0,
        *,
        batch: int | None = None,
        scales: bool = False,
    ) -> None:
        self.captured, self.inputs = captured, inputs
        self.devices, self.device = devices, device
        self.batch, self.scales = batch, scales
        self.by_name = operators_of(captured)
        self.probes = probes_of(captured, self.by_name)
        self.operators = {operator.signature: operator for operator in self.by_name.values()}
        self.phases = {self.by_name[op.name].signature: op.phase for op in reversed(captured.graph.ops)}
        self.steps: Samples = defaultdict(list)
        self.singles: Samples = defaultdict(list)

    def run_pass(self, runs: int = RUNS) -> None:
        """Time every op `runs` times more, in the step and by itself. A device that cannot run the step times the
        single ops only."""
        with suppress(tf.errors.ResourceExhaustedError, tf.errors.InvalidArgumentError):
            _extend(self.steps, step_samples(self.captured, self.by_name, self.devices, self.device, self.inputs, runs))
        if self.scales and not self.singles:
            self._add_scaled()
        _extend(self.singles, single_samples(list(self.probes.values()), self.devices, self.device, runs))

    def rows(self) -> list[OperatorRow]:
        """One row per signature and source."""
        found = [self._row(signature, "step", samples) for signature, samples in self.steps.items()]
        return [*found, *(self._row(signature, "single", samples) for signature, samples in self.singles.items())]

    def _add_scaled(self) -> None:
        """Probes of the ops worth it at other sizes."""
        for probe in list(self.probes.values()):
            signature = probe.operator.signature
            if self.steps and median(self.steps.get(signature, [0.0])) < WORTH_SCALING_S:
                continue
            for letter, factor in SCALES:
                other = rescaled(probe, letter, factor)
                if other is not None and self.probes.setdefault(other.operator.signature, other) is other:
                    self.operators[other.operator.signature] = other.operator
                    self.phases[other.operator.signature] = self.phases[signature]

    def _row(self, signature: str, source: str, samples: Sequence[float]) -> OperatorRow:
        device = self.devices.topology.devices[self.device]
        low_s, middle_s, high_s = quantiles(samples, n=4, method="inclusive") if len(samples) > 1 else [*samples] * 3
        return OperatorRow(
            operator=self.operators[signature],
            device=device.name,
            device_kind=device.kind,
            machine=machine_name(),
            batch=self.batch,
            network=self.captured.name,
            phase=self.phases.get(signature),
            source=source,
            median_s=middle_s,
            low_s=low_s,
            spread_s=high_s - low_s,
            repeats=len(samples),
        )


def _extend(samples: Samples, more: Samples) -> None:
    for signature, seconds in more.items():
        samples[signature].extend(seconds)
