"""The canary: what Placer uses of TensorFlow's insides still does what it is used for."""

from __future__ import annotations

import sys
import weakref
from contextlib import nullcontext
from threading import Thread

import keras
import pytest
import tensorflow as tf
from keras.src.backend.common import global_state
from tensorflow.core.framework import kernel_def_pb2
from tensorflow.python.framework import config as framework_config
from tensorflow.python.framework import ops as framework_ops

from placer import tf_internals
from placer.profile.traced_session import session_config


def node_def(graph, name):
    return next(node for node in graph.as_graph_def().node if node.name == name)


def test_optimize_graph_folds_constants_and_keeps_what_it_is_told():
    with tf.Graph().as_default() as graph:
        x = tf.compat.v1.placeholder(tf.float32, [2], name="x")
        tf.add(x, tf.constant(2.0) * tf.constant(3.0) + tf.constant(1.0), name="kept")
        tf.multiply(x, 5.0, name="unused")
    nodes = {
        node.name: node.op for node in tf_internals.functions.optimize_graph(graph.as_graph_def(), ["kept:0", "x"]).node
    }
    assert "kept" in nodes
    assert "unused" not in nodes
    assert "Mul" not in nodes.values()


@pytest.mark.parametrize(
    "make",
    [lambda x: 0.0 * x, lambda x: tf.zeros([3]) * x, lambda x: x - x, lambda x: tf.zeros([3]) / x, lambda x: x / x],
)
def test_the_graph_optimizer_folds_nothing_that_may_be_nan(make):
    with tf.Graph().as_default() as graph:
        make(tf.compat.v1.placeholder(tf.float32, [3], name="x"))
        name = graph.get_operations()[-1].name
    folded = tf_internals.functions.optimize_graph(graph.as_graph_def(), ["x", name])
    assert next(node for node in folded.node if node.name == name).op in ("Mul", "Sub", "RealDiv")


def test_generators_of_the_whole_program_are_found_and_so_is_their_being_replaced():
    shared = "tf.random.get_global_generator()"
    before = tf.random.get_global_generator()
    assert tf_internals.settings.global_generators()[shared] is before.state
    tf.random.set_global_generator(tf.random.Generator.from_seed(3))
    assert tf_internals.settings.global_generators()[shared] is not before.state
    tf.random.set_global_generator(before)
    keras.random.normal([1])
    drawn = tf_internals.settings.global_generators()["Keras's global SeedGenerator"]
    keras.random.normal([1])
    assert tf_internals.settings.global_generators()["Keras's global SeedGenerator"] is drawn
    keras.utils.clear_session()
    assert "Keras's global SeedGenerator" not in tf_internals.settings.global_generators()


def test_keras_has_the_functions_that_compute_otherwise_in_a_trace():
    found = tf_internals.keras_parts.keras_functions()
    assert set(found) == {"logits", "mean", "max", "min"}
    (nn, name), x = found["logits"], tf.constant([0.5])
    made, from_logits = getattr(nn, name)(tf.nn.softmax(x), False, "Softmax", "loss")
    assert not from_logits and made is not x
    losses, name = found["mean"]
    assert getattr(losses, name)(tf.zeros([0]), None, "sum_over_batch_size").shape == (0,)
    for kind in ("max", "min"):
        module, name = found[kind]
        with pytest.raises(tf.errors.InvalidArgumentError, match="empty"):
            getattr(module, name)(tf.zeros([0]))

    @tf.function
    def traced(x):
        made, from_logits = getattr(*found["logits"])(tf.nn.softmax(x), False, "Softmax", "loss")
        assert from_logits and made is x
        return getattr(*found["mean"])(tf.boolean_mask(x, x > 9.0), None, "sum_over_batch_size")

    assert traced(x).numpy() == 0.0


def test_what_keras_ties_to_tensors_is_known():
    tensor = keras.activations.softmax(tf.constant([[1.0, 2.0]]))
    assert tf_internals.keras_parts.tied_by_keras(tensor)["logits"].numpy().tolist() == [[1.0, 2.0]]
    embedded = keras.layers.Embedding(9, 4, mask_zero=True)(tf.constant([[1, 0]]))
    assert tf_internals.keras_parts.tied_by_keras(embedded)["mask"].numpy().tolist() == [[True, False]]
    other = tf.constant(1.0)
    assert tf_internals.keras_parts.tied_by_keras(other) == {}
    tf_internals.keras_parts.tie_by_keras(other, "mask", tf.constant(True))
    assert set(tf_internals.keras_parts.tied_by_keras(other)) == {"mask"}


def test_what_a_program_ties_to_tensors_is_known():
    x, ids, weight = tf.constant([[1.0, 2.0]]), tf.constant([[1, 0]]), tf.Variable([1.0])
    embedded = keras.layers.Embedding(9, 4, mask_zero=True)(ids)
    table = tf.lookup.experimental.MutableHashTable(tf.int64, tf.float32, 0.0)
    known = [
        x, x + 1.0, keras.activations.softmax(x), embedded, weight.read_value(), weight.handle, table.resource_handle,
        tf.RaggedTensor.from_tensor(ids), tf.sparse.from_dense(ids), tf.IndexedSlices(x, ids),
        *tf.data.Dataset.from_tensors(x), tf.function(lambda x: x)(x),
    ]  # fmt: skip
    assert [tf_internals.keras_parts.tied_by_program(tensor) for tensor in known] == [None] * len(known)
    for tensor in (x, embedded, tf.RaggedTensor.from_tensor(ids)):
        tensor.weight = 0.5
        assert tf_internals.keras_parts.tied_by_program(tensor) == "weight"


