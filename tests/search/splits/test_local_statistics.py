"""Parts of a batch that normalize by statistics of their own do what replicas of data-parallel training do."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from itertools import pairwise

import keras
import numpy as np
import pytest
import tensorflow as tf

from placer.execute.outputs import values
from placer.execute.rewrite import PlacedStep, Template
from placer.splits.local_statistics import with_local_statistics, with_whole_statistics
from placer.splits.plan import LOCAL, Division, PlanError, SplitPlan
from placer.splits.rules.copies import COPIES
from placer.splits.step import split_step
from placer.splits.step_graph import StepGraph
from placer.trace.capture import capture
from search.splits.pipeline import pipeline
from tests.search.splits.test_batch_norm import Fused, as_keras_writes_it, residual
from tests.search.splits.test_candidates import plan_of

BATCH = 7  # 3 + 4, 2 + 2 + 3
STEPS = 3


class Training:
    """A network with six batch normalizations, and the training that replicas would do, written by hand."""

    def __init__(self, norm):
        keras.utils.set_random_seed(3)
        self.model = model = residual(norm)
        self.optimizer = keras.optimizers.Adam(0.01)
        self.optimizer.build(model.trainable_variables)
        self.loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
        self.example = (
            2 * tf.random.stateless_normal([BATCH, 9, 9, 3], [1, 2]) + 3,
            tf.constant(np.arange(BATCH) % 5),
        )

        def step(x, y):
            with tf.GradientTape() as tape:
                loss = self.loss(y, model(x, training=True))
            self.optimizer.apply(tape.gradient(loss, model.trainable_variables), model.trainable_variables)
            return loss

        self.step = step
        self.captured = capture(step, self.example, "residual")
        self.batch = self.captured.flat_inputs(self.example)
        self.start = {name: variable.numpy() for name, variable in self.captured.variables.items()}

    def by_replicas(self, bounds):
        """(losses, variables) after STEPS steps of replicas that have the examples between `bounds`: gradients, losses
        and moving averages are means weighted by examples.
        """
        losses = [self._one_step(bounds) for _ in range(STEPS)]
        found = {name: variable.numpy() for name, variable in self.captured.variables.items()}
        for name, variable in self.captured.variables.items():
            variable.assign(self.start[name])
        return losses, found

    def _one_step(self, bounds):
        moving = self.model.non_trainable_variables
        before, made = [v.numpy() for v in moving], []
        for a, b in pairwise(bounds):
            for variable, value in zip(moving, before, strict=True):
                variable.assign(value)
            with tf.GradientTape() as tape:
                loss = self.loss(self.example[1][a:b], self.model(self.example[0][a:b], training=True))
            gradients = tape.gradient(loss, self.model.trainable_variables)
            made.append([loss.numpy(), *(g.numpy() for g in gradients), *(v.numpy() for v in moving)])
        shares = [(b - a) / bounds[-1] for a, b in pairwise(bounds)]
        mean = [
            sum(share * value for share, value in zip(shares, column, strict=True))
            for column in zip(*made, strict=True)
        ]
        trained = len(self.model.trainable_variables)
        for variable, value in zip(moving, mean[1 + trained :], strict=True):
            variable.assign(value)
        gradients = [tf.constant(value) for value in mean[1 : 1 + trained]]
        self.optimizer.apply(gradients, self.model.trainable_variables)
        return mean[0]


@pytest.fixture(scope="module", params=[as_keras_writes_it, Fused], ids=["decomposed", "fused"])
def training(request):
    return Training(request.param)


def run(training, captured, device_of):
    """(losses, variables) after STEPS placed steps."""
    placed = PlacedStep(Template(captured), [device_of(op) for op in captured.graph.ops])
    losses = [values(placed.run_flat(training.batch))[0] for _ in range(STEPS)]
    after = captured.joined({name: variable.numpy() for name, variable in placed.variables.items()})
    placed.close()
    return losses, after


def assert_same(training, found, expected):
    np.testing.assert_allclose(found[0], expected[0], rtol=2e-5)
    assert found[1].keys() == expected[1].keys()
    for name, value in expected[1].items():
        change = np.abs(value - training.start[name]).max()
        assert np.abs(found[1][name] - value).max() < 2e-3 * change + 1e-7, name


@pytest.mark.some(1)
@pytest.mark.parametrize(
    ("parts", "bounds"), [(2, (0, 3, 7)), pytest.param(3, (0, 2, 4, 7), marks=pytest.mark.nightly)]
)
def test_by_examples_each_part_does_what_a_replica_does(training, two_cpus, parts, bounds):
    captured = training.captured
    plan, made_local, kept = with_local_statistics(StepGraph(captured.graph_def), plan_of(captured, "batch", parts))
    assert (made_local, kept) == (6, 0)
    divided = split_step(captured, plan).captured
    found = run(training, divided, lambda op: two_cpus.tf_name((op.part or 0) % 2))
    assert_same(training, found, training.by_replicas(bounds))


@pytest.mark.some(1)
def test_the_statistics_of_the_whole_batch_are_something_else(training, two_cpus):
    """Else all the comparisons here would show nothing."""
    divided = split_step(training.captured, plan_of(training.captured, "batch", 2)).captured
    losses, _ = run(training, divided, lambda op: two_cpus.tf_name(op.part or 0))
    assert abs(losses[0] - training.by_replicas((0, 3, 7))[0][0]) > 1e-3


def in_micro_batches(captured, micro_batches):
    graph = StepGraph(captured.graph_def)
    plan = replace(pipeline(graph, micro_batches, devices=1), in_flight=1)
    return split_step(captured, plan, graph), split_step(captured, with_local_statistics(graph, plan)[0], graph)


@pytest.mark.some(1)
def test_micro_batches_no_longer_need_each_other(training, two_cpus):
    exact, local = in_micro_batches(training.captured, 3)
    assert not exact.is_limited and local.is_limited
    found = run(training, local.captured, lambda op: two_cpus.tf_name(0))
    assert_same(training, found, training.by_replicas((0, 2, 4, 7)))


def test_no_part_needs_another_before_weights_are_updated(training):
    plan, _, _ = with_local_statistics(StepGraph(training.captured.graph_def), plan_of(training.captured, "batch", 2))
    graph = split_step(training.captured, plan).captured.graph
    behind = [set() if op.part is None else {op.part} for op in graph.ops]
    for v in graph.order:
        behind[v] |= {part for edge in graph.in_edges[v] for part in behind[edge.src]}
    multiplied = [v for v, op in enumerate(graph.ops) if op.type.startswith("Conv2D") and op.part is not None]
    assert multiplied and all(behind[v] == {graph.ops[v].part} for v in multiplied)


def test_a_plan_says_so_and_can_be_led_back(training):
    graph, plan = StepGraph(training.captured.graph_def), plan_of(training.captured, "batch", 2)
    local, _, _ = with_local_statistics(graph, plan)
    assert local.is_local and not plan.is_local
    assert "each with its own statistics" in local.described(1, 0) and "statistics" not in plan.described(1, 0)
    back = with_whole_statistics(graph, local)
    lost = plan.divisions.keys() - back.divisions.keys()
    assert back == SplitPlan({name: division for name, division in plan.divisions.items() if name not in lost})
    assert all(plan.divisions[name].way == COPIES and local.divisions[name].way == LOCAL for name in lost)
    types = Counter(graph.op(name).type for name, division in local.divisions.items() if division.way == LOCAL)
    assert types.keys() <= {
        "FusedBatchNormV3", "FusedBatchNormGradV3", "Mean", "Sum", "Squeeze", "Reshape", "AddV2", "AddN", "Rsqrt",
        "RsqrtGrad", "Mul", "Sub", "Neg",
    }  # fmt: skip


def captured_of(forward, *variables):
    """A step that lowers what `forward` gives for 6 examples of 4 numbers."""

    def step(x):
        with tf.GradientTape() as tape:
            loss = forward(x)
        for variable, gradient in zip(variables, tape.gradient(loss, variables), strict=True):
            variable.assign_sub(0.1 * gradient)
        return loss

    return capture(step, (tf.random.stateless_normal([6, 4], [1, 2]),), "step")


def normalized(x, axes):
    mean, variance = tf.nn.moments(x, axes, keepdims=True)
    return tf.nn.batch_normalization(x, mean, variance, None, None, 1e-3), variance


def test_other_means_over_examples_stay_those_of_the_whole_batch():
    weight = tf.Variable(tf.random.stateless_normal([4, 3], [5, 6]))
    for forward in (
        lambda x: tf.reduce_mean(normalized(x @ weight, [1])[0] ** 3),  # each example by its own numbers
        lambda x: tf.reduce_sum(tf.reduce_mean(tf.nn.softmax(x @ weight), 0) ** 2),  # how experts are balanced
        lambda x: tf.reduce_mean((x @ normalized(weight, [0])[0]) ** 3),  # weights that are standardized
    ):
        captured = captured_of(forward, weight)
        plan = plan_of(captured, "batch", 2)
        assert len(plan)
        assert with_local_statistics(StepGraph(captured.graph_def), plan) == (plan, 0, 0)


@pytest.mark.parametrize("joined", [tf.multiply, tf.add, lambda one, other: other - 0.0 * one])
def test_statistics_that_the_loss_uses_otherwise_stay_those_of_the_whole_batch(joined):
    """Also where the gradient of that is a constant, as of a penalty on the variance."""
    weight = tf.Variable(tf.random.stateless_normal([4, 3], [5, 6]))

    def forward(x):
        y, variance = normalized(x @ weight, [0])
        return joined(tf.reduce_mean(y**3), tf.reduce_sum(variance))

    captured = captured_of(forward, weight)
    plan = plan_of(captured, "batch", 2)
    assert with_local_statistics(StepGraph(captured.graph_def), plan) == (plan, 0, 1)


def masking(dtype, kept):
    """A step that leaves out channels of no variance, and that notes them in a variable of type `dtype` if `kept`."""
    weight = tf.Variable(tf.random.stateless_normal([4, 3], [5, 6]))
    alive = tf.Variable(tf.zeros([3], dtype), trainable=False)

    def step(x):
        with tf.GradientTape() as tape:
            y = x @ weight
            mean, variance = tf.nn.moments(y, [0])
            keep = tf.cast(variance > 1e-6, dtype)
            y = (y - mean) * tf.math.rsqrt(variance + 1e-3) * tf.cast(keep, tf.float32)
            loss = tf.reduce_mean(y**3)
        weight.assign_sub(0.1 * tape.gradient(loss, weight))
        if kept:
            alive.assign(keep)
        return loss

    return capture(step, (tf.random.stateless_normal([6, 4], [1, 2]),), "step")


@pytest.mark.parametrize("dtype", [tf.int32, tf.bool])
def test_a_number_that_cannot_be_averaged_is_local_only_where_nothing_takes_it_whole(dtype):
    """The mean of two parts' counts is no count, and flags have no mean."""
    for kept in (False, True):
        captured = masking(dtype, kept)
        plan = plan_of(captured, "batch", 2)
        local, made, whole = with_local_statistics(StepGraph(captured.graph_def), plan)
        assert (made, whole) == ((0, 1) if kept else (1, 0)) and local.is_local == (not kept)
        split_step(captured, local)
    assert with_local_statistics(StepGraph(masking(tf.float32, True).graph_def), plan)[1:] == (1, 0)


