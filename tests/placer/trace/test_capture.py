"""Capturing a step: what becomes an op, what belongs to whom, and what is refused."""

from __future__ import annotations

import collections
import functools

import keras
import numpy as np
import pytest
import tensorflow as tf

from placer.errors import BadInputError
from placer.execute.rewrite import PlacedStep, Template
from placer.graph.coarsen import coarsen
from placer.graph.units import SCALAR_BYTES
from placer.splits.plan import Division, SplitPlan
from placer.splits.step import split_step
from placer.trace.capture import capture
from placer.trace.graph_def.node_def import called
from placer.trace.untouchable import untouchable, untouchable_now


@pytest.fixture(scope="module")
def captured(two_cpus, make_step):
    step, inputs = make_step()
    return capture(step, inputs, "small")


def test_every_op_has_a_phase_and_each_phase_has_ops(captured):
    assert {op.phase for op in captured.graph.ops} == {"forward", "backward", "update"}


def test_what_bodies_of_loops_and_branches_call_is_there():
    """Grappler inlines it into the bodies, which are then taken as they were."""
    weight = tf.Variable(tf.ones([4, 4]))

    @tf.function
    def inner(x, factor):
        return tf.tanh(x @ weight) * factor

    @tf.function
    def step(x):
        with tf.GradientTape() as tape:
            for _ in tf.range(3):
                x = inner(x, 0.5)
                if tf.reduce_sum(x) > 0.0:
                    x = inner(x, 1.5)
            loss = tf.reduce_sum(x) + tf.reduce_sum(tf.map_fn(lambda row: inner(row[None], 1.0)[0], x))
        weight.assign_sub(0.1 * tape.gradient(loss, weight))
        return loss

    graph_def = capture(step, [tf.ones([2, 4])]).graph_def
    library = {function.signature.name: function for function in graph_def.library.function}
    nodes = [*graph_def.node, *(node for function in library.values() for node in function.node_def)]
    asked = {name for node in nodes for name in called(node)}
    assert asked and asked <= library.keys()
    assert not {node.op for node in nodes if node.op.startswith("__inference")} - library.keys()


def test_constants_and_inputs_are_not_placed(captured):
    assert not {op.type for op in captured.graph.ops} & {"Const", "Placeholder"}


def test_whatever_touches_a_variable_is_colocated_with_it(captured):
    handles = {op.name: op.colocate for op in captured.graph.ops if op.type == "VarHandleOp"}
    assert set(handles) == set(captured.variables)
    for op in captured.graph.ops:
        if op.type in ("ReadVariableOp", "AssignVariableOp", "AssignAddVariableOp"):
            handle = captured.nodes[op.name].input[0]
            assert op.colocate is not None
            assert op.colocate == handles[handle]


def test_a_variable_lives_once_whatever_the_mapping(captured):
    """Its bytes are its handle's alone, and whoever takes the handle, by whatever kind of op, shares its device."""
    handles = {op.name: op for op in captured.graph.ops if op.type == "VarHandleOp"}
    assert {op.name for op in captured.graph.ops if op.memory_bytes} <= set(handles)
    for op in captured.graph.ops:
        taken = {handles[i].colocate for i in captured.nodes[op.name].input if i in handles}
        assert taken <= {op.colocate}


def test_slots_and_updates_move_with_their_variable(captured, two_cpus):
    """SGD's momentum and the op that adds it to the weight are in the weight's class when ops are grouped. A variable
    of so few bytes that they pass for a scalar costs next to nothing to cut."""
    coarse = coarsen(captured.graph, 60, two_cpus.topology)
    class_of = {}
    for group, members in zip(coarse.graph.ops, coarse.members, strict=True):
        for v in members:
            class_of[coarse.fine.ops[v].name] = group.colocate or group.name
    by_path = {variable.name.split(":")[0]: class_of[name] for name, variable in captured.variables.items()}
    large = {v.name.split(":")[0] for v in captured.variables.values() if v.shape.num_elements() * 4 > SCALAR_BYTES}
    slots = [path for path in by_path if path.endswith("_momentum") and path in large]
    assert len(slots) == 5
    for path in slots:
        (weight,) = [p for p in by_path if path.endswith(p.replace("/", "_") + "_momentum")]
        assert by_path[path] == by_path[weight]


