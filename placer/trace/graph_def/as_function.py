"""A GraphDef as a function that TensorFlow can call."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import tensorflow as tf

from placer import tf_internals
from placer.trace.graph_def.node_def import source_of


def as_function(
    graph_def: Any, arguments: Mapping[str, tf.DType], outputs: Sequence[str], writes: Sequence[str] = ()
) -> Any:
    """A ConcreteFunction that takes values of the nodes `arguments`, in their order, and returns a list of the tensors
    `outputs`.

    arguments: name of a node -> the type of its value; tf.resource for the handle of a variable. writes: names of
    other nodes that a call runs.
    """
    body = type(graph_def)(library=graph_def.library, versions=graph_def.versions)
    body.node.extend(node for node in graph_def.node if node.name not in arguments)
    used = {source_of(text) for node in body.node for text in node.input}

    def function(*values: Any) -> list[Any]:
        tf_internals.graphs.mark_graph()
        fed = {f"{name}:0": value for name, value in zip(arguments, values, strict=True) if name in used}
        found = tf.graph_util.import_graph_def(body, input_map=fed, return_elements=[*outputs, *writes], name="")
        tf.compat.v1.get_default_graph().control_outputs.extend(found[len(outputs) :])
        return list(found[: len(outputs)])

    return tf.compat.v1.wrap_function(function, [tf.TensorSpec(None, dtype) for dtype in arguments.values()])
