"""Whole training steps, taken in micro-batches, do what they did at once."""

from __future__ import annotations

import re
from dataclasses import replace
from itertools import pairwise

import keras
import numpy as np
import pytest
import tensorflow as tf

from placer.execute.outputs import values
from placer.execute.rewrite import PlacedStep, Template
from placer.execute.untouched_outcome import untouched_outcome
from placer.graph.coarsen import coarsen
from placer.graph.op_graph import OpGraph
from placer.graph.topology import Device, Link, Topology
from placer.splits.plan import PlanError
from placer.splits.step import split_step
from placer.splits.step_graph import StepGraph
from placer.trace.capture import capture
from search.session.prediction import Prediction
from search.splits.choose import Judge
from search.splits.pipeline import pipeline
from surrogate.simulate.simulator import Simulator
from tests.search.splits.trainings import apart, attention, captured_training, convolutional

BATCH = 19  # does not divide evenly
STEPS = 3
MULTIPLY = {"Conv2D", "Conv2DBackpropInput", "Conv2DBackpropFilter", "MatMul", "BatchMatMulV2"}


def deep_dense(batch):
    """Twelve dense layers, every other one with a residual connection."""
    x = inputs = keras.Input((24,))
    x = keras.layers.Dense(32, "relu")(x)
    for _ in range(5):
        x = x + keras.layers.Dense(32)(keras.layers.Dense(32, "relu")(x))
    return keras.Model(inputs, keras.layers.Dense(5)(x)), tf.random.stateless_normal([batch, 24], [1, 2])


def deep_convolutional(batch):
    """Five convolutions, pooling, dropout, a penalty on weights; no batch normalisation."""
    x = inputs = keras.Input((12, 12, 3))
    for n in (4, 8, 8, 8, 8):
        x = keras.layers.Conv2D(n, 3, padding="same", activation="relu", kernel_regularizer="l2")(x)
    x = keras.layers.Dropout(0.3, seed=1)(keras.layers.MaxPooling2D(2)(x))
    model = keras.Model(inputs, keras.layers.Dense(5)(keras.layers.Flatten()(x)))
    return model, tf.random.stateless_normal([batch, 12, 12, 3], [1, 2])


def unequal_towers(batch):
    """Five convolutions beside three dense layers that take an input of their own, joined before the last layer."""
    images, numbers = keras.Input((12, 12, 3)), keras.Input((24,))
    x, y = images, numbers
    for n in (4, 8, 8, 8, 8):
        x = keras.layers.Conv2D(n, 3, padding="same", activation="relu")(x)
    for _ in range(3):
        y = keras.layers.Dense(16, "relu")(y)
    joined = keras.layers.Concatenate()([keras.layers.GlobalAveragePooling2D()(x), y])
    model = keras.Model([images, numbers], keras.layers.Dense(5)(joined))
    shapes = ([batch, 12, 12, 3], [batch, 24])
    return model, [tf.random.stateless_normal(shape, [i, 2]) for i, shape in enumerate(shapes)]


NETWORKS = [deep_dense, deep_convolutional, attention, convolutional, unequal_towers]


@pytest.fixture(scope="module", params=NETWORKS, ids=lambda make: make.__name__)
def training(request):
    """(captured step, a fresh batch per step, what the untouched step does on them)"""
    captured, batch = captured_training(request.param, BATCH)
    orders = [np.random.default_rng(i).permutation(BATCH) for i in range(STEPS)]
    batches = [[tf.gather(tensor, order) for tensor in batch] for order in orders]
    start = {name: variable.numpy() for name, variable in captured.variables.items()}
    return captured, batches, untouched_outcome(captured, start, batches)


def divided(captured, micro_batches, in_flight=2):
    graph = StepGraph(captured.graph_def)
    return split_step(captured, replace(pipeline(graph, micro_batches, devices=1), in_flight=in_flight), graph)


def in_stages(graph, devices):
    """The device of each op: the first half of the layers on the first."""
    place = {v: i for i, v in enumerate(graph.order)}
    of = {v: int(2 * min(place[v] for v in unit) >= len(graph)) for unit in graph.colocated for v in unit}
    return [devices[of[v]] for v in range(len(graph))]


