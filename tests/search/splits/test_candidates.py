"""Whole training steps, divided by every policy, do what they did whole."""

from __future__ import annotations

from collections import Counter

import keras
import numpy as np
import pytest
import tensorflow as tf

from placer.execute.agreement import Agreement, LossDiffersError, Outcome
from placer.execute.outputs import values
from placer.execute.rewrite import PlacedStep, Template
from placer.execute.untouched_outcome import perturbed, untouched_outcome
from placer.splits.plan import SplitPlan
from placer.splits.step import split_step
from placer.splits.step_graph import StepGraph
from placer.trace.op_counts.flops import op_flops
from search.splits.candidates import POLICIES, candidates, plan_by, ranked
from search.splits.propagate import Propagation, Rates, in_turn_s
from tests.search.splits.trainings import apart, attention, captured_training, convolutional, dense

BATCH = 7  # does not divide evenly
STEPS = 2


@pytest.fixture(scope="module", params=[convolutional, dense, attention], ids=lambda make: make.__name__)
def training(request):
    captured, batch = captured_training(request.param, BATCH)
    start = {name: variable.numpy() for name, variable in captured.variables.items()}
    return captured, batch, untouched_outcome(captured, start, [batch] * STEPS)


def free_rates(graph):
    """Rates by which it pays to divide whatever can be."""
    return Rates({op.name: 1e-9 * (op_flops(op) or 1) for op in graph.order}, 1e-15, 0.0)


def plan_of(captured, policy, parts):
    graph = StepGraph(captured.graph_def)
    phases = {op.name: op.phase for op in captured.graph.ops}
    return plan_by(policy, graph, phases, free_rates(graph), parts)


@pytest.mark.some(8)
@pytest.mark.parametrize("parts", [2, pytest.param(3, marks=pytest.mark.slow)])
@pytest.mark.parametrize("policy", POLICIES)
def test_a_divided_step_is_the_step(training, two_cpus, policy, parts):
    captured, batch, outcome = training
    divided = split_step(captured, plan_of(captured, policy, parts)).captured
    devices = [two_cpus.tf_name((op.part or 0) % 2) if op.colocate is None else two_cpus.tf_name(0)
               for op in divided.graph.ops]  # fmt: skip
    placed = PlacedStep(Template(divided), devices)
    returned = [values(placed.run_flat(batch)) for _ in range(STEPS)]
    np.testing.assert_allclose(returned, outcome.returned, rtol=1e-5)
    assert apart(outcome, placed, divided) < 2e-5
    placed.close()


def test_a_divided_step_whose_optimizer_amplifies_rounding_agrees_and_a_wrong_update_does_not(two_cpus):
    """The gradient of a bias before batch normalization is rounding alone, and Adam makes whole updates of it."""
    captured, batch = captured_training(convolutional, BATCH, keras.optimizers.Adam(0.01))
    start = {name: variable.numpy() for name, variable in captured.variables.items()}
    divided = split_step(captured, plan_of(captured, "batch", 2)).captured
    placed = PlacedStep(Template(divided), [two_cpus.tf_name((op.part or 0) % 2) for op in divided.graph.ops])
    returned = [values(placed.run_flat(batch)) for _ in range(STEPS)]
    after = captured_values(divided, placed)
    placed.close()

    def outcome(start):
        return untouched_outcome(captured, start, [batch] * STEPS)

    agreement = Agreement([outcome(start)], exact=False, shaken=lambda: (outcome(start), outcome(perturbed(start))))
    agreement.compare(Outcome(returned, start, after))
    (kernel,) = (name for name, v in captured.variables.items() if v.trainable and tuple(v.shape) == (3, 3, 3, 8))
    wrong = {**after, kernel: 2 * start[kernel] - after[kernel]}
    with pytest.raises(LossDiffersError, match=kernel):
        agreement.compare(Outcome(returned, start, wrong))


def captured_values(captured, placed):
    return captured.joined({name: variable.numpy() for name, variable in placed.variables.items()})


@pytest.mark.parametrize("policy", POLICIES)
def test_what_multiplies_is_divided(training, policy):
    captured, _, _ = training
    plan = plan_of(captured, policy, 2)
    graph = StepGraph(captured.graph_def)
    types = Counter(op.type for op in graph.order if op.type in ("Conv2D", "MatMul", "Conv2DBackpropFilter"))
    divided = Counter(graph.op(name).type for name in plan.divisions)
    assert all(divided[kind] >= 0.7 * count for kind, count in types.items())


def test_variables_of_divided_weights_are_divided_with_their_slots(training):
    captured, _, _ = training
    divided = split_step(captured, plan_of(captured, "columns", 2)).captured
    for name, parts in divided.divided.items():
        shapes = [divided.variables[part].shape[parts.axis] for part in parts.nodes]
        assert sum(shapes) == captured.variables[name].shape[parts.axis] and min(shapes) > 0
    kernels = {name for name, v in captured.variables.items() if v.shape.rank == 2}
    assert kernels & divided.divided.keys()


