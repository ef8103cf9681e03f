"""A digest of what the ops of a captured step compute, which their names, types and edges do not tell."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping
from typing import Any

import tensorflow as tf

from placer import tf_internals
from placer.trace.graph_def.node_def import parse_input, source_of

FEW = 64  # most values of a constant that counts by value (limits, axes, sizes, rates), not just by type and shape
SEEDS = frozenset({"seed", "seed2"})  # drawn for each capture if the step has none


def content_of(graph_def: Any) -> str:
    """Sixteen hex digits over the attributes of all nodes, small constants, and the functions that are called.

    They are the same in every process and every capture, because neither names, whose numbers may differ, nor the order
    of nodes count.
    """
    known = {function.signature.name: function for function in graph_def.library.function}
    return _of_nodes(graph_def.node, {}, _Functions(known)).hex()[:16]


class _Functions:
    """Digests of functions by name."""

    def __init__(self, known: Mapping[str, Any]) -> None:
        self.known = known
        self.found: dict[str, bytes] = {}

    def digest(self, name: str) -> bytes:
        """The digest of a function's body; for the name of no known function, the name itself."""
        if name not in self.known:
            return name.encode()
        if name not in self.found:
            self.found[name] = b"itself"  # in case it calls itself
            function = self.known[name]
            given = {argument.name: i for i, argument in enumerate(function.signature.input_arg)}
            self.found[name] = _of_nodes(function.node_def, given, self)
        return self.found[name]


def _of_nodes(nodes: Iterable[Any], given: Mapping[str, int], functions: _Functions) -> bytes:
    """The digest of nodes, each with the outputs of other nodes that it takes. given: argument -> its position."""
    alone = {node.name: _of_node(node, functions) for node in nodes}
    return _hash(*sorted(_hash(alone[node.name], *_taken(node, alone, given)) for node in nodes))


def _taken(node: Any, alone: Mapping[str, bytes], given: Mapping[str, int]) -> list[bytes]:
    data = [text for text in node.input if not text.startswith("^")]
    control = sorted(alone.get(source_of(text), b"") for text in node.input if text.startswith("^"))
    return [*(_output(text, alone, given) for text in data), b"^", *control]


def _output(text: str, alone: Mapping[str, bytes], given: Mapping[str, int]) -> bytes:
    """The digest of a tensor, whose `text` is "node:1" in a graph and "node:name:1" in a function."""
    source, _, output = text.partition(":")
    if source in given:
        return str(given[source]).encode()
    number = output if ":" in output else parse_input(text)[1]
    return _hash(alone.get(source, b""), str(number).encode())


def _of_node(node: Any, functions: _Functions) -> bytes:
    found = [functions.digest(node.op)]
    chosen = tf_internals.op_types.enumerated_attributes(node.op)
    for key in sorted(node.attr):
        if not key.startswith("_") and key not in SEEDS:
            found += [key.encode(), *_of_attribute(node.attr[key], key in chosen, functions)]
    return _hash(*found)


def _of_attribute(value: Any, is_chosen: bool, functions: _Functions) -> list[bytes]:
    """What counts of an attribute. is_chosen: whether a text is one of an enumeration; other texts are names, which do
    not count because their numbers may differ.
    """
    kind = value.WhichOneof("value")
    if kind == "func":
        return [functions.digest(value.func.name)]
    if kind == "list" and value.list.func:
        return [functions.digest(function.name) for function in value.list.func]
    if kind == "tensor":
        return [_of_constant(value.tensor)]
    if not is_chosen and (kind == "s" or (kind == "list" and value.list.s)):
        return []
    return [value.SerializeToString(deterministic=True)]


def _of_constant(tensor: Any) -> bytes:
    shape, dtype = tf.TensorShape(tensor.tensor_shape), tf.as_dtype(tensor.dtype)
    about = f"{dtype.name} {shape}".encode()
    is_number = dtype not in (tf.string, tf.resource, tf.variant)
    few = is_number and (shape.num_elements() or 0) <= FEW
    return _hash(about, tf.make_ndarray(tensor).tobytes()) if few else about


def _hash(*parts: bytes) -> bytes:
    digest = hashlib.sha256()
    for part in parts:
        digest.update(len(part).to_bytes(4, "big") + part)
    return digest.digest()
