"""Loops that are written out, as tutorials on custom training show them."""

from __future__ import annotations

import threading
from typing import Any

import keras
import tensorflow as tf

from experiments.loops.data import CLASSES, FEATURES, ROWS, batch, classifier, loss_of
from experiments.loops.run import Run

EPOCH = 6  # steps


def scratch(run: Run) -> None:
    """Metrics are updated in the step, and the learning rate is set from Python between epochs."""
    model, loss_fn = classifier(), loss_of()
    optimizer = keras.optimizers.Adam(0.02)
    optimizer.build(model.trainable_variables)
    mean, accuracy = keras.metrics.Mean(), keras.metrics.SparseCategoricalAccuracy()

    @tf.function
    def train_step(x: Any, y: Any) -> Any:
        with tf.GradientTape() as tape:
            logits = model(x, training=True)
            loss = loss_fn(y, logits)
        optimizer.apply(tape.gradient(loss, model.trainable_variables), model.trainable_variables)
        mean.update_state(loss)
        accuracy.update_state(y, logits)
        return loss

    step = run.wrap(train_step)
    for i in run.steps(EPOCH):
        if i % EPOCH == 0:
            optimizer.learning_rate.assign(0.02 * 0.9 ** (i // EPOCH))
        loss = step(*batch(i))
        run.note(loss=loss, mean=mean.result(), norm=tf.nn.l2_loss(model.trainable_variables[0].value))
        if i % EPOCH == EPOCH - 1:
            run.note(accuracy=accuracy.result())
            mean.reset_state()
            accuracy.reset_state()
    run.keep(model=model, optimizer=optimizer, mean=mean, accuracy=accuracy)


def plain(run: Run) -> None:
    """A step without tf.function, and without any state of Python's."""
    model, loss_fn = classifier(), loss_of()
    optimizer = keras.optimizers.SGD(0.05, momentum=0.9)
    optimizer.build(model.trainable_variables)

    def train_step(x: Any, y: Any) -> Any:
        with tf.GradientTape() as tape:
            loss = loss_fn(y, model(x, training=True))
        optimizer.apply(tape.gradient(loss, model.trainable_variables), model.trainable_variables)
        return loss

    step = run.wrap(train_step)
    for i in run.steps():
        run.note(loss=step(*batch(i)))
    run.keep(model=model, optimizer=optimizer)


def accumulation(run: Run) -> None:
    """Gradients of three batches are added up in variables before the optimizer is given them."""
    model, loss_fn, every = classifier(), loss_of(), 3
    optimizer = keras.optimizers.Adam(0.02)
    optimizer.build(model.trainable_variables)
    sums = [tf.Variable(tf.zeros_like(v), trainable=False) for v in model.trainable_variables]
    count = tf.Variable(0, dtype=tf.int64, trainable=False)

    @tf.function
    def train_step(x: Any, y: Any) -> Any:
        with tf.GradientTape() as tape:
            loss = loss_fn(y, model(x, training=True)) / every
        for total, gradient in zip(sums, tape.gradient(loss, model.trainable_variables), strict=True):
            total.assign_add(gradient)
        if count.assign_add(1) % every == 0:
            optimizer.apply([total.read_value() for total in sums], model.trainable_variables)
            for total in sums:
                total.assign(tf.zeros_like(total))
        return loss

    step = run.wrap(train_step)
    for i in run.steps(every):
        run.note(loss=step(*batch(i)), waiting=tf.reduce_sum(sums[0]))
    run.keep(model=model, optimizer=optimizer, sums=sums, count=count)


def mixed_precision(run: Run) -> None:
    """Layers compute in float16, and the loss is scaled so that gradients do not vanish in it."""
    keras.mixed_precision.set_global_policy("mixed_float16")
    try:
        model, loss_fn = classifier(), loss_of()
    finally:
        keras.mixed_precision.set_global_policy("float32")
    optimizer = keras.optimizers.LossScaleOptimizer(keras.optimizers.SGD(0.05, momentum=0.9), dynamic_growth_steps=5)
    optimizer.build(model.trainable_variables)

    @tf.function
    def train_step(x: Any, y: Any) -> Any:
        with tf.GradientTape() as tape:
            loss = loss_fn(y, tf.cast(model(x, training=True), tf.float32))
            scaled = optimizer.scale_loss(loss)
        optimizer.apply(tape.gradient(scaled, model.trainable_variables), model.trainable_variables)
        return loss

    step = run.wrap(train_step)
    for i in run.steps():
        run.note(loss=step(*batch(i)), scale=optimizer.dynamic_scale)
    run.keep(model=model, optimizer=optimizer)


def stateful_rnn(run: Run) -> None:
    """The state of a recurrent layer lives in variables, and is reset between epochs."""
    inputs = keras.Input(batch_shape=(ROWS, 3, FEATURES // 3))
    hidden = keras.layers.LSTM(8, stateful=True, name="lstm")(inputs)
    model, loss_fn = keras.Model(inputs, keras.layers.Dense(CLASSES)(hidden)), loss_of()
    optimizer = keras.optimizers.RMSprop(0.01)
    optimizer.build(model.trainable_variables)

    @tf.function
    def train_step(x: Any, y: Any) -> Any:
        with tf.GradientTape() as tape:
            loss = loss_fn(y, model(tf.reshape(x, (ROWS, 3, FEATURES // 3)), training=True))
        optimizer.apply(tape.gradient(loss, model.trainable_variables), model.trainable_variables)
        return loss

    step = run.wrap(train_step)
    for i in run.steps(EPOCH):
        if i % EPOCH == 0:
            model.get_layer("lstm").reset_state()
        run.note(loss=step(*batch(i)))
    run.keep(model=model, optimizer=optimizer)


def averages_by_hand(run: Run) -> None:
    """tf.train.ExponentialMovingAverage follows plain variables."""
    init = keras.initializers.GlorotUniform(seed=3)
    weights = [tf.Variable(init((FEATURES, 16))), tf.Variable(tf.zeros(16)), tf.Variable(init((16, CLASSES)))]
    loss_fn, averages = loss_of(), tf.train.ExponentialMovingAverage(0.9)
    averages.apply(weights)

    @tf.function
    def train_step(x: Any, y: Any) -> Any:
        with tf.GradientTape() as tape:
            loss = loss_fn(y, tf.nn.tanh(x @ weights[0] + weights[1]) @ weights[2])
        for weight, gradient in zip(weights, tape.gradient(loss, weights), strict=True):
            weight.assign_sub(0.1 * gradient)
        averages.apply(weights)
        return loss

    step = run.wrap(train_step)
    for i in run.steps():
        run.note(loss=step(*batch(i)), average=averages.average(weights[1])[0])
    run.keep(weights=weights, averages=[averages.average(weight) for weight in weights])


def distillation(run: Run) -> None:
    """A student learns from a teacher whose weights are frozen."""
    teacher, student = classifier(24), classifier(8)
    teacher.trainable = False
    optimizer = keras.optimizers.AdamW(0.02, weight_decay=0.01)
    optimizer.build(student.trainable_variables)
    apart, loss_fn = keras.losses.KLDivergence(), loss_of()

    @tf.function
    def train_step(x: Any, y: Any) -> Any:
        told = tf.nn.softmax(teacher(x, training=False) / 2.0)
        with tf.GradientTape() as tape:
            logits = student(x, training=True)
            loss = loss_fn(y, logits) + 4.0 * apart(told, tf.nn.softmax(logits / 2.0))
        optimizer.apply(tape.gradient(loss, student.trainable_variables), student.trainable_variables)
        return loss

    step = run.wrap(train_step)
    for i in run.steps():
        run.note(loss=step(*batch(i)))
    run.keep(student=student, teacher=teacher, optimizer=optimizer)


def partial_batch(run: Run) -> None:
    """The last batch of each epoch is smaller."""
    model, loss_fn = classifier(), loss_of()
    optimizer = keras.optimizers.Adam(0.02)
    optimizer.build(model.trainable_variables)

    @tf.function
    def train_step(x: Any, y: Any) -> Any:
        with tf.GradientTape() as tape:
            loss = loss_fn(y, model(x, training=True))
        optimizer.apply(tape.gradient(loss, model.trainable_variables), model.trainable_variables)
        return loss

    step = run.wrap(train_step)
    for i in run.steps(EPOCH):
        run.note(loss=step(*batch(i, ROWS if i % EPOCH < EPOCH - 1 else 5)))
    run.keep(model=model, optimizer=optimizer)


def first_batch(run: Run) -> None:
    """The first call warms up on two rows; all others have more."""
    model, loss_fn = classifier(), loss_of()
    optimizer = keras.optimizers.SGD(0.05, momentum=0.9)
    optimizer.build(model.trainable_variables)

    @tf.function
    def train_step(x: Any, y: Any) -> Any:
        with tf.GradientTape() as tape:
            loss = loss_fn(y, model(x, training=True))
        optimizer.apply(tape.gradient(loss, model.trainable_variables), model.trainable_variables)
        return loss

    step = run.wrap(train_step)
    for i in run.steps():
        run.note(loss=step(*batch(i, ROWS if i else 2)))
    run.keep(model=model, optimizer=optimizer)


def schedule(run: Run) -> None:
    """Each call is given its learning rate as a Python float."""
    model, loss_fn = classifier(), loss_of()

    @tf.function(reduce_retracing=True)
    def train_step(x: Any, y: Any, rate: Any) -> Any:
        with tf.GradientTape() as tape:
            loss = loss_fn(y, model(x, training=True))
        for weight, gradient in zip(
            model.trainable_variables, tape.gradient(loss, model.trainable_variables), strict=True
        ):
            weight.assign_sub(rate * gradient)
        return loss

    step = run.wrap(train_step)
    for i in run.steps():
        run.note(loss=step(*batch(i), 0.1 / (1.0 + 0.25 * i)))
    run.keep(model=model)


def evaluating_thread(run: Run) -> None:
    """Another thread evaluates the model, and counts its steps, all the time."""
    model, loss_fn = classifier(), loss_of()
    optimizer = keras.optimizers.Adam(0.02)
    optimizer.build(model.trainable_variables)
    begun, done, ended, old = 0, 0, threading.Event(), list[str]()
    x_test, y_test = batch(2**20)

    @tf.function
    def train_step(x: Any, y: Any) -> Any:
        with tf.GradientTape() as tape:
            loss = loss_fn(y, model(x, training=True))
        optimizer.apply(tape.gradient(loss, model.trainable_variables), model.trainable_variables)
        return loss

    evaluate = tf.function(lambda x, y: loss_fn(y, model(x)))
    evaluate(x_test, y_test)

    def watch() -> None:
        while not ended.wait(0.002):
            least = done
            try:
                counted, loss = int(optimizer.iterations.numpy()), float(evaluate(x_test, y_test))
            except Exception as error:
                old.append(f"{type(error).__name__}: {error}")
                continue
            if not least <= counted <= begun or not loss > 0:
                old.append(f"{counted} steps were counted where {least} to {begun} were done, loss {loss}")

    step = run.wrap(train_step)
    thread = threading.Thread(target=watch)
    thread.start()
    try:
        for i in run.steps():
            begun = i + 1
            loss = step(*batch(i))
            done = i + 1
            run.note(loss=loss)
    finally:
        ended.set()
        thread.join()
    for reading in old:
        run.did(reading)
    run.note(evaluated=evaluate(x_test, y_test))
    run.keep(model=model, optimizer=optimizer)
