"""The canary: what Placer uses of TensorFlow's insides still does what it is used for."""

from __future__ import annotations

import pytest
import tensorflow as tf
from tensorflow.core.framework import kernel_def_pb2

from placer import tf_internals
from placer.profile.profiler import session_config


def node_def(graph, name):
    return next(node for node in graph.as_graph_def().node if node.name == name)


def test_optimize_graph_folds_constants_and_keeps_what_it_is_told():
    with tf.Graph().as_default() as graph:
        x = tf.compat.v1.placeholder(tf.float32, [2], name="x")
        tf.add(x, tf.constant(2.0) * tf.constant(3.0) + tf.constant(1.0), name="kept")
        tf.multiply(x, 5.0, name="unused")
    nodes = {node.name: node.op for node in tf_internals.optimize_graph(graph.as_graph_def(), ["kept:0", "x"]).node}
    assert "kept" in nodes
    assert "unused" not in nodes
    assert "Mul" not in nodes.values()


def test_a_function_def_can_be_added_called_and_removed():
    concrete = tf.compat.v1.wrap_function(lambda a, b: a * b + 1.0, [tf.TensorSpec([], tf.float32)] * 2)
    function_def = concrete.function_def
    function_def.signature.name = "__canary"
    tf_internals.add_function(function_def)
    assert tf_internals.has_function("__canary")
    (result,) = tf_internals.call_function("__canary", [tf.constant(2.0), tf.constant(3.0)], 1, b"")
    assert result.numpy() == 7.0
    tf_internals.remove_function("__canary")
    tf_internals.remove_function("__canary")
    assert not tf_internals.has_function("__canary")


def test_collected_partitions_name_the_device_of_each_op(two_cpus):
    @tf.function(autograph=False)
    def step(x):
        with tf.device(two_cpus.tf_name(1)):
            return tf.sin(x, name="there")

    with tf_internals.collected_partitions() as graphs:
        step(tf.constant([1.0, 2.0]))
    ran = {node.op: node.device for graph in graphs for node in graph.node}
    assert ran["Sin"] == two_cpus.tf_name(1)


def node(op, **types):
    made = tf.compat.v1.NodeDef(name="node", op=op)
    for name, dtypes in types.items():
        if isinstance(dtypes, list):
            made.attr[name].list.type.extend(dtype.as_datatype_enum for dtype in dtypes)
        else:
            made.attr[name].type = dtypes.as_datatype_enum
    return made


def kernel(device_type, label="", **types):
    made = kernel_def_pb2.KernelDef(op="Some", device_type=device_type, label=label)
    for name, dtypes in types.items():
        allowed = made.constraint.add(name=name).allowed_values.list.type
        allowed.extend(dtype.as_datatype_enum for dtype in dtypes)
    return made


def test_kernel_kinds_of_this_build():
    assert "cpu" in tf_internals.kernel_kinds(node("MatMul", T=tf.float32))
    assert tf_internals.kernel_kinds(node("NoSuchOp")) == frozenset()
    assert tf_internals.kernel_kinds(node("MatMul", T=tf.string)) == {"cpu"}
    names = {constraint.name for found in tf_internals.registered_kernels("MatMul") for constraint in found.constraint}
    assert names == {"T"}


KERNELS = {
    "Gather": (kernel("CPU"), kernel("GPU", Tparams=[tf.float32, tf.int32], Tindices=[tf.int32, tf.int64])),
    "Read": (kernel("CPU"), kernel("DEFAULT")),
    "Switch": (kernel("CPU"), kernel("GPU", T=[tf.float32]), kernel("DEFAULT", T=[tf.bool])),
    "Several": (kernel("CPU"), kernel("GPU", T=[tf.float32, tf.int32])),
    "Format": (kernel("CPU", T=[tf.float32]),),
}