def test_plans_differ_and_by_examples_no_variable_is_divided(training):
    captured, _, _ = training
    graph = StepGraph(captured.graph_def)
    phases = {op.name: op.phase for op in captured.graph.ops}
    found = dict(candidates(graph, phases, free_rates(graph), 2))
    assert len({tuple(sorted(plan.divisions.items(), key=str)) for plan in found.values()}) == len(found) >= 2
    assert not any(graph.op(name).type == "VarHandleOp" for name in found["batch"].divisions)


def test_the_cheapest_plan_is_first_and_an_undivided_step_takes_what_its_ops_take(training):
    captured, _, _ = training
    graph = StepGraph(captured.graph_def)
    phases = {op.name: op.phase for op in captured.graph.ops}
    free = free_rates(graph)
    dear = Rates(free.op_s, 1e-6, 1e-3)
    for rates in (free, dear):
        plans = ranked(graph, phases, rates, 2)
        taken_s = [in_turn_s(graph, rates, 2, plan) for _, plan in plans]
        assert taken_s == sorted(taken_s)
        assert dict(plans) == dict(candidates(graph, phases, rates, 2))
        whole_s = in_turn_s(graph, rates, 2, SplitPlan({}))
        assert whole_s == pytest.approx(sum(rates.op_s.values()))
        assert all(seconds < whole_s for seconds in taken_s) == (rates is free)


def test_where_moving_data_is_dear_nothing_is_divided(training):
    captured, _, _ = training
    graph = StepGraph(captured.graph_def)
    phases = {op.name: op.phase for op in captured.graph.ops}
    rates = Rates({op.name: 1e-6 for op in graph.order}, 1.0, 1.0)
    assert not any(
        graph.op(name).type == "Conv2DBackpropFilter" for name in plan_by("batch", graph, phases, rates, 2).divisions
    )


def _branches():
    """x -> query and key, each [8, 12] -> their product, with its last axis in two -> flat again -> project [12, 8]."""

    def weight(name, shape):
        handle = tf.raw_ops.VarHandleOp(dtype=tf.float32, shape=shape, shared_name=name, name=name)
        return tf.raw_ops.ReadVariableOp(resource=handle, dtype=tf.float32)

    with tf.Graph().as_default() as graph:
        x = tf.compat.v1.placeholder(tf.float32, [4, 8], "x")
        query, key = (tf.raw_ops.MatMul(a=x, b=weight(name, [8, 12])) for name in ("query", "key"))
        heads = tf.reshape(query * key, [4, 2, 6])
        tf.raw_ops.MatMul(a=tf.reshape(tf.nn.relu(heads), [4, 12]), b=weight("project", [12, 8]), name="end")
    return StepGraph(graph.as_graph_def())


def test_branches_of_one_input_are_cut_by_what_they_put_out_and_what_joins_them_by_what_it_takes_in():
    graph = _branches()
    phases = dict.fromkeys((op.name for op in graph.order), "forward")
    plan = plan_by("alternate", graph, phases, free_rates(graph), 2)
    ways = {name: plan.divisions[name].way for name in ("query", "key", "project", "end")}
    assert ways == {"query": "axis1", "key": "axis1", "project": "axis0", "end": "inner"}


def _updated():
    """Two examples x [2, 64] in parts along axis 1, and a weight [64, 64] that their gradient changes."""
    with tf.Graph().as_default() as graph:
        weight = tf.raw_ops.VarHandleOp(dtype=tf.float32, shape=[64, 64], shared_name="weight", name="weight")
        first = tf.raw_ops.VarHandleOp(dtype=tf.float32, shape=[8, 64], shared_name="first", name="first")
        read = tf.raw_ops.ReadVariableOp(resource=first, dtype=tf.float32)
        x = tf.raw_ops.MatMul(a=tf.compat.v1.placeholder(tf.float32, [2, 8], "in"), b=read, name="x")
        dy = tf.compat.v1.placeholder(tf.float32, [2, 64], "dy")
        gradient = tf.raw_ops.MatMul(a=x, b=dy, transpose_a=True, name="gradient")
        tf.raw_ops.AssignSubVariableOp(resource=weight, value=gradient, name="update")
    return StepGraph(graph.as_graph_def())


@pytest.mark.parametrize(("axis", "way"), [(0, "rows"), (1, "columns")])
def test_a_gradient_is_made_in_the_parts_of_its_weight_where_that_moves_less(axis, way):
    """Along axis 1 each part needs all of x, 512 bytes, instead of half of the gradient, 8 kB."""
    graph = _updated()
    rates = Rates({"x": 1.0, "gradient": 1.0}, 1e-9, 1e-9)
    plan = Propagation(graph, rates, 2, {"weight": axis, "first": 1}).plan()
    assert (plan.divisions["x"].way, plan.divisions["gradient"].way) == ("columns", way)
