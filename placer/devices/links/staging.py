"""Measures whether a batch reaches a GPU sooner through memory that the GPU reads by itself (pinned memory).

An input pipeline leaves a batch in ordinary memory. TensorFlow copies it to a pinned buffer with one thread, and sends
the buffer. But the output of a CPU op for a GPU lies in pinned memory from the start. So an op that only copies, with
all threads, can save more time than it takes (docs/decisions/038-staging.md).
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import tensorflow as tf

from placer.devices.links.link_probes import in_turn

SIZES = (1 << 20, 1 << 22, 1 << 24)  # bytes of the batches that are tried
FASTER = 0.9  # staging must take at most this share of the direct way's seconds
REPEATS = 7
FLOAT_BYTES = 4
NEVER_COPIED = (tf.string, tf.resource, tf.variant)  # a GPU cannot read these tensors


def stages_from(host: str, gpus: Sequence[str], clock: Callable[[], float] = time.perf_counter) -> int | None:
    """The smallest of SIZES from which staging is faster, for it and all larger ones; None if staging is not faster, or
    if the GPU has no room to try. host, gpus: TensorFlow's names of this process's CPU and GPUs; only the first GPU is
    measured.
    """
    found = None
    for size in reversed(SIZES) if gpus else ():
        ways = [_bringing(host, gpus[0], size, is_staged) for is_staged in (False, True)]
        try:
            direct_s, staged_s = in_turn(ways, clock, REPEATS)
        except tf.errors.ResourceExhaustedError:
            break
        if staged_s > FASTER * direct_s:
            break
        found = size
    return found


def on_gpus(tensors: Iterable[Any]) -> frozenset[int]:
    """Positions of the tensors that already lie on a GPU because the program put them there. Staging would move these
    back to the host first.
    """
    return frozenset(i for i, tensor in enumerate(tensors) if "/device:GPU:" in str(getattr(tensor, "device", "")))


def brought_s(
    host: str, gpu: str, size_bytes: int, *, is_staged: bool, clock: Callable[[], float] = time.perf_counter
) -> float:
    """Median seconds of bringing `size_bytes` to a GPU, less those of bringing next to nothing. Raises
    tf.errors.ResourceExhaustedError if the GPU has no room.
    """
    nothing = _bringing(host, gpu, FLOAT_BYTES, is_staged=False)
    nothing_s, took_s = in_turn([nothing, _bringing(host, gpu, size_bytes, is_staged)], clock, REPEATS)
    return max(0.0, took_s - nothing_s)


def _bringing(host: str, gpu: str, size_bytes: int, is_staged: bool) -> Callable[[], Any]:
    """A call that brings a tensor of `size_bytes` from the host's memory to a GPU, in a function that takes the tensor
    as a placed step takes its batch. The call's result is ready once the tensor has arrived.
    """

    def bring(tensor: tf.Tensor) -> tf.Tensor:
        with tf.device(host):
            sent = tf.raw_ops.DeepCopy(x=tensor) if is_staged else tensor
        with tf.device(gpu):
            return tf.reshape(sent[:1], [])

    with tf.device(host):
        batch = tf.ones([max(1, size_bytes // FLOAT_BYTES)])
    compiled = tf.function(bring, autograph=False)
    return lambda: compiled(batch)
