"""Loops as the code beside papers shows them: weights are changed twice in a step, copied, or differentiated twice."""

from __future__ import annotations

from typing import Any

import keras
import numpy as np
import tensorflow as tf

from experiments.loops.data import CLASSES, FEATURES, ROWS, batch, classifier, loss_of
from experiments.loops.run import Run

NOISE = 4  # numbers that a generator starts from
EVERY = 5  # steps between two copies


def sharpness_aware(run: Run) -> None:
    """Weights are moved uphill within the step, and back before they are updated (Foret et al. 2021)."""
    model, loss_fn = classifier(), loss_of()
    weights = model.trainable_variables
    optimizer = keras.optimizers.SGD(0.05, momentum=0.9)
    optimizer.build(weights)

    def gradients(x: Any, y: Any) -> Any:
        with tf.GradientTape() as tape:
            loss = loss_fn(y, model(x, training=True))
        return loss, tape.gradient(loss, weights)

    @tf.function
    def train_step(x: Any, y: Any) -> Any:
        loss, found = gradients(x, y)
        uphill = [0.05 * gradient / (tf.linalg.global_norm(found) + 1e-12) for gradient in found]
        for weight, move in zip(weights, uphill, strict=True):
            weight.assign_add(move)
        uphill_loss, found = gradients(x, y)
        for weight, move in zip(weights, uphill, strict=True):
            weight.assign_sub(move)
        optimizer.apply(found, weights)
        return loss, uphill_loss

    step = run.wrap(train_step)
    for i in run.steps():
        loss, uphill_loss = step(*batch(i))
        run.note(loss=loss, uphill_loss=uphill_loss)
    run.keep(model=model, optimizer=optimizer)


def lookahead(run: Run) -> None:
    """Every few steps, in a branch, slow weights follow the fast ones, which are reset to them (Zhang et al. 2019)."""
    model, loss_fn = classifier(), loss_of()
    weights = model.trainable_variables
    optimizer = keras.optimizers.Adam(0.02)
    optimizer.build(weights)
    slow = [tf.Variable(weight.value, trainable=False) for weight in weights]
    count = tf.Variable(0, trainable=False)

    @tf.function
    def train_step(x: Any, y: Any) -> Any:
        with tf.GradientTape() as tape:
            loss = loss_fn(y, model(x, training=True))
        optimizer.apply(tape.gradient(loss, weights), weights)
        if count.assign_add(1) % EVERY == 0:
            for behind, weight in zip(slow, weights, strict=True):
                behind.assign_add(0.5 * (weight - behind))
                weight.assign(behind)
        return loss

    step = run.wrap(train_step)
    for i in run.steps():
        run.note(loss=step(*batch(i)))
    run.keep(model=model, optimizer=optimizer, slow=slow, count=count)


def gradient_penalty(run: Run) -> None:
    """A critic with clipped weights, whose loss contains the gradient of its own output (Gulrajani et al. 2017)."""
    maker, critic = _dense(NOISE, FEATURES), _dense(FEATURES, 1)
    optimizers = [keras.optimizers.RMSprop(0.01) for _ in range(2)]
    for optimizer, model in zip(optimizers, (maker, critic), strict=True):
        optimizer.build(model.trainable_variables)

    @tf.function
    def train_critic(real: Any, noise: Any, share: Any) -> Any:
        made = maker(noise, training=True)
        with tf.GradientTape() as tape:
            with tf.GradientTape() as inner:
                mixed = share * real + (1 - share) * made
                inner.watch(mixed)
                judged = critic(mixed)
            penalty = tf.reduce_mean((tf.norm(inner.gradient(judged, mixed), axis=1) - 1) ** 2)
            loss = tf.reduce_mean(critic(made)) - tf.reduce_mean(critic(real)) + 10 * penalty
        optimizers[1].apply(tape.gradient(loss, critic.trainable_variables), critic.trainable_variables)
        for weight in critic.trainable_variables:
            weight.assign(tf.clip_by_value(weight, -2.0, 2.0))
        return loss, penalty

    @tf.function
    def train_maker(noise: Any) -> Any:
        with tf.GradientTape() as tape:
            loss = -tf.reduce_mean(critic(maker(noise, training=True)))
        optimizers[0].apply(tape.gradient(loss, maker.trainable_variables), maker.trainable_variables)
        return loss

    critic_step, maker_step = run.wrap(train_critic), run.wrap(train_maker)
    for i in run.steps():
        rng = np.random.default_rng([9, i])
        noise = tf.constant(rng.normal(size=(ROWS, NOISE)), tf.float32)
        for turn in range(2):
            share = tf.constant(rng.uniform(size=(ROWS, 1)), tf.float32)
            loss, penalty = critic_step(batch(2 * i + turn)[0], noise, share)
            run.note(loss=loss, penalty=penalty)
        run.note(maker=maker_step(noise))
    run.keep(maker=maker, critic=critic, **{f"optimizer{i}": one for i, one in enumerate(optimizers)})


def target_network(run: Run) -> None:
    """Double Q-learning: actions are chosen eagerly between steps, and a second network follows the first (van Hasselt
    et al. 2016).
    """
    values, target = _dense(FEATURES, CLASSES), _dense(FEATURES, CLASSES)
    target.set_weights(values.get_weights())
    optimizer = keras.optimizers.Adam(0.01, clipnorm=1.0)
    optimizer.build(values.trainable_variables)

    @tf.function
    def train_step(state: Any, action: Any, reward: Any, after: Any) -> Any:
        best = tf.gather(target(after), tf.argmax(values(after), 1), batch_dims=1)
        with tf.GradientTape() as tape:
            taken = tf.reduce_sum(values(state) * tf.one_hot(action, CLASSES), 1)
            loss = tf.reduce_mean(keras.losses.huber((reward + 0.9 * best)[:, None], taken[:, None]))
        optimizer.apply(tape.gradient(loss, values.trainable_variables), values.trainable_variables)
        return loss

    step = run.wrap(train_step)
    for i in run.steps():
        (state, action), (after, _) = batch(i), batch(i + 1)
        chosen = int(tf.argmax(values(state[:1]), 1)[0])
        run.note(loss=step(state, action, tf.reduce_sum(state, 1) * (1 + chosen), after), chosen=chosen)
        if i % EVERY == EVERY - 1:
            for behind, weight in zip(target.variables, values.variables, strict=True):
                behind.assign(0.9 * behind + 0.1 * weight)
    run.keep(values=values, target=target, optimizer=optimizer)


def _dense(taken: int, out: int) -> keras.Model:
    return keras.Sequential([keras.Input((taken,)), keras.layers.Dense(16, "tanh"), keras.layers.Dense(out)])
