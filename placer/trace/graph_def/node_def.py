"""Parsing and replacing a NodeDef's inputs, and the NodeDef of a variable handle."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping
from typing import Any

import tensorflow as tf


def source_of(text: str) -> str:
    """The node that an input text names, in a GraphDef ("n:1", "^n") or a FunctionDef ("n:out:0")."""
    return text.lstrip("^").partition(":")[0]


def parse_input(text: str) -> tuple[str, int]:
    """A GraphDef input as (node, output index); -1 for a control input."""
    if text.startswith("^"):
        return text[1:], -1
    source, _, output = text.partition(":")
    return source, int(output or 0)


def redirected(text: str, names: Mapping[str, str]) -> str:
    """An input text with its node replaced as `names` says (old -> new)."""
    source = source_of(text)
    return text.replace(source, names[source], 1) if source in names else text


def set_inputs(node: Any, inputs: list[str]) -> None:
    """Replace all inputs of a node."""
    del node.input[:]
    node.input.extend(inputs)


def called(node: Any) -> Iterator[str]:
    """The functions that a node calls."""
    yield from (function.name for function in functions_of(node))


def functions_of(node: Any) -> Iterator[Any]:
    """The values of a node's attributes that name functions."""
    for value in node.attr.values():
        yield from (function for function in (value.func, *value.list.func) if function.name)


def rename_functions(graph_def: Any, new: Mapping[str, str]) -> None:
    """Give functions of a graph's library other names (old -> new), wherever they are called."""
    for function in graph_def.library.function:
        function.signature.name = new.get(function.signature.name, function.signature.name)
    for node in itertools.chain(graph_def.node, *(function.node_def for function in graph_def.library.function)):
        node.op = new.get(node.op, node.op)
        for function in functions_of(node):
            function.name = new.get(function.name, function.name)


def nodes_within(graph_def: Any) -> Iterator[Any]:
    """The nodes of a graph, and of all functions that it calls."""
    functions = {function.signature.name: function for function in graph_def.library.function}
    left, seen = [graph_def.node], set[str]()
    while left:
        for node in left.pop():
            yield node
            for name in {node.op, *called(node)} & functions.keys() - seen:
                seen.add(name)
                left.append(functions[name].node_def)


def handle_node(name: str, variable: tf.Variable, shared_name: str) -> Any:
    """A VarHandleOp for `variable`; equal shared names on one device are one variable."""
    node = tf.compat.v1.NodeDef(name=name, op="VarHandleOp")
    node.attr["dtype"].type = variable.dtype.as_datatype_enum
    node.attr["shape"].shape.CopyFrom(variable.shape.as_proto())
    node.attr["shared_name"].s = shared_name.encode()
    node.attr["container"].s = b""
    return node
