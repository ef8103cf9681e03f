"""Example batches: random, of the right shape, and the same for the same generator state.

They lie in the host's memory, as an input pipeline leaves them: on a GPU every step pays for bringing its batch there.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import tensorflow as tf

HOST = "CPU:0"


def on_host(values: np.ndarray[Any, Any]) -> tf.Tensor:
    """An array as a tensor in the host's memory."""
    with tf.device(HOST):
        return tf.constant(values)


def images(rng: np.random.Generator, batch: int, side: int, channels: int = 3) -> tf.Tensor:
    """Standard-normal pixels, float32 [batch, side, side, channels]."""
    return vectors(rng, batch, side, side, channels)


def vectors(rng: np.random.Generator, *shape: int) -> tf.Tensor:
    """Standard-normal float32 of the given shape."""
    return on_host(rng.standard_normal(shape, dtype=np.float32))


def labels(rng: np.random.Generator, classes: int, *shape: int) -> tf.Tensor:
    """Uniform int32 in 0..classes-1 of the given shape."""
    return on_host(rng.integers(classes, size=shape, dtype=np.int32))


def zipf(rng: np.random.Generator, count: int, *shape: int) -> np.ndarray[tuple[int, ...], np.dtype[np.int32]]:
    """Ids in 0..count-1, of which id i comes up with probability about log(1 + 1/(i+1)) / log(count+1).

    The log-uniform law, which stands in for the popularity of words and items
    (as in `tf.random.log_uniform_candidate_sampler`).
    """
    drawn = np.exp(rng.uniform(0.0, np.log(count + 1.0), size=shape)) - 1.0
    return np.minimum(drawn, count - 1).astype(np.int32)
