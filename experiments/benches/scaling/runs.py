"""The measurement of the networks of the bench scaling: each in turn with a reference step, some tens in one process.

TensorFlow is loaded by the process that measures, not by the one that asks for it.
"""

from __future__ import annotations

import gc
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from experiments.benches.bench import Facts
from experiments.benches.process import some_failed
from experiments.benches.scaling.design import DEVICES, Config, reference
from experiments.benches.scaling.shared_cores import open_one_core_workers
from placer.errors import PlacerError, one_line
from placer.profile.operators.drift import QUIET
from placer.result import summary

if TYPE_CHECKING:
    from placer.devices.cluster import Devices
    from placer.execute.rewrite import PlacedStep

WARM_UP = 3
LEAST, MOST = 7, 15  # steps that count: as many as fit into PAIRS_S, but between these bounds
PAIRS_S = 2.0
Clock = Callable[[], float]
TimedStep = Callable[[], float]
"""Runs one step, and returns its seconds until the loss is known."""


def measure(records: Sequence[Facts], clock: Clock = time.perf_counter) -> Facts:
    """Return {"rows": one per config, in order}. If rows failed, "failed" beside them says how many, so that they are
    tried again. Call it in a process of its own.

    A row has a step's seconds divided by those of the reference on the same number of devices, the spread likewise, and
    the reference's seconds; or {"failed": line}. records: configs as plain data. Seconds are the lower quartile,
    because other programs on these cores only add time.
    """
    rows = []
    with open_one_core_workers(max(DEVICES)) as devices, references(devices, clock) as beside:
        for config in (Config(**record) for record in records):
            rows.append(measured(config, devices, beside[config.devices], clock))
            gc.collect()
    return {"rows": rows, **some_failed(rows)}


@contextmanager
def references(devices: Devices, clock: Clock) -> Iterator[dict[int, TimedStep]]:
    """The reference step for each number of devices."""
    with ExitStack() as open_steps:
        yield {n: open_steps.enter_context(ready(reference(n), devices, clock)).timed for n in DEVICES}


def measured(config: Config, devices: Devices, beside: TimedStep, clock: Clock) -> Facts:
    """Step one config in turn with the reference. Returns {"failed": line} if that fails."""
    from tensorflow.errors import OpError

    begin_s = clock()
    try:
        with ready(config, devices, clock) as step:
            pairs = timed_pairs(beside, step.timed, clock)
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


def timed_pairs(beside: TimedStep, step: TimedStep, clock: Clock) -> list[tuple[float, float]]:
    """(seconds of `beside`, of `step`) for steps in turn, after WARM_UP of each that do not count."""
    for _ in range(WARM_UP):
        beside()
        step()
    begin_s = clock()
    pairs: list[tuple[float, float]] = []
    while len(pairs) < LEAST or (len(pairs) < MOST and clock() - begin_s < PAIRS_S):
        pairs.append((beside(), step()))
    return pairs


@dataclass(frozen=True)
class ReadyStep:
    """A step that was captured and placed, and its own example inputs."""

    placed: PlacedStep
    inputs: Sequence[Any]
    clock: Clock

    def timed(self) -> float:
        return self.timed_on(self.inputs)

    def timed_on(self, inputs: Sequence[Any]) -> float:
        """Seconds of a step on other inputs of the same shapes."""
        from placer.measure.timing import timed

        return timed(self.placed, inputs, self.clock)


@contextmanager
def ready(config: Config, devices: Devices, clock: Clock) -> Iterator[ReadyStep]:
    """The config's step, captured and placed. Raises PlacerError if it does not train."""
    from experiments.benches.scaling.networks import placement, training
    from placer.execute.rewrite import PlacedStep, Template
    from placer.trace.capture import capture

    made = training(config)
    captured = capture(made.step, made.example_inputs, made.name)
    mapping = placement(captured.graph, devices.topology)
    template = Template(captured, devices.host, devices.stages_from)
    step = PlacedStep(template, [devices.tf_name(d) for d in mapping.devices])
    try:
        inputs = captured.flat_inputs(made.example_inputs)
        losses = [float(step.run_flat(inputs)[0]) for _ in range(2)]
        if not abs(losses[0] - losses[1]) > 0:
            raise PlacerError(f"two steps of {config.columns} have the losses {losses}: it does not train.")
        yield ReadyStep(step, inputs, clock)
    finally:
        step.close()
