"""Reads of variables between placed steps, in every way: each read must see what the last step wrote."""

from __future__ import annotations

import tempfile
import time
import warnings
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Self

import tensorflow as tf

import placer
from experiments.benches.bench import Facts
from experiments.benches.trust.reads import MOST, READS
from experiments.loops.moved import Moved
from placer.devices.logical import split
from placer.errors import PlacerError

EACH = 4  # variables, each of which is read once after every step
SLOW = ("function", "compiled", "cond", "thread", "deepcopy")  # these trace, or start something
SLOW_EVERY = 40  # rounds of the other ways
ASIDE = ("dataset", "generator")  # these read in TensorFlow's own threads at any time; then the step is left alone
WRAPS = 5  # for each of the ways ASIDE
UNTOUCHED = 8  # calls at most until the step is placed


def read_facts(reads: int) -> Facts:
    """Make `reads` reads, EACH after every step of a training that is placed on another device than its variables."""
    split("cpus:2")
    begin, done, stale = time.perf_counter(), Counter[str](), Counter[str]()
    with _Training() as training:
        for way in ways():
            training.read(way, done, stale)
            if done.total() >= reads:
                break
        steps = training.steps
    for way in ASIDE * WRAPS:
        with _Training() as training, warnings.catch_warnings():
            warnings.simplefilter("ignore")  # the step warns that it goes on untouched
            training.read(way, done, stale)
            while training.is_due:
                training.read("numpy", done, stale)
    return {
        "reads": done.total(),
        "steps": steps,
        "ways": len(done),
        "fewest": min(done.values()),
        "stale_reads": stale.total(),
        "stale": {way: count for way, count in stale.items() if count},
        "seconds": time.perf_counter() - begin,
    }


class _Training:
    """A placed step that counts in EACH variables."""

    def __init__(self) -> None:
        self._variables = [tf.Variable([float(i + 1)] * 2) for i in range(EACH)]
        self._truth = [i + 1 for i in range(EACH)]
        self._one = tf.constant(1.0)
        self._turn = self.steps = 0
        with tempfile.TemporaryDirectory() as folder:
            step = self._function()
            mapping = Moved(("cpu:1",), None, Path(folder)).mapping(step, (self._one,), {}, seed=0)
            self._step = placer.place(step, mapping)
            for _ in range(UNTOUCHED):
                self._go_on()
        if self._step.mapping is None:
            raise PlacerError(f"the step was not placed: {self._step.report()}")

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._step.close()

    @property
    def is_due(self) -> bool:
        """Whether variables are left that were not read since the last step."""
        return self._turn > 0

    def read(self, way: str, done: Counter[str], stale: Counter[str]) -> None:
        """Read the next variable, after another step if all variables were read."""
        if self._turn == 0:
            self._go_on()
        done[way] += 1
        stale[way] += float(READS[way](self._variables[self._turn])) != self._truth[self._turn]
        self._turn = (self._turn + 1) % EACH

    def _function(self) -> Any:
        variables = self._variables

        @tf.function  # type: ignore[untyped-decorator]
        def step(x: Any) -> Any:
            for variable in variables:
                variable.assign(tf.math.floormod(variable, MOST - 1) + x)
            return tf.add_n(variables)

        return step

    def _go_on(self) -> None:
        self._step(self._one)
        self._truth = [value % int(MOST - 1) + 1 for value in self._truth]
        self.steps += self._step.mapping is not None


def ways() -> Iterator[str]:
    """The ways in turn, the slow ones less often."""
    while True:
        for turn in range(SLOW_EVERY):
            yield from (way for way in READS if way not in ASIDE and (turn == 0 or way not in SLOW))
