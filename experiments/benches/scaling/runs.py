"""Measures the networks of the bench scaling: each in turn with a reference step, some tens in one process."""

from __future__ import annotations

import gc
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from experiments.benches.bench import Facts
from experiments.benches.sampling import Share, bar
from experiments.benches.scaling.design import DEVICES, Config, reference
from placer.errors import PlacerError, one_line
from placer.profile.operators.drift import QUIET
from placer.result import summary

if TYPE_CHECKING:
    from placer.devices.cluster import Devices
    from placer.execute.rewrite import PlacedStep

WARM_UP = 3
LEAST, MOST = 7, 15  # steps that count: as many as fit into PAIRS_S, within these
PAIRS_S = 2.0


@dataclass(frozen=True)
class Ready:
    """A placed step and the inputs it is called with."""

    step: PlacedStep
    inputs: Sequence[Any]

    def seconds(self, clock: Callable[[], float]) -> float:
        """One step, up to its loss being here."""
        from placer.measure.runner import timed

        return timed(self.step, self.inputs, clock)


def measure(records: Sequence[Facts], share: Share, clock: Callable[[], float] = time.perf_counter) -> Facts:
    """{"rows": one per config, in order: its step's seconds over those of the reference on as many devices, its spread
    likewise, and the reference's seconds; or {"failed": line}}. Seconds are the lower quartile of those in turn, for
    what else runs on these cores only ever adds. records: configs as plain data. For a process of its own.
    """
    from placer.devices.cluster import open_devices

    configs = [Config(**record) for record in records]
    with (
        open_devices(f"workers:{DEVICES}", links=False) as devices,
        _ready(reference(1), devices) as one,
        _ready(reference(DEVICES), devices) as shared,
        bar("measuring networks", share) as watcher,
    ):
        rows = []
        for config in configs:
            rows.append(measured(config, devices, one if config.devices == 1 else shared, clock))
            watcher.advance(1)
            gc.collect()
    return {"rows": rows}


def measured(config: Config, devices: Devices, beside: Ready, clock: Callable[[], float]) -> Facts:
    """One config, stepped in turn with the reference; a failure is a value."""
    from tensorflow.errors import OpError

    begin_s = clock()
    try:
        with _ready(config, devices) as ready:
            for _ in range(WARM_UP):
                beside.seconds(clock)
                ready.seconds(clock)
            pairs = _pairs(beside, ready, clock)
    except (PlacerError, OpError) as error:
        return {"failed": one_line(str(error))}
    reference_s, step_s = np.quantile(pairs, QUIET, axis=0).tolist()
    return {
        "ratio": step_s / reference_s,
        "spread": summary([seconds for _, seconds in pairs]).spread_s / reference_s,
        "reference_s": reference_s,
        "repeats": len(pairs),
        "took_s": clock() - begin_s,
    }


def _pairs(beside: Ready, ready: Ready, clock: Callable[[], float]) -> list[tuple[float, float]]:
    """Seconds of the reference's steps and of the other's, in turn."""
    begin_s = clock()
    pairs: list[tuple[float, float]] = []
    while len(pairs) < LEAST or (len(pairs) < MOST and clock() - begin_s < PAIRS_S):
        pairs.append((beside.seconds(clock), ready.seconds(clock)))
    return pairs


@contextmanager
def _ready(config: Config, devices: Devices) -> Iterator[Ready]:
    """The config's step, captured and placed. Raises PlacerError where it does not train."""
    from experiments.benches.scaling.networks import placement, training
    from placer.execute.rewrite import PlacedStep, Template
    from placer.trace.capture import capture

    made = training(config)
    captured = capture(made.step, made.example_inputs, made.name)
    mapping = placement(captured.graph, devices.topology)
    step = PlacedStep(Template(captured, devices.host), [devices.tf_name(d) for d in mapping.devices])
    try:
        inputs = captured.flat_inputs(made.example_inputs)
        losses = [float(step.run_flat(inputs)[0]) for _ in range(2)]
        if not abs(losses[0] - losses[1]) > 0:
            raise PlacerError(f"two steps of {config.columns} have the losses {losses}: it does not train.")
        yield Ready(step, inputs)
    finally:
        step.close()
