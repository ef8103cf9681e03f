"""A sum of three and more tensors rounds alike under every mapping."""

import numpy as np
import pytest
import tensorflow as tf

from placer.execute.ordered_sums import grouped, order_sums

FLOAT = tf.float32.as_datatype_enum


def function_of(*nodes):
    """nodes: (name, op, device, inputs)."""
    function = tf.compat.v1.GraphDef().library.function.add()
    for name, op, device, inputs in nodes:
        node = function.node_def.add(name=name, op=op, device=device, input=inputs)
        node.attr["T"].type = FLOAT
        if op == "AddN":
            node.attr["N"].i = sum(not text.startswith("^") for text in inputs)
    return function


def sum_of_three(at="cpu:0", first=("a", "Mul", "cpu:0"), reader="cpu:0", others="cpu:0"):
    name, op, device = first
    return [
        (name, op, device, ["x", "y"]), ("b", "Mul", others, ["x", "y"]), ("c", "Mul", others, ["x", "y"]),
        ("s", "AddN", at, [f"{name}:z:0", "b:z:0", "c:z:0", "^b"]), ("r", "Neg", reader, ["s:sum:0"]),
    ]  # fmt: skip


def sums(function):
    return {node.name: list(node.input) for node in function.node_def if node.op == "AddN"}


WHOLE = {"s": ["a:z:0", "b:z:0", "c:z:0", "^b"]}
CHAIN = {"s/part_1": ["a:z:0", "b:z:0"], "s": ["s/part_1:sum:0", "c:z:0", "^b"]}


@pytest.mark.parametrize(
    ("case", "expected"),
    [
        ({}, WHOLE),
        ({"reader": "cpu:1"}, CHAIN),  # the sum is sent
        ({"others": "cpu:1"}, CHAIN),  # terms are received
        ({"first": ("a", "Reshape", "cpu:0")}, CHAIN),  # the first term may share its buffer
    ],
)
def test_a_sum_that_a_mapping_may_reorder_becomes_a_chain(case, expected):
    function = function_of(*sum_of_three(**case))
    order_sums(function)
    assert sums(function) == expected
    added = [node for node in function.node_def if node.op == "AddN"]
    assert all(node.attr["N"].i == sum(not text.startswith("^") for text in node.input) for node in added)


def test_a_first_term_that_others_read_makes_a_chain():
    function = function_of(*sum_of_three(), ("also", "Neg", "cpu:0", ["a:z:0"]))
    order_sums(function)
    assert sums(function) == CHAIN


def test_a_first_term_that_is_returned_makes_a_chain():
    function = function_of(*sum_of_three())
    function.ret["also"] = "a:z:0"
    order_sums(function)
    assert sums(function) == CHAIN


def test_whole_numbers_and_sums_of_two_stay_as_they_are():
    function = function_of(
        *sum_of_three(reader="cpu:1"), ("t", "AddN", "cpu:0", ["b:z:0", "c:z:0"]), ("u", "Neg", "cpu:1", ["t:sum:0"])
    )
    function.node_def[3].attr["T"].type = tf.int32.as_datatype_enum
    order_sums(function)
    assert sums(function) == WHOLE | {"t": ["b:z:0", "c:z:0"]}


@pytest.mark.parametrize("count", [3, 4, 8, 9, 10, 16, 17, 18, 23])
@pytest.mark.parametrize("dtype", [tf.float32, tf.float64, tf.float16, tf.bfloat16, tf.complex64])
def test_a_chain_rounds_as_the_whole_sum_does(count, dtype):
    rng = np.random.default_rng(count)
    terms = [tf.cast(rng.normal(size=500) * 10.0 ** rng.integers(-3, 3, 500), dtype) for _ in range(count)]
    function = function_of(
        *((f"t{i}", "Reshape", "", []) for i in range(count)), ("s", "AddN", "", [f"t{i}:z:0" for i in range(count)])
    )
    function.node_def[-1].attr["T"].type = dtype.as_datatype_enum
    order_sums(function)
    found = {f"t{i}:z:0": term for i, term in enumerate(terms)}
    left = [node for node in function.node_def if node.op == "AddN"]
    assert len(left) == count - 1
    while left:
        node = next(node for node in left if set(node.input) <= found.keys())
        found[f"{node.name}:sum:0"] = tf.raw_ops.AddN(inputs=[found[text] for text in node.input])
        left.remove(node)
    assert np.array_equal(found["s:sum:0"].numpy(), tf.raw_ops.AddN(inputs=terms).numpy())


def test_terms_are_grouped_as_tensorflow_adds_them():
    assert [[len(g) for g in grouped(range(n))] for n in (3, 9, 10, 17, 18)] == [[3], [9], [2, 8], [9, 8], [2, 8, 8]]