def test_the_seed_of_the_program_is_known():
    tf.random.set_seed(3)
    assert tf_internals.settings.global_seed() == 3
    tf.random.set_seed(None)
    assert tf_internals.settings.global_seed() is None


def test_a_function_def_can_be_added_called_and_removed():
    concrete = tf.compat.v1.wrap_function(lambda a, b: a * b + 1.0, [tf.TensorSpec([], tf.float32)] * 2)
    function_def = concrete.function_def
    function_def.signature.name = "__canary"
    tf_internals.functions.add_function(function_def)
    assert tf_internals.functions.has_function("__canary")
    (result,) = tf_internals.functions.call_function("__canary", [tf.constant(2.0), tf.constant(3.0)], 1, b"")
    assert result.numpy() == 7.0
    tf_internals.functions.remove_function("__canary")
    tf_internals.functions.remove_function("__canary")
    assert not tf_internals.functions.has_function("__canary")


def test_collected_nodes_name_the_device_of_each_op(two_cpus):
    @tf.function(autograph=False)
    def step(x):
        with tf.device(two_cpus.tf_name(1)):
            return tf.sin(x, name="there")

    with tf_internals.functions.collected_nodes() as nodes:
        step(tf.constant([1.0, 2.0]))
    ran = {node.op: node.device for node in nodes}
    assert ran["Sin"] == two_cpus.tf_name(1)


def test_a_mark_stays_on_the_nodes_that_the_devices_are_given(two_cpus):
    """Whatever else runs for the first time meanwhile, even under the same node names and in another thread."""
    names = [f"__marked_{number}" for number in range(3)]
    for number, name in enumerate(names):
        function_def = tf.compat.v1.wrap_function(tf.sin, [tf.TensorSpec([], tf.float32)]).function_def
        function_def.signature.name = name
        next(node for node in function_def.node_def if node.op == "Sin").device = two_cpus.tf_name(number % 2)
        tf_internals.functions.mark_nodes(function_def, number)
        tf_internals.functions.add_function(function_def)
    with tf_internals.functions.collected_nodes(1) as nodes:
        for name in names:
            thread = Thread(target=tf_internals.functions.call_function, args=(name, [tf.constant(2.0)], 1, b""))
            thread.start()
            thread.join()
    assert [node.device for node in nodes if node.op == "Sin"] == [two_cpus.tf_name(1)]
    for name in names:
        tf_internals.functions.remove_function(name)


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
    assert "cpu" in tf_internals.op_types.kernel_kinds(node("MatMul", T=tf.float32))
    assert tf_internals.op_types.kernel_kinds(node("NoSuchOp")) == frozenset()
    assert tf_internals.op_types.kernel_kinds(node("MatMul", T=tf.string)) == {"cpu"}
    names = {
        constraint.name
        for found in tf_internals.op_types.registered_kernels("MatMul")
        for constraint in found.constraint
    }
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
    monkeypatch.setattr(tf_internals.op_types, "registered_kernels", lambda op: KERNELS.get(op, ()))
    monkeypatch.setattr(tf_internals.op_types, "here", lambda: frozenset({"cpu", "gpu"}))
    assert tf_internals.op_types.kernel_kinds(made) == kinds


def test_the_graph_optimizer_does_not_look_for_devices():
    with tf.Graph().as_default() as graph:
        x = tf.compat.v1.placeholder(tf.float32, [1, 8, 8, 4], name="x")
        tf.nn.relu(tf.nn.conv2d(x, tf.ones([3, 3, 4, 4]), 1, "SAME"), name="out")
    nodes = {n.name: n for n in tf_internals.functions.optimize_graph(graph.as_graph_def(), ["out:0", "x"]).node}
    assert {n.attr["data_format"].s for n in nodes.values() if n.op == "Conv2D"} == {b"NHWC"}


def test_the_graph_optimizer_leaves_batch_normalization_alone():
    """TensorFlow 2.21 would join it with Relu to an op that refuses three channels when the graph is imported."""
    with tf.Graph().as_default() as graph:
        x = tf.compat.v1.placeholder(tf.float32, [2, 4, 4, 3], name="x")
        y, *_ = tf.compat.v1.nn.fused_batch_norm(x, tf.ones([3]), tf.zeros([3]))
        tf.nn.relu(y, name="out")
    found = tf_internals.functions.optimize_graph(graph.as_graph_def(), ["out:0", "x"])
    assert {"FusedBatchNormV3", "Relu"} <= {node.op for node in found.node}
    with tf.Graph().as_default():
        tf.graph_util.import_graph_def(found, name="")


