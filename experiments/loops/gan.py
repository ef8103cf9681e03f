"""Generative adversarial networks: two steps that share variables and draw noise."""

from __future__ import annotations

from typing import Any

import keras
import tensorflow as tf

from experiments.loops.data import FEATURES, ROWS, batch
from experiments.loops.run import Run

LATENT = 5


def gan(run: Run) -> None:
    """No seed is set, so that the noise cannot be repeated; the steps return it."""
    _gan(run, lambda: tf.random.normal((ROWS, LATENT)), seeded=False)


def seeded_gan(run: Run) -> None:
    """tf.random.set_seed promises the same noise every time."""
    _gan(run, lambda: tf.random.normal((ROWS, LATENT)), seeded=True)


def generator_gan(run: Run) -> None:
    """The noise is drawn from a tf.random.Generator, whose state is a variable."""
    stream = tf.random.Generator.from_seed(11)
    _gan(run, lambda: stream.normal((ROWS, LATENT)), seeded=True)
    run.note(next=stream.normal([3]))


def _gan(run: Run, draw: Any, *, seeded: bool) -> None:
    critic = keras.Sequential(
        [keras.Input((FEATURES,)), keras.layers.Dense(16, "leaky_relu"), keras.layers.Dense(1)], name="critic"
    )
    maker = keras.Sequential(
        [keras.Input((LATENT,)), keras.layers.Dense(16, "tanh"), keras.layers.Dense(FEATURES)], name="maker"
    )
    optimizers = keras.optimizers.Adam(0.01, beta_1=0.5), keras.optimizers.Adam(0.01, beta_1=0.5)
    for optimizer, model in zip(optimizers, (critic, maker), strict=True):
        optimizer.build(model.trainable_variables)
    entropy = keras.losses.BinaryCrossentropy(from_logits=True)
    if not seeded:
        tf.random.set_seed(None)

    def train_critic(real: Any, noise: Any) -> Any:
        with tf.GradientTape() as tape:
            told = critic(tf.concat([real, maker(noise, training=True)], 0), training=True)
            loss = entropy(tf.concat([tf.ones((ROWS, 1)), tf.zeros((ROWS, 1))], 0), told)
        optimizers[0].apply(tape.gradient(loss, critic.trainable_variables), critic.trainable_variables)
        return loss, noise

    def train_maker(noise: Any) -> Any:
        with tf.GradientTape() as tape:
            loss = entropy(tf.ones((ROWS, 1)), critic(maker(noise, training=True), training=True))
        optimizers[1].apply(tape.gradient(loss, maker.trainable_variables), maker.trainable_variables)
        return loss, noise

    if run.replayed is not None:
        given, steps = iter(run.replayed), (tf.function(train_critic), tf.function(train_maker))
        for i in run.steps():
            for step, real in zip(steps, ([batch(i)[0]], []), strict=True):
                loss, noise = step(*real, tf.constant(next(given)["noise"]))
                run.note(loss=loss, noise=noise)
    else:
        critic_step = run.wrap(tf.function(lambda real: train_critic(real, draw())))
        maker_step = run.wrap(tf.function(lambda: train_maker(draw())))
        for i in run.steps():
            for step, real in ((critic_step, [batch(i)[0]]), (maker_step, [])):
                loss, noise = step(*real)
                run.note(loss=loss, noise=noise)
    run.keep(critic=critic, maker=maker, of_critic=optimizers[0], of_maker=optimizers[1])
