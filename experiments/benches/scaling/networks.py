"""The networks of the bench scaling: small CNNs, MLPs and autoencoders, trained data-parallel in one placed step."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from typing import Any

import keras
import numpy as np
import tensorflow as tf

from experiments.benches.scaling.design import CHANNELS, CLASSES, INPUTS, SIDE, Config
from experiments.zoo import data
from experiments.zoo.training import TrainingStep, mean_cross_entropy
from placer.graph.mapping import Mapping
from placer.graph.op_graph import OpGraph
from placer.graph.topology import Topology

REPLICA = re.compile(r"(?:^|/)replica_(\d+)/")


def training(config: Config, seed: int = 0) -> TrainingStep:
    """A step in which each of `config.devices` replicas takes its share of the batch, in `config.chunks` chunks one
    after another. All gradients are averaged over examples and applied once.

    Its inputs are pairs (examples, wanted): those of each replica's chunks in turn.
    """
    rng = np.random.default_rng(seed)
    keras.utils.set_random_seed(seed)
    model, loss_of = _network(config)
    optimizer = _optimizer(str(config.settings["optimizer"]))
    optimizer.build(model.trainable_variables)
    batch = int(config.settings["batch"])
    parts = [_parts(part, config.chunks) for part in _parts(batch, config.devices)]
    inputs = tuple(tensor for part in parts for chunk in part for tensor in _examples(config, chunk, rng))

    def step(*tensors: Any) -> Any:
        variables = model.trainable_variables
        losses, gradients = [], []
        pairs = iter(zip(tensors[::2], tensors[1::2], strict=True))
        for i, part in enumerate(parts):
            with tf.name_scope(f"replica_{i}"):
                weighted = [(chunk / batch, *next(pairs)) for chunk in part]
                loss, summed = _accumulated(lambda x, wanted: loss_of(model, x, wanted), variables, weighted)
            gradients.append(summed)
            losses.append(loss)
        summed = [tf.add_n(list(of)) if len(of) > 1 else of[0] for of in zip(*gradients, strict=True)]
        optimizer.apply(summed, variables)
        return tf.add_n(losses)

    return TrainingStep(config.kind, step, inputs, model, optimizer)


def _accumulated(loss_of: Callable[..., Any], variables: Sequence[Any], weighted: Sequence[Any]) -> tuple[Any, Any]:
    """The weighted losses and their gradients, summed over (weight, examples, wanted). A chunk waits for the gradients
    of the chunk before, so that only one chunk is in memory at a time.
    """
    loss, summed = None, None
    for weight, x, wanted in weighted:
        with tf.control_dependencies(summed or []):
            with tf.GradientTape() as tape:
                found = loss_of(tf.identity(x), wanted) * weight
            gradients = tape.gradient(found, variables)
        summed = gradients if summed is None else [a + b for a, b in zip(summed, gradients, strict=True)]
        loss = found if loss is None else loss + found
    return loss, summed


def placement(graph: OpGraph, topology: Topology) -> Mapping:
    """Each replica's ops on a device of its own; variables, and the ops colocated with them, on the first one."""
    devices = [0] * len(graph)
    for unit in graph.colocated:
        found = REPLICA.search(graph.ops[unit[0]].name)
        if len(unit) == 1 and graph.ops[unit[0]].colocate is None and found:
            devices[unit[0]] = int(found[1])
    return Mapping(graph, topology, tuple(devices))


def _network(config: Config) -> tuple[Any, Callable[..., Any]]:
    """The model, and its loss on an input and the wanted output."""
    settings: dict[str, Any] = dict(config.settings)
    activation, layers = settings["activation"], settings["layers"]
    if config.kind == "cnn":
        x = image = keras.Input((SIDE, SIDE, CHANNELS))
        for _ in range(layers):
            x = keras.layers.Conv2D(settings["filters"], settings["kernel"], padding="same", activation=activation)(x)
        x = keras.layers.GlobalAveragePooling2D()(x)
        return keras.Model(image, keras.layers.Dense(CLASSES)(x)), _classification
    widths = [settings["hidden"]] * layers
    x = given = keras.Input((INPUTS,))
    if config.kind == "autoencoder":
        widths = [*widths, settings["code"], *widths]
    for width in widths:
        x = keras.layers.Dense(width, activation=activation)(x)
    if config.kind == "autoencoder":
        return keras.Model(given, keras.layers.Dense(INPUTS)(x)), _reconstruction
    return keras.Model(given, keras.layers.Dense(CLASSES)(x)), _classification


def _classification(model: Any, x: Any, labels: Any) -> Any:
    return mean_cross_entropy(labels, model(x, training=True))


def _reconstruction(model: Any, x: Any, wanted: Any) -> Any:
    """Squared errors summed over outputs, so that one step changes the loss visibly, and averaged over examples."""
    return tf.reduce_mean(tf.reduce_sum(tf.math.squared_difference(model(x, training=True), wanted), axis=1))


def _examples(config: Config, count: int, rng: np.random.Generator) -> tuple[Any, Any]:
    if config.kind == "cnn":
        return data.images(rng, count, SIDE, CHANNELS), data.labels(rng, CLASSES, count)
    x = data.vectors(rng, count, INPUTS)
    return x, x if config.kind == "autoencoder" else data.labels(rng, CLASSES, count)


def _parts(batch: int, devices: int) -> list[int]:
    return [batch // devices + (i < batch % devices) for i in range(devices)]


def _optimizer(name: str) -> Any:
    if name == "adam":
        return keras.optimizers.Adam(1e-3, name="adam")
    return keras.optimizers.SGD(1e-3, momentum=0.9 if name == "momentum" else 0.0, name="sgd")
