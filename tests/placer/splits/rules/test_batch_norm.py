"""Fused batch normalization in training, divided by examples: both ops together do what they did whole."""

from __future__ import annotations

import re
from typing import Any

import numpy as np
import pytest
import tensorflow as tf
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from placer.splits.divide import divide
from placer.splits.plan import LOCAL, Division, PlanError, SplitPlan
from placer.splits.rules.way import Own
from placer.splits.step_graph import StepGraph
from tests.placer.splits.rules.checker import Graph, difference, run
from tests.placer.splits.rules.draw import Draw

FORWARD, GRADIENT, BEFORE = "forward", "gradient", "before"
OUTPUTS = [*(f"{FORWARD}:{i}" for i in range(3)), *(f"{GRADIENT}:{i}" for i in range(3))]
NAMES = ["y", "mean", "variance", "d_x", "d_scale", "d_offset"]


def _graph(arrays: dict[str, Any], factor: float = 1.0, epsilon: float = 1e-3, merged: int = 0) -> Graph:
    """Both ops. arrays: of `_arrays`. merged: x is given as [merged, examples / merged, ...]."""
    feeds = dict(arrays)
    with tf.Graph().as_default() as graph:
        taken = {}
        for name, value in arrays.items():
            if name == "x" and merged:
                feeds[name] = value.reshape([merged, -1, *value.shape[1:]])
                split = tf.compat.v1.placeholder(tf.float32, feeds[name].shape, name)
                taken[name] = tf.raw_ops.Reshape(tensor=split, shape=value.shape, name=BEFORE)
            else:
                taken[name] = tf.compat.v1.placeholder(tf.float32, value.shape, name)
        dy = taken.pop("dy")
        made = tf.raw_ops.FusedBatchNormV3(
            **taken, exponential_avg_factor=factor, epsilon=epsilon, is_training=True, name=FORWARD
        )
        tf.raw_ops.FusedBatchNormGradV3(
            y_backprop=dy, x=taken["x"], scale=taken["scale"], reserve_space_1=made.reserve_space_1,
            reserve_space_2=made.reserve_space_2, reserve_space_3=made.reserve_space_3,
            epsilon=epsilon, is_training=True, name=GRADIENT,
        )  # fmt: skip
    return Graph(graph.as_graph_def(), feeds, {}, OUTPUTS)


def _divided(graph: Graph, ways: dict[str, str], parts: int) -> Graph:
    plan = SplitPlan({name: Division(way, parts) for name, way in ways.items()})
    made = divide(StepGraph(graph.graph_def), plan, OUTPUTS, [])
    return Graph(made.graph_def, graph.feeds, {}, made.outputs)


BOTH = {FORWARD: "batch", GRADIENT: "batch"}


def _arrays(d: Draw, shape: list[int], mean: float = 0.0, averages: bool = False) -> dict[str, Any]:
    channels = [shape[-1]]
    x = d.numbers(shape) + np.float32(mean)
    old = [d.numbers(channels), np.abs(d.numbers(channels))] if averages else [np.zeros(0, np.float32)] * 2
    return {
        "x": x, "scale": d.numbers(channels), "offset": d.numbers(channels), "mean": old[0], "variance": old[1],
        "dy": d.numbers(shape),
    }  # fmt: skip


def _reference(arrays: dict[str, Any], factor: float, epsilon: float) -> list[Any]:
    """The formulas of the whole op in float64."""
    x, scale, offset, old_mean, old_variance, dy = (value.astype(np.float64) for value in arrays.values())
    axes, n = (0, 1, 2), x[..., 0].size
    mean, variance = x.mean(axes), x.var(axes)
    r = 1 / np.sqrt(variance + epsilon)
    standard = (x - mean) * r
    new = [mean, variance * n / max(n - 1, 1)]
    if factor != 1:
        new = [(1 - factor) * old + factor * now for old, now in zip((old_mean, old_variance), new, strict=True)]
    d_scale, d_offset = (dy * standard).sum(axes), dy.sum(axes)
    d_x = scale * r * (dy - d_offset / n - standard * d_scale / n)
    return [standard * scale + offset, *new, d_x, d_scale, d_offset]


def _apart(one: Any, other: Any) -> list[float]:
    return [difference(a, b) for a, b in zip(one, other, strict=True)]