def finite_or_zero(gradients):
    """As loss scaling does: if any gradient is not finite, all are 0."""
    are_finite = tf.reduce_all([tf.reduce_all(tf.math.is_finite(gradient)) for gradient in gradients])
    return [tf.where(are_finite, gradient, 0.0) for gradient in gradients]


@pytest.mark.some(2)
@pytest.mark.parametrize(
    ("settings", "change"),
    [
        pytest.param({}, list, id="plain"),
        pytest.param({"global_clipnorm": 1.0}, list, id="clipped by the norm of all gradients"),
        pytest.param({"gradient_accumulation_steps": 2}, list, id="accumulated"),
        pytest.param({}, finite_or_zero, id="checked together"),
    ],
)
def test_layers_can_be_placed_apart_whatever_is_done_with_all_their_gradients(two_cpus, settings, change):
    keras.utils.set_random_seed(3)
    model = keras.Sequential([keras.Input((256,)), *(keras.layers.Dense(256, activation="relu") for _ in range(18))])
    optimizer = keras.optimizers.Adam(**settings)
    optimizer.build(model.trainable_variables)

    def step(x):
        with tf.GradientTape() as tape:
            loss = tf.reduce_mean(model(x, training=True) ** 2)
        optimizer.apply(change(tape.gradient(loss, model.trainable_variables)), model.trainable_variables)
        return loss

    graph = capture(step, (tf.ones([64, 256]),), "layers").graph
    flops = collections.Counter[str]()
    for op in coarsen(graph, 192, two_cpus.topology).graph.ops:
        flops[op.colocate or op.name] += op.flops or 0.0
    assert max(flops.values()) < 0.2 * sum(flops.values())


def test_memory_is_the_variables_bytes(captured):
    held = sum(op.memory_bytes for op in captured.graph.ops)
    assert held == sum(v.shape.num_elements() * v.dtype.size for v in captured.variables.values())


def test_a_variable_is_read_once_between_its_writes(captured):
    reads = [tuple(sorted(n.input)) for n in captured.graph_def.node if n.op == "ReadVariableOp"]
    assert len(reads) == len(set(reads))


def test_returned_tensors_do_not_wait_for_the_updates(captured):
    for tensor in captured.output_names:
        assert not [i for i in captured.nodes[tensor.split(":")[0]].input if i.startswith("^")]


def test_the_same_step_has_the_same_fingerprint(captured, make_step):
    step, inputs = make_step()
    again = capture(step, inputs, "small")
    assert sorted(op.type for op in again.graph.ops) == sorted(op.type for op in captured.graph.ops)


def test_a_plan_divides_a_function_and_a_tf_function_into_the_same_ops(two_cpus, make_step):
    """A mapping of a function that a search divided is for the tf.function that trains, too."""
    step, inputs = make_step()
    one, other = (capture(s, inputs, "small") for s in (step, tf.function(lambda images, kinds: step(images, kinds))))
    assert one.input_names == other.input_names
    first = next(op.name for op in one.graph.ops if op.type == "MatMul")  # takes a part of the images
    plan = SplitPlan.of_regions([(Division("rows", 2), [first])])
    assert len({split_step(c, plan, stored=False).captured.graph.fingerprint for c in (one, other)}) == 1


def test_dense_flops_are_two_per_multiply_add(captured):
    forward = [op for op in captured.graph.ops if "MatMul" in op.type and op.phase == "forward"]
    assert sorted(op.flops for op in forward) == [2 * 6 * 16 * 4, 2 * 6 * 16 * 8, 2 * 6 * 16 * 8]


def test_tensor_bytes_follow_shapes(captured):
    graph = captured.graph
    for edge in graph.edges:
        shapes = graph.ops[edge.src].shapes
        if edge.output_index < len(shapes) and shapes[edge.output_index] == (6, 8):
            assert edge.edge_bytes == 6 * 8 * 4


def test_nested_functions_are_inlined_and_loops_stay_one_op(two_cpus, make_loop_step):
    types = [op.type for op in capture(make_loop_step(), (tf.constant(3.0),), "loop").graph.ops]
    assert not [t for t in types if "PartitionedCall" in t]
    assert len([t for t in types if t in ("While", "StatelessWhile")]) == 1
    assert "Switch" not in types


