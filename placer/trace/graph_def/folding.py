"""Prepares a traced GraphDef for placement: folds, inlines, drops needless control edges and old placements."""

from __future__ import annotations

import hashlib
from collections.abc import Collection, Sequence
from typing import Any

import tensorflow as tf

from placer import tf_internals
from placer.trace.graph_def.access_order import READS, AccessOrder
from placer.trace.graph_def.node_def import (
    called,
    handle_node,
    parse_input,
    redirected,
    rename_functions,
    set_inputs,
    source_of,
)

RIDERS = frozenset({"Const", "Placeholder"})  # placed with their consumers, never by a mapping

INLINED = "Func/"  # prefix that Grappler's inlining gives to the arguments of a call


def fold(
    graph_def: Any,
    variables: dict[str, tf.Variable],
    inputs: Sequence[str],
    outputs: Sequence[str],
    writes: Sequence[str],
) -> tuple[Any, tuple[str, ...]]:
    """Return (the folded GraphDef, its writes). Keeps all `inputs`, and the nodes that `outputs` and `writes` need."""
    graph_def = _with_handles(graph_def, variables)
    _keep_control_flow_whole(graph_def)
    bodies = list(graph_def.library.function)
    graph_def = tf_internals.functions.optimize_graph(graph_def, [*outputs, *writes, *inputs])
    _keep_bodies(graph_def, bodies)
    _name_by_body(graph_def, {body.signature.name for body in bodies})
    _drop_places(graph_def)
    _drop_idle_control(graph_def, outputs)
    writes = _open_calls(graph_def, writes)
    _drop_idle_control(graph_def, outputs)
    _read_once(graph_def)
    left = {node.name for node in graph_def.node}
    return graph_def, tuple(write for write in writes if write in left)


def _with_handles(graph_def: Any, variables: dict[str, tf.Variable]) -> Any:
    """Turn captured handles into VarHandleOps, whose shapes are known, so that shape arithmetic can be folded."""
    for node in graph_def.node:
        name, variable = node.name, variables.get(node.name)
        if variable is not None:
            node.Clear()
            node.CopyFrom(handle_node(name, variable, name))
    return graph_def


def _keep_bodies(graph_def: Any, bodies: Sequence[Any]) -> None:
    """Restore the bodies of loops and branches, because TensorFlow accepts only one definition under a name. Restore
    also the functions that these bodies call, which Grappler inlined and dropped.
    """
    known = {body.signature.name: body for body in bodies}
    library = graph_def.library.function
    there = {function.signature.name for function in library}
    stack = [function for function in library if function.signature.name in known]
    for function in stack:
        function.CopyFrom(known[function.signature.name])
    while stack:
        for node in stack.pop().node_def:
            for name in sorted({node.op, *called(node)} & known.keys() - there):
                there.add(name)
                library.add().CopyFrom(known[name])
                stack.append(known[name])


def _name_by_body(graph_def: Any, known: Collection[str]) -> None:
    """Give the functions that Grappler made names that tell their bodies apart. Grappler specialises a function for the
    constants of a call, and uses the same name for each signature of the step.
    """
    made = [function for function in graph_def.library.function if function.signature.name not in known]
    bodies = sorted(function.SerializeToString(deterministic=True) for function in made)
    digest = hashlib.sha256(b"".join(bodies)).hexdigest()[:12]
    rename_functions(graph_def, {f.signature.name: f"{f.signature.name}_{digest}" for f in made})


def _drop_places(graph_def: Any) -> None:
    """Remove devices and colocation that the user's scopes or inlining set."""
    for node in graph_def.node:
        node.device = ""
        node.attr.pop("_class", None)


def _drop_idle_control(graph_def: Any, outputs: Sequence[str]) -> None:
    """Drop control edges that order nothing, because each would be a transfer if it crossed devices.

    Constants, inputs, handles and NoOps behind only these are ready from the start. Returned tensors wait for every
    update, but the placed function has its updates as control outputs, so they run anyway. Ops on one variable keep
    their order even if it led through a dropped edge.
    """
    order = AccessOrder(graph_def)
    nodes = {node.name: node for node in graph_def.node}
    idle = {name for name in nodes if _is_idle(name, nodes)}
    unordered = {tensor.split(":")[0] for tensor in outputs} | idle
    for node in graph_def.node:
        controls = [i for i in node.input if i.startswith("^")]
        if controls:
            kept = [] if node.name in unordered else [c for c in controls if c[1:] not in idle]
            inputs = [i for i in node.input if not i.startswith("^")]
            set_inputs(node, [*inputs, *kept])
    order.restore()


def _is_idle(name: str, nodes: dict[str, Any]) -> bool:
    """Whether waiting for a node takes no time."""
    node = nodes[name]
    if node.op == "NoOp":
        return all(_is_idle(source_of(text), nodes) for text in node.input)
    return node.op in RIDERS or node.op == "VarHandleOp"


def _open_calls(graph_def: Any, writes: Sequence[str]) -> list[str]:
    """Remove what inlining leaves of calls with effects. Returns `writes` with each call replaced by the writes in it.

    For a call that had to be kept, Grappler leaves an IdentityN of the call's outputs that waits for its effects. The
    users of this IdentityN are connected to the outputs themselves, and it becomes a NoOp for nodes that wait for the
    effects.
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
    """An input text that bypasses the Identity nodes in `direct`."""
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
    """The ops with effects behind a write: the write itself, or the ops that it waits for if it is a NoOp."""
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
    """Drop NoOps and opened calls that no node uses or waits for any more."""
    nodes = list(graph_def.node)
    count = -1
    while count != len(nodes):
        count = len(nodes)
        used = {source_of(text) for node in nodes for text in node.input}
        nodes = [node for node in nodes if node.name in used or (node.op != "NoOp" and node.name not in opened)]
    _set_nodes(graph_def, nodes)


def _read_once(graph_def: Any) -> None:
    """Keep only the first of the reads of one variable that wait for the same ops, because they read the same value."""
    first: dict[tuple[str, ...], str] = {}
    twin: dict[str, str] = {}
    for node in graph_def.node:
        if node.op == "ReadVariableOp":
            twin[node.name] = first.setdefault((node.input[0], *sorted(node.input[1:])), node.name)
    twin = {name: kept for name, kept in twin.items() if name != kept}
    nodes = [node for node in graph_def.node if node.name not in twin]
    for node in nodes:
        _set_once(node, [redirected(text, twin) for text in node.input])
    _set_nodes(graph_def, nodes)


def _set_nodes(graph_def: Any, nodes: Sequence[Any]) -> None:
    kept = tf.compat.v1.GraphDef(node=nodes).node  # copies, because deleting would invalidate `nodes`
    del graph_def.node[:]
    graph_def.node.extend(kept)


def _set_once(node: Any, inputs: Sequence[str]) -> None:
    """Replace all inputs of a node; control inputs are deduplicated."""
    data = [text for text in inputs if not text.startswith("^")]
    set_inputs(node, [*data, *dict.fromkeys(text for text in inputs if text.startswith("^"))])


def _keep_control_flow_whole(graph_def: Any) -> None:
    """Run While and If as one op on one device; TensorFlow would lower them into many when instantiating."""
    for nodes in (graph_def.node, *(function.node_def for function in graph_def.library.function)):
        for node in nodes:
            node.attr.pop("_lower_using_switch_merge", None)
