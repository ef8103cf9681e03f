"""Memory of a training whose step is moved again and again, and of one that is wrapped and closed again and again."""

from __future__ import annotations

import gc
import random
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import keras
import numpy as np
import psutil
import tensorflow as tf

import placer
from experiments.benches.bench import Facts
from experiments.loops.data import FEATURES, batch, classifier, loss_of
from experiments.loops.moved import Moved
from placer.devices.logical import split
from placer.errors import PlacerError
from placer.result import Failed
from placer.train.device_session import DeviceSession
from placer.train.live_step import LiveStep
from placer.train.steps.modes import UNTOUCHED, Mode, Placed

WIDTH, STEPS = 512, 8  # width of the towers, and steps between two moves
SETTLING = 5  # moves that are not counted, because pools and caches fill
UNTOUCHED_CALLS = 5


def growth_facts(moves: int = 20) -> Facts:
    """The bytes by which this process grows over `moves` moves, from a line through its memory after each move."""
    split("cpus:2")
    moved, wrapped = _moved(moves + SETTLING), _wrapped(moves + SETTLING)
    return {
        "moves": moves,
        "growth_bytes": moves * slope(moved[SETTLING:]),
        "wrap_growth_bytes": moves * slope(wrapped[SETTLING:]),
        "variable_bytes": _training()[1],
        "moved_bytes": moved,
        "wrapped_bytes": wrapped,
    }


def slope(sizes: Sequence[float]) -> float:
    """Bytes per move, by least squares."""
    return float(np.polyfit(np.arange(len(sizes)), np.asarray(sizes, float), 1)[0])


def _training() -> tuple[Any, int]:
    """A step, and the bytes of its variables."""
    model, optimizer, loss_fn = classifier(WIDTH), keras.optimizers.Adam(0.01), loss_of()
    optimizer.build(model.trainable_variables)

    @tf.function  # type: ignore[untyped-decorator]
    def step(x: Any, y: Any) -> Any:
        with tf.GradientTape() as tape:
            loss = loss_fn(y, model(tf.tile(x, [1, 1])[:, :FEATURES], training=True))
        optimizer.apply(tape.gradient(loss, model.trainable_variables), model.trainable_variables)
        return loss

    step.held = model, optimizer  # a traced step dies with its variables
    return step, sum(v.value.dtype.size * int(np.prod(v.shape)) for v in (*model.variables, *optimizer.variables))


def _moved(moves: int) -> list[int]:
    """Memory after each move of a live step to a new random mapping, as an adaptation makes it."""
    step, _ = _training()
    live, rng, sizes = LiveStep(step, DeviceSession(None, False), "step"), random.Random(1), list[int]()
    for i in range(UNTOUCHED_CALLS):
        live.call(batch(i), {})
    live.capture()
    live.session.prepare()
    live.join()
    graph = live.joined.captured.graph
    before: Mode = UNTOUCHED
    for i in range(moves):
        side = {v: d for unit in graph.colocated for d in [rng.randrange(2)] for v in unit}
        built = live.build([side[v] for v in range(len(graph))], (), f"move-{i}")
        placed = live.settle(built)
        if isinstance(placed, Failed):
            raise PlacerError(placed.detail)
        live.mode = placed
        for k in range(STEPS):
            live.call(batch(k), {})
        if isinstance(before, Placed):
            before.step.close()
        live.release([placed])
        before = placed
        sizes.append(_memory_bytes())
    live.close()
    return sizes


def _wrapped(times: int) -> list[int]:
    """Memory after each time that a step was wrapped, placed and closed."""
    step, _ = _training()
    step(*batch(0))
    sizes = []
    with tempfile.TemporaryDirectory() as folder:
        mapping = Moved(("cpu:0", "cpu:1"), None, Path(folder)).mapping(step, batch(0), {}, seed=1)
        for _ in range(times):
            with placer.place(step, mapping) as placed:
                for k in range(STEPS):
                    placed(*batch(k))
            sizes.append(_memory_bytes())
    return sizes


def _memory_bytes() -> int:
    gc.collect()
    return int(psutil.Process().memory_info().rss)
