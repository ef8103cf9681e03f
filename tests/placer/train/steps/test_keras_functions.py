"""What Keras computes otherwise once a plain step is traced leaves it alone, and what it ties to tensors comes back."""

from __future__ import annotations

import keras
import numpy as np
import pytest
import tensorflow as tf

from placer import tf_internals
from tests.placer.train.steps.test_plain_step import alone_with, close, weights, wrapped_with


def training_on(loss_of):
    """Makes (step, variables, its call): a step that trains two matrices on what `loss_of` makes of them and x."""

    def make():
        held = weights()

        def step(x):
            with tf.GradientTape() as tape:
                loss = loss_of(held, x)
            for variable, gradient in zip(held, tape.gradient(loss, held), strict=True):
                variable.assign_sub(0.5 * gradient)
            return loss

        return step, held, lambda step, i, x: step(x)

    return make


def square(x):
    return tf.reduce_mean(tf.square(x))


def labels(x):
    return tf.cast(x > 0.0, tf.float32)


def saturated(activation):
    """Probabilities that are so near 0 and 1 that a loss which clips them trains nothing."""

    def loss_of(held, x):
        kind = keras.losses.BinaryCrossentropy() if "sigmoid" in activation.__name__ else None
        kind = kind or keras.losses.CategoricalCrossentropy()
        return kind(labels(x), activation(60.0 * (x @ held[0] @ held[1])))

    return loss_of


@pytest.mark.parametrize("activation", [tf.nn.sigmoid, tf.nn.softmax])
def test_a_crossentropy_of_what_tensorflow_makes_is_that_of_the_program_alone(two_cpus, live_hand, activation):
    make = training_on(saturated(activation))
    found, hand = wrapped_with(live_hand, make)
    assert close(found, alone_with(make))
    assert "takes the logits instead once the step is traced" in hand.live.left_alone


@pytest.mark.parametrize("activation", [keras.activations.sigmoid, keras.activations.softmax])
def test_a_crossentropy_of_what_keras_makes_is_placed(two_cpus, live_hand, activation):
    make = training_on(saturated(activation))
    found, hand = wrapped_with(live_hand, make, 12)
    np.testing.assert_allclose(found[0][:4], alone_with(make, 12)[0][:4], rtol=1e-3)  # it is steep
    assert hand.live.left_alone is None and hand.moves


def test_a_loss_of_a_selection_that_may_be_empty_is_that_of_the_program_alone(two_cpus, live_hand):
    huber = keras.losses.Huber()

    def make():
        held, least = weights(), tf.Variable(-9.0)

        def step(x):
            with tf.GradientTape() as tape:
                made = x @ held[0] @ held[1]
                chosen = tf.reduce_max(x, axis=1) > least
                loss = huber(tf.boolean_mask(x, chosen), tf.boolean_mask(made, chosen)) + square(made)
            for variable, gradient in zip(held, tape.gradient(loss, held), strict=True):
                variable.assign_sub(0.1 * gradient)
            return tf.reduce_sum(loss)

        def call(step, i, x):
            least.assign(-9.0 if i < 8 else 9.0)  # from then on none is chosen
            return step(x)

        return step, held, call

    found, hand = wrapped_with(live_hand, make)
    assert close(found, alone_with(make))
    assert "a loss of it is over elements that are chosen by their values" in hand.live.left_alone


def selected(x, by):
    return tf.boolean_mask(x, by[:, 0] < 99.0)


def cut(x, by):
    return x[: tf.reduce_sum(tf.cast(by[:, 0] < 99.0, tf.int32))]


def selected_in_a_branch(x, by):
    return selected(x, by) if by[0, 0] < 99.0 else x


selected_in_a_function = tf.function(selected)


