"""Wiring: what crosses between processes is sent once and by us, and ops wait without losing oneDNN's fusion."""

from __future__ import annotations

import graphlib

import pytest
import tensorflow as tf

from placer import tf_internals
from placer.execute import send_recv
from placer.execute.send_recv import chain, connect, stage
from placer.trace.graph_def.node_def import source_of

HERE, THERE = "/job:worker/replica:0/task:0/device:CPU:0", "/job:worker/replica:0/task:1/device:CPU:0"
BESIDE = "/job:worker/replica:0/task:0/device:CPU:1"
FLOAT = tf.float32.as_datatype_enum


@pytest.fixture(autouse=True)
def incarnations(monkeypatch):
    monkeypatch.setattr(tf_internals.devices, "incarnations", lambda: {HERE: 11, THERE: -22})


def function(*nodes):
    """nodes: (name, op, device, inputs)."""
    made = tf.compat.v1.GraphDef().node
    for name, op, device, inputs in nodes:
        node = made.add(name=name, op=op, device=device, input=inputs)
        if op in ("Relu", "Neg", "AddV2", "Conv2D", "BiasAdd"):
            node.attr["T"].type = FLOAT
    return made


def by_name(nodes):
    return {node.name: node for node in nodes}


def test_a_tensor_crosses_once_per_receiving_process_under_one_name():
    nodes = function(
        ("a", "Relu", HERE, ["x"]),
        ("b", "Neg", THERE, ["a:activations:0"]),
        ("c", "Neg", THERE, ["a:activations:0"]),
        ("d", "Neg", HERE, ["a:activations:0"]),
    )
    sends = connect(nodes)
    (send,) = [node for node in nodes if node.op == "_Send"]
    (receive,) = [node for node in nodes if node.op == "_Recv"]
    assert sends == {"a": [send.name]}
    assert (send.device, receive.device) == (HERE, THERE)
    assert send.attr["tensor_name"] == receive.attr["tensor_name"]
    assert send.attr["send_device_incarnation"].i == receive.attr["send_device_incarnation"].i == 11
    found = by_name(nodes)
    assert found["b"].input[0] == found["c"].input[0] == f"{receive.name}:tensor:0"
    assert found["d"].input[0] == "a:activations:0"


def test_within_a_process_tensorflow_carries_it_through_one_relay_at_the_end():
    nodes = function(("a", "Relu", HERE, ["x"]), ("b", "Neg", BESIDE, ["a:activations:0"]))
    assert connect(nodes) == {}
    assert nodes[-1].op == "Identity"
    assert nodes[-1].device == BESIDE
    assert by_name(nodes)["b"].input[0] == f"{nodes[-1].name}:output:0"


def test_an_op_waits_for_the_one_before_it_and_for_what_that_one_sends():
    nodes = function(("a", "Relu", HERE, ["x"]), ("b", "Neg", THERE, ["a:activations:0"]), ("c", "Relu", HERE, ["y"]))
    sends = connect(nodes)
    chain(nodes, ["a", "b", "c"], sends)
    found = by_name(nodes)
    gate = found[source_of(found["c"].input[0])]
    assert list(gate.input) == ["y", f"^{sends['a'][0]}"]
    assert "b/gate" not in found  # alone on its device


def test_an_op_that_reads_the_one_before_it_needs_no_gate_unless_that_one_sends():
    nodes = function(("a", "Relu", HERE, ["x"]), ("b", "Neg", HERE, ["a:activations:0"]), ("c", "Relu", HERE, ["y"]))
    chain(nodes, ["a", "b", "c"], {})
    found = by_name(nodes)
    assert list(found["b"].input) == ["a:activations:0"] and "b/gate" not in found
    assert list(found["c/gate"].input) == ["y", "^b"]
    nodes = function(
        ("a", "Relu", HERE, ["x"]), ("b", "Neg", HERE, ["a:activations:0"]), ("d", "Neg", THERE, ["a:activations:0"])
    )
    sends = connect(nodes)
    chain(nodes, ["a", "b"], sends)
    assert list(by_name(nodes)["b/gate"].input) == ["a:activations:0", f"^{sends['a'][0]}"]


def test_a_convolution_fused_with_its_bias_gets_no_control_input_of_its_own():
    nodes = function(
        ("a", "Relu", HERE, ["x"]),
        ("conv", "Conv2D", HERE, ["y", "w"]),
        ("bias", "BiasAdd", HERE, ["conv:output:0", "v"]),
    )
    chain(nodes, ["a", "bias"], {})
    found = by_name(nodes)
    assert list(found["bias"].input) == ["conv:output:0", "v"]
    assert source_of(found["conv"].input[0]) == "conv/gate"
    assert list(found["conv/gate"].input) == ["y", "^a"]
    assert not any(text.startswith("^") for name in ("conv", "bias") for text in found[name].input)


def test_a_convolution_that_others_read_or_that_is_in_the_order_is_not_held_back():
    nodes = function(
        ("conv", "Conv2D", HERE, ["y", "w"]),
        ("a", "Relu", HERE, ["conv:output:0"]),
        ("bias", "BiasAdd", HERE, ["conv:output:0", "v"]),
    )
    chain(nodes, ["a", "bias"], {})
    depends = {n.name: [source_of(i) for i in n.input if source_of(i) in by_name(nodes)] for n in nodes}
    assert list(graphlib.TopologicalSorter(depends).static_order())  # raises where there is a cycle
    assert source_of(by_name(nodes)["bias"].input[0]) == "bias/gate"


def test_a_node_without_tensors_waits_itself():
    nodes = function(("a", "Relu", HERE, ["x"]), ("read", "ReadVariableOp", HERE, ["handle"]))
    chain(nodes, ["a", "read"], {})
    assert list(by_name(nodes)["read"].input) == ["handle", "^a"]


def test_gpus_leave_transfers_to_tensorflow():
    gpu = "/job:worker/replica:0/task:1/device:GPU:0"
    assert send_recv._are_cpus_apart(HERE, THERE)
    assert not send_recv._are_cpus_apart(HERE, gpu)
    assert not send_recv._are_cpus_apart(HERE, BESIDE)


def test_a_batch_is_staged_once_for_the_gpus_of_the_hosts_process():
    gpu, second, elsewhere = (f"/job:worker/replica:0/task:{t}/device:GPU:{i}" for t, i in ((0, 0), (0, 1), (1, 0)))
    nodes = function(
        ("a", "Relu", gpu, ["x"]),
        ("b", "AddV2", second, ["x", "small"]),
        ("c", "Neg", HERE, ["x"]),
        ("d", "Neg", elsewhere, ["x"]),
        ("e", "Neg", HERE, ["unused"]),
        ("f", "Neg", gpu, ["a:activations:0"]),
    )
    stage(nodes, {"x": FLOAT, "unused": FLOAT}, HERE)
    found = by_name(nodes)
    inputs = {name: list(node.input) for name, node in found.items()}
    assert inputs == {
        "a": ["x/staged:y:0"], "b": ["x/staged:y:0", "small"], "c": ["x"], "d": ["x"], "e": ["unused"],
        "f": ["a:activations:0"], "x/staged": ["x"],
    }  # fmt: skip
    copy = found["x/staged"]
    assert (copy.op, copy.device, copy.attr["T"].type) == ("DeepCopy", HERE, FLOAT)
    sent = connect(nodes)
    relays = [node for node in nodes if "relay" in node.name]
    assert not sent and [(list(node.input), node.device) for node in relays if "staged" in node.name] == [
        (["x/staged:y:0"], gpu), (["x/staged:y:0"], second)
    ]  # fmt: skip
