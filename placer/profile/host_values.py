"""A step without its host ops, for sessions: a worker's process has neither this one's Python nor its tables."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from typing import Any

import tensorflow as tf

from placer import tf_internals
from placer.trace.capture import Captured
from placer.trace.graph_def.as_function import as_function
from placer.trace.graph_def.folding import RIDERS
from placer.trace.graph_def.node_def import parse_input, set_inputs, source_of
from placer.trace.host_ops import behind_host
from placer.trace.random_streams import DRAWS, Draws


def without_host_ops(captured: Captured, inputs: Sequence[Any], start: Mapping[str, Any] | None = None) -> Captured:
    """The step without its host ops; the step itself if it has none. What other ops take from them becomes a constant:
    the value that the host ops give for `inputs` in one run in this process. So the steps train nothing sensible, but
    take as long. The `graph` is the same. start: node name of each variable -> its value; None = the user's.
    """
    host = captured.host_ops
    if not host:
        return captured
    texts = [text for node in captured.graph_def.node if node.name not in host for text in node.input]
    outputs = [_tensor(text) for text in captured.output_names]
    taken = sorted(text for text in {*map(_tensor, texts), *outputs} if source_of(text) in host and text[0] != "^")
    constants = dict(zip(taken, map(_constant, taken, _values(captured, taken, inputs, start)), strict=True))
    graph_def = _rewired(captured, constants)
    left = {node.name for node in graph_def.node}
    return replace(
        captured,
        graph_def=graph_def,
        feeds={name: tensor for name, tensor in captured.feeds.items() if name in left},
        output_names=tuple(f"{constants[text].name}:0" if text in constants else text for text in outputs),
        writes=tuple(write for write in captured.writes if write not in host),
        host_ops=frozenset(),
    )


def _tensor(text: str) -> str:
    """The tensor of a data input ("n" is "n:0"); a control input as it is."""
    source, output = parse_input(text)
    return text if output < 0 else f"{source}:{output}"


def _constant(text: str, value: Any) -> Any:
    source, output = parse_input(text)
    node = tf.compat.v1.NodeDef(name=f"{source}/value_{output}", op="Const")
    node.attr["dtype"].type = value.dtype.as_datatype_enum
    node.attr["value"].tensor.CopyFrom(tf.make_tensor_proto(value))
    return node


def _values(
    captured: Captured, tensors: Sequence[str], inputs: Sequence[Any], start: Mapping[str, Any] | None
) -> list[Any]:
    """The values of `tensors` in a step on `inputs`; the user's variables stay as they are."""
    if not tensors:
        return []
    needed = _needed(captured.graph_def, set(map(source_of, tensors)))
    given = {**dict(zip(captured.input_names, inputs, strict=True)), **captured.feeds, DRAWS: Draws().next()}
    values = captured.variables if start is None else start
    copies = {n: tf.Variable(tf.identity(values[n]), trainable=False) for n in captured.variables if n in needed}
    given |= {name: tf_internals.variables.handle_of(copy) for name, copy in copies.items()}
    given = {name: tensor for name, tensor in given.items() if name in needed}
    part = type(captured.graph_def)(library=captured.graph_def.library, versions=captured.graph_def.versions)
    part.node.extend(node for node in captured.graph_def.node if node.name in needed)
    function = as_function(part, {name: tensor.dtype for name, tensor in given.items()}, tensors)
    found: list[Any] = function(*given.values())
    return found


def _needed(graph_def: Any, names: Collection[str]) -> set[str]:
    """The nodes `names`, and all nodes that these wait for."""
    inputs = {node.name: [source_of(text) for text in node.input] for node in graph_def.node}
    found, stack = set(names), list(names)
    while stack:
        fresh = [source for source in inputs[stack.pop()] if source not in found]
        found.update(fresh)
        stack += fresh
    return found


def _rewired(captured: Captured, constants: Mapping[str, Any]) -> Any:
    """The GraphDef with constants for host ops, and without feeds that only these took. A node that waited for a host
    op waits for what the host op waited for.
    """
    host, behind = captured.host_ops, behind_host(captured.graph_def, captured.host_ops)
    idle = {node.name for node in captured.graph_def.node if node.op in RIDERS or node.op == "VarHandleOp"}
    rewired = type(captured.graph_def)()
    rewired.CopyFrom(captured.graph_def)
    nodes = [node for node in rewired.node if node.name not in host]
    for node in nodes:
        texts = [_tensor(text) for text in node.input]
        data = [constants[t].name if t in constants else t.removesuffix(":0") for t in texts if t[0] != "^"]
        waits = [s for t in texts if t[0] == "^" for s in behind.get(t[1:], [t[1:]]) if s not in idle]
        set_inputs(node, [*data, *dict.fromkeys(f"^{source}" for source in waits)])
    used = {source_of(text) for node in nodes for text in node.input} | set(map(source_of, captured.output_names))
    nodes = [node for node in nodes if node.name in used or node.name not in captured.feeds]
    kept = tf.compat.v1.GraphDef(node=[*nodes, *constants.values()]).node  # deleting would invalidate `nodes`
    del rewired.node[:]
    rewired.node.extend(kept)
    return rewired