@pytest.mark.some(3)
@pytest.mark.parametrize("chosen", [selected, cut, selected_in_a_branch, selected_in_a_function])
@pytest.mark.parametrize("extreme", [keras.ops.max, keras.ops.min])
def test_an_extreme_of_a_selection_that_may_be_empty_leaves_a_step_alone(two_cpus, live_hand, extreme, chosen):
    def loss_of(held, x):
        return extreme(chosen(x @ held[0] @ held[1], x)) + square(x @ held[0])

    make = training_on(loss_of)
    found, hand = wrapped_with(live_hand, make)
    assert close(found, alone_with(make))
    assert "keras.ops.max or min" in hand.live.left_alone


def test_a_keras_without_one_of_these_functions_leaves_a_step_alone_and_is_as_it_was(two_cpus, live_hand, monkeypatch):
    known = tf_internals.keras_parts.keras_functions()
    functions = [getattr(module, name) for module, name in known.values()]
    monkeypatch.setattr(
        tf_internals.keras_parts, "keras_functions", lambda: {**known, "new": (keras.losses, "of_tomorrow")}
    )
    make = training_on(lambda held, x: square(x @ held[0] @ held[1]))
    found, hand = wrapped_with(live_hand, make, 8)
    assert close(found, alone_with(make, 8))
    assert hand.live.left_alone.startswith("Keras has no function `of_tomorrow`")
    assert [getattr(module, name) for module, name in known.values()] == functions


def test_losses_and_extremes_of_known_sizes_are_placed(two_cpus, live_hand):
    def loss_of(held, x):
        made = x @ held[0] @ held[1]
        return keras.losses.MeanSquaredError()(x, made) + 0.1 * keras.ops.max(made)

    make = training_on(loss_of)
    found, hand = wrapped_with(live_hand, make)
    assert close(found, alone_with(make))
    assert hand.live.left_alone is None and hand.moves > 3


def test_the_logits_behind_probabilities_that_a_step_returns_are_those_of_the_latest_step(two_cpus, live_hand):
    def make():
        head = keras.layers.Dense(3, activation="softmax", kernel_initializer=keras.initializers.GlorotUniform(seed=3))
        head.build((None, 3))

        def step(x):
            with tf.GradientTape() as tape:
                made = head(x)
                loss = keras.losses.CategoricalCrossentropy()(labels(x), 30.0 * made)
            for variable, gradient in zip(head.variables, tape.gradient(loss, head.variables), strict=True):
                variable.assign_sub(0.1 * gradient)
            return {"loss": loss, "made": [made, x]}

        def call(step, i, x):
            found = step(x)
            outside = keras.losses.CategoricalCrossentropy(reduction=None)(labels(x), found["made"][0])
            np.testing.assert_array_equal(found["made"][1], x)
            return found["loss"] + tf.reduce_sum(outside) + tf.reduce_sum(found["made"][0]._keras_logits)

        return step, head.variables, call

    found, hand = wrapped_with(live_hand, make)
    assert close(found, alone_with(make))
    assert hand.live.left_alone is None and hand.moves > 3


def test_a_batch_of_a_size_that_is_not_known_is_no_selection(two_cpus, live_hand):
    def make():
        held = weights()
        batches = tf.data.Dataset.from_tensor_slices(tf.random.stateless_normal([64, 3], [1, 2])).batch(4).repeat()
        iterator = iter(batches)

        def step(iterator):
            x = next(iterator)
            x = x[: tf.shape(x)[0]]  # as many as there are
            with tf.GradientTape() as tape:
                made = x @ held[0] @ held[1]
                loss = keras.losses.MeanSquaredError()(x, made) + 0.01 * keras.ops.max(made)
            for variable, gradient in zip(held, tape.gradient(loss, held), strict=True):
                variable.assign_sub(0.1 * gradient)
            return loss

        return step, held, lambda step, i, x: step(iterator)

    found, hand = wrapped_with(live_hand, make)
    assert close(found, alone_with(make))
    assert hand.live.left_alone is None and hand.moves > 3
