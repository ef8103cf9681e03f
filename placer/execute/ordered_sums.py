"""Sums of three and more tensors, made to round alike under every mapping.

TensorFlow's AddN starts with the first term whose buffer it can write the sum into: one that no other op still reads,
in the kind of memory that the sum needs. A term that was received lies in memory from which tensors are sent; a term
that was computed here does not. So the order of the terms, and with it the rounding, depends on the mapping. A sum of
two rounds the same in either order.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from functools import reduce
from itertools import count
from typing import Any, TypeVar

import tensorflow as tf

from placer.trace.graph_def.node_def import set_inputs, source_of

T = TypeVar("T")
# Ops that write into a buffer of their own, as gradients do; others, such as Reshape, may share their input's.
OWNERS = frozenset(
    {"Add", "AddN", "AddV2", "BatchMatMulV2", "BatchMatMulV3", "Conv2D", "MatMul", "Mul", "Neg", "RealDiv", "Sub"}
)
GRADIENTS = ("Grad", "BackpropFilter", "BackpropInput", "BackpropInputV2")


def order_sums(function: Any) -> None:
    """Replace each AddN of three or more floats, real or complex, whose order is not certain by a chain of AddNs of
    two, in the order of the terms. The last of the chain keeps the name. function: a FunctionDef whose nodes have their
    devices.
    """
    nodes, returned = function.node_def, set(function.ret.values())
    by_name = {node.name: node for node in nodes}
    readers: dict[str, list[Any]] = defaultdict(list)
    for node in nodes:
        for text in node.input:
            readers[text].append(node)
    for node in [node for node in nodes if _is_float_sum(node)]:
        terms = [text for text in node.input if not text.startswith("^")]
        apart = any(reader.device != node.device for reader in readers[f"{node.name}:sum:0"])
        apart = apart or any(by_name[s].device != node.device for s in map(source_of, terms) if s in by_name)
        first = by_name.get(source_of(terms[0]))
        owned = first is not None and (first.op in OWNERS or first.op.endswith(GRADIENTS))
        shared = len(readers[terms[0]]) > 1 or terms[0] in returned
        if apart or not owned or shared:
            _divide(nodes, node, terms)


def _is_float_sum(node: Any) -> bool:
    if node.op != "AddN" or node.attr["N"].i < 3:
        return False
    dtype = tf.as_dtype(node.attr["T"].type)
    return bool(dtype.is_floating or dtype.is_complex)


def _divide(nodes: Any, node: Any, terms: list[str]) -> None:
    """Make the chain ((a + b) + c) + d. More than nine terms are added in TensorFlow's groups (see `grouped`)."""
    waits = [text for text in node.input if text.startswith("^")]
    number = count(1)

    def added(left: str, term: str) -> str:
        found = nodes.add()
        found.CopyFrom(node)
        found.name = f"{node.name}/part_{next(number)}"
        found.attr["N"].i = 2
        set_inputs(found, [left, term])
        return f"{found.name}:sum:0"

    parts = [reduce(added, group) for group in grouped(terms)]
    if len(parts) == 1:  # the last sum of the only group is the node's own
        parts = [nodes[-1].input[0], terms[-1]]
        del nodes[-1]
    node.attr["N"].i = 2
    set_inputs(node, [reduce(added, parts[:-1]), parts[-1], *waits])


def grouped(terms: Sequence[T]) -> list[Sequence[T]]:
    """The terms in the groups in which the kernel of AddN adds them: the first two to nine together, then eight at a
    time, each group to the sum so far (tensorflow/core/kernels/aggregate_ops.cc, read in 2026).
    """
    first = (len(terms) - 2) % 8 + 2
    return [terms[:first], *(terms[i : i + 8] for i in range(first, len(terms), 8))]
