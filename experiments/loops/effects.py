"""Loops whose steps write summaries, call Python or count, and one whose data set reads weights."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import keras
import tensorflow as tf

from experiments.loops.data import CLASSES, FEATURES, ROWS, Batch, batch, classifier, loss_of
from experiments.loops.run import Run


def summary(run: Run) -> None:
    """The step writes its loss to an event file."""
    model, loss_fn = classifier(), loss_of()
    optimizer = keras.optimizers.SGD(0.05)
    optimizer.build(model.trainable_variables)
    writer = tf.summary.create_file_writer(str(run.folder / "logs"))

    @tf.function
    def train_step(x: Any, y: Any, at: Any) -> Any:
        with tf.GradientTape() as tape:
            loss = loss_fn(y, model(x, training=True))
        optimizer.apply(tape.gradient(loss, model.trainable_variables), model.trainable_variables)
        with writer.as_default():
            tf.summary.write("loss", loss, step=at)
        return loss

    step = run.wrap(train_step)
    for i in run.steps():
        run.note(loss=step(*batch(i), tf.constant(i, tf.int64)))
    writer.close()
    for event in _events(str(run.folder / "logs")):
        run.did(event)
    run.keep(model=model, optimizer=optimizer)


def _events(folder: str) -> Iterator[tuple[int, str, float]]:
    """Step, tag and value of all summaries."""
    for path in sorted(tf.io.gfile.glob(f"{folder}/*")):
        for record in tf.data.TFRecordDataset(path):
            event = tf.compat.v1.Event.FromString(record.numpy())
            for value in event.summary.value:
                yield event.step, value.tag, float(tf.make_ndarray(value.tensor))


def python_function(run: Run) -> None:
    """The step calls Python with its loss."""
    model, loss_fn = classifier(), loss_of()
    optimizer = keras.optimizers.SGD(0.05)
    optimizer.build(model.trainable_variables)

    def tell(loss: Any) -> None:
        run.did(float(loss))

    @tf.function
    def train_step(x: Any, y: Any) -> Any:
        with tf.GradientTape() as tape:
            loss = loss_fn(y, model(x, training=True))
        optimizer.apply(tape.gradient(loss, model.trainable_variables), model.trainable_variables)
        tf.py_function(tell, [loss], [])
        return loss

    step = run.wrap(train_step)
    for i in run.steps():
        run.note(loss=step(*batch(i)))
    run.keep(model=model, optimizer=optimizer)


def python_state(run: Run) -> None:
    """A step in plain Python counts its calls and takes its learning rate from a list."""
    model, loss_fn = classifier(), loss_of()
    rate, calls = [0.1], 0

    def train_step(x: Any, y: Any) -> Any:
        nonlocal calls
        calls += 1
        with tf.GradientTape() as tape:
            loss = loss_fn(y, model(x, training=True))
        for weight, gradient in zip(
            model.trainable_variables, tape.gradient(loss, model.trainable_variables), strict=True
        ):
            weight.assign_sub(rate[0] * gradient)
        return loss

    step = run.wrap(train_step)
    for i in run.steps():
        rate[0] = 0.1 if i % 9 else 0.0
        run.note(loss=step(*batch(i)), calls=calls)
    run.keep(model=model)


def hard_examples(run: Run) -> None:
    """The generator of a data set looks at the weights to make the next batch."""
    init = keras.initializers.GlorotUniform(seed=3)
    weights = [tf.Variable(init((FEATURES, 16))), tf.Variable(init((16, CLASSES)))]
    loss_fn = loss_of()

    def generate() -> Iterator[Batch]:
        for i in range(2**30):
            x, y = batch(i)
            yield x / (1.0 + tf.reduce_mean(tf.square(weights[0]))), y

    examples = tf.data.Dataset.from_generator(
        generate, output_signature=(tf.TensorSpec((ROWS, FEATURES)), tf.TensorSpec((ROWS,), tf.int64))
    )
    options = tf.data.Options()
    options.experimental_optimization.inject_prefetch = False  # which reads weights at any time, wrapped or not
    examples = examples.with_options(options)

    @tf.function
    def train_step(x: Any, y: Any) -> Any:
        with tf.GradientTape() as tape:
            loss = loss_fn(y, tf.nn.tanh(x @ weights[0]) @ weights[1])
        for weight, gradient in zip(weights, tape.gradient(loss, weights), strict=True):
            weight.assign_sub(0.3 * gradient)
        return loss

    step = run.wrap(train_step)
    for _, (x, y) in zip(run.steps(), examples):  # noqa: B905  the examples never end
        run.note(x=x[0, 0], loss=step(x, y))
    run.keep(weights=weights)
