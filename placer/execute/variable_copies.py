"""Copies many variables between devices by one call of one function.

One by one, each takes a round trip: 1.2 s for InceptionV3's 570 variables on another process, 0.2 s at once.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from typing import NamedTuple

import tensorflow as tf

from placer import tf_internals

_serial = itertools.count()
MOST_ROUTES = 16  # for which a function is kept: each move may need one of its own


class Pair(NamedTuple):
    """A variable to read, and the one of the same shape and type to write."""

    source: tf.Variable
    target: tf.Variable


class Transfers:
    """Copies variables; caches the function for each of the latest lists of (dtype, source device, target device)."""

    def __init__(self) -> None:
        self._names: dict[tuple[tuple[int, str, str], ...], str] = {}

    def __call__(self, pairs: Sequence[Pair]) -> None:
        """Copy each source into its target. Raises a tf.errors.OpError where a device is gone."""
        if not pairs:
            return
        ordered = sorted(pairs, key=_route)
        route = tuple(map(_route, ordered))
        name = self._names.pop(route, None)
        if name is None:
            name = f"__placer_transfer_{next(_serial)}"
            tf_internals.add_function(_function_def(name, route))
        self._names[route] = name  # the latest at the end
        if len(self._names) > MOST_ROUTES:
            tf_internals.remove_function(self._names.pop(next(iter(self._names))))
        handles = [tf_internals.handle_of(end) for end in (*(p.source for p in ordered), *(p.target for p in ordered))]
        tf_internals.call_function(name, handles, 0, tf_internals.plain_config())

    def forget(self) -> None:
        """Remove all cached functions; call it after reconnecting, because earlier ones must not be called again."""
        for name in self._names.values():
            tf_internals.remove_function(name)
        self._names.clear()


def _route(pair: Pair) -> tuple[int, str, str]:
    return pair.source.dtype.as_datatype_enum, pair.source.device, pair.target.device


def _function_def(name: str, route: Sequence[tuple[int, str, str]]) -> tf_internals.FunctionDef:
    """A function of handles, sources first: reads each on its device and assigns on the target's."""
    function = tf_internals.new_function(name)
    for kind in ("source", "target"):
        for i in range(len(route)):
            function.signature.input_arg.add(name=f"{kind}_{i}", type=tf.resource.as_datatype_enum)
    for i, (dtype, source, target) in enumerate(route):
        read = function.node_def.add(name=f"read_{i}", op="ReadVariableOp", device=source, input=[f"source_{i}"])
        read.attr["dtype"].type = dtype
        write = function.node_def.add(name=f"write_{i}", op="AssignVariableOp", device=target)
        write.input.extend([f"target_{i}", f"read_{i}:value:0"])
        write.attr["dtype"].type = dtype
        function.control_ret[f"write_{i}"] = f"write_{i}"
        function.signature.control_output.append(f"write_{i}")
    return function
