"""Waits for GPUs: a call returns while its kernels still run, and their time would count towards the next step."""

from __future__ import annotations

from functools import cache

import tensorflow as tf


def drain() -> None:
    """Return when every GPU of this process is idle; at once if there is no GPU."""
    for gpu in _gpus():
        with tf.device(gpu):
            tf.raw_ops.SyncDevice()


def has_gpus() -> bool:
    """Whether there is a GPU to wait for."""
    return bool(_gpus())


@cache
def _gpus() -> tuple[str, ...]:
    return tuple(device.name for device in tf.config.list_logical_devices("GPU") if "/job:worker" not in device.name)
