"""Random numbers that do not depend on where, or how often, a step was built.

TensorFlow's stateful random ops count their draws in the kernel, so a step that is built again, as for each mapping,
draws the same numbers again. Here they become stateless ops, which compute the same Philox streams (Salmon et al. 2011)
from a key and a counter. The key is the op's first seed. The counter's high word is the op's second seed, and its low
word is advanced by 256 for each number that a call makes (`GuardedPhiloxRandom::ReserveRandomOutputs`). The number of
calls before it is an input of the step.
"""

from __future__ import annotations

import itertools
import math
import random
from collections.abc import Mapping
from typing import Any

import numpy as np
import tensorflow as tf

from placer.errors import short
from placer.trace.graph_def.node_def import called, functions_of, nodes_within, parse_input, set_inputs

STATELESS = {
    "RandomUniform": "StatelessRandomUniformV2",
    "RandomStandardNormal": "StatelessRandomNormalV2",
    "TruncatedNormal": "StatelessTruncatedNormalV2",
    "RandomUniformInt": "StatelessRandomUniformIntV2",
}
OTHER_DRAWS = frozenset(
    {"Multinomial", "RandomShuffle", "RandomGamma", "RandomPoisson", "RandomPoissonV2", "ParameterizedTruncatedNormal"}
    | {"LogUniformCandidateSampler", "UniformCandidateSampler", "FixedUnigramCandidateSampler", "AllCandidateSampler"}
    | {"LearnedUnigramCandidateSampler", "ThreadUnsafeUnigramCandidateSampler"}
)
"""Ops that draw from a state of their own, and have no stateless twin here."""
DRAWING = STATELESS.keys() | OTHER_DRAWS
DRAWS = "placer/draws"  # the input of the captured graph that says how many steps drew before
PER_NUMBER = 256  # how far a stateful op advances its counter for each number
PHILOX = 1  # TensorFlow's number of the algorithm


class Draws:
    """A counter of the steps that drew, so that each step draws numbers of its own under any mapping."""

    def __init__(self) -> None:
        self.taken = 0

    def next(self) -> tf.Tensor:
        """Count the next step, and return its input DRAWS: [2] uint64, the number of steps before it and 0."""
        given = tf.constant([self.taken, 0], tf.uint64)
        self.taken += 1
        return given


def draws_within(graph_def: Any) -> list[Any]:
    """The ops that draw from hidden state, in the graph and in all functions that it calls."""
    return [node for node in nodes_within(graph_def) if node.op in DRAWING]


def has_seeds(node: Any) -> bool:
    """Whether the user chose the numbers that an op draws, by a seed of its own or a global one."""
    return bool(node.attr["seed"].i or node.attr["seed2"].i)


def repeating_draws(graph_def: Any) -> str | None:
    """Why the random numbers of a step would repeat if it were built again, in words; None if they would not."""
    seeded = next((node for node in draws_within(graph_def) if has_seeds(node)), None)
    if seeded is None:
        return None
    return (
        f"op {short(seeded.name)} ({seeded.op}) draws from a seeded stream that TensorFlow keeps in the op itself; use "
        "a tf.random.Generator, a keras.random.SeedGenerator or stateless ops, or set no seed"
    )


def give_seeds(graph_def: Any) -> None:
    """Give seeds to all ops that have none, so that the numbers they draw are known."""
    _part_calls(graph_def)
    rng = random.SystemRandom()
    for node in draws_within(graph_def):
        if not has_seeds(node):
            node.attr["seed"].i, node.attr["seed2"].i = rng.getrandbits(62) + 1, rng.getrandbits(62) + 1


def _part_calls(graph_def: Any) -> None:
    """Give each call of a function that draws without seeds a copy of the function. TensorFlow inlines calls, and each
    draws numbers of its own; with seeds in one body, all calls would draw the same.
    """
    library = {function.signature.name: function for function in graph_def.library.function}
    drawing = _that_draw(library)
    if not drawing:
        return
    whole = {name: type(library[name]).FromString(library[name].SerializeToString()) for name in drawing}
    called_before, names, left = set[str](), set(library), [graph_def.node]

    def own(name: str) -> str:
        """The function to call in place of a function; its nodes are looked at later."""
        if name not in drawing:
            return name
        function = library[name]
        if name in called_before:
            function = graph_def.library.function.add()
            function.CopyFrom(whole[name])
            function.signature.name = next(new for n in itertools.count(2) if (new := f"{name}_{n}") not in names)
        called_before.add(name)
        names.add(function.signature.name)
        left.append(function.node_def)
        return str(function.signature.name)

    while left:
        for node in left.pop():
            node.op = own(node.op)
            for function in functions_of(node):
                function.name = own(function.name)


