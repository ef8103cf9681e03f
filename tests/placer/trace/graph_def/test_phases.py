"""Phases of a step's nodes, told from names and from what needs what."""

from __future__ import annotations

import tensorflow as tf

from placer.trace.graph_def.phases import op_phases


def graph_of(*lines):
    """A GraphDef from lines "name: Type input input"."""
    nodes = []
    for line in lines:
        name, _, rest = line.partition(": ")
        kind, *inputs = rest.split()
        nodes.append(tf.compat.v1.NodeDef(name=name, op=kind, input=inputs))
    return tf.compat.v1.GraphDef(node=nodes)


def test_forward_is_what_the_loss_needs_backward_the_tape_and_update_what_follows():
    phases = op_phases(
        graph_of(
            "w: VarHandleOp", "read: ReadVariableOp w", "loss: Square read", "gradient_tape/g: Mul read loss",
            "between: Mul gradient_tape/g read", "gradient_tape/h: Neg between", "new: Sub read gradient_tape/h",
            "assign: AssignVariableOp w new",
        ),
        ["loss:0"],
    )  # fmt: skip
    assert phases == {
        "w": "forward", "read": "forward", "loss": "forward", "gradient_tape/g": "backward", "between": "backward",
        "gradient_tape/h": "backward", "new": "update", "assign": "update",
    }  # fmt: skip


def test_what_the_loss_only_waits_for_is_not_forward():
    """The second micro-batch begins after the first one's backward pass, and the loss is that of both."""
    phases = op_phases(
        graph_of(
            "x: Placeholder", "first: Square x", "gradient_tape/first: Mul first x",
            "second: Square x ^gradient_tape/first", "loss: AddV2 first second", "w: VarHandleOp",
            "assign: AssignVariableOp w gradient_tape/first", "told: Identity loss ^assign",
        ),
        ["told:0"],
    )  # fmt: skip
    assert phases["gradient_tape/first"] == "backward" and phases["assign"] == "update"
    assert {phases[name] for name in ("x", "first", "second", "loss", "told")} == {"forward"}


def test_a_constant_merged_under_a_gradients_name_makes_no_gradient_of_what_takes_it():
    """The moving mean of a batch normalisation, whose 0.01 is the learning rate's, too."""
    phases = op_phases(
        graph_of(
            "x: Placeholder", "mean: Mean x", "loss: Square mean", "gradient_tape/rate: Const",
            "share: Mul mean gradient_tape/rate", "moving: VarHandleOp", "keep: AssignVariableOp moving share",
            "gradient_tape/g: Mul loss gradient_tape/rate",
        ),
        ["loss:0"],
    )  # fmt: skip
    assert phases["share"] == phases["keep"] == "forward"
    assert phases["gradient_tape/g"] == "backward"
