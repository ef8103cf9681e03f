"""The ops of the functions that ops of a graph call, with the shapes that follow from those they are called with."""

from __future__ import annotations

from typing import Any

import tensorflow as tf

from placer import tf_internals
from placer.graph.op_counts import Bodies
from placer.trace.folding import RIDERS


def bodies_of(graph_def: Any) -> Bodies:
    """What tells the ops of the function that a tf.Operation of `graph_def` calls, producers first, constants and
    arguments left out; None where the function is not there.
    """
    known = {function.signature.name: function for function in graph_def.library.function}

    def bodies(op: Any) -> list[Any] | None:
        function = known.get(op.get_attr("f").name)
        if function is None:
            return None
        body, _ = tf_internals.function_graph(function)
        body.library.CopyFrom(graph_def.library)
        names = [argument.name for argument in function.signature.input_arg]
        _with_shapes(body, dict(zip(names, op.inputs, strict=True)))
        with tf.Graph().as_default() as graph:
            tf.graph_util.import_graph_def(body, name="")
        return [inner for inner in graph.get_operations() if inner.type not in RIDERS]

    return bodies


def _with_shapes(body: Any, given: dict[str, Any]) -> None:
    """Arguments take the shapes of the tensors that are given for them; a variable's handle is made anew, for the shape
    of what is read from it is known by its maker alone.
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
