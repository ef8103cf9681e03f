"""Host ops: ops that must run in the coordinating process under every mapping, and the ops they wait for."""

from __future__ import annotations

from typing import Any

import tensorflow as tf

from placer.errors import BadInputError, short
from placer.trace.graph_def.node_def import called, source_of

HOST_TYPES = frozenset(
    {"PyFunc", "PyFuncStateless", "EagerPyFunc", "Print", "PrintV2", "HashTableV2", "MutableHashTableV2"}
    | {"MutableHashTableOfTensorsV2", "MutableDenseHashTableV2", "AnonymousHashTable", "AnonymousMutableHashTable"}
    | {"Iterator", "IteratorV2", "AnonymousIterator", "AnonymousIteratorV2", "AnonymousIteratorV3", "OneShotIterator"}
)  # they need Python, its stdout, or make a resource
TIED_TYPES = ("Collective", "Horovod", "Nccl", "TPU", "Xla")


def host_ops(name: str, graph_def: Any) -> frozenset[str]:
    """The nodes that must run in the coordinating process: Python functions, and all ops on a resource that is not a
    variable, because that resource lives there.

    Raises BadInputError if such an op also takes a variable, which may be on another device, and for ops that can run
    only where the user put them.
    """
    python = _functions_with(graph_def, HOST_TYPES)
    with tf.Graph().as_default() as tf_graph:
        tf.graph_util.import_graph_def(graph_def, name="")
    host: set[str] = set()
    for op in _in_order(tf_graph):
        if op.type.startswith(TIED_TYPES):
            raise BadInputError(f"{name}: op {short(op.name)} ({op.type}) belongs where it is; it cannot be placed.")
        if op.type in HOST_TYPES or python & set(called(op.node_def)) or _takes_host_resource(op, host):
            host.add(op.name)
            taken = [made.name for made in map(_maker, op.inputs) if made.type == "VarHandleOp"]
            if taken:
                raise BadInputError(
                    f"{name}: op {short(op.name)} ({op.type}) takes the variable {short(taken[0])} along with an "
                    "iterator, a table or a Python function, so it cannot be placed; take those out of its body."
                )
    return frozenset(host)


def _in_order(tf_graph: Any) -> list[Any]:
    """The ops of an acyclic graph, inputs first."""
    done: dict[Any, None] = {}
    stack = list(tf_graph.get_operations())
    while stack:
        left = [t.op for t in stack[-1].inputs if t.op not in done]
        if left and stack[-1] not in done:
            stack += left
        else:
            done.setdefault(stack.pop())
    return list(done)


def _takes_host_resource(op: Any, host: set[str]) -> bool:
    """Whether an input is a handle of an iterator, table or dataset: from outside, or made by a host op."""
    return any(
        t.dtype in (tf.resource, tf.variant) and (t.op.type == "Placeholder" or t.op.name in host) for t in op.inputs
    )


def _maker(tensor: Any) -> Any:
    """The op that made a tensor, looking through Identity ops."""
    while tensor.op.type == "Identity":
        tensor = tensor.op.inputs[0]
    return tensor.op


def _functions_with(graph_def: Any, types: frozenset[str]) -> set[str]:
    """The functions of the library that contain an op of one of the `types`, or call a function that does."""
    found: set[str] = set()
    functions = graph_def.library.function
    before = -1
    while len(found) > before:
        before = len(found)
        for function in functions:
            if any(node.op in types or found & {node.op, *called(node)} for node in function.node_def):
                found.add(function.signature.name)
    return found


def behind_host(graph_def: Any, host: frozenset[str]) -> dict[str, list[str]]:
    """Host op -> the other ops that it waits for, directly or through host ops."""
    inputs = {node.name: [source_of(text) for text in node.input] for node in graph_def.node}
    behind = {}
    for name in host:
        seen, stack = {name: None}, [name]
        while stack:
            for source in inputs[stack.pop()]:
                if source not in seen:
                    seen[source] = None
                    stack += [source] if source in host else []
        behind[name] = [source for source in seen if source not in host]
    return behind