@pytest.mark.some(2)
@pytest.mark.parametrize("micro_batches", [4, 8])
def test_micro_batches_on_two_stages_do_what_the_step_does(training, two_cpus, micro_batches):
    captured, batches, outcome = training
    step = divided(captured, micro_batches).captured
    placed = PlacedStep(Template(step), in_stages(step.graph, [two_cpus.tf_name(0), two_cpus.tf_name(1)]))
    returned = [values(placed.run_flat(batch)) for batch in batches]
    np.testing.assert_allclose(returned, outcome.returned, rtol=1e-5)
    assert apart(outcome, placed, step) < 2e-5
    placed.close()


def test_all_that_multiplies_is_divided_and_no_variable(training):
    captured, _, _ = training
    plan = divided(captured, 4).plan
    graph = StepGraph(captured.graph_def)
    multiplies = {op.name for op in graph.order if op.type in ("Conv2D", "MatMul", "Conv2DBackpropFilter")}
    assert multiplies and multiplies <= plan.divisions.keys()
    assert not any(graph.op(name).type in ("VarHandleOp", "ReadVariableOp") for name in plan.divisions)


def test_micro_batches_of_a_layer_share_a_device_and_their_sums_do(training):
    captured, _, _ = training
    graph = divided(captured, 4).captured.graph
    of = {graph.ops[v].name: i for i, unit in enumerate(graph.colocated) for v in unit}
    parts = [op for op in graph.ops if op.part_of is not None]
    assert {op.micro_batch for op in parts} == {0, 1, 2, 3}
    first = {op.part_of: of[op.name] for op in parts if op.micro_batch == 0}
    assert all(of[op.name] == first[op.part_of] for op in parts)
    sums = [op for op in graph.ops if op.micro_batch is not None and op.type == "AddV2" and op.part_of is None]
    assert sums and all(
        of[op.name] == of[graph.ops[e.src].name]
        for op in sums
        for e in graph.in_edges[graph.index[op.name]]
        if graph.ops[e.src].micro_batch == op.micro_batch and graph.ops[e.src].part_of is not None
    )


def in_order_of_arrival(graph):
    """The step on one device that runs ops as they become ready, as TensorFlow does."""
    ops = tuple(replace(op, cost_s={"cpu": 1.0}, devices=None) for op in graph.ops)
    simulator = Simulator(OpGraph(graph.name, ops, graph.edges), Topology((Device("cpu:0", "cpu"),)), "fifo")
    return simulator.timeline((0,) * len(ops))


def most_under_way(graph):
    """The most micro-batches that have begun to multiply and have not ended."""
    found = in_order_of_arrival(graph).spans
    spans = [(graph.ops[s.op].micro_batch, s) for s in found if graph.ops[s.op].type in MULTIPLY]
    turns = {i for i, _ in spans if i is not None}
    begins = {i: min(s.start_s for j, s in spans if j == i) for i in turns}
    ends = {i: max(s.end_s for j, s in spans if j == i) for i in turns}
    return max(sum(begins[j] <= begins[i] < ends[j] for j in turns) for i in turns)


@pytest.mark.some(2)
@pytest.mark.parametrize("in_flight", [1, 2, 4])
def test_no_more_are_under_way_than_allowed_unless_they_need_each_other(training, in_flight):
    captured, _, _ = training
    found = divided(captured, 4, in_flight)
    assert found.is_limited == (captured.name != "convolutional")  # which normalises over the whole batch
    assert most_under_way(found.captured.graph) == (in_flight if found.is_limited else 4)


def test_micro_batches_that_need_each_other_are_refused_where_that_is_asked_for(training):
    captured, _, _ = training
    graph = StepGraph(captured.graph_def)
    plan = pipeline(graph, 4, 2)
    if captured.name == "convolutional":
        with pytest.raises(PlanError, match="need each other"):
            split_step(captured, plan, graph, stored=False, limited=True)
    else:
        assert split_step(captured, plan, graph, stored=False, limited=True).is_limited


def test_more_micro_batches_need_less_memory(training):
    captured, _, _ = training
    if captured.name != "deep_convolutional":  # in the others, weights are larger than what is kept for them
        return
    graphs = [captured.graph, *(divided(captured, m, in_flight=1).captured.graph for m in (4, 8, 16))]
    peaks = [in_order_of_arrival(graph).memory_peak_bytes[0] for graph in graphs]
    assert all(more < fewer for fewer, more in pairwise(peaks))
    assert peaks[-1] < peaks[0] / 3