def test_a_variable_whose_shape_may_change_is_refused(two_cpus):
    rows = tf.Variable(tf.zeros([2, 3]), shape=tf.TensorShape([None, 3]), name="rows")
    with pytest.raises(BadInputError, match=r"'rows:0' has a shape that may change, \(None, 3\)"):
        capture(tf.function(lambda x: rows.assign(rows + x)), (tf.ones([2, 3]),), "step")


def test_branches_of_tensorflow_1_are_refused(two_cpus):
    """An op that waits for one of an untaken branch, as it may in a given order, is dead: its update would be lost."""
    weight = tf.Variable(1.0)

    def step(x):
        no, yes = tf.raw_ops.Switch(data=x * weight, pred=x > 0)
        merged, _ = tf.raw_ops.Merge(inputs=[tf.sin(no), tf.cos(yes)])
        return weight.assign_sub(merged)

    with pytest.raises(BadInputError, match=r"branches or loops of TensorFlow 1 \(op 'Switch', Switch\)"):
        capture(tf.function(step), (tf.constant(3.0),), "old")


def test_functions_that_are_specialised_for_a_signature_have_names_of_their_own(two_cpus):
    weight = tf.Variable(tf.ones([4, 1]))
    specs = [tf.TensorSpec([None, 1]), tf.TensorSpec([])]

    @tf.function(input_signature=specs, experimental_attributes={"_noinline": True})
    def mean(errors, count):
        return tf.reduce_sum(errors) / count

    def step(x):
        with tf.GradientTape() as tape:
            errors = (x @ weight) ** 2
        weight.assign_sub(0.01 * tape.gradient(errors, weight))
        return mean(errors, tf.constant(float(x.shape[0])))

    first, second = (capture(tf.function(step), (tf.ones([n, 4]),), "step").graph_def.library for n in (64, 63))
    assert first.function and second.function
    bodies = {function.signature.name: function for function in first.function}
    assert all(bodies.get(function.signature.name, function) == function for function in second.function)


def test_a_compiled_keras_model_is_a_step(two_cpus):
    model = keras.Sequential([keras.Input((4,)), keras.layers.Dense(2)])
    model.compile(optimizer="adam", loss="mse")
    captured = capture(model, (tf.ones([3, 4]), tf.ones([3, 2])), "keras")
    assert len(captured.variables) >= 2


@pytest.mark.parametrize(
    ("step", "says"),
    [
        (lambda x: tf.cast(x, tf.int32), "no floating-point tensor"),
        (lambda x: x * 2.0, "updates no variable"),
        (lambda x: x.no_such_thing, "could not trace"),
        (lambda x: {}["inside"] + x, "could not trace the step: KeyError: 'inside'$"),
        (5, "is no training step"),
    ],
)
def test_what_is_no_training_step_is_refused_in_one_line(two_cpus, step, says):
    with pytest.raises(BadInputError, match=says) as refused:
        capture(step, (tf.constant(1.0),), "mine")
    assert "\n" not in str(refused.value)
    assert str(refused.value).startswith("mine: ")


def test_a_model_without_an_optimizer_is_refused(two_cpus):
    model = keras.Sequential([keras.Input((4,)), keras.layers.Dense(2)])
    with pytest.raises(BadInputError, match="compile"):
        capture(model, (tf.ones([3, 4]), tf.ones([3, 2])), "keras")


def test_xla_is_switched_off_and_said(two_cpus):
    weight = tf.Variable(2.0)

    @tf.function(jit_compile=True)
    def step(x):
        weight.assign_sub(0.1 * x)
        return weight * x

    with pytest.warns(UserWarning, match="jit_compile is switched off"):
        assert capture(step, (tf.constant(1.0),), "mine").writes


def trained(x, weight):
    """The loss of x, after a step that lowers it."""
    with tf.GradientTape() as tape:
        loss = tf.reduce_sum(weight * x)
    weight.assign_sub(0.1 * tape.gradient(loss, weight))
    return loss


