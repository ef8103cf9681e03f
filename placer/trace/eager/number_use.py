"""Checks what a traced step does with a Python number that became a scalar tensor: it may do only what Python would do.

Python computes floats in 64 bits and ints of any size, a tensor float32 or int32. If a number first meets a tensor of
the step, it is rounded there either way. In the untouched step, Python does the arithmetic between numbers. A placed
step may do only such arithmetic between numbers that keeps the relative error of float32, because a comparison, and an
int that is made of a float, may jump when the float is rounded.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

import tensorflow as tf

from placer import tf_internals
from placer.trace.graph_def.node_def import called, parse_input, source_of
from placer.trace.op_counts.flops import CALLS

PASSES = frozenset(
    {"Identity", "Cast", "Reshape", "ExpandDims", "Squeeze", "Neg", "Abs", "Fill", "BroadcastTo", "Tile", "Pack"}
)
CHOICES = frozenset({"Minimum", "Maximum", "Select", "SelectV2"})
COMPARES = frozenset({"Less", "LessEqual", "Greater", "GreaterEqual", "Equal", "NotEqual"})
FLOATS = frozenset({"Mul", "RealDiv", "Div", "Reciprocal", "Inv", "Sqrt", "Rsqrt", "Square"})
INTS = frozenset({"AddV2", "Add", "Sub", "FloorMod", "FloorDiv"})
BRANCHES = frozenset({"If", "StatelessIf", "Case", "StatelessCase"})
CONSTANTS = frozenset({"Const"})
ROUNDED = tuple(kind.as_datatype_enum for kind in (tf.float32, tf.float16, tf.bfloat16, tf.complex64))
SHORT = frozenset(kind.as_datatype_enum for kind in (tf.float16, tf.bfloat16))

BACKWARD = "__backward_"  # in TensorFlow's names of functions for gradients
COUNT = "placer_count"  # the name of what `int` and `len` make of a tensor, and of a branch's int or bool
TRACED_ANEW = "takes it into a tf.function, which TensorFlow would trace anew for each value"
OUTGROWS = frozenset({"Mul", "Pow", "Square", "Prod", "Cumprod"})  # ops on ints that may soon need more than 32 bits
OF_SHAPES = frozenset({"Shape", "Rank", "TensorListLength", "Const"})  # values are small, or the same in each call
PICKS = frozenset({"Identity", "StridedSlice", "GatherV2", "Cast"})  # ops that take dimensions of a shape
NUMBER = "placer_number"  # the name of the constant that a branch returns for a Python float


def branch_number_misused(graph_def: Any) -> str | None:
    """As `number_misused`, for Python floats that a branch or a loop sets (`if step > 1000: decay = 0.9999`). They are
    known by the name of their constant.
    """
    set_by = _set_by(graph_def, NUMBER)
    if not set_by:
        return None
    bodies = [node for body in graph_def.library.function for node in body.node_def]
    loops = [node for node in graph_def.node if node.op not in BRANCHES]
    for node in (*bodies, *loops):
        if set_by.keys() & set(called(node)):
            return f"op {node.name} ({node.op}) sets it within a branch or a loop"
    return number_misused(graph_def, _taken(graph_def, set_by))


def _set_by(graph_def: Any, mark: str) -> dict[str, list[int]]:
    """Function -> which of its outputs are constants whose names begin with `mark`."""
    found = {body.signature.name: _numbers_of(body, mark) for body in graph_def.library.function}
    return {name: outputs for name, outputs in found.items() if outputs}


def _taken(graph_def: Any, set_by: Mapping[str, list[int]]) -> list[str]:
    """The Identity nodes that take the outputs `set_by` of branches and loops."""
    found = {(node.name, i) for node in graph_def.node for name in called(node) for i in set_by.get(name, ())}
    return [node.name for node in graph_def.node if node.op == "Identity" and parse_input(node.input[0]) in found]


def _numbers_of(body: Any, mark: str) -> list[int]:
    """Which outputs of a function are constants whose names begin with `mark`."""
    nodes = {node.name: node for node in body.node_def}
    found = []
    for i, output in enumerate(body.signature.output_arg):
        name = source_of(body.ret[output.name])
        while name in nodes and nodes[name].op == "Identity":
            name = source_of(nodes[name].input[0])
        if name.rpartition("/")[2].startswith(mark):
            found.append(i)
    return found


def number_misused(graph_def: Any, numbers: Iterable[str]) -> str | None:
    """What a step computes with the inputs named `numbers` that Python would compute more exactly, in words; None if
    there is nothing of the kind.
    """
    functions = {function.signature.name: function for function in graph_def.library.function}
    return _misused(list(graph_def.node), set(numbers), functions)


def _misused(nodes: list[Any], scalars: set[str], functions: Mapping[str, Any]) -> str | None:
    """As `number_misused`, for the nodes of a graph or a function. scalars: names of nodes that are numbers. Nodes that
    are computed only from numbers and constants are numbers, too.
    """
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
                if node.op not in _allowed(node) or _retyped(node):
                    return f"op {node.name} ({node.op}) would be less exact than Python is"
                made.add(node.name)
                known.add(node.name)
                grows = True
            elif node.op in ("While", "StatelessWhile"):
                return f"op {node.name} ({node.op}) takes it into a loop"
    return None


def count_in_a_call(graph_def: Any) -> str | None:
    """How a Python int or bool that depends on a tensor goes into a function that the step calls, or outgrows 32 bits,
    in words; None if none does. Eagerly, TensorFlow traces the function again for each number, and follows its branches
    in Python. A cast makes a tensor of the number in either case. A number that a branch within a branch sets is not
    followed.
    """
    whole = _into_a_call(graph_def.node, _taken(graph_def, _set_by(graph_def, COUNT)))
    bodies = (
        (body.node_def, [given.name for given in body.signature.input_arg]) for body in graph_def.library.function
    )
    # A number that a body captures keeps its name.
    return whole or next(filter(None, (_into_a_call(nodes, filter(_is_count, names)) for nodes, names in bodies)), None)


def _is_count(name: str) -> bool:
    return COUNT in name.rpartition("/")[2]


def _into_a_call(nodes: Sequence[Any], counts: Iterable[str]) -> str | None:
    """As `count_in_a_call`, for the nodes of a graph or a function. counts: names of inputs and nodes that are counts.
    Nodes whose name has COUNT, and nodes that are computed only from counts and constants, are counts, too.
    """
    made = {*counts, *filter(_is_count, (node.name for node in nodes))}
    small = _of_shapes(nodes) if made else set()
    known, grows = {node.name for node in nodes if node.op in CONSTANTS}, bool(made)
    while grows:  # nodes of a function are in no order
        grows = False
        for node in nodes:
            data = [source_of(text) for text in node.input if not text.startswith("^")]
            if node.name in made or node.op == "Cast" or not made.intersection(data):
                continue
            if node.op in CALLS:
                if not any(own in node.attr["f"].func.name for own in (BACKWARD, tf_internals.graphs.WRAPPER)):
                    return f"op {node.name} {TRACED_ANEW}"
            elif made.union(known).issuperset(data):
                if node.op in OUTGROWS and made.difference(small).intersection(data):
                    return f"op {node.name} ({node.op}) keeps it to 32 bits, which Python would not"
                made.add(node.name)
                small |= {node.name} if small.union(known).issuperset(data) else set()
                grows = True
    return None


def _of_shapes(nodes: Sequence[Any]) -> set[str]:
    """The nodes whose values are dimensions of tensors. Products of dimensions are small, too."""
    by_name = {node.name: node for node in nodes}
    found: set[str] = set()
    for node in nodes:
        at, seen = node, 0
        while at is not None and at.op in PICKS and at.input and seen < len(by_name):
            at, seen = by_name.get(source_of(at.input[0])), seen + 1
        if at is not None and at.op in OF_SHAPES:
            found.add(node.name)
    return found


def _within_call(node: Any, data: list[str], made: set[str], functions: Mapping[str, Any]) -> str | None:
    """How a function that `node` calls misuses a number, in words; None if it does not. Only a backward function may
    take a number: eagerly, a gradient flows through called functions, and gives them no Python number.
    """
    if BACKWARD not in node.attr["f"].func.name:
        return f"op {node.name} {TRACED_ANEW}"
    body = functions[node.attr["f"].func.name]
    given = [argument.name for argument, source in zip(body.signature.input_arg, data, strict=True) if source in made]
    return _misused(list(body.node_def), set(given), functions)


def has_short_floats(graph_def: Any) -> bool:
    """Whether a step makes or takes floats of 16 bits."""
    return any({attr.type for attr in node.attr.values()} & SHORT for node in _all_nodes(graph_def))


def in_short_floats(graph_def: Any) -> int:
    """The number of ops of a step that compute in floats of 16 bits."""
    return sum("T" in node.attr and node.attr["T"].type in SHORT for node in _all_nodes(graph_def))


def _all_nodes(graph_def: Any) -> Iterator[Any]:
    yield from graph_def.node
    for body in graph_def.library.function:
        yield from body.node_def


def _allowed(node: Any) -> frozenset[str]:
    """The ops that may take numbers of this node's type. `/` of ints gives a float64, as it does in Python."""
    kind = node.attr["T"].type if "T" in node.attr else 0
    exact = frozenset() if kind in ROUNDED else COMPARES
    return PASSES | CHOICES | exact | (INTS if kind and tf.as_dtype(kind).is_integer else FLOATS)


def _retyped(node: Any) -> bool:
    """Whether a rounded float becomes an int or a double, which the untouched step makes of Python's own number."""
    return node.op == "Cast" and node.attr["SrcT"].type in ROUNDED and node.attr["DstT"].type not in ROUNDED
