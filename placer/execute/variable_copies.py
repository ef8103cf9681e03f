"""Copies many variables between devices by one call of one function, cutting and joining those that are in parts.

One by one, each takes a round trip: 1.2 s for InceptionV3's 570 variables on another process, 0.2 s at once.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import pairwise
from typing import Any, NamedTuple, TypeAlias

import tensorflow as tf

from placer import tf_internals
from placer.execute.kept_functions import KeptFunctions
from placer.trace.capture import Captured

AT_ONCE_BYTES = 1 << 24  # a device holds arriving data twice until it is written


class DividedVariable(NamedTuple):
    """A variable that is kept as one variable per part: part i is [bounds[i], bounds[i + 1]) along `axis`."""

    parts: tuple[tf.Variable, ...]
    axis: int
    bounds: tuple[int, ...]


Held: TypeAlias = tf.Variable | DividedVariable
"""What holds the value of a variable."""


class Pair(NamedTuple):
    """A variable to read, and the one of the same shape and type to write; each of them may be in parts."""

    source: Held
    target: Held


class Places(NamedTuple):
    """The devices of a variable's parts, as in `DividedVariable`. A whole variable has one device and no bounds."""

    devices: tuple[str, ...]
    axis: int = 0
    bounds: tuple[int, ...] = ()

    def is_cut_like(self, other: Places) -> bool:
        """Whether part i has the same elements in both."""
        return (self.axis, self.bounds) == (other.axis, other.bounds)


Place = str | Places
"""The device of a whole variable, or the places of a divided one's parts."""


class Route(NamedTuple):
    """The properties of a pair that determine its nodes in the function."""

    dtype: int
    source: Places
    target: Places


class Transfers:
    """Copies variables; keeps the function for each of the latest lists of routes."""

    def __init__(self) -> None:
        self._functions: KeptFunctions[tuple[Route, ...]] = KeptFunctions("transfer", _function_def)

    def __call__(self, pairs: Sequence[Pair]) -> None:
        """Copy each source into its target, about AT_ONCE_BYTES at once. Raises a tf.errors.OpError if a device is
        gone.
        """
        for portion in _portions(pairs):
            self._copy(portion)

    def _copy(self, pairs: Sequence[Pair]) -> None:
        routes = sorted(((_route(pair), i) for i, pair in enumerate(pairs)))
        ends = (end for _, i in routes for end in pairs[i])
        handles = [tf_internals.variables.handle_of(variable) for end in ends for variable in variables_of(end)]
        self._functions.call(tuple(one for one, _ in routes), handles, outputs=0)

    def forget(self) -> None:
        """As `KeptFunctions.forget`."""
        self._functions.forget()


def _portions(pairs: Sequence[Pair]) -> list[list[Pair]]:
    """`pairs` in their order, in lists of about AT_ONCE_BYTES each."""
    portions: list[list[Pair]] = []
    portion_bytes = 0
    for pair in pairs:
        pair_bytes = sum(held_bytes(variable) for variable in variables_of(pair.target))
        if not portions or portion_bytes + pair_bytes > AT_ONCE_BYTES:
            portions.append([])
            portion_bytes = 0
        portions[-1].append(pair)
        portion_bytes += pair_bytes
    return portions


def held_bytes(variable: tf.Variable) -> int:
    """Bytes that the value of a variable takes on its device."""
    return int(variable.shape.num_elements() or 0) * int(variable.dtype.size)


def variables_of(held: Held) -> tuple[tf.Variable, ...]:
    """The variables that hold a value."""
    return held.parts if isinstance(held, DividedVariable) else (held,)


def nodes_of(captured: Captured, node: str) -> tuple[str, ...]:
    """The nodes of `captured` for a variable of the whole step: its own, or those of its parts."""
    there = captured.divided.get(node)
    return (node,) if there is None else there.nodes


def by_whole_node(captured: Captured, variables: Mapping[str, tf.Variable]) -> dict[str, Held]:
    """Node of each variable of the whole step -> what holds it. variables: by the nodes of `captured`."""
    found: dict[str, Held] = {}
    for node in captured.whole.variables:
        mine = tuple(variables[part] for part in nodes_of(captured, node))
        there = captured.divided.get(node)
        found[node] = mine[0] if there is None else DividedVariable(mine, there.axis, there.bounds)
    return found