@pytest.mark.parametrize(("micro_batches", "says"), [(1, "ask for 2 to 19"), (20, "ask for 2 to 19")])
def test_numbers_of_micro_batches_that_cannot_be_are_refused(training, micro_batches, says):
    captured, _, _ = training
    message = f"a step of 19 examples has no {micro_batches} micro-batches; {says}."
    with pytest.raises(PlanError, match=f"^{re.escape(message)}$"):
        pipeline(StepGraph(captured.graph_def), micro_batches, 1)


def judged(captured, plan, memory_bytes):
    """(micro-batches under way in what a judge makes of a plan, predicted seconds) on two devices of so much memory."""
    devices = tuple(Device(f"cpu:{i}", "cpu", memory_bytes=memory_bytes) for i in range(2))
    topology = Topology(devices, (Link("*", "*", 1e-3, 1e9),))  # ten ops long: a device that waits begins others
    ops = tuple(replace(op, cost_s={"cpu": 1e-4}, devices=None) for op in captured.graph.ops)
    groups = coarsen(OpGraph("g", ops, captured.graph.edges), 24, topology)
    judge = Judge(captured, Prediction.profiled(groups, topology, 0.0), groups=24, seed=0)
    step, predicted_s = judge.fitting(plan, StepGraph(captured.graph_def))
    return step.plan.in_flight, predicted_s


@pytest.mark.some(2)
@pytest.mark.slow
def test_fewer_are_under_way_where_memory_has_no_room_for_more(training):
    captured, _, _ = training
    if captured.name != "deep_convolutional":  # in the others, weights are larger than what is kept for them
        return
    plan = divided(captured, 16, in_flight=16).plan
    held = [in_order_of_arrival(divided(captured, 16, n).captured.graph).memory_peak_bytes[0] for n in (1, 16)]
    assert held[0] < held[1]
    assert judged(captured, plan, None)[0] == 16
    found = (judged(captured, plan, int(share * held[0])) for share in (1.22, 1.2, 1.18))  # more holds all sixteen
    assert any(under_way < 16 and predicted_s < float("inf") for under_way, predicted_s in found)
    assert judged(captured, plan, int(0.02 * held[0])) == (1, float("inf"))


@pytest.mark.parametrize("weights", [tf.nn.softmax, tf.convert_to_tensor], ids=["softmax", "itself"])
def test_a_variable_of_one_number_per_example_stays_whole(two_cpus, weights):
    """It is read whole in one place, and written from what comes in micro-batches."""
    weight, history = tf.Variable(tf.random.stateless_normal([4], [5, 6])), tf.Variable(tf.ones([8]))

    def step(x):
        with tf.GradientTape() as tape:
            per_example = tf.tensordot(x, weight, 1) ** 2
            loss = tf.reduce_sum(weights(history) * per_example)
        weight.assign_sub(0.1 * tape.gradient(loss, weight))
        history.assign(0.9 * history + 0.1 * per_example)
        return loss

    batch = (tf.random.stateless_normal([8, 4], [1, 2]),)
    captured = capture(step, batch, "step")
    made = divided(captured, 4)
    assert len(made.plan) and not made.captured.divided
    start = {name: variable.numpy() for name, variable in captured.variables.items()}
    wanted = untouched_outcome(captured, start, [batch])
    placed = PlacedStep(Template(made.captured), [two_cpus.tf_name(0)] * len(made.captured.graph))
    placed.run_flat(captured.flat_inputs(batch))
    after = made.captured.joined({name: variable.numpy() for name, variable in placed.variables.items()})
    placed.close()
    for name, value in wanted.after.items():
        np.testing.assert_allclose(after[name], value, rtol=1e-5)


def test_tensors_that_a_step_captured_are_none_of_its_examples():
    """There are more of them than of inputs."""
    anchors = [tf.random.stateless_normal([3, 64], [i, 0]) for i in range(3)]  # smaller ones would be constants
    weight = tf.Variable(tf.ones([64]))

    def step(x, y):
        with tf.GradientTape() as tape:
            near = tf.add_n([tf.matmul(x * weight, anchor, transpose_b=True) for anchor in anchors])
            loss = tf.reduce_mean((tf.reduce_sum(near, 1) - y) ** 2)
        weight.assign_sub(0.1 * tape.gradient(loss, weight))
        return loss

    captured = capture(step, (tf.ones([32, 64]), tf.ones([32])), "step")
    assert len(captured.feeds) == 3
    assert pipeline(StepGraph(captured.graph_def, captured.input_names), 4, 2).micro_batches == 4
