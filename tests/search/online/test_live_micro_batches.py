"""A training whose examples are taken in micro-batches, by the plan of a file, trains as the program alone does."""

from __future__ import annotations

import json
from typing import Any

import keras
import numpy as np
import pytest
import tensorflow as tf

from placer.result import Measured
from placer.splits.plan_files import regions_of
from placer.splits.step import split_step
from placer.splits.step_graph import StepGraph
from placer.trace.capture import capture
from search.online.autoplace import autoplace, place
from search.splits.pipeline import pipeline
from tests.search.online.giving_way import give_way

BATCH = 10  # 4 micro-batches of 2 or 3 examples
AFTER = 8  # steps once the search has ended


class Program:
    """A training with an optimizer's slots, and a batch of its own for each step."""

    def __init__(self) -> None:
        keras.utils.set_random_seed(7)
        model = keras.Sequential([keras.Input((16,)), *(keras.layers.Dense(24, "tanh") for _ in range(3)),
                                  keras.layers.Dense(4)])  # fmt: skip
        optimizer = keras.optimizers.SGD(0.05, momentum=0.9)
        optimizer.build(model.trainable_variables)
        loss_of = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
        self.variables = [*model.variables, *optimizer.variables]

        @tf.function
        def step(x: Any, y: Any) -> Any:
            with tf.GradientTape() as tape:
                loss = loss_of(y, model(x, training=True))
            optimizer.apply(tape.gradient(loss, model.trainable_variables), model.trainable_variables)
            return loss

        self.step = step

    def batch(self, i: int) -> tuple[Any, Any]:
        numbers = np.random.default_rng(i)
        return (
            tf.constant(numbers.normal(size=(BATCH, 16)), tf.float32),
            tf.constant(numbers.integers(0, 4, BATCH), tf.int32),
        )

    def values(self) -> list[Any]:
        return [np.asarray(variable.value) for variable in self.variables]


def written(program: Program, path: Any) -> Any:
    """A mapping file of the step in micro-batches, the first layers on the first device."""
    captured = capture(program.step, program.batch(0), "step")
    graph = StepGraph(captured.graph_def)
    plan = pipeline(graph, 4, 2)
    divided = split_step(captured, plan, graph).captured.graph
    place_of = {v: i for i, v in enumerate(divided.order)}
    sides = {
        divided.ops[v].name: f"cpu:{int(2 * min(place_of[u] for u in unit) >= len(divided))}"
        for unit in divided.colocated
        for v in unit
    }
    splits = [{"way": region.way, "parts": region.parts, "ops": region.ops} for region in regions_of(plan)]
    found = {"format": "placer.mapping/2", "assignment": sides, "splits": splits, "in_flight": plan.in_flight}
    path.write_text(json.dumps(found))
    return path


def assert_as_alone(program: Program, losses: list[float]) -> None:
    """Losses and all variables are those of the program alone on the same batches."""
    found = program.values()
    keras.utils.clear_session(free_memory=False)
    alone = Program()
    np.testing.assert_allclose(losses, [float(alone.step(*alone.batch(i))) for i in range(len(losses))], rtol=1e-3)
    for mine, theirs in zip(found, alone.values(), strict=True):
        np.testing.assert_allclose(mine, theirs, rtol=1e-3, atol=1e-4)


@pytest.mark.slow
def test_a_training_placed_in_micro_batches_is_the_training(tmp_path: Any) -> None:
    keras.utils.clear_session(free_memory=False)
    program = Program()
    with place(program.step, written(program, tmp_path / "mapping.json")) as placed:
        losses = [float(placed(*program.batch(i))) for i in range(12)]
        assert placed.splits is not None and "4 micro-batches" in placed.splits
        assert placed.mapping is not None and len(set(placed.mapping.devices)) == 2
    assert_as_alone(program, losses)


@pytest.mark.slow
def test_a_search_over_micro_batches_of_a_file_is_the_training(tmp_path: Any) -> None:
    keras.utils.clear_session(free_memory=False)
    program = Program()
    with autoplace(program.step, budget=4, split=written(program, tmp_path / "mapping.json")) as placed:
        losses: list[float] = []
        while not any(entry.kind == "end" for entry in placed.journal.entries):
            losses.append(float(placed(*program.batch(len(losses)))))
            assert placed.phase != "left alone", placed.report()
            give_way(len(losses))
        losses += [float(placed(*program.batch(len(losses) + i))) for i in range(AFTER)]
        tried = [trial for trial in placed.tried if trial.op_devices and trial.plan]
        said = [entry.sentence for entry in placed.journal.entries if entry.kind == "plan"]
    assert tried and all(isinstance(trial.result, Measured) for trial in tried), tried
    assert any("into 4 micro-batches" in line for line in said)
    assert_as_alone(program, losses)