@settings(max_examples=12, deadline=None, database=None, derandomize=True, suppress_health_check=[HealthCheck.too_slow])
@given(st.data())
def test_both_in_parts_do_what_the_whole_ops_do(data: Any) -> None:
    d = Draw(data.draw)
    parts = d.number(2, 4)
    factor = d.pick(1.0, 0.3)
    shape = [d.number(2 * parts, 9), d.number(), d.number(), d.number()]
    arrays = _arrays(d, shape, d.pick(0.0, 3.0), averages=factor != 1)
    epsilon = d.pick(1e-3, 1e-5)
    graph = _graph(arrays, factor, epsilon)
    whole, divided = run([graph, _divided(graph, BOTH, parts)])
    case = f"{shape} in {parts} parts, factor {factor}, epsilon {epsilon}"
    for name, apart in zip(NAMES, _apart(whole.outputs, divided.outputs), strict=True):
        assert apart < 3e-5, f"{case}: {name}"
    for name, apart in zip(NAMES, _apart(_reference(arrays, factor, epsilon), divided.outputs), strict=True):
        assert apart < 3e-5, f"{case}: {name}"


def test_parts_of_three_and_six_examples() -> None:
    arrays = _arrays(_some(), [9, 3, 2, 4], 2.0)
    graph = _graph(arrays, merged=3)
    divided = _divided(graph, BOTH | {BEFORE: "axis0"}, 2)
    made = StepGraph(divided.graph_def)
    assert {op.inputs[1].shape[0] for op in made.order if op.type == "FusedBatchNormGradV3"} == {3, 6}
    assert max(_apart(*(result.outputs for result in run([graph, divided])))) < 1e-5


def test_a_large_mean_costs_no_more_digits_than_in_the_whole_op() -> None:
    arrays = _arrays(_some(), [7, 6, 5, 3], 200.0)  # a hundred standard deviations
    graph = _graph(arrays)
    whole, divided = run([graph, _divided(graph, BOTH, 3)])
    exact = _reference(arrays, 1.0, 1e-3)
    for name, lost, lost_in_parts in zip(
        NAMES, _apart(exact, whole.outputs), _apart(exact, divided.outputs), strict=True
    ):
        assert lost_in_parts < 2 * lost + 1e-5, name


@pytest.mark.parametrize(
    ("ways", "message"),
    [
        ({FORWARD: "batch"}, "op 'forward' (FusedBatchNormV3) is divided, but an op that goes with it is not divided"),
        ({FORWARD: "batch", GRADIENT: "channel"}, "op 'forward' (FusedBatchNormV3) is divided, but an op that goes"),
        ({GRADIENT: "batch"}, "op 'gradient' (FusedBatchNormGradV3) is divided, but 'forward', which goes with it,"),
        ({FORWARD: "channel", GRADIENT: "batch"}, "op 'gradient' (FusedBatchNormGradV3) is divided, but 'forward',"),
    ],
)
def test_both_are_divided_by_examples_or_neither(ways: dict[str, str], message: str) -> None:
    graph = _graph(_arrays(_some(), [4, 2, 2, 2]))
    with pytest.raises(PlanError, match=f"^{re.escape(message)}"):
        _divided(graph, ways, 2)


def test_what_each_part_keeps_goes_to_no_other_op() -> None:
    ways = StepGraph(_graph(_arrays(_some(), [4, 2, 2, 2])).graph_def).ways(FORWARD)
    assert [isinstance(kind, Own) for kind in ways["batch"].outputs] == [False] * 3 + [True] * 3
    assert ways["batch"].exchange is not None and ways["batch"].exchange.sent_bytes == 16
    with tf.Graph().as_default() as graph:
        x, vector = (tf.compat.v1.placeholder(tf.float32, shape) for shape in ([4, 2, 2, 2], [2]))
        made = tf.raw_ops.FusedBatchNormV3(x=x, scale=vector, offset=vector, mean=[], variance=[], name=FORWARD)
        tf.raw_ops.Exp(x=made.reserve_space_2)
    assert set(StepGraph(graph.as_graph_def()).ways(FORWARD)) == {"channel"}


@pytest.mark.parametrize(
    ("layout", "space", "least", "of_its_own"),
    [("NHWC", 3, 1, 1), ("NHWC", 1, 2, 2), ("NCHW", 3, None, 1), ("NCHW", 1, None, 2)],
)
def test_parts_have_two_values_of_each_channel(layout: str, space: int, least: int | None, of_its_own: int) -> None:
    with tf.Graph().as_default() as graph:
        x = tf.compat.v1.placeholder(tf.float32, [4, space, 1, 3] if layout == "NHWC" else [4, 3, space, 1])
        vector = tf.compat.v1.placeholder(tf.float32, [3])
        attributes = {"mean": [], "variance": [], "data_format": layout, "name": FORWARD}
        tf.raw_ops.FusedBatchNormV3(x=x, scale=vector, offset=vector, **attributes)
    made = StepGraph(graph.as_graph_def())
    way, local = made.ways(FORWARD).get("batch"), made.way(FORWARD, LOCAL)
    assert (way and way.least) == least
    assert local is not None and local.least == of_its_own


def _some() -> Draw:
    """Some numbers, whatever they are."""
    return Draw(lambda strategy: 7)
