"""The operator profile of one network on one device: passes of traced steps and single ops, then rows."""

from __future__ import annotations

from collections.abc import Sequence
from statistics import median
from typing import Any

import numpy as np
import tensorflow as tf
from numpy.typing import NDArray

from placer.devices.cluster import Devices
from placer.execute.outputs import is_out_of_memory
from placer.profile.operators.dataset import OperatorRow
from placer.profile.operators.describe import operators_of
from placer.profile.operators.drift import without_drift
from placer.profile.operators.probes import probes_of
from placer.profile.operators.shapes import SCALES, rescaled
from placer.profile.operators.timing import Samples, single_samples, step_samples
from placer.trace.capture import Captured

RUNS = 5  # per pass; passes minutes apart sample more of the machine's states than more runs at once
WORTH_SCALING_S = 20e-6


class OperatorProfile:
    """One captured step's operators on one device. Each `run_pass` adds repeats; `rows` summarises them.

    batch: examples per step, stored with the rows. scales: also time the slower ops at other sizes.
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
        self.blocks: dict[tuple[str, int], Samples] = {}  # by (source, session number): ops that ran together

    def run_pass(self, runs: int = RUNS) -> None:
        """Time every op `runs` more times, in the step (if the device can run it) and by itself."""
        try:
            steps = step_samples(self.captured, self.by_name, self.devices, self.device, self.inputs, runs)
            self._extend("step", 0, steps)
        except tf.errors.OpError as error:
            if not (isinstance(error, tf.errors.InvalidArgumentError) or is_out_of_memory(error)):
                raise
        if self.scales and ("single", 0) not in self.blocks:
            self._add_scaled()
        singles = single_samples(list(self.probes.values()), self.devices, self.device, runs)
        for i, samples in enumerate(singles):
            self._extend("single", i, samples)

    def rows(self, runs: slice = slice(None)) -> list[OperatorRow]:
        """One row per signature and source, of times corrected for drift (placer.profile.operators.drift).

        runs: which repeats count; comparing two halves shows how well repeats agree.
        """
        rows = []
        for (source, _), samples in self.blocks.items():
            longest = max(len(times) for times in samples.values())
            whole = {signature: times for signature, times in samples.items() if len(times) == longest}
            times_s = without_drift(np.array(list(whole.values())))[:, runs]
            rows += [self._row(signature, source, times) for signature, times in zip(whole, times_s, strict=True)]
        return rows

    def _extend(self, source: str, number: int, more: Samples) -> None:
        if not more:
            return
        block = self.blocks.get((source, number), {})
        added = {signature: [*block.get(signature, ()), *seconds] for signature, seconds in more.items()}
        self.blocks[source, number] = block | added  # at once, because a signal may come in between

    def _add_scaled(self) -> None:
        """Add probes, at other sizes, of ops that take at least WORTH_SCALING_S in the step."""
        steps = self.blocks.get(("step", 0), {})
        for probe in list(self.probes.values()):
            signature = probe.operator.signature
            if steps and median(steps.get(signature, [0.0])) < WORTH_SCALING_S:
                continue
            for letter, factor in SCALES:
                other = rescaled(probe, letter, factor)
                if other is not None and self.probes.setdefault(other.operator.signature, other) is other:
                    self.operators[other.operator.signature] = other.operator
                    self.phases[other.operator.signature] = self.phases[signature]

    def _row(self, signature: str, source: str, times_s: NDArray[np.float64]) -> OperatorRow:
        device = self.devices.topology.devices[self.device]
        low_s, middle_s, high_s = (float(q) for q in np.quantile(times_s, (0.25, 0.5, 0.75)))
        return OperatorRow(
            operator=self.operators[signature],
            device=device.name,
            device_kind=device.kind,
            machine=self.devices.machine_of(device.name),
            batch=self.batch,
            network=self.captured.name,
            phase=self.phases.get(signature),
            source=source,
            median_s=middle_s,
            low_s=low_s,
            spread_s=high_s - low_s,
            repeats=len(times_s),
        )