def test_input_type_of_single_repeated_and_listed_inputs():
    with tf.Graph().as_default() as graph:
        a, b = tf.constant([1.0], name="a"), tf.constant([2.0], name="b")
        tf.raw_ops.ConcatV2(values=[a, b], axis=tf.constant(0), name="concat")
        tf.raw_ops.IdentityN(input=[a, tf.constant([1], name="c")], name="several")
    concat, several = node_def(graph, "concat"), node_def(graph, "several")
    assert [tf_internals.op_types.input_type(concat, i) for i in range(3)] == [tf.float32, tf.float32, tf.int32]
    assert [tf_internals.op_types.input_type(several, i) for i in range(2)] == [tf.float32, tf.int32]


def test_every_device_has_an_incarnation(two_cpus):
    found = tf_internals.devices.incarnations()
    assert set(two_cpus.tf_names.values()) <= set(found)
    assert len({found[name] for name in two_cpus.tf_names.values()}) == 2


def test_devices_tell_their_memory_and_a_session_sees_them_all(two_cpus):
    assert tf_internals.devices.devices_are_set_up()
    assert set(two_cpus.tf_names.values()) == set(tf_internals.devices.device_memory_limits())
    with (
        tf.Graph().as_default() as graph,
        tf.compat.v1.Session(graph=graph, config=tf_internals.devices.device_config()) as session,
    ):
        assert {device.name for device in session.list_devices()} == set(two_cpus.tf_names.values())


def test_a_functions_body_becomes_a_graph():
    function = tf.function(lambda x: tf.nn.relu(x) + 1.0).get_concrete_function(tf.TensorSpec([2], tf.float32))
    graph_def, names = tf_internals.functions.function_graph(function.function_def)
    (returned,) = function.function_def.ret.values()
    with tf.Graph().as_default() as graph:
        tf.graph_util.import_graph_def(graph_def, name="")
        with tf.compat.v1.Session(graph=graph) as session:
            (argument,) = [n.name for n in graph_def.node if n.op == "Placeholder"]
            assert session.run(names[returned], {f"{argument}:0": [-1.0, 2.0]}).tolist() == [1.0, 3.0]


def test_a_session_puts_an_op_elsewhere_only_where_it_may():
    assert not session_config().allow_soft_placement
    assert session_config(soft=True).allow_soft_placement


def test_a_function_that_is_made_empty_runs_as_it_is():
    made = tf_internals.functions.new_function("__canary_empty")
    assert made.signature.name == "__canary_empty" and made.signature.is_stateful
    config = tf.compat.v1.ConfigProto.FromString(tf_internals.functions.plain_config())
    assert config.graph_options.rewrite_options.disable_meta_optimizer
    tf_internals.functions.add_function(made)
    assert tf_internals.functions.call_function("__canary_empty", [], 0, tf_internals.functions.plain_config()) == []
    tf_internals.functions.remove_function("__canary_empty")


def test_which_ops_have_a_state():
    assert tf_internals.op_types.is_stateful("RandomUniform") and tf_internals.op_types.is_stateful("AssignVariableOp")
    assert not tf_internals.op_types.is_stateful("MatMul") and not tf_internals.op_types.is_stateful("NoSuchOp")


def test_no_worker_is_joined_in_these_tests():
    assert tf_internals.devices.joined_tasks() == {}