@pytest.mark.parametrize("dtype", [tf.int32, tf.bool])
def test_a_written_plan_that_would_average_such_a_number_is_refused(dtype):
    free, captured = masking(dtype, False), masking(dtype, True)
    local, _, _ = with_local_statistics(StepGraph(free.graph_def), plan_of(free, "batch", 2))
    with pytest.raises(PlanError, match=f"gives {dtype.name}, of which there is no mean") as refused:
        split_step(captured, local)
    assert "\n" not in str(refused.value)


@pytest.mark.parametrize(("parts", "found"), [(2, (1, 0)), (3, (1, 0)), (4, (0, 1)), (6, (0, 1))])
def test_where_a_part_would_have_one_value_of_each_channel_statistics_stay_those_of_the_whole_batch(parts, found):
    """Of 6 examples; its variance would be 0, and what it is normalized by it says nothing any more."""
    weight = tf.Variable(tf.random.stateless_normal([4, 3], [5, 6]))
    captured = captured_of(lambda x: tf.reduce_mean(normalized(x @ weight, [0])[0] ** 3), weight)
    plan = plan_of(captured, "batch", parts)
    local, made, kept = with_local_statistics(StepGraph(captured.graph_def), plan)
    assert (made, kept) == found and local.is_local == bool(made)