def _that_draw(library: Mapping[str, Any]) -> set[str]:
    """The functions that draw without seeds, themselves or in functions that they call."""
    known: dict[str, bool] = {}

    def draws(name: str) -> bool:
        if name not in known:
            known[name] = False
            known[name] = any(
                (node.op in DRAWING and not has_seeds(node))
                or any(map(draws, library.keys() & {node.op, *called(node)}))
                for node in library[name].node_def
            )
        return known[name]

    return {name for name in library if draws(name)}


def make_stateless(graph_def: Any) -> bool:
    """Replace the stateful random ops of a folded graph; return whether the graph now has the input DRAWS.

    Ops in the bodies of loops and branches stay as they are, and so do ops whose number of values is known only at run
    time.
    """
    sizes = {node.name: _count(node) for node in graph_def.node if node.op == "Const"}
    counts = {
        node.name: sizes.get(parse_input(node.input[0])[0]) for node in graph_def.node if node.op in STATELESS
    }  # values that each call makes
    for node in [n for n in graph_def.node if counts.get(n.name) is not None]:
        _replace(graph_def, node, counts[node.name] or 0)
    made = any(count is not None for count in counts.values())
    if made:
        given = graph_def.node.add(name=DRAWS, op="Placeholder")
        given.attr["dtype"].type = tf.uint64.as_datatype_enum
        given.attr["shape"].shape.CopyFrom(tf.TensorShape([2]).as_proto())
    return made


def _replace(graph_def: Any, node: Any, count: int) -> None:
    """Make one stateful op, which makes `count` values in each call, stateless."""
    name, seed, seed2 = node.name, node.attr["seed"].i, node.attr["seed2"].i
    _constant(graph_def, f"{name}/key", np.array([seed % 2**64], np.uint64))
    _constant(graph_def, f"{name}/stride", np.array([count * PER_NUMBER, 0], np.uint64))
    _constant(graph_def, f"{name}/begin", np.array([0, seed2 % 2**64], np.uint64))
    _constant(graph_def, f"{name}/philox", np.array(PHILOX, np.int32))
    for made, op, inputs in (
        ("taken", "Mul", [DRAWS, f"{name}/stride"]),
        ("counter", "AddV2", [f"{name}/taken", f"{name}/begin"]),
    ):
        graph_def.node.add(name=f"{name}/{made}", op=op, input=inputs).attr["T"].type = tf.uint64.as_datatype_enum
    shape, *rest = [text for text in node.input if not text.startswith("^")]
    control = [text for text in node.input if text.startswith("^")]
    set_inputs(node, [shape, f"{name}/key", f"{name}/counter", f"{name}/philox", *rest, *control])
    node.attr["Tshape"].type = node.attr["T"].type
    if node.op == "RandomUniformInt":
        node.attr["dtype"].type = node.attr["Tout"].type
    for unused in ("seed", "seed2", "T", "Tout"):
        node.attr.pop(unused, None)
    node.op = STATELESS[node.op]


def _constant(graph_def: Any, name: str, value: np.ndarray[Any, Any]) -> None:
    node = graph_def.node.add(name=name, op="Const")
    node.attr["dtype"].type = tf.as_dtype(value.dtype).as_datatype_enum
    node.attr["value"].tensor.CopyFrom(tf.make_tensor_proto(value))


def _count(node: Any) -> int | None:
    """The number of values in a tensor whose shape a Const holds; None if the Const cannot be a shape."""
    proto = node.attr["value"].tensor
    if proto.dtype not in (tf.int32.as_datatype_enum, tf.int64.as_datatype_enum):
        return None
    return math.prod(int(size) for size in tf.make_ndarray(proto).ravel())
