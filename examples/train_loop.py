"""Wrap a training loop: while it trains, Placer looks for a faster mapping of the step's ops to devices.

    python examples/train_loop.py --devices workers:2 --steps 600

The network has four columns of convolutions that meet at the last layer (after Ciresan et al. 2012), so that there is
something to spread; the images are random. Placer needs two lines, marked below.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Iterator
from typing import Any

import keras
import tensorflow as tf

import placer

SIDE, CLASSES = 32, 10


def columns(filters: int) -> keras.Model:
    image = keras.Input((SIDE, SIDE, 3))
    ends = []
    for _ in range(4):
        x = image
        for width in (filters, filters, 2 * filters):
            x = keras.layers.Conv2D(width, 3, padding="same", activation="relu")(x)
        ends.append(keras.layers.GlobalAveragePooling2D()(x))
    return keras.Model(image, keras.layers.Dense(CLASSES)(keras.layers.Concatenate()(ends)))


def batches(count: int, size: int) -> Iterator[tuple[Any, Any]]:
    images = tf.random.stateless_normal([size * 8, SIDE, SIDE, 3], [1, 2])
    labels = tf.random.stateless_uniform([size * 8], [3, 4], 0, CLASSES, tf.int32)
    return iter(tf.data.Dataset.from_tensor_slices((images, labels)).batch(size).repeat().take(count))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--devices", default="workers:2", help="workers:N, host:port,..., or 'here'")
    parser.add_argument("--steps", type=int, default=600)
    parser.add_argument("--batch", type=int, default=32)
    parser.add_argument("--filters", type=int, default=16)
    parser.add_argument("--budget", type=int, default=16, help="mappings measured at most")
    options = parser.parse_args()

    keras.utils.set_random_seed(0)
    model, optimizer = columns(options.filters), keras.optimizers.SGD(0.05, momentum=0.9)
    optimizer.build(model.trainable_variables)
    loss_of = keras.losses.SparseCategoricalCrossentropy(from_logits=True)

    @tf.function
    def train_step(x: tf.Tensor, y: tf.Tensor) -> tf.Tensor:
        with tf.GradientTape() as tape:
            loss = loss_of(y, model(x, training=True))
        optimizer.apply(tape.gradient(loss, model.trainable_variables), model.trainable_variables)
        return loss

    devices = None if options.devices == "here" else options.devices
    with placer.autoplace(train_step, devices=devices, budget=options.budget) as step:  # 1: wrap the step
        begin = time.perf_counter()
        for i, (x, y) in enumerate(batches(options.steps, options.batch), 1):
            loss = step(x, y)  # 2: call what it was wrapped in
            if i % 50 == 0 or i == options.steps:
                passed_s, begin = time.perf_counter() - begin, time.perf_counter()
                print(f"{i:5d}  loss {float(loss):.4f}  {passed_s / (i % 50 or 50) * 1e3:6.1f} ms a step  {step.phase}")
        print(step.report())
    print(f"trained {int(optimizer.iterations.numpy())} steps.")  # the variables are true, whoever asks


if __name__ == "__main__":
    main()
