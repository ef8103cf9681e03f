"""Outputs of steps as arrays, and exceptions of placed steps as Failed values."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import tensorflow as tf

from placer.errors import what_failed
from placer.execute.agreement import LossDiffersError
from placer.execute.rewrite import PlacementError
from placer.number_format import mib
from placer.result import Failed, Reason
from placer.trace.python.kinds import is_tensor

OUT_OF_MEMORY = (
    "Dst tensor is not initialized",
    "ALLOC_FAILED",
    "OUT_OF_MEMORY",
    "out of memory",
    "Unable to parse tensor proto",
)


NO_ARRAYS = (tf.variant, tf.resource)  # dtypes of a tf.experimental.Optional or a dataset, for example

REASONS: tuple[tuple[type[Exception], Reason], ...] = (
    (LossDiffersError, "loss"),
    (PlacementError, "placement"),
    (tf.errors.ResourceExhaustedError, "memory"),
    (tf.errors.UnavailableError, "device"),
    (tf.errors.AbortedError, "device"),
    (tf.errors.OpError, "error"),
)


def attempted(run: Callable[[], Any]) -> Any:
    """Return what `run` returns, or a Failed with the reason for its exception."""
    try:
        return run()
    except tuple(kind for kind, _ in REASONS) as error:
        reason = next(reason for kind, reason in REASONS if isinstance(error, kind))
        if isinstance(error, tf.errors.OpError) and is_out_of_memory(error):
            reason = "memory"
        return Failed(reason, what_failed(error))


def out_of_memory(failed: Failed, name_of: Mapping[str, str], wanted_bytes: Mapping[str, float]) -> Failed:
    """The failure with the device that ran out of memory, and how much it would have held at once; unchanged if no
    device ran out.

    name_of: TensorFlow's device name -> our name. wanted_bytes: by device, as simulated. If TensorFlow does not say
    which device it was, the failure is unchanged, too.
    """
    device = next((name for tf_name, name in name_of.items() if tf_name in failed.detail), "")
    if failed.reason != "memory" or device not in wanted_bytes:
        return failed
    wanted = wanted_bytes[device]
    detail = f"{device} ran out of memory (as simulated, it would have held {mib(wanted)} at once): {failed.detail}"
    return Failed("memory", detail, device, wanted)


def no_room(device: str, wanted_bytes: float) -> Failed:
    """The failure of a mapping that was not set up, because a device said that it lacks the memory."""
    detail = f"{device} has no memory for it: as simulated, it would have held {mib(wanted_bytes)} at once."
    return Failed("memory", detail, device, wanted_bytes)


def is_out_of_memory(error: tf.errors.OpError) -> bool:
    """Whether a device ran out of memory; CUDA's libraries and copies to a GPU use messages of their own."""
    return isinstance(error, tf.errors.ResourceExhaustedError) or any(text in error.message for text in OUT_OF_MEMORY)


def values(outputs: Sequence[Any]) -> list[np.ndarray[Any, Any]]:
    """Returned tensors as arrays; waits until they are computed."""
    return [np.asarray(tensor.numpy()) for tensor in outputs]


def returned(outputs: Any) -> list[np.ndarray[Any, Any]]:
    """The tensors in a step's outputs of any structure, as arrays; waits until they are computed."""
    try:
        leaves = tf.nest.flatten(outputs, expand_composites=True)
    except (TypeError, ValueError):  # such as a dict whose keys have no order, with which no step can be traced
        return []
    return values([leaf for leaf in leaves if is_tensor(leaf) and leaf.dtype not in NO_ARRAYS])
