"""The nodes of parts that exchange data before they can finish."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import pairwise
from typing import Any

import tensorflow as tf

from placer.splits.pieces import Pieces, text_of
from placer.splits.rules.way import Cut, Way
from placer.trace.graph_def.node_def import parse_input, set_inputs


def add_exchanging(
    pieces: Pieces, op: Any, way: Way, inputs: Sequence[Sequence[str]], bounds: Sequence[int], controls: Sequence[str]
) -> tuple[list[str], list[list[str]]]:
    """Add the nodes of an op's parts. inputs: data inputs of each part. controls: control inputs of the op.

    Returns the nodes of the op's own type, and the outputs of each part. TensorFlow writes the nodes in a separate
    graph, from which they are copied. Some outputs are only taken from the first part; the nodes that only make these
    are left out of the other parts.
    """
    assert way.exchange is not None
    extents = [b - a for a, b in pairwise(bounds)]
    with tf.Graph().as_default() as graph:
        taken = [
            [_stand_in(tensor, cut, extent) for tensor, cut in zip(op.inputs, way.inputs, strict=True)]
            for extent in extents
        ]
        made = way.exchange.write(op, taken, extents)
    given = {
        tensor.op.name: text for a, b in zip(taken, inputs, strict=True) for tensor, text in zip(a, b, strict=True)
    }
    used = [
        tensor for i, part in enumerate(made) for tensor, kind in zip(part, way.outputs, strict=True) if kind or not i
    ]
    names = {name: pieces.fresh(f"{op.name}/{name}") for name in _needed(used) if name not in given}

    def text(old: str) -> str:
        source, output = parse_input(old)
        return given[source] if source in given else text_of(names.get(source, ""), output)

    own = []
    for node in graph.as_graph_def().node:
        if node.name not in names:
            continue
        copy = pieces.graph_def.node.add()
        copy.CopyFrom(node)
        copy.name = names[node.name]
        is_own = node.op == op.type
        set_inputs(copy, [*map(text, node.input), *(controls if is_own else ())])
        pieces.part[copy.name] = int(node.name.partition("/")[0].removeprefix("part_"))
        own += [copy.name] if is_own else []
    return own, [[text(tensor.name) for tensor in part] for part in made]


def _stand_in(tensor: Any, cut: Any, extent: int) -> Any:
    shape = tensor.shape.as_list() if tensor.shape.rank is not None else None
    if isinstance(cut, Cut) and shape is not None:
        shape[cut.axis] = extent * cut.unit
    return tf.compat.v1.placeholder(tensor.dtype, shape)


def _needed(tensors: Iterable[Any]) -> set[str]:
    """Return the names of the ops that make these tensors, and of all ops that they depend on."""
    stack = [tensor.op for tensor in tensors]
    found = {op.name for op in stack}
    while stack:
        before = [tensor.op for tensor in stack.pop().inputs if tensor.op.name not in found]
        found |= {op.name for op in before}
        stack += before
    return found
