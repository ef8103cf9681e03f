"""A training step that two workers may hold together and neither alone, by the limits that they are given.

Run by test_limited_memory.py in a process of its own: `limited_training.py WAY`. Prints one JSON object.
"""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Callable
from typing import Any

import numpy as np
import tensorflow as tf

MIB = 2**20
LAYERS, ROWS, WIDTH, BATCH = 8, 4096, 64, 512
VARIABLES_MIB = LAYERS * 4 * (ROWS * WIDTH + WIDTH * WIDTH) / MIB  # 8.1
MAY_MIB = 7.8  # that each worker is told to hold at most
DEVICES = ("worker:0", "worker:1")


def make() -> tuple[Callable[..., Any], tuple[Any, ...]]:
    """Layers that each look up rows in a large table of their own, the same every time; the loss and every weight
    depend on all that was done.
    """
    tables = [tf.Variable(tf.random.stateless_normal([ROWS, WIDTH], [i, 7])) for i in range(LAYERS)]
    weights = [tf.Variable(tf.random.stateless_normal([WIDTH, WIDTH], [i, 8]) / 16.0) for i in range(LAYERS)]

    @tf.function
    def step(ids: Any, y: Any) -> Any:
        with tf.GradientTape() as tape:
            h = tf.zeros([BATCH, WIDTH])
            for i, (table, weight) in enumerate(zip(tables, weights, strict=True)):
                h = tf.tanh(h @ weight + tf.gather(table, ids[i]))
            loss = tf.reduce_mean((h - y) ** 2)
        from_tables, from_weights = tape.gradient(loss, (tables, weights))
        for table, rows in zip(tables, from_tables, strict=True):
            table.scatter_sub(tf.IndexedSlices(100.0 * rows.values, rows.indices))
        for weight, gradient in zip(weights, from_weights, strict=True):
            weight.assign_sub(gradient)
        return loss

    step.variables = [*tables, *weights]
    ids = tf.random.stateless_uniform([LAYERS, BATCH], [1, 2], maxval=ROWS, dtype=tf.int32)
    return step, (ids, tf.random.stateless_normal([BATCH, WIDTH], [3, 4]))


def searched() -> dict[str, Any]:
    """Search with limits: how the delivered mapping ran, and where."""
    from experiments import zoo
    from experiments.jobs.search.ending import finish
    from experiments.jobs.search.finding import Progress
    from experiments.jobs.search.job import Job
    from experiments.jobs.search.settings import SearchSettings
    from placer.graph.memory_limits import MemoryLimits

    step, inputs = make()
    limits = MemoryLimits.of(dict.fromkeys(DEVICES, f"{MAY_MIB}MiB"))
    settings = SearchSettings("wide", "workers:2", measurements=4, groups=48, max_memory=limits)
    with Job.opened(settings, Progress(), training=zoo.TrainingStep("wide", step, inputs)) as job:
        job.measure_singles()
        job.measure_searchers()
        found = finish([job])
    mapping = found.mapping
    return {
        "held_mib": [held / MIB for held in mapping.memory_bytes],
        "peak_mib": [peak / MIB for peak in found.after.memory_peak_bytes],
        "step_s": found.best.result.step_s,
        "failed": [row.result.reason for row in found.measured if row.measured is None],
        "single": found.best_single is not None,
        "ended": list(found.ended),
        "notes": list(found.notes),
    }


def trained() -> dict[str, Any]:
    """Train by autoplace on the two workers alone until the search has ended, and as many steps without Placer."""
    import placer

    step, inputs = make()
    limits = dict.fromkeys(DEVICES, f"{MAY_MIB}MiB")
    with placer.autoplace(step, devices="workers:2", max_memory=limits, beat_untouched=False, budget=3) as live:
        losses = []
        while live.phase not in ("steady", "left alone"):
            losses.append(float(live(*inputs)))
            time.sleep(0.01)
        before = len(losses)
        losses += [float(live(*inputs)) for _ in range(8)]
        mapping, journal, alone = live.mapping, [e.sentence for e in live.journal.entries], live.left_alone
        failed = [trial.result.reason for trial in live.tried if not hasattr(trial.result, "step_s")]
    weights = [weight.numpy() for weight in step.variables]
    other, _ = make()
    expected = [float(other(*inputs)) for _ in range(len(losses))]
    return {
        "steps": len(losses),
        "placed": len(losses) - before if mapping is not None else 0,
        "held_mib": [] if mapping is None else [held / MIB for held in mapping.memory_bytes],
        "left_alone": alone,
        "failed": failed,
        "worst_loss": float(np.max(np.abs(np.array(losses) / np.array(expected) - 1))),
        "worst_weight": max(float(np.abs(a - b.numpy()).max()) for a, b in zip(weights, other.variables, strict=True)),
        "moved": float(np.abs(weights[0] - make()[0].variables[0].numpy()).max()),
        "losses": [losses[0], losses[-1]],
        "journal": journal,
    }


if __name__ == "__main__":
    found = {"searched": searched, "trained": trained}[sys.argv[1]]()
    print(json.dumps({**found, "may_mib": MAY_MIB, "variables_mib": VARIABLES_MIB}))
