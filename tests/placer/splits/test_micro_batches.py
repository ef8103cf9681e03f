"""Micro-batches wait for earlier ones wherever a tower of layers begins, and for the end of each tower."""

from __future__ import annotations

import pytest
import tensorflow as tf

from placer.splits.micro_batches import limit

TOWERS = {
    "images": ("Slice", []),
    "numbers": ("Slice", []),
    "labels": ("Slice", []),
    "deep0": ("MatMul", ["images"]),
    "deep1": ("MatMul", ["deep0"]),
    "deep2": ("MatMul", ["deep1"]),
    "short": ("MatMul", ["numbers"]),
    "head": ("MatMul", ["deep2", "short"]),
    "loss": ("SparseSoftmaxCrossEntropyWithLogits", ["head", "labels"]),
    "head_back": ("MatMul", ["loss"]),
    "short_back": ("MatMul", ["head_back", "numbers"]),
    "deep2_back": ("MatMul", ["head_back", "deep1"]),
    "deep1_back": ("MatMul", ["deep2_back", "deep0"]),
    "deep0_back": ("MatMul", ["deep1_back", "images"]),
}
"""Of one micro-batch: node -> its type, and what it takes."""


def waiting(nodes: dict[str, tuple[str, list[str]]], micro_batches: int, in_flight: int) -> dict[str, set[str]]:
    """Node -> the nodes for which it waits, of those that wait."""
    graph_def, turn = tf.compat.v1.GraphDef(), {}
    for i in range(micro_batches):
        for name, (op, sources) in nodes.items():
            graph_def.node.add(name=f"{name}_{i}", op=op, input=[f"{source}_{i}" for source in sources])
            turn[f"{name}_{i}"] = i
    parts = [node.name for node in graph_def.node if node.op != "Slice"]
    assert limit(graph_def, turn, parts, in_flight)
    waits = {node.name: {text[1:] for text in node.input if text.startswith("^")} for node in graph_def.node}
    return {name: found for name, found in waits.items() if found}


@pytest.mark.parametrize("in_flight", [1, 2])
def test_a_short_tower_waits_and_is_waited_for_beside_a_deep_one(in_flight: int) -> None:
    found = waiting(TOWERS, 4, in_flight)
    assert found == {
        f"{name}_{i}": {f"{end}_{i - in_flight}" for end in ("short_back", "deep0_back")}
        for i in range(in_flight, 4)
        for name in ("images", "numbers")
    }


def test_inputs_that_are_joined_before_the_first_layer_are_one_tower() -> None:
    nodes = {
        "ids": ("Slice", []),
        "numbers": ("Slice", []),
        "joined": ("ConcatV2", ["ids", "numbers"]),
        "layer": ("MatMul", ["joined"]),
        "layer_back": ("MatMul", ["layer", "joined"]),
    }
    assert waiting(nodes, 2, 1) == {"ids_1": {"layer_back_0"}, "numbers_1": {"layer_back_0"}}
