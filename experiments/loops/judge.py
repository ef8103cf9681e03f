"""Runs a loop wrapped and alone in this process, and lists the differences."""

from __future__ import annotations

import time
from typing import Any

import tensorflow as tf

from experiments.loops.catalogue import Loop, find
from experiments.loops.outcome import differences, repeated
from experiments.loops.run import Alone, ByHand, Run, Searched

MAPPINGS = 3  # measured by a search, besides the single devices


class Judge:
    """Answers questions about loops, in a separate process that is started in the EXACT environment."""

    def __init__(self) -> None:
        tf.config.threading.set_intra_op_parallelism_threads(1)
        cpu = tf.config.list_physical_devices("CPU")[0]
        tf.config.set_logical_device_configuration(cpu, [tf.config.LogicalDeviceConfiguration()] * 2)

    def moved(self, name: str) -> dict[str, Any]:
        """The result of a loop that is moved among mappings by hand."""
        return _judged(find(name), ByHand())

    def divided(self, name: str) -> dict[str, Any]:
        """The same, while each mapping divides ops and variables by another plan."""
        loop = find(name)
        return _judged(loop, ByHand(divided=True), loop.divided)

    def searched(self, name: str) -> dict[str, Any]:
        """The result of a loop under a search."""
        return _judged(find(name), Searched(budget=MAPPINGS, beat_untouched=False))

    def on_workers(self, name: str) -> dict[str, Any]:
        """The result of a loop under a search over two worker processes."""
        return _judged(find(name), Searched(budget=MAPPINGS, beat_untouched=False, devices="workers:2"))

    def forget(self) -> None:
        """As in `Doer`."""


def _judged(loop: Loop, run: Run, bound: float | None = None) -> dict[str, Any]:
    begin = time.perf_counter()
    wrapped = run.of(loop.program)
    alone = Alone(run, replay=loop.random).of(loop.program)
    if loop.random:
        wrapped.draws.pop("tf.random"), alone.draws.pop("tf.random")
    return {
        "loop": loop.name,
        "steps": wrapped.steps,
        "placed": wrapped.placed,
        "mappings": wrapped.mappings,
        "variables": len(wrapped.variables),
        "different": differences(wrapped, alone, loop.bound if bound is None else bound),
        "repeated": repeated(wrapped.metrics),
        "alone": wrapped.alone,
        "said": wrapped.said,
        "journal": [list(entry) for entry in wrapped.journal],
        "seconds": time.perf_counter() - begin,
    }
