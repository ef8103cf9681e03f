"""Networks with batch normalization, divided by examples: statistics are those of the whole batch."""

from __future__ import annotations

from collections import Counter

import keras
import numpy as np
import pytest
import tensorflow as tf

from placer.execute.outputs import values
from placer.execute.rewrite import PlacedStep, Template
from placer.execute.untouched_outcome import untouched_outcome
from placer.splits.step import split_step
from placer.splits.step_graph import StepGraph
from placer.trace.capture import capture
from tests.search.splits.test_candidates import apart, plan_of

BATCH = 7  # 3 + 4, 2 + 2 + 3
STEPS = 3


class Fused(keras.layers.Layer):
    """Batch normalization as TensorFlow's own networks have it, one op each way."""

    def build(self, shape):
        vector = (shape[-1],)
        self.scale, self.offset = self.add_weight(vector, "ones"), self.add_weight(vector, "zeros")
        self.moving_mean = self.add_weight(vector, "zeros", trainable=False, name="moving_mean")
        self.moving_variance = self.add_weight(vector, "ones", trainable=False, name="moving_variance")

    def call(self, x):
        y, mean, variance = tf.compat.v1.nn.fused_batch_norm(
            x, self.scale.value, self.offset.value, self.moving_mean.value, self.moving_variance.value,
            epsilon=1e-3, exponential_avg_factor=0.2,
        )  # fmt: skip
        self.moving_mean.assign(mean)
        self.moving_variance.assign(variance)
        return y


def residual(norm):
    """Two residual blocks, the second one with strides and a convolution beside."""
    inputs = keras.Input((9, 9, 3))
    x = norm()(keras.layers.Conv2D(6, 3, padding="same", use_bias=False)(inputs))
    x = keras.layers.Activation("relu")(x)
    for filters, strides in ((6, 1), (8, 2)):
        beside = x
        for i in range(2):
            x = keras.layers.Conv2D(filters, 3, strides if i == 0 else 1, padding="same", use_bias=False)(x)
            x = norm()(x)
            x = keras.layers.Activation("relu")(x) if i == 0 else x
        if strides > 1:
            beside = norm()(keras.layers.Conv2D(filters, 1, strides, use_bias=False)(beside))
        x = keras.layers.Activation("relu")(x + beside)
    return keras.Model(inputs, keras.layers.Dense(5)(keras.layers.GlobalAveragePooling2D()(x)))


def as_keras_writes_it():
    return keras.layers.BatchNormalization(momentum=0.8)


@pytest.fixture(scope="module", params=[as_keras_writes_it, Fused], ids=["decomposed", "fused"])
def training(request):
    keras.utils.set_random_seed(3)
    model = residual(request.param)
    optimizer = keras.optimizers.SGD(0.5)
    loss_of = keras.losses.SparseCategoricalCrossentropy(from_logits=True)

    def step(x, y):
        with tf.GradientTape() as tape:
            loss = loss_of(y, model(x, training=True))
        optimizer.apply(tape.gradient(loss, model.trainable_variables), model.trainable_variables)
        return loss

    optimizer.build(model.trainable_variables)
    examples = 2 * tf.random.stateless_normal([BATCH, 9, 9, 3], [1, 2]) + 3, tf.constant(np.arange(BATCH) % 5)
    captured = capture(step, examples, "residual")
    batch = captured.flat_inputs(examples)
    start = {name: variable.numpy() for name, variable in captured.variables.items()}
    moving = {id(v) for v in model.non_trainable_variables}
    names = {
        name for name, v in captured.variables.items() if any(v is one.value for one in model.non_trainable_variables)
    }
    assert len(names) == len(moving) == 12
    return captured, batch, untouched_outcome(captured, start, [batch] * STEPS), names


@pytest.mark.some(2)
@pytest.mark.parametrize("parts", [2, 3])
def test_by_examples_all_moments_are_those_of_the_whole_batch(training, two_cpus, parts):
    captured, batch, outcome, moving = training
    divided = split_step(captured, plan_of(captured, "batch", parts)).captured
    devices = [two_cpus.tf_name((op.part or 0) % 2) for op in divided.graph.ops]
    placed = PlacedStep(Template(divided), devices)
    returned = [values(placed.run_flat(batch)) for _ in range(STEPS)]
    np.testing.assert_allclose(returned, outcome.returned, rtol=1e-5)
    assert apart(outcome, placed, divided) < 2e-5
    for name in moving:
        after, change = outcome.after[name], outcome.after[name] - outcome.before[name]
        assert np.abs(placed.variables[name].numpy() - after).max() < 1e-5 * np.abs(change).max(), name
    placed.close()


def test_no_batch_normalization_has_the_batch_put_together(training):
    captured, _, _, _ = training
    graph, plan = StepGraph(captured.graph_def), plan_of(captured, "batch", 2)
    made = StepGraph(split_step(captured, plan, graph).captured.graph_def)
    images = Counter(op.type for op in made.order for t in op.outputs if t.shape.rank == 4 and t.shape[0] == BATCH)
    assert images.keys() <= {"Placeholder"}
    fused = [name for name in plan.divisions if graph.op(name).type.startswith("FusedBatchNorm")]
    assert all(plan.divisions[name].way == "batch" for name in fused)
