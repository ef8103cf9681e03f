"""Asks devices whether they have room for a step, before anything is sent that they could not receive.

A worker whose allocator refuses an op's tensor answers with an error and lives on. A tensor that arrives and does not
fit ends the worker, and what trains there is lost (docs/decisions/026-memory-limits.md).
"""

from __future__ import annotations

import itertools
from collections.abc import Mapping

import tensorflow as tf

from placer import tf_internals
from placer.devices.cluster import Devices
from placer.devices.workers.deadline import waiting

PIECE_BYTES = 1 << 24  # if memory is free in pieces of this size, whole tensors seldom find it too fragmented
LEAST_BYTES = 1 << 20  # less is not worth a round trip
_serial = itertools.count()


def short_of_room(devices: Devices, wanted_bytes: Mapping[str, float]) -> str | None:
    """The first device that cannot give its `wanted_bytes` now; None if all can. wanted_bytes: by device name.

    Nothing is written, so memory is taken only in the allocator's books. Only workers in `devices` are asked.
    """
    for name, size in wanted_bytes.items():
        tf_name = devices.tf_names.get(name, "")
        if "/job:worker" in tf_name and size >= LEAST_BYTES and not _gives(tf_name, size):
            return name
    return None


def _gives(device: str, size: float) -> bool:
    pieces = [PIECE_BYTES] * int(size // PIECE_BYTES) + [int(size % PIECE_BYTES)]
    name = f"__placer_room_{next(_serial)}"
    tf_internals.functions.add_function(_function_def(name, device, [piece for piece in pieces if piece]))
    try:
        with waiting("devices were asked for memory", first=True):
            tf_internals.functions.call_function(name, [], 0, tf_internals.functions.plain_config())
    except tf.errors.ResourceExhaustedError:
        return False
    finally:
        tf_internals.functions.remove_function(name)
    return True


def _function_def(name: str, device: str, pieces: list[int]) -> tf_internals.functions.FunctionDef:
    """A function that holds a tensor for each of `pieces` (bytes), all at the same time. It allocates one after the
    other, because TensorFlow's allocator waits 10 s on each thread before it refuses.
    """
    function = tf_internals.functions.new_function(name)
    for i, size in enumerate(pieces):
        shape = function.node_def.add(name=f"shape_{i}", op="Const", device=device)
        shape.attr["dtype"].type = tf.int32.as_datatype_enum
        shape.attr["value"].tensor.CopyFrom(tf.make_tensor_proto([size], tf.int32))
        piece = function.node_def.add(name=f"piece_{i}", op="Empty", device=device, input=[f"shape_{i}:output:0"])
        if i:
            piece.input.append(f"^piece_{i - 1}")
        piece.attr["dtype"].type = tf.uint8.as_datatype_enum
        piece.attr["init"].b = False
    inputs = [f"piece_{i}:output:0" for i in range(len(pieces))]
    together = function.node_def.add(name="together", op="ShapeN", device=device, input=inputs)
    together.attr["N"].i = len(pieces)
    together.attr["T"].type, together.attr["out_type"].type = tf.uint8.as_datatype_enum, tf.int32.as_datatype_enum
    function.control_ret["together"] = "together"
    function.signature.control_output.append("together")
    return function
