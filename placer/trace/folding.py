"""A traced GraphDef made ready to be placed: folded, inlined, and without whatever orders or places ops needlessly."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Any

import tensorflow as tf

from placer import tf_internals
from placer.trace.node_def import handle_node, parse_input, redirected, set_inputs, source_of

READS = frozenset({"ReadVariableOp", "ResourceGather", "ResourceGatherNd"})
RIDERS = frozenset({"Const", "Placeholder"})  # they go wherever their consumers are, so nobody places them

INLINED = "Func/"  # what Grappler's inlining calls the arguments of a call


def fold(
    graph_def: Any,
    variables: dict[str, tf.Variable],
    inputs: Sequence[str],
    outputs: Sequence[str],
    writes: Sequence[str],
) -> tuple[Any, tuple[str, ...]]:
    """(the folded GraphDef, its writes): only what `outputs` and `writes` need is left, and all `inputs`."""
    graph_def = _with_handles(graph_def, variables)
    _keep_control_flow_whole(graph_def)
    bodies = list(graph_def.library.function)
    graph_def = tf_internals.optimize_graph(graph_def, [*outputs, *writes, *inputs])
    _keep_bodies(graph_def, bodies)
    _drop_places(graph_def)
    _drop_idle_control(graph_def, outputs)
    writes = _open_calls(graph_def, writes)
    _drop_idle_control(graph_def, outputs)
    _read_once(graph_def)
    left = {node.name for node in graph_def.node}
    return graph_def, tuple(write for write in writes if write in left)


def _with_handles(graph_def: Any, variables: dict[str, tf.Variable]) -> Any:
    """Captured handles as VarHandleOps, whose shapes are known, so that shape arithmetic folds away."""
    for node in graph_def.node:
        name, variable = node.name, variables.get(node.name)
        if variable is not None:
            node.Clear()
            node.CopyFrom(handle_node(name, variable, name))
    return graph_def


def _keep_bodies(graph_def: Any, bodies: Sequence[Any]) -> None:
    """Bodies of loops and branches as TensorFlow already knows them: under one name it takes one definition."""
    known = {body.signature.name: body for body in bodies}
    for function in graph_def.library.function:
        if function.signature.name in known:
            function.CopyFrom(known[function.signature.name])


def _drop_places(graph_def: Any) -> None:
    """Devices and colocation of the caller's scopes, and those that inlining a function leaves, give way to ours."""
    for node in graph_def.node:
        node.device = ""
        node.attr.pop("_class", None)


def _drop_idle_control(graph_def: Any, outputs: Sequence[str]) -> None:
    """Drop control edges that order nothing: each would be a transfer where it crosses devices.

    Constants, inputs and handles are there from the start, and so is what waits for nothing else. Returned tensors
    wait for every update, but the placed function names its updates as control outputs, so they run all the same.
    """
    nodes = {node.name: node for node in graph_def.node}
    idle = {name for name in nodes if _is_idle(name, nodes)}
    unordered = {tensor.split(":")[0] for tensor in outputs} | idle
    for node in graph_def.node:
        controls = [i for i in node.input if i.startswith("^")]
        if controls:
            kept = [] if node.name in unordered else [c for c in controls if c[1:] not in idle]
            inputs = [i for i in node.input if not i.startswith("^")]
            set_inputs(node, [*inputs, *kept])


def _is_idle(name: str, nodes: dict[str, Any]) -> bool:
    """Whether a node makes nobody wait."""
    node = nodes[name]
    if node.op == "NoOp":
        return all(_is_idle(source_of(text), nodes) for text in node.input)
    return node.op in RIDERS or node.op == "VarHandleOp"


def _open_calls(graph_def: Any, writes: Sequence[str]) -> list[str]:
    """Take out what inlining leaves of calls with effects; the writes, with a call replaced by those made in it.

    Of a call that had to be kept Grappler leaves an IdentityN of its outputs, which waits for its effects. Here its
    users take the outputs themselves, and it stays as a NoOp, for those that wait for the effects.
    """
    nodes = {node.name: node for node in graph_def.node}
    direct: dict[str, list[str]] = {}
    for node in (nodes[name] for name in writes if name in nodes and nodes[name].op in ("Identity", "IdentityN")):
        direct[node.name] = [text for text in node.input if not text.startswith("^")]
        kept = tf.compat.v1.NodeDef(name=node.name, op="NoOp", input=[t for t in node.input if t.startswith("^")])
        node.CopyFrom(kept)
    for node in graph_def.node:
        if node.name.startswith(INLINED) and node.op == "Identity" and len(node.input) == 1:
            direct[node.name] = list(node.input)
    for node in graph_def.node:
        _set_once(node, [_opened(text, direct) for text in node.input])
    opened = dict.fromkeys(name for write in writes if write in nodes for name in _effects(write, nodes))
    _drop_unused(graph_def, direct)
    return list(opened)


def _opened(text: str, direct: dict[str, list[str]]) -> str:
    """An input text with what it takes from a call replaced by what the call took or made."""
    if text.startswith("^"):
        name = text[1:]
        while name in direct and name.startswith(INLINED):
            name = source_of(direct[name][0])
        return f"^{name}"
    source, output = parse_input(text)
    while source in direct:
        source, output = parse_input(direct[source][output])
    return f"{source}:{output}" if output else source


def _effects(write: str, nodes: dict[str, Any]) -> list[str]:
    """The ops with an effect that a write, where it is a NoOp, waits for."""
    found, stack, seen = [], [write], {write}
    while stack:
        node = nodes[stack.pop()]
        if node.op == "NoOp":
            fresh = [source for source in map(source_of, node.input) if source not in seen]
            seen.update(fresh)
            stack += fresh
        elif node.op not in READS:
            found.append(node.name)
    return found


def _drop_unused(graph_def: Any, opened: Collection[str]) -> None:
    """Drop NoOps and opened calls that nobody takes or waits for any more."""
    nodes = list(graph_def.node)
    count = -1
    while count != len(nodes):
        count = len(nodes)
        used = {source_of(text) for node in nodes for text in node.input}
        nodes = [node for node in nodes if node.name in used or (node.op != "NoOp" and node.name not in opened)]
    kept = tf.compat.v1.GraphDef(node=nodes).node
    del graph_def.node[:]
    graph_def.node.extend(kept)


def _read_once(graph_def: Any) -> None:
    """Reads of one variable that wait for the same ops read the same value: keep the first of them."""
    first: dict[tuple[str, ...], str] = {}
    twin: dict[str, str] = {}
    for node in graph_def.node:
        if node.op == "ReadVariableOp":
            twin[node.name] = first.setdefault((node.input[0], *sorted(node.input[1:])), node.name)
    twin = {name: kept for name, kept in twin.items() if name != kept}
    nodes = [node for node in graph_def.node if node.name not in twin]
    for node in nodes:
        _set_once(node, [redirected(text, twin) for text in node.input])
    kept = tf.compat.v1.GraphDef(node=nodes).node
    del graph_def.node[:]
    graph_def.node.extend(kept)


def _set_once(node: Any, inputs: Sequence[str]) -> None:
    """Replace all inputs of a node, each control input once."""
    data = [text for text in inputs if not text.startswith("^")]
    set_inputs(node, [*data, *dict.fromkeys(text for text in inputs if text.startswith("^"))])


def _keep_control_flow_whole(graph_def: Any) -> None:
    """While and If run as one op on one device instead of being taken apart when the function is made ready."""
    for node in graph_def.node:
        node.attr.pop("_lower_using_switch_merge", None)
