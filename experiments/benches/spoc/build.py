"""The networks of the bench `spoc`, built in Keras: applications, chains, branches and random cells."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

import keras
import numpy as np

from experiments.benches.spoc.networks import Network
from experiments.zoo import applications, data
from experiments.zoo.applications import SIDES
from experiments.zoo.training import TrainingStep, classifier

CLASSES = 10  # of the generated networks
NODES = 4  # of a cell


def build(network: Network) -> TrainingStep:
    """The network's training step by plain SGD on one random batch."""
    rng = np.random.default_rng(0)
    options = dict(network.options)
    if network.kind in SIDES:
        model, classes = applications.model(network.kind, network.side, **options), applications.CLASSES
    else:
        model, classes = GENERATORS[network.kind](network.side, **options), CLASSES
    shape = model.input_shape[1:]
    x, y = data.vectors(rng, network.batch, *shape), data.labels(rng, classes, network.batch)
    return classifier(model, keras.optimizers.SGD(0.01), x, y, network.name)


def _dense_chain(side: int, width: int, depth: int) -> Any:
    """`depth` square layers on vectors of `width`."""
    start = x = keras.Input((width,))
    for _ in range(depth):
        x = keras.layers.Dense(width, activation="relu")(x)
    return keras.Model(start, keras.layers.Dense(CLASSES)(x))


def _conv_chain(side: int, filters: int, depth: int) -> Any:
    """`depth` 3x3 convolutions without normalisation; the image's sides are halved in the middle."""
    return _image_network(side, lambda x: _chain(x, depth, lambda x: _conv(x, filters)))


def _separable_chain(side: int, filters: int, depth: int) -> Any:
    """A chain of normalised depthwise separable convolutions."""
    return _image_network(side, lambda x: _chain(_conv(x, filters), depth, lambda x: _normed(_separable(x, filters))))


def _branches(side: int, filters: int, branches: int, depth: int) -> Any:
    """Chains of normalised convolutions side by side, concatenated at the end."""

    def body(x: Any) -> Any:
        ends = [_chain(x, depth, lambda x: _normed(_conv(x, filters))) for _ in range(branches)]
        return keras.layers.Concatenate()(ends)

    return _image_network(side, body)


def _cells(side: int, seed: int, filters: int, cells: int) -> Any:
    """Cells that share one random wiring, as in architecture search (Zoph et al. 2018)."""
    rng = random.Random(seed)
    plan = [[(node, rng.choice(list(EDGES))) for node in _some(rng, i + 1)] for i in range(NODES)]

    def body(x: Any) -> Any:
        x = _conv(x, filters)
        for number in range(cells):
            if number and number % 3 == 0:
                x = keras.layers.MaxPooling2D()(x)
            x = _normed(_cell(x, plan, filters))
        return x

    return _image_network(side, body)


def _some(rng: random.Random, count: int) -> list[int]:
    """One or two of the earlier nodes."""
    return sorted(rng.sample(range(count), min(count, rng.choice((1, 2)))))


def _cell(x: Any, plan: list[list[tuple[int, str]]], filters: int) -> Any:
    """A cell: every node adds up the results of its edges from earlier nodes; nodes that no other uses are joined."""
    nodes, taken = [x], set()
    for edges in plan:
        made = [EDGES[kind](nodes[source], filters) for source, kind in edges]
        taken |= {source for source, _ in edges}
        nodes.append(made[0] if len(made) == 1 else keras.layers.Add()(made))
    ends = [node for i, node in enumerate(nodes) if i not in taken]
    joined = ends[0] if len(ends) == 1 else keras.layers.Concatenate()(ends)
    return joined if joined.shape[-1] == filters else keras.layers.Conv2D(filters, 1)(joined)


def _image_network(side: int, body: Callable[[Any], Any]) -> Any:
    image = keras.Input((side, side, 3))
    pooled = keras.layers.GlobalAveragePooling2D()(body(image))
    return keras.Model(image, keras.layers.Dense(CLASSES)(pooled))


def _chain(x: Any, depth: int, layer: Callable[[Any], Any]) -> Any:
    for i in range(depth):
        if i and i == depth // 2:
            x = keras.layers.MaxPooling2D()(x)
        x = layer(x)
    return x


def _conv(x: Any, filters: int) -> Any:
    return keras.layers.Conv2D(filters, 3, padding="same", activation="relu")(x)


def _separable(x: Any, filters: int) -> Any:
    return keras.layers.SeparableConv2D(filters, 3, padding="same")(x)


def _normed(x: Any) -> Any:
    return keras.layers.ReLU()(keras.layers.BatchNormalization()(x))


EDGES: dict[str, Callable[[Any, int], Any]] = {
    "3x3": _conv,
    "1x1": lambda x, filters: keras.layers.Conv2D(filters, 1, activation="relu")(x),
    "separable": _separable,
    "pool": lambda x, filters: keras.layers.AveragePooling2D(3, 1, padding="same")(x),
    "as it is": lambda x, filters: x,
}
"""The operations that an edge of a cell may have."""
GENERATORS: dict[str, Callable[..., Any]] = {
    "dense_chain": _dense_chain,
    "conv_chain": _conv_chain,
    "separable_chain": _separable_chain,
    "branches": _branches,
    "cells": _cells,
}
