"""The measurement of one network of the bench `spoc`: its SPOC, and the times of its training step and inference.

Runs in a process of its own (process.py).
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

from experiments.benches.bench import Facts
from experiments.benches.process import forget_networks
from experiments.benches.spoc.build import build
from experiments.benches.spoc.networks import REFERENCE, Network
from experiments.jobs.spoc import parameters
from experiments.zoo.training import TrainingStep
from placer.result import summary
from placer.trace.capture import Captured, capture
from surrogate.features.spoc import forward, spoc

Call = Callable[[], Any]


@dataclass(frozen=True)
class Repeats:
    """How often each call is made: `warm_up` times that do not count, then at least `fewest` times, until `seconds`
    have passed or `most` is reached. Once calls have taken `long_s`, warming up ends, and `fewest_long` are enough.
    """

    warm_up: int = 2
    fewest: int = 5
    most: int = 30
    seconds: float = 2.0
    fewest_long: int = 3
    long_s: float = 15.0


class SpocStudy:
    """The doer that measures networks, one after the other, each in turn with the same reference."""

    def __init__(self, repeats: Repeats, clock: Callable[[], float] = time.perf_counter) -> None:
        self.repeats, self.clock = repeats, clock
        self.training = build(REFERENCE)  # kept: the model must outlive the calls of its step
        self.reference = _call(_training(self.training), self.training.example_inputs)

    def measured(self, network: Network) -> Facts:
        """SPOC of the training step and of the inference, and their times in seconds."""
        begin_s = self.clock()
        training = build(network)
        step, inference = _training(training), _inference(training)
        x, y = training.example_inputs
        calls = [self.reference, _call(step, (x, y)), _call(inference, (x,))]
        times_s = in_turn(calls, self.repeats, self.clock)
        counted = parameters(step, training.model)
        ahead = forward(step.graph)
        return {
            "step": asdict(spoc(step.graph, counted.total)),
            "forward": None if ahead is None else asdict(spoc(ahead, counted.total)),
            "inference": asdict(spoc(inference.graph, counted.total)),
            "count_params": _count_params(training),
            **_times(("reference", "step", "inference"), times_s),
            "repeats": len(times_s),
            "seconds": self.clock() - begin_s,
        }

    def counted(self, network: Network) -> Facts:
        """Parameters and multiply-adds of one inference, traced and not run."""
        training = build(network)
        inference = _inference(training)
        found = parameters(inference, training.model)
        return {
            "parameters": found.total,
            "parameters_read": found.read,
            "count_params": _count_params(training),
            "multiply_adds": spoc(inference.graph).multiply_adds,
        }

    forget = staticmethod(forget_networks)


def in_turn(calls: Sequence[Call], repeats: Repeats, clock: Callable[[], float]) -> np.ndarray[Any, Any]:
    """[repeats, calls] seconds, every call once per repeat."""
    for call in calls:
        begin_s = clock()
        for _ in range(repeats.warm_up):
            if clock() - begin_s < repeats.long_s:
                call()
    times_s: list[list[float]] = []
    begin_s = clock()
    while _goes_on(len(times_s), clock() - begin_s, repeats):
        times_s.append([_timed(call, clock) for call in calls])
    return np.array(times_s)


def _goes_on(done: int, passed_s: float, repeats: Repeats) -> bool:
    fewest = repeats.fewest if passed_s < repeats.long_s else min(repeats.fewest, repeats.fewest_long)
    return done < fewest or (done < repeats.most and passed_s < repeats.seconds)


def _timed(call: Call, clock: Callable[[], float]) -> float:
    begin_s = clock()
    call()
    return clock() - begin_s


def _times(names: Sequence[str], times_s: np.ndarray[Any, Any]) -> Facts:
    """Medians and interquartile ranges. times_s: [repeats, names]."""
    found = {name: summary(seconds) for name, seconds in zip(names, times_s.T, strict=True)}
    return {f"{n}_s": m.step_s for n, m in found.items()} | {f"{n}_spread_s": m.spread_s for n, m in found.items()}


def _count_params(training: TrainingStep) -> int | None:
    return None if training.model is None else int(training.model.count_params())


def _training(training: TrainingStep) -> Captured:
    return capture(training.step, training.example_inputs, training.name)


def _inference(training: TrainingStep) -> Captured:
    def infer(x: Any) -> Any:
        return training.model(x, training=False)  # type: ignore[misc]

    return capture(infer, training.example_inputs[:1], training.name, trains=False)


def _call(captured: Captured, inputs: Sequence[Any]) -> Call:
    """A call of the untouched step, which returns when the result is there."""
    flat = captured.flat_inputs(inputs)

    def call() -> Any:
        result = captured.call(flat)
        return (result[0] if isinstance(result, (list, tuple)) else result).numpy()

    return call
