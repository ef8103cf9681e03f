"""The ops inside functions that a graph calls, with shapes inferred from the call's inputs."""

from __future__ import annotations

from typing import Any

import tensorflow as tf

from placer import tf_internals
from placer.trace.graph_def.folding import RIDERS
from placer.trace.op_counts.counts import Bodies


def bodies_of(graph_def: Any) -> Bodies:
    """Return a function that takes a tf.Operation of `graph_def` and returns the ops of the function that it calls,
    producers first, without constants and arguments; None if the called function is missing.
    """
    known = {function.signature.name: function for function in graph_def.library.function}

    def bodies(op: Any) -> list[Any] | None:
        function = known.get(op.get_attr("f").name)
        if function is None:
            return None
        body, _ = tf_internals.functions.function_graph(function)
        body.library.CopyFrom(graph_def.library)
        names = [argument.name for argument in function.signature.input_arg]
        _with_shapes(body, dict(zip(names, op.inputs, strict=True)))
        with tf.Graph().as_default() as graph:
            tf.graph_util.import_graph_def(body, name="")
        return [inner for inner in graph.get_operations() if inner.type not in RIDERS]

    return bodies


def _with_shapes(body: Any, given: dict[str, Any]) -> None:
    """Give arguments the shapes of the tensors passed for them. A variable's handle is replaced by a copy of its
    VarHandleOp, because only a VarHandleOp knows the shape of the value.
    """
    for node in body.node:
        tensor = given.get(node.name)
        if tensor is None:
            continue
        if tensor.op.type == "VarHandleOp":
            name = node.name
            node.CopyFrom(tensor.op.node_def)
            node.name = name
        else:
            node.attr["shape"].shape.CopyFrom(tensor.shape.as_proto())
