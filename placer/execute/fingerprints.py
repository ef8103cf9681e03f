"""Fingerprints of variables, made on the machines where they are, so that only eight bytes of each are fetched.

Fetching and comparing the values took most of building a mapping of a network with large variables
(docs/decisions/030-fingerprints.md).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import groupby
from typing import Any, NamedTuple

import numpy as np
import tensorflow as tf

from placer import tf_internals
from placer.execute.kept_functions import KeptFunctions
from placer.execute.variable_copies import Held, variables_of


class Fingerprinted(NamedTuple):
    """The properties of a variable that determine its nodes in the function."""

    cpu: str
    device: str
    dtype: int


def fingerprint(value: np.ndarray[Any, Any]) -> bytes:
    """The 64-bit FarmHash of an array's bytes."""
    with tf.device("CPU:0"):
        return bytes(tf.raw_ops.Fingerprint(data=tf.reshape(value, [1, -1]), method="farmhash64").numpy().tobytes())


class Fingerprints:
    """Makes fingerprints of variables by one call of one function, kept as in `KeptFunctions`."""

    def __init__(self) -> None:
        self._functions: KeptFunctions[tuple[Fingerprinted, ...]] = KeptFunctions("fingerprints", _function_def)

    def __call__(self, held: Mapping[str, Held]) -> dict[str, bytes]:
        """The fingerprint of each variable; for a variable in parts, those of its parts in order. A fingerprint does
        not depend on the device. Different values share one with a chance of 1 in 10^19. Raises a tf.errors.OpError if
        a device is gone.
        """
        parts = [(name, variable) for name, one in held.items() for variable in variables_of(one)]
        own = [Fingerprinted(_cpu_beside(v.device), v.device, v.dtype.as_datatype_enum) for _, v in parts]
        by_cpu = sorted(range(len(parts)), key=own.__getitem__)
        key = tuple(own[i] for i in by_cpu)
        handles = [tf_internals.variables.handle_of(parts[i][1]) for i in by_cpu]
        tensors = self._functions.call(key, handles, outputs=len({one.cpu for one in key}))
        made = dict(zip(by_cpu, (row.tobytes() for rows in tensors for row in rows.numpy()), strict=True))
        found = dict.fromkeys(held, b"")
        for i, (name, _) in enumerate(parts):
            found[name] += made[i]
        return found

    def forget(self) -> None:
        """As `KeptFunctions.forget`."""
        self._functions.forget()


def _cpu_beside(device: str) -> str:
    """TensorFlow's name of a CPU on the same machine: the op has no kernel for GPUs."""
    spec = tf.DeviceSpec.from_string(device)
    if spec.device_type == "CPU":
        return device
    return str(spec.replace(device_type="CPU", device_index=0).to_string())


def _function_def(name: str, key: Sequence[Fingerprinted]) -> tf_internals.functions.FunctionDef:
    """A function of handles, sorted by CPU: for each CPU, eight bytes per variable, as uint8 [n, 1, 8]."""
    function = tf_internals.functions.new_function(name)
    for cpu, group in groupby(enumerate(key), key=lambda one: one[1].cpu):
        rows = [_fingerprint(function, i, one) for i, one in group]
        node = function.node_def.add(name=f"rows_{rows[0]}", op="Pack", device=cpu)
        node.input.extend(f"fingerprint_{i}:fingerprint:0" for i in rows)
        node.attr["N"].i, node.attr["T"].type = len(rows), tf.uint8.as_datatype_enum
        function.signature.output_arg.add(name=node.name, type=tf.uint8.as_datatype_enum)
        function.ret[node.name] = f"{node.name}:output:0"
    return function


def _fingerprint(function: tf_internals.functions.FunctionDef, i: int, one: Fingerprinted) -> int:
    """Add the nodes for handle number `i`, and return it."""
    function.signature.input_arg.add(name=f"handle_{i}", type=tf.resource.as_datatype_enum)

    def add(what: str, op: str, *inputs: str) -> Any:
        return function.node_def.add(name=f"{what}_{i}", op=op, device=one.cpu, input=inputs)

    def constant(what: str, value: Any) -> None:
        node = add(what, "Const")
        node.attr["dtype"].type = value.dtype
        node.attr["value"].tensor.CopyFrom(value)

    read = add("read", "ReadVariableOp", f"handle_{i}")
    read.device, read.attr["dtype"].type = one.device, one.dtype
    constant("shape", tf.make_tensor_proto([1, -1], tf.int32))
    constant("method", tf.make_tensor_proto("farmhash64"))
    flat = add("flat", "Reshape", f"read_{i}:value:0", f"shape_{i}:output:0")
    flat.attr["T"].type, flat.attr["Tshape"].type = one.dtype, tf.int32.as_datatype_enum
    add("fingerprint", "Fingerprint", f"flat_{i}:output:0", f"method_{i}:output:0").attr["T"].type = one.dtype
    return i