def by_node(captured: Captured, held: Mapping[str, Held]) -> dict[str, tf.Variable]:
    """The inverse of `by_whole_node`."""
    found: dict[str, tf.Variable] = {}
    for node, one in held.items():
        found.update(zip(nodes_of(captured, node), variables_of(one), strict=True))
    return found


def places_of(captured: Captured, device_of: Mapping[str, str]) -> list[Place]:
    """The places at which a step needs the variables of the whole step, in their order. device_of: node -> device."""
    found: list[Place] = []
    for node in captured.whole.variables:
        devices = tuple(device_of[part] for part in nodes_of(captured, node))
        there = captured.divided.get(node)
        found.append(devices[0] if there is None else Places(devices, there.axis, there.bounds))
    return found


def _route(pair: Pair) -> Route:
    dtype = variables_of(pair.source)[0].dtype
    return Route(dtype.as_datatype_enum, _places(pair.source), _places(pair.target))


def _places(held: Held) -> Places:
    devices = tuple(variable.device for variable in variables_of(held))
    return Places(devices, held.axis, held.bounds) if isinstance(held, DividedVariable) else Places(devices)


def _function_def(name: str, routes: Sequence[Route]) -> tf_internals.functions.FunctionDef:
    """A function that reads sources and assigns targets. Its arguments are handles: for each route those of the source,
    then those of the target.
    """
    function = tf_internals.functions.new_function(name)
    for i, route in enumerate(routes):
        for kind, end in (("source", route.source), ("target", route.target)):
            for k in range(len(end.devices)):
                function.signature.input_arg.add(name=f"{kind}_{i}_{k}", type=tf.resource.as_datatype_enum)
    for i, route in enumerate(routes):
        _Copy(function, i, route).add()
    return function


class _Copy:
    """The nodes for one route. If both ends have the same parts, each part is copied without joining or cutting."""

    def __init__(self, function: tf_internals.functions.FunctionDef, number: int, route: Route) -> None:
        self.function, self.number, self.route = function, number, route

    def add(self) -> None:
        source, target = self.route.source, self.route.target
        values = [self._read(k, device) for k, device in enumerate(source.devices)]
        if not source.is_cut_like(target):
            at = target.devices[0] if source.bounds else source.devices[0]
            whole = self._joined(values, at) if source.bounds else values[0]
            values = self._cut(whole, at) if target.bounds else [whole]
        for k, (device, value) in enumerate(zip(target.devices, values, strict=True)):
            self._write(k, device, value)

    def _read(self, k: int, device: str) -> str:
        node = self._node("ReadVariableOp", f"read_{k}", device, [f"source_{self.number}_{k}"])
        node.attr["dtype"].type = self.route.dtype
        return f"{node.name}:value:0"

    def _write(self, k: int, device: str, value: str) -> None:
        node = self._node("AssignVariableOp", f"write_{k}", device, [f"target_{self.number}_{k}", value])
        node.attr["dtype"].type = self.route.dtype
        self.function.control_ret[node.name] = node.name
        self.function.signature.control_output.append(node.name)

    def _joined(self, values: Sequence[str], device: str) -> str:
        axis = self._constant("source_axis", device, self.route.source.axis)
        node = self._node("ConcatV2", "joined", device, [*values, axis])
        node.attr["N"].i = len(values)
        node.attr["T"].type, node.attr["Tidx"].type = self.route.dtype, tf.int32.as_datatype_enum
        return f"{node.name}:output:0"

    def _cut(self, whole: str, device: str) -> list[str]:
        devices, axis, bounds = self.route.target
        sizes = self._constant("sizes", device, [b - a for a, b in pairwise(bounds)])
        node = self._node("SplitV", "cut", device, [whole, sizes, self._constant("target_axis", device, axis)])
        node.attr["num_split"].i = len(devices)
        node.attr["T"].type, node.attr["Tlen"].type = self.route.dtype, tf.int32.as_datatype_enum
        return [f"{node.name}:output:{k}" for k in range(len(devices))]

    def _constant(self, what: str, device: str, value: Any) -> str:
        node = self._node("Const", what, device, [])
        node.attr["dtype"].type = tf.int32.as_datatype_enum
        node.attr["value"].tensor.CopyFrom(tf.make_tensor_proto(value, tf.int32))
        return f"{node.name}:output:0"

    def _node(self, op: str, what: str, device: str, inputs: Sequence[str]) -> Any:
        return self.function.node_def.add(name=f"{what}_of_{self.number}", op=op, device=device, input=inputs)
