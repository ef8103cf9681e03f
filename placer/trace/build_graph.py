"""The OpGraph of a GraphDef: its ops with what they compute and hold, and the tensors between them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import tensorflow as tf

from placer import tf_internals
from placer.graph.merging import UnionFind
from placer.graph.op_graph import Edge, Op, OpGraph
from placer.trace.graph_def.folding import RIDERS
from placer.trace.graph_def.function_bodies import bodies_of
from placer.trace.graph_def.node_def import parse_input, source_of
from placer.trace.graph_def.phases import op_phases
from placer.trace.host_ops import behind_host
from placer.trace.op_counts.counts import counts_of


def build_graph(
    name: str,
    graph_def: Any,
    variables: dict[str, tf.Variable],
    outputs: Sequence[str],
    host: frozenset[str] = frozenset(),
    content: str | None = None,
) -> OpGraph:
    """The OpGraph of a folded GraphDef. Constants and inputs are left out because they are placed with their consumers.
    `host` ops are left out, too, but a wait that leads through them is kept as a control edge. content: as
    `OpGraph.content`.
    """
    with tf.Graph().as_default() as tf_graph:
        tf.graph_util.import_graph_def(graph_def, name="")
    placed = [node for node in graph_def.node if node.op not in RIDERS and node.name not in host]
    index = {node.name: i for i, node in enumerate(placed)}
    phases = op_phases(graph_def, outputs)
    colocate = _variable_units(graph_def, tf_graph)
    behind = behind_host(graph_def, host)
    bodies = bodies_of(graph_def)
    ops = []
    for node in placed:
        tf_op = tf_graph.get_operation_by_name(node.name)
        variable = variables.get(node.name)
        ops.append(
            Op(
                name=node.name,
                type=node.op,
                memory_bytes=0 if variable is None else tensor_bytes(variable.shape, variable.dtype),
                colocate=colocate.get(node.name),
                devices=tuple(sorted(tf_internals.op_types.kernel_kinds(node))) or ("cpu", "gpu"),
                phase=phases[node.name],
                shapes=tuple(_dims(t.shape) for t in tf_op.outputs),
                **counts_of(tf_op, bodies)._asdict(),
            )
        )
    return OpGraph(name, tuple(ops), tuple(_edges(placed, index, tf_graph, behind)), content=content)


def _edges(
    placed: Sequence[Any], index: dict[str, int], tf_graph: Any, behind: Mapping[str, Sequence[str]]
) -> list[Edge]:
    edges: dict[tuple[int, int, int], Edge] = {}
    for node in placed:
        through = [f"^{source}" for text in node.input for source in behind.get(source_of(text), ())]
        for i in [*node.input, *through]:
            source, output = parse_input(i)
            if source not in index:
                continue
            outputs = tf_graph.get_operation_by_name(source).outputs
            output = len(outputs) if output < 0 else output  # a control edge counts as a tensor of 0 bytes
            size = 0 if output == len(outputs) else tensor_bytes(outputs[output].shape, outputs[output].dtype)
            edge = Edge(index[source], index[node.name], size, output)
            edges.setdefault((edge.src, edge.dst, edge.output_index), edge)
    return list(edges.values())


def _variable_units(graph_def: Any, tf_graph: Any) -> dict[str, str]:
    """Node -> name of its unit: a variable's handle and every op that takes the handle."""
    units = UnionFind[str]()
    for node in graph_def.node:
        for source, output in (parse_input(i) for i in node.input):
            if output >= 0 and tf_graph.get_operation_by_name(source).outputs[output].dtype == tf.resource:
                units.join(source, node.name)
    return units.roots()


def tensor_bytes(shape: tf.TensorShape, dtype: tf.DType) -> int:
    """Bytes of a tensor. An unknown dimension counts as 1; strings, handles and an unknown rank count as 0 bytes."""
    if dtype in (tf.resource, tf.variant, tf.string) or shape.rank is None:
        return 0
    count = 1
    for dim in shape.as_list():
        count *= 1 if dim is None else dim
    return int(count * dtype.size)


def _dims(shape: tf.TensorShape) -> tuple[int | None, ...] | None:
    return None if shape.rank is None else tuple(shape.as_list())