def normalizing(count):
    """(GraphDef that normalizes a Placeholder x by its moments so many times in a row, plan by examples)"""
    with tf.Graph().as_default() as graph:
        x = tf.compat.v1.placeholder(tf.float32, [6, 4], "x")
        for _ in range(count):
            mean = tf.raw_ops.Mean(input=x, axis=tf.constant([0]), keep_dims=True)
            squares = tf.raw_ops.SquaredDifference(x=x, y=mean)
            variance = tf.raw_ops.Mean(input=squares, axis=tf.constant([0]), keep_dims=True)
            x = tf.raw_ops.Mul(x=tf.raw_ops.Sub(x=x, y=mean), y=tf.raw_ops.Rsqrt(x=variance))
    by_examples = [op.name for op in graph.get_operations() if op.type in ("Mean", "SquaredDifference", "Sub", "Mul")]
    return graph.as_graph_def(), SplitPlan({name: Division("axis0", 2) for name in by_examples})


@pytest.mark.parametrize(("inputs", "made"), [(["x"], 2), ([], 0)])
def test_what_normalizes_a_tensor_that_the_step_captured_keeps_its_moments(inputs, made):
    graph_def, plan = normalizing(2)
    local, found, kept = with_local_statistics(StepGraph(graph_def, inputs), plan)
    assert (found, kept) == (made, 0) and local.is_local == bool(made)


def test_the_graph_is_gone_through_as_often_for_many_batch_normalizations_as_for_one():
    class Watched(StepGraph):
        times = 0

        @property
        def order(self):
            self.times += 1
            return super().order

    graphs = [(Watched(graph_def), plan) for graph_def, plan in (normalizing(1), normalizing(9))]
    assert [with_local_statistics(graph, plan)[1:] for graph, plan in graphs] == [(1, 0), (9, 0)]
    assert graphs[0][0].times == graphs[1][0].times > 0