def test_a_call_may_nest_and_name_its_arguments(two_cpus):
    weight, extra = tf.Variable(2.0), tf.Variable(1.0)

    def step(batch, *, factor, training, variable, unused, mode="plain"):
        assert mode == "scaled"
        loss = trained(batch["x"][0] * factor, weight)
        return {"loss": loss, "none": None, "twice": (loss * 2.0, variable), "number": 3} if training else None

    args = ({"x": (np.float32(4.0), None), "name": "first"},)
    kwargs = {"factor": tf.constant(0.5), "training": True, "variable": extra, "unused": np.ones(3), "mode": "scaled"}
    captured = capture(step, args, "nested", kwargs)
    inputs = captured.flat_inputs(args, kwargs)
    assert [tuple(t.shape) for t in inputs] == [(), (), (3,)]
    placed = PlacedStep(Template(captured), [two_cpus.tf_name(1)] * len(captured.graph))
    seen = captured.pack(placed.run_flat(inputs))
    expected = captured.call(inputs)
    assert seen["none"] is None
    tf.nest.assert_same_structure(seen, expected)
    assert [float(v) for v in tf.nest.flatten(seen) if v is not None] == [4.0, 3.0, 8.0, 1.0]


def test_ragged_batches_of_all_sizes_are_one_step(two_cpus):
    weight = tf.Variable(2.0)
    batches = [tf.ragged.constant([[1.0], [2.0, 3.0]]), tf.ragged.constant([[1.0, 5.0], [2.0, 3.0, 4.0]])]
    captured = capture(lambda x: (trained(tf.reduce_sum(x), weight), x * 2.0), (batches[0],), "ragged")
    placed = PlacedStep(Template(captured), [two_cpus.tf_name(1)] * len(captured.graph))
    loss, doubled = captured.pack(placed.run_flat(captured.flat_inputs((batches[0],))))
    assert float(loss) == 12.0
    assert doubled.to_list() == [[2.0], [4.0, 6.0]]
    _, doubled = captured.pack(placed.run_flat(captured.flat_inputs((batches[1],))))
    assert doubled.to_list() == [[2.0, 10.0], [4.0, 6.0, 8.0]]


@pytest.mark.parametrize("result", [None, 3, (), {"count": 1}])
def test_a_step_may_return_no_loss_where_none_is_needed(two_cpus, result):
    weight = tf.Variable(2.0)

    def step(x):
        trained(x, weight)
        return result

    args = (tf.constant(1.0),)
    with pytest.raises(BadInputError, match="no floating-point tensor"):
        capture(step, args, "silent")
    captured = capture(step, args, "silent", needs_loss=False)
    placed = PlacedStep(Template(captured), [two_cpus.tf_name(1)] * len(captured.graph))
    seen = captured.pack(placed.run_flat(captured.flat_inputs(args)))
    assert tf.nest.map_structure(lambda t: t if t is None else int(t), seen) == result
    (moved,) = placed.variables.values()
    assert moved.numpy() == np.float32(1.9)


def test_variables_that_are_only_read_are_known(two_cpus):
    weight, factor = tf.Variable(2.0), tf.Variable(3.0)
    captured = capture(lambda x: trained(x * factor, weight), (tf.constant(1.0),), "frozen")
    assert [captured.variables[name] is weight for name in captured.written] == [True]
    assert any(variable is factor for variable in captured.variables.values())


def test_variables_that_are_reached_by_the_handle_alone_are_known(two_cpus):
    weight, count, rows = tf.Variable(2.0), tf.Variable(0), tf.Variable([3.0], trainable=False)
    unread = count.assign(1)  # another object of the same variable

    def step(x):
        count.assign_add(1, read_value=False)
        return trained(x * tf.gather_nd(rows, [0]), weight)

    captured = capture(step, (tf.constant(1.0),), "counting")
    assert {id(variable) for variable in captured.variables.values()} == {id(weight), id(count), id(rows)}
    assert {id(captured.variables[name]) for name in captured.written} == {id(weight), id(count)}
    assert not captured.feeds and unread.numpy() == 1


def test_a_table_is_no_variable(two_cpus):
    weight = tf.Variable(2.0)
    table = tf.lookup.experimental.MutableHashTable(tf.int64, tf.float32, 1.0)

    def step(x):
        return trained(x * table.lookup(tf.constant(1, tf.int64)), weight)

    captured = capture(step, (tf.constant(1.0),), "looking up")
    assert [variable is weight for variable in captured.variables.values()] == [True]
    assert tf.resource in {tensor.dtype for tensor in captured.feeds.values()}


