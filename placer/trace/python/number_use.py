"""What a traced step does with a Python number that became a scalar tensor: only what Python would do alike is allowed.

Python counts in 64 bits and without an end, a tensor in float32 or int32. As long as a number meets a tensor of the
step first, it is rounded there either way. Arithmetic of numbers among themselves is done by Python in the untouched
step, so a placed one may do what keeps the relative error of float32, and no more.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import tensorflow as tf

from placer.graph.op_flops import CALLS
from placer.trace.graph_def.node_def import source_of

PASSES = frozenset(
    {"Identity", "Cast", "Reshape", "ExpandDims", "Squeeze", "Neg", "Abs", "Fill", "BroadcastTo", "Pack"}
)
COMPARES = frozenset(
    {"Less", "LessEqual", "Greater", "GreaterEqual", "Equal", "NotEqual", "Minimum", "Maximum", "Select", "SelectV2"}
)
FLOATS = frozenset({"Mul", "RealDiv", "Div", "Reciprocal", "Inv", "Sqrt", "Rsqrt", "Square"})
INTS = frozenset({"AddV2", "Add", "Sub", "FloorMod", "FloorDiv"})
BRANCHES = frozenset({"If", "StatelessIf", "Case"})
CONSTANTS = frozenset({"Const"})
DOUBLES = (tf.float64.as_datatype_enum, tf.complex128.as_datatype_enum)


def number_misused(graph_def: Any, numbers: Iterable[str]) -> str | None:
    """What a step computes with the inputs named `numbers` that Python would compute more exactly, in words; None
    where it computes nothing of the kind.
    """
    functions = {function.signature.name: function for function in graph_def.library.function}
    return _misused(list(graph_def.node), set(numbers), functions)


def _misused(nodes: list[Any], scalars: set[str], functions: Mapping[str, Any]) -> str | None:
    """scalars: names of nodes that are numbers. Those computed of numbers and constants alone are numbers, too."""
    known = scalars | {node.name for node in nodes if node.op in CONSTANTS}
    made, grows = set(scalars), True
    while grows:  # nodes of a function are in no order
        grows = False
        for node in nodes:
            data = [source_of(text) for text in node.input if not text.startswith("^")]
            if node.name in made or not made.intersection(data):
                continue
            if node.op in CALLS:
                why = _within_call(node, data, made, functions)
                if why is not None:
                    return why
            elif node.op in BRANCHES:
                if made.intersection(data[1:]):
                    return f"op {node.name} ({node.op}) takes it into a branch"
            elif known.issuperset(data):
                if node.op not in PASSES | COMPARES | (INTS if _is_int(node) else FLOATS) or _widens(node):
                    return f"op {node.name} ({node.op}) would be less exact than Python is"
                made.add(node.name)
                known.add(node.name)
                grows = True
            elif node.op in ("While", "StatelessWhile"):
                return f"op {node.name} ({node.op}) takes it into a loop"
    return None


def _within_call(node: Any, data: list[str], made: set[str], functions: Mapping[str, Any]) -> str | None:
    body = functions[node.attr["f"].func.name]
    given = [argument.name for argument, source in zip(body.signature.input_arg, data, strict=True) if source in made]
    return _misused(list(body.node_def), set(given), functions)


def _widens(node: Any) -> bool:
    """Whether a float32 becomes a type of double precision, which the untouched step makes of Python's own number."""
    return node.op == "Cast" and not _is_int_type(node.attr["SrcT"].type) and node.attr["DstT"].type in DOUBLES


def _is_int(node: Any) -> bool:
    return _is_int_type(node.attr["T"].type if "T" in node.attr else 0)


def _is_int_type(kind: int) -> bool:
    return bool(kind and tf.as_dtype(kind).is_integer)