def test_workers_are_told_for_how_long_to_wait_for_a_call_of_a_process_that_joins_them(monkeypatch):
    context = tf_internals.devices.eager_context.context()
    told = []
    for name in ("Set", "Update"):
        monkeypatch.setattr(
            tf_internals.devices.pywrap_tfe,
            f"TFE_Context{name}ServerDef",
            lambda _, seconds, __, name=name: told.append(seconds),
        )
    monkeypatch.setattr(context, "_server_def", None)
    monkeypatch.setattr(type(context), "_initialize_logical_devices", lambda _: None)
    context.ensure_initialized()
    for seconds in (1000, None):
        with tf_internals.devices.kept_by_workers(seconds) if seconds else nullcontext():
            for ports in ("1", "2"):  # another cluster, and then an update of it
                cluster = tf.train.ClusterSpec({"worker": {0: f"localhost:{ports}"}})
                tf.config.experimental_connect_to_cluster(cluster)
                tf.config.experimental_connect_to_cluster(cluster)
    assert set(told[: len(told) // 2]) == {1000}
    assert set(told[len(told) // 2 :]) == {600}


def test_a_server_that_is_there_serves_another_cluster_at_its_own_address(monkeypatch):
    context, told = tf_internals.devices.eager_context.context(), []
    monkeypatch.setattr(context, "_server_def", None)
    monkeypatch.setattr(type(context), "set_server_def", lambda self, server: setattr(self, "_server_def", server))
    monkeypatch.setattr(type(context), "update_server_def", lambda _, server: told.append(server))
    elsewhere = tf.train.ClusterSpec({"worker": {0: "host:1"}, "localhost": ["other:2"]})
    assert not tf_internals.devices.serve_cluster(elsewhere) and told == []
    tf.config.experimental_connect_to_cluster(tf.train.ClusterSpec({"worker": {1: "host:3"}, "localhost": ["mine:4"]}))
    assert tf_internals.devices.serve_cluster(elsewhere) and tf_internals.devices.serve_cluster(
        tf.train.ClusterSpec({})
    )
    served = [{job.name: dict(job.tasks) for job in server.cluster.job} for server in told]
    assert served == [{"worker": {0: "host:1"}, "localhost": {0: "mine:4"}}, {"localhost": {0: "mine:4"}}]
    assert {(server.job_name, server.protocol) for server in told} == {("localhost", "grpc")}


def test_the_array_of_a_variable_keeps_the_value_that_it_had_whatever_is_done_to_the_variable():
    """It is the tensor's memory: TensorFlow must write every new value elsewhere while it is held."""
    dense, table = tf.Variable(tf.ones([64, 4])), tf.Variable(tf.ones([64, 4]))
    table.scatter_add(tf.IndexedSlices(tf.zeros([1, 4]), [0]))  # updated sparsely from the beginning
    held = [tf_internals.variables.array_of(variable) for variable in (dense, table)]
    optimizer = tf.keras.optimizers.SGD(0.5, momentum=0.9)

    @tf.function
    def step():
        with tf.GradientTape() as tape:
            loss = tf.reduce_sum(dense) + tf.reduce_sum(tf.gather(table, [1, 2]))
        optimizer.apply_gradients(zip(tape.gradient(loss, [dense, table]), [dense, table], strict=True))
        dense.assign_add(tf.ones([64, 4]))

    step()
    step()
    dense.scatter_update(tf.IndexedSlices(tf.zeros([1, 4]), [3]))
    table.assign(tf.zeros([64, 4]))
    assert all((array == 1).all() and not array.flags.writeable for array in held)
    assert not (dense.numpy() == 1).any() and not table.numpy().any()
    assert tf_internals.variables.array_of(tf.Variable(3.0)) == 3.0


def test_bytes_of_a_tensor_are_those_of_its_elements():
    tensors = [tf.zeros((2, 3)), tf.zeros((0, 3)), tf.constant(1, tf.int64), tf.zeros((5,), tf.bfloat16)]
    assert [tf_internals.variables.bytes_of(tensor) for tensor in tensors] == [24, 0, 8, 10]


def test_a_variables_handle_gives_its_value():
    variable = tf.Variable([1.0, 2.0])
    handle = tf_internals.variables.handle_of(variable)
    assert isinstance(variable, tf_internals.variables.RESOURCE_VARIABLE) and vars(variable)["_handle"] is handle
    assert tf_internals.variables.is_eager(handle) and tf_internals.variables.is_initialized(handle)
    assert tf_internals.variables.read_variable(handle, tf.float32).numpy().tolist() == [1.0, 2.0]
    with tf.Graph().as_default():
        assert not tf_internals.variables.is_eager(tf.constant(1.0))


def test_a_handle_that_was_lost_still_leads_to_the_one_of_now():
    first, second, third = (tf.Variable(float(i)).handle for i in range(3))
    tf_internals.variables.replace_handles([(first, second)])
    assert tf_internals.variables.has_former_handles()
    assert (
        tf_internals.variables.current_handle(first) is second
        and tf_internals.variables.current_handle(second) is second
    )
    tf_internals.variables.replace_handles([(second, third)])
    assert (
        tf_internals.variables.current_handle(first) is third and tf_internals.variables.current_handle(second) is third
    )
    gone = weakref.ref(third)
    del first, second, third
    assert gone() is None


def test_a_function_is_exported_with_the_handles_of_now(tmp_path):
    module = tf.Module()
    module.first, module.second = tf.Variable(1.0), tf.Variable(2.0)
    module.read = tf.function(module.first.read_value).get_concrete_function()
    former, fresh = (tf_internals.variables.handle_of(variable) for variable in (module.first, module.second))
    tf_internals.variables.replace_handles([(former, fresh)])
    assert [captured is fresh for captured in module.read.captured_inputs] == [True]
    module.first._handle = fresh  # as hooks.py does
    tf.saved_model.save(module, str(tmp_path / "model"))
    assert float(tf.saved_model.load(str(tmp_path / "model")).read()) == 2.0


def test_what_autograph_calls_in_the_place_of_a_builtin():
    asked = []

    def is_instance(value, classes):
        asked.append(classes)
        return isinstance(value, classes)

    @tf.function
    def step(x):
        return x if isinstance(x, tf.Tensor) else 0 * x

    with tf_internals.autograph.autograph_calls({isinstance: is_instance}):
        step(tf.ones([]))
    step(tf.ones([2]))
    assert asked == [tf.Tensor]


@pytest.mark.parametrize("persistent", [False, True])
def test_what_tensorflow_puts_around_a_branch_is_found(persistent):
    weight = tf.Variable(2.0)

    @tf.function
    def step(x):
        with tf.GradientTape(persistent=persistent) as tape:
            y = x * weight if x > 0.0 else x
        return tape.gradient(y, weight)

    ops = step.get_concrete_function(tf.TensorSpec([])).graph.get_operations()
    around = [op for op in ops if tf_internals.graphs.wrapped_graph(op) is not None]
    assert bool(around) == persistent
    for op in around:
        graph = tf_internals.graphs.wrapped_graph(op)
        assert len(graph.inputs) == len(op.inputs) and len(graph.outputs) == len(op.outputs)
        assert any(tf_internals.graphs.branches_of(inner) for inner in graph.get_operations())


def test_the_graph_of_a_function_that_is_called_is_found():
    inner = tf.function(lambda x: x + 1.0)
    graph = tf.function(lambda x: inner(x) * 2.0).get_concrete_function(tf.TensorSpec([])).graph
    called = [tf_internals.graphs.called_graph(op) for op in graph.get_operations()]
    assert [[op.type for op in one.get_operations()][-2:] for one in called if one is not None] == [
        ["AddV2", "Identity"]
    ]


def test_what_assign_returns_is_the_variable_by_another_object():
    variable = tf.Variable(1.0)
    unread = variable.assign(2.0)
    assert type(unread) is tf_internals.variables.UNREAD_VARIABLE
    assert tf_internals.variables.handle_of(unread) is tf_internals.variables.handle_of(variable)
    assert (
        not {"handle", "_handle"} & vars(tf_internals.variables.UNREAD_VARIABLE).keys()
    )  # hooks.py sets them, and takes them away


def test_how_a_tf_function_was_made_is_seen():
    def plain(x):
        return x

    for jit in (True, False, None):
        assert tf_internals.autograph.compiles_for_xla(tf.function(plain, jit_compile=jit)) is bool(jit)
    for autograph in (True, False):
        assert tf_internals.autograph.uses_autograph(tf.function(plain, autograph=autograph)) is autograph
    assert not tf_internals.autograph.compiles_for_xla(plain)


def test_the_python_function_of_a_method_is_bound_to_its_object():
    class Adding:
        one = 1

        @tf.function
        def add(self, x):
            return x + self.one

    adding, plain = Adding(), lambda x: x
    for _ in range(2):  # before and after it is traced
        assert tf_internals.autograph.python_function(adding.add)(2) == 3
        assert tf_internals.autograph.python_function(adding.add).__self__ is adding
        adding.add(2)
    assert tf_internals.autograph.python_function(tf.function(plain)) is plain
    assert tf_internals.autograph.python_function(plain) is None


def test_what_autograph_calls_for_a_builtin_can_be_replaced(monkeypatch):
    seen = []

    def convert(x):
        seen.append(x)
        return tf.cast(x, tf.int32)

    monkeypatch.setitem(tf_internals.autograph.autograph_overloads(), "int", convert)
    function = tf.function(lambda x: int(x) + 1).get_concrete_function(tf.TensorSpec([], tf.float32))
    assert len(seen) == 1 and function(tf.constant(2.5)) == 3


def branching(x, i):
    y = x * 2.0
    if i > 0:
        y = y + x
    for _ in tf.range(3):
        y = y + tf.switch_case(i, [lambda: x, lambda: 2.0 * x])
    return y


def test_what_is_traced_as_a_branch_or_a_loop_can_be_replaced_and_autographs_names_are_known():
    traced, names, carried = [], [], []

    def around(function):
        def noted(*args):
            traced.append(function)
            frame = sys._getframe(1)
            while frame is not None:
                names.extend(tf_internals.autograph.managed_names(frame))
                carried.extend(tf_internals.autograph.carried(frame) or [])
                frame = frame.f_back
            return function(*args)

        return noted

    specs = tf.TensorSpec([]), tf.TensorSpec([], tf.int32)
    with tf_internals.graphs.around_branches(around):
        tf.function(branching).get_concrete_function(*specs)
    assert len(traced) == 6  # two of the If, condition and body of the loop, two of the Case
    assert "y" in names
    assert {name for name, _ in carried} == {"<internal iterate>", "y"}
    assert all(tf.is_symbolic_tensor(value) for name, value in carried if name == "y")
    tf.function(branching).get_concrete_function(*specs)
    assert len(traced) == 6


def test_the_graphs_of_branches_and_loops_are_found_also_once_a_gradient_went_through():
    weight, seen = tf.Variable(1.0), []

    def step(x, i):
        with tf.GradientTape() as tape:
            y = branching(x * weight, i)
        gradient = tape.gradient(y, weight)
        ops = y.graph.get_operations()
        seen.extend((op, tf_internals.graphs.branches_of(op), tf_internals.graphs.loop_of(op)) for op in ops)
        return gradient

    tf.function(step).get_concrete_function(tf.TensorSpec([]), tf.TensorSpec([], tf.int32))
    branches = [(op, graphs) for op, graphs, _ in seen if graphs and not op.name.startswith("gradient")]
    loops = [(op, *loop) for op, _, loop in seen if loop is not None and not op.name.startswith("gradient")]
    assert [len(graphs) for _, graphs in branches] == [2] and len(loops) == 1
    for op, (one, other) in branches:
        assert len(one.inputs) == len(other.inputs) == len(op.inputs) - 1 and len(one.outputs) == len(op.outputs)
        assert tf_internals.graphs.is_step_graph(one)
    for op, condition, body in loops:
        assert len(condition.inputs) == len(body.inputs) == len(op.inputs) and len(body.outputs) == len(op.outputs)
        cases = [graphs for inner in body.get_operations() if (graphs := tf_internals.graphs.branches_of(inner))]
        assert [len(graphs) for graphs in cases] == [2] and tf_internals.graphs.is_step_graph(cases[0][0])


def test_graphs_of_called_functions_are_told_from_the_steps_and_ops_without_a_gradient_are_known():
    graphs = []

    @tf.function
    def inner(x):
        graphs.append(tf.compat.v1.get_default_graph())
        return x + tf.stop_gradient(tf.exp(x))

    outer = tf.function(lambda x: inner(x)).get_concrete_function(tf.TensorSpec([]))
    assert tf_internals.graphs.is_step_graph(outer.graph) and not tf_internals.graphs.is_step_graph(graphs[0])
    assert not tf_internals.graphs.is_step_graph(tf.Graph())
    kinds = {op.type: tf_internals.graphs.has_gradient(op) for graph in graphs for op in graph.get_operations()}
    assert kinds["Exp"] and not kinds["StopGradient"]


def test_what_a_program_sets_for_all_ops_is_seen():
    assert not tf_internals.settings.is_deterministic() and tf_internals.settings.op_callbacks() == ()
    try:
        tf.config.experimental.enable_op_determinism()
        tf.debugging.enable_check_numerics()
        assert tf_internals.settings.is_deterministic() and len(tf_internals.settings.op_callbacks()) == 1
    finally:
        tf.debugging.disable_check_numerics()
        framework_config.disable_op_determinism()
    assert not tf_internals.settings.is_deterministic() and tf_internals.settings.op_callbacks() == ()


def test_what_a_program_sets_in_keras_for_its_thread_is_seen():
    policy, attention = keras.config.dtype_policy(), keras.config.is_flash_attention_enabled()
    assert tf_internals.keras_parts.keras_settings() == (policy, attention)
    try:
        keras.config.set_dtype_policy("mixed_bfloat16")
        keras.config.disable_flash_attention()
        assert tf_internals.keras_parts.keras_settings() == (keras.config.dtype_policy(), False)
    finally:
        keras.config.set_dtype_policy(policy)
        global_state.set_global_attribute("flash_attention", attention)


def test_how_numbers_of_several_types_go_together_is_seen():
    before = tf_internals.settings.number_promotion()
    try:
        framework_ops.set_dtype_conversion_mode("legacy")
        assert tf_internals.settings.number_promotion() != before
    finally:
        framework_ops.set_dtype_conversion_mode("off")
    assert tf_internals.settings.number_promotion() == before


def test_an_option_that_has_tensorflow_compute_in_short_floats_is_seen():
    assert tf_internals.settings.rewrites_precision() is None
    try:
        tf.config.optimizer.set_experimental_options({"auto_mixed_precision": True, "remapping": True})
        assert tf_internals.settings.rewrites_precision() == "auto_mixed_precision"
        tf.config.optimizer.set_experimental_options({"auto_mixed_precision": False})
        assert tf_internals.settings.rewrites_precision() is None
    finally:
        tf_internals.devices.eager_context.context()._optimizer_experimental_options.clear()


def test_an_iterators_spec_has_that_of_its_elements():
    iterator = iter(tf.data.Dataset.from_tensors((1.0, [2])))
    spec = tf.type_spec_from_value(iterator)
    assert isinstance(spec, tf.data.IteratorSpec)
    assert tf_internals.resources.element_spec(spec) == (tf.TensorSpec([], tf.float32), tf.TensorSpec([1], tf.int32))


@pytest.mark.parametrize(
    "make",
    [
        lambda: tf.zeros([2]), lambda: tf.zeros_like(tf.ones([2])), lambda: keras.ops.zeros([2]), lambda: tf.ones([2]),
        lambda: tf.experimental.numpy.zeros([2]), lambda: keras.layers.LSTMCell(2).get_initial_state(batch_size=1)[0],
        lambda: tf.Variable(tf.zeros([2])).read_value(), lambda: tf.constant([1.0]),
        lambda: tf.ragged.constant([[1], []]),
        lambda: tf.sparse.from_dense([[1, 0]]), lambda: tf.Variable(1.0).handle, lambda: tf.zeros([2]) + 1.0,
    ],
)  # fmt: skip
def test_what_libraries_put_on_tensors_is_not_the_programs(make):
    assert tf_internals.keras_parts.tied_by_program(make()) is None


def test_a_train_function_that_keras_makes_of_the_train_step_is_known():
    class Traced(keras.Model):
        @tf.function
        def train_step(self, data):
            return super().train_step(data)

    for kind in (keras.Model, Traced):
        inputs = keras.Input((2,))
        model = kind(inputs, keras.layers.Dense(1)(inputs))
        model.compile("sgd", "mse", jit_compile=False)
        assert tf_internals.keras_parts.has_keras_train_function(model)
        model.make_train_function()
        assert tf_internals.keras_parts.has_keras_train_function(model)
        own = model.train_function
        model.train_function = model._make_function(model.test_step)
        assert not tf_internals.keras_parts.has_keras_train_function(model)
        model.train_function = lambda iterator, own=own: own(iterator)
        assert not tf_internals.keras_parts.has_keras_train_function(model)


def test_a_train_function_that_keras_does_not_run_as_a_graph_of_its_own_is_known():
    assert not tf_internals.keras_parts.is_made_otherwise(None)
    for given, made_otherwise in (({}, False), ({"run_eagerly": True}, True), ({"jit_compile": True}, True)):
        inputs = keras.Input((2,))
        model = keras.Model(inputs, keras.layers.Dense(1)(inputs))
        model.compile("sgd", "mse", **{"jit_compile": False, **given})
        model.make_train_function()
        assert tf_internals.keras_parts.is_made_otherwise(model.train_function) == made_otherwise


def test_a_list_that_tensorflow_wraps_is_found_and_changes_in_place():
    module, given = tf.Module(), [1, 2]
    module.numbers = given
    stored = tf_internals.containers.stored_list(module.numbers)
    module.numbers.append(3)
    module.numbers *= 2
    module.numbers[0] = 7
    del module.numbers[1]
    assert tf_internals.containers.stored_list(module.numbers) is stored is given and stored == [7, 3, 1, 2, 3]
    assert tf_internals.containers.stored_list([1]) is None


def test_what_tensorflow_wraps_may_be_changed_behind_the_wrapper(tmp_path):
    module = tf.Module()
    module.row, module.named = [1], {"one": 1}
    for wrapper, given in ((module.row, [1]), (module.named, {"one": 1})):
        stored, note = tf_internals.containers.tracked_container(wrapper)
        assert stored == given and type(stored) is type(given)
        stored.clear()
        note()
        assert not wrapper
    tf.train.Checkpoint(module=module).write(str(tmp_path / "saved"))
    plain = [1]
    assert tf_internals.containers.tracked_container(plain)[0] is plain


def test_a_dataset_that_is_traced_or_holds_a_variable_is_seen():
    variable, seen = tf.Variable(1.0), []

    def read(_):
        seen.append(tf_internals.resources.traces_dataset())
        return variable.read_value()

    data = tf.data.Dataset.range(1).map(read)
    assert seen and all(seen) and not tf_internals.resources.traces_dataset()
    assert any(
        handle is tf_internals.variables.handle_of(variable) for handle in tf_internals.resources.dataset_captures()
    )
    del data


def test_a_variables_handle_is_told_from_other_resources():
    iterator = iter(tf.data.Dataset.range(1))
    table = tf.lookup.experimental.MutableHashTable(tf.int64, tf.int64, -1)
    assert tf_internals.variables.is_handle_of_variable(tf_internals.variables.handle_of(tf.Variable([1.0, 2.0])))
    assert not tf_internals.variables.is_handle_of_variable(table.resource_handle)
    assert not tf_internals.variables.is_handle_of_variable(iterator._iterator_resource)


def test_attributes_whose_texts_say_what_an_op_computes_are_known():
    assert {"padding", "data_format"} <= tf_internals.op_types.enumerated_attributes("Conv2D")
    assert "equation" in tf_internals.op_types.enumerated_attributes("Einsum")
    assert "shared_name" not in tf_internals.op_types.enumerated_attributes("VarHandleOp")


def loaded_with_a_table(path):
    module = tf.Module()
    values = tf.lookup.KeyValueTensorInitializer(tf.constant([1]), tf.constant([2]))
    module.table = tf.lookup.StaticHashTable(values, -1)
    module.look = tf.function(module.table.lookup, input_signature=[tf.TensorSpec([], tf.int32)])
    tf.saved_model.save(module, str(path))
    return tf.saved_model.load(str(path))


def test_what_tensorflow_finds_by_name_is_known(tmp_path):
    values = tf.lookup.KeyValueTensorInitializer(tf.constant([1]), tf.constant([2]))
    mutable = tf.lookup.experimental.MutableHashTable(tf.int64, tf.int64, -1)
    held = {
        "table": [tf.lookup.StaticHashTable(values, -1), mutable],
        "writer": [tf.summary.create_file_writer(str(tmp_path))],
        "queue": [tf.queue.FIFOQueue(1, [tf.float32])],
        "loaded": [loaded_with_a_table(tmp_path / "saved").table],
    }
    kinds = tf_internals.resources.named_resource_kinds()
    assert kinds.keys() == held.keys()
    for kind, things in held.items():
        assert all(issubclass(type(thing), kinds[kind]) for thing in things), kind
    anonymous = tf.lookup.StaticHashTable(values, -1, experimental_is_anonymous=True)
    assert not tf_internals.resources.is_found_by_name(anonymous) and tf_internals.resources.is_found_by_name(
        held["table"][0]
    )


def test_autographs_functions_are_known_by_their_code():
    def step(x):
        return x + 1.0 if x > 0.0 else x

    number = tf.TensorSpec([], tf.float32)
    tf.function(step).get_concrete_function(number)
    assert not tf_internals.autograph.is_converted(step.__code__)  # as another one calls it
    tf.function(lambda x: step(x)).get_concrete_function(number)
    assert tf_internals.autograph.is_converted(step.__code__)


def test_what_stands_in_for_tensorflows_own_turns_no_conversion_off():
    def whole(x):
        return x + 1.0 if x > 0.0 else x

    own = tf_internals.autograph.as_tensorflows_own(lambda of, x: of(x))
    assert tf.function(lambda x: own(tf.autograph.to_graph(whole), x))(tf.constant(1.0)).numpy() == 2.0


def test_what_a_dataset_keeps_by_a_name_is_known(tmp_path):
    def source():
        return tf.data.Dataset.range(3)

    def kept(dataset):
        return tf_internals.resources.kept_by_dataset(dataset)

    assert (kept(source().cache()), kept(source().cache(str(tmp_path / "c"))), kept(source())) == ("cache", None, None)
    by = {
        (seed, again): kept(source().shuffle(3, seed=seed, reshuffle_each_iteration=again))
        for seed in (None, 1)
        for again in (None, True, False)
    }
    assert {how for how, what in by.items() if what == "order"} == {(None, False), (1, None), (1, True)}
    mixed = {
        (seed, again): kept(tf.data.Dataset.random(seed=seed, rerandomize_each_iteration=again))
        for seed in (None, 1)
        for again in (None, True, False)
    }
    assert {how for how, what in mixed.items() if what == "draws"} == {(1, True)}
    assert not {*mixed.values()} - {"draws", None}
    assert tf_internals.resources.makes_batches(source().batch(2)) and tf_internals.resources.makes_batches(
        source().padded_batch(2)
    )
    assert tf_internals.resources.makes_batches(source().batch(2, num_parallel_calls=2))
    assert tf_internals.resources.makes_batches(source().ragged_batch(2)) and not tf_internals.resources.makes_batches(
        source()
    )
    within = []
    source().flat_map(lambda i: within.append(source().cache()) or within[0])
    assert kept(within[0]) is None


def test_a_tape_and_a_trace_are_seen():
    assert not tf_internals.calls.is_recorded()
    with tf.GradientTape():
        assert tf_internals.calls.is_recorded()
    seen = []
    tf.function(lambda: seen.append(tf_internals.calls.is_recorded()))()
    assert seen == [True]


def test_calls_of_functions_are_noted_and_given_other_captures():
    variable, other = tf.Variable(1.0), tf.Variable(5.0)
    function = tf.function(lambda x: x + variable)
    concrete, x = function.get_concrete_function(tf.constant(1.0)), tf.constant(1.0)
    asked = []

    def hook(called, captured):
        asked.append(called)
        return ([tf_internals.variables.handle_of(other)] if called is concrete else captured), lambda: asked.append(
            "ended"
        )

    assert tf_internals.calls.call_concrete(concrete, [x]).numpy() == 2.0
    assert tf_internals.calls.call_concrete(concrete, [x], [tf_internals.variables.handle_of(other)]).numpy() == 6.0
    with tf_internals.calls.recorded_calls() as calls:
        tf_internals.calls.around_function_calls(hook)
        try:
            assert function(x).numpy() == 6.0
        finally:
            tf_internals.calls.around_function_calls(None)
    assert asked == [concrete, "ended"] and [called for called, _ in calls] == [concrete]
    assert calls[0][1][0] is x and function(x).numpy() == 2.0


def test_kernels_are_listed_by_kind_and_type():
    found = [made for made in tf_internals.op_types.registered_kernels("Cast") if tf_internals.op_types.takes(made, {})]
    assert "cpu" in tf_internals.op_types.kinds_of(found) and "cpu" in tf_internals.op_types.here()


def test_tensors_of_a_trace_are_of_one_class_whose_attributes_can_be_replaced():
    concrete = tf.function(lambda x: tf.boolean_mask(x, x > 0)).get_concrete_function(tf.TensorSpec([3]))
    kind = tf_internals.graphs.symbolic_tensor()
    assert all(type(tensor) is kind for op in concrete.graph.get_operations() for tensor in op.outputs)
    kind.canary = property(lambda tensor: tensor.op.type)
    assert concrete.outputs[0].canary == "Identity"
    del kind.canary


def test_functions_that_draw_from_seeds_are_found_and_placers_own_are_not():
    @tf.function
    def drawn(x):
        return x + tf.random.uniform([2], seed=5)

    def own(x):
        tf_internals.graphs.mark_graph()
        return x + tf.random.uniform([2], seed=5)

    graphs = [drawn.get_concrete_function(tf.ones([2])).graph]
    graphs.append(tf.compat.v1.wrap_function(own, [tf.TensorSpec([2])]).graph)
    graphs.append(tf.function(lambda x: x + tf.random.stateless_uniform([2], [1, 2])).get_concrete_function(1.0).graph)
    assert [tf_internals.settings.draws_from_seeds(graph) for graph in graphs] == [True, True, False]
    called = list(tf_internals.graphs.called_graphs())
    assert [any(graph is one for one in called) for graph in graphs] == [True, False, True]


def test_a_tape_holds_what_it_recorded_until_its_gradient_is_taken():
    weight = tf.Variable(2.0)
    with tf.GradientTape() as tape:
        loss = weight * weight
    with tf.GradientTape(persistent=True) as persistent:
        persistent.watch(loss)
    assert tf_internals.variables.has_recorded(tape) and tf_internals.variables.has_recorded(persistent)
    tape.gradient(loss, weight)
    assert not tf_internals.variables.has_recorded(tape)
    assert not tf_internals.variables.has_recorded(tf.GradientTape())