def test_calls_within_leave_no_trace(two_cpus, make_step):
    """The ops of a function that the step calls are ops like any, with effects and names of their own."""
    step, inputs = make_step()
    plain = capture(step, inputs, "plain")
    inner = tf.function(make_step()[0], input_signature=[tf.TensorSpec([None, 16]), tf.TensorSpec([None], tf.int32)])
    within = capture(lambda x, y: inner(x, y), inputs, "within")
    types = [op.type for op in within.graph.ops]
    assert types.count("ReadVariableOp") == [op.type for op in plain.graph.ops].count("ReadVariableOp")
    assert not {"IdentityN", "NoOp", "PartitionedCall", "StatefulPartitionedCall"} & set(types)
    assert {within.nodes[w].op for w in within.writes} <= {"AssignVariableOp", "AssignAddVariableOp"}
    again = capture(lambda x, y: inner(x, y), inputs, "within")
    assert again.graph.fingerprint == within.graph.fingerprint


def test_what_autograph_says_before_is_no_reason(two_cpus):
    def step(x):
        return x.no_such_thing

    with pytest.raises(BadInputError, match="no attribute 'no_such_thing'"):
        capture(step, (tf.constant(1.0),), "mine")


def test_a_step_that_may_be_placed_is_touchable(two_cpus, make_step):
    step, _ = make_step()
    assert untouchable(step) is None
    assert untouchable(tf.function(step)) is None


def test_xla_and_eager_steps_are_left_alone(two_cpus, make_step):
    step, _ = make_step()
    assert "XLA" in untouchable(tf.function(step, jit_compile=True))
    assert untouchable_now() is None
    tf.config.run_functions_eagerly(True)
    try:
        assert "eagerly" in untouchable_now()
    finally:
        tf.config.run_functions_eagerly(False)
    model = keras.Sequential([keras.Input((4,)), keras.layers.Dense(2)])
    model.compile(optimizer="sgd", loss="mse", run_eagerly=True)
    assert "run_eagerly" in untouchable(model)


def test_a_distributed_step_is_left_alone(two_cpus):
    strategy = tf.distribute.MirroredStrategy(["cpu:0", "cpu:1"])
    with strategy.scope():
        weight = tf.Variable(2.0)
        kept = [keras.layers.Dense(1)]
        kept[0].build((None, 2))
        assert "MirroredStrategy" in untouchable(lambda x: x)

    def run(x):
        return strategy.run(lambda: x)

    def train(x):
        return trained(x, weight)

    model = keras.Sequential(kept)
    assert "MirroredStrategy" in untouchable(run)
    assert "distributed" in untouchable(train)
    assert "distributed" in untouchable(tf.function(lambda x: model(x)))
    assert "distributed" in untouchable(functools.partial(trained, weight=weight))


def test_the_default_strategy_distributes_nothing(two_cpus):
    """It is what a program has that looks for a TPU and finds none."""
    strategy = tf.distribute.get_strategy()
    with strategy.scope():
        weight = tf.Variable(2.0)

    def run(x):
        return strategy.run(lambda: trained(x, weight))

    assert untouchable(run) is None and untouchable(tf.function(run)) is None


def test_objects_that_answer_no_questions_do_no_harm(two_cpus):
    class Shy:
        @property
        def variables(self):
            raise RuntimeError("not now")

    shy = Shy()

    def step(x):
        return shy, later, x

    assert untouchable(step) is None
    later = 1


@pytest.mark.parametrize(
    ("optimizer", "dtype", "ordered"),
    [("scatter", tf.float32, False), ("scatter", tf.int32, True), ("dense", tf.float32, True)],
)
def test_rows_that_threads_add_in_any_order_round_differently_in_each_run(optimizer, dtype, ordered):
    table, weight = tf.Variable(tf.zeros([4, 2], dtype)), tf.Variable(1.0)

    def step(rows):
        if optimizer == "scatter":
            table.scatter_sub(tf.IndexedSlices(tf.ones([3, 2], dtype), rows))
        else:
            table.assign_sub(tf.ones([4, 2], dtype))
        return weight.assign_add(1.0)

    assert capture(step, (tf.constant([1, 1, 2]),), "rows").is_ordered == ordered