@pytest.mark.parametrize(
    ("made", "kinds"),
    [
        (node("Gather", Tparams=tf.float32, Tindices=tf.int64), {"cpu", "gpu"}),
        (node("Gather", Tparams=tf.string, Tindices=tf.int64), {"cpu"}),
        (node("Gather", Tparams=tf.float32, Tindices=tf.int16), {"cpu"}),
        (node("Read", dtype=tf.int32), {"cpu", "gpu"}),
        (node("Switch", T=tf.float32), {"cpu", "gpu"}),
        (node("Switch", T=tf.bool), {"cpu", "gpu"}),
        (node("Switch", T=tf.string), {"cpu"}),
        (node("Several", T=[tf.float32, tf.int32]), {"cpu", "gpu"}),
        (node("Several", T=[tf.float32, tf.string]), {"cpu"}),
        (node("Format", T=tf.string), {"cpu"}),
        (node("Call"), set()),
    ],
)
def test_a_kernel_for_other_types_is_none(monkeypatch, made, kinds):
    monkeypatch.setattr(tf_internals, "registered_kernels", lambda op: KERNELS.get(op, ()))
    monkeypatch.setattr(tf_internals, "here", lambda: frozenset({"cpu", "gpu"}))
    assert tf_internals.kernel_kinds(made) == kinds


def test_the_graph_optimizer_does_not_look_for_devices():
    with tf.Graph().as_default() as graph:
        x = tf.compat.v1.placeholder(tf.float32, [1, 8, 8, 4], name="x")
        tf.nn.relu(tf.nn.conv2d(x, tf.ones([3, 3, 4, 4]), 1, "SAME"), name="out")
    nodes = {n.name: n for n in tf_internals.optimize_graph(graph.as_graph_def(), ["out:0", "x"]).node}
    assert {n.attr["data_format"].s for n in nodes.values() if n.op == "Conv2D"} == {b"NHWC"}


def test_input_type_of_single_repeated_and_listed_inputs():
    with tf.Graph().as_default() as graph:
        a, b = tf.constant([1.0], name="a"), tf.constant([2.0], name="b")
        tf.raw_ops.ConcatV2(values=[a, b], axis=tf.constant(0), name="concat")
        tf.raw_ops.IdentityN(input=[a, tf.constant([1], name="c")], name="several")
    concat, several = node_def(graph, "concat"), node_def(graph, "several")
    assert [tf_internals.input_type(concat, i) for i in range(3)] == [tf.float32, tf.float32, tf.int32]
    assert [tf_internals.input_type(several, i) for i in range(2)] == [tf.float32, tf.int32]


def test_every_device_has_an_incarnation(two_cpus):
    found = tf_internals.incarnations()
    assert set(two_cpus.tf_names.values()) <= set(found)
    assert len({found[name] for name in two_cpus.tf_names.values()}) == 2


def test_devices_tell_their_memory_and_a_session_sees_them_all(two_cpus):
    assert tf_internals.devices_are_set_up()
    assert set(two_cpus.tf_names.values()) == set(tf_internals.device_memory_limits())
    with (
        tf.Graph().as_default() as graph,
        tf.compat.v1.Session(graph=graph, config=tf_internals.device_config()) as session,
    ):
        assert {device.name for device in session.list_devices()} == set(two_cpus.tf_names.values())


def test_a_functions_body_becomes_a_graph():
    function = tf.function(lambda x: tf.nn.relu(x) + 1.0).get_concrete_function(tf.TensorSpec([2], tf.float32))
    graph_def, names = tf_internals.function_graph(function.function_def)
    (returned,) = function.function_def.ret.values()
    with tf.Graph().as_default() as graph:
        tf.graph_util.import_graph_def(graph_def, name="")
        with tf.compat.v1.Session(graph=graph) as session:
            (argument,) = [n.name for n in graph_def.node if n.op == "Placeholder"]
            assert session.run(names[returned], {f"{argument}:0": [-1.0, 2.0]}).tolist() == [1.0, 3.0]


def test_a_session_puts_an_op_elsewhere_only_where_it_may():
    assert not session_config().allow_soft_placement
    assert session_config(soft=True).allow_soft_placement
