"""Which op a kernel's time is of, where it does the work of several."""

from __future__ import annotations

import pytest
import tensorflow as tf

from placer.profile.operators.describe import operators_of
from placer.profile.operators.fusion import absorbed, does_its_work
from placer.profile.operators.timing import op_seconds
from placer.profile.step_trace import TracedOp, TracedStep
from placer.trace.capture import Captured, capture

X, FILTERS, BIAS = tf.ones([2, 8, 8, 3]), tf.ones([3, 3, 3, 4]), tf.ones([4])


def convolved(x: tf.Tensor, filters: tf.Tensor, bias: tf.Tensor) -> tf.Tensor:
    """The gradients of a convolution with a bias, and of one whose output two ops read."""
    with tf.GradientTape() as tape:
        tape.watch([filters, bias])
        plain = tf.nn.conv2d(x, filters, 1, "SAME")
        biased = tf.nn.relu(tf.nn.bias_add(tf.nn.conv2d(x, 2.0 * filters, 1, "SAME"), bias))
        loss = tf.reduce_sum(plain * tf.nn.bias_add(plain, bias) * biased)
    return tf.add_n([tf.reduce_sum(gradient) for gradient in tape.gradient(loss, [filters, bias])])


@pytest.fixture(scope="module")
def captured() -> Captured:
    return capture(convolved, (X, FILTERS, BIAS), "convolved", trains=False)


def test_a_convolution_takes_in_the_bias_that_alone_reads_it_and_its_filters_gradient_that_of_the_bias(
    captured: Captured,
) -> None:
    by_type = sorted((captured.nodes[name].op, captured.nodes[by].op) for name, by in absorbed(captured).items())
    pairs = {("BiasAdd", "Conv2D"), ("BiasAddGrad", "Conv2DBackpropFilter")}
    assert set(by_type) == pairs and [pair[0] for pair in by_type].count("BiasAdd") == 1
    operators = operators_of(captured)
    for name, by in absorbed(captured).items():
        assert operators[name].attributes["absorbed"] is True
        assert operators[by].attributes["fused_ops"] == [captured.nodes[name].op]
    free = [o for o in operators.values() if o.type == "BiasAdd" and "absorbed" not in o.attributes]
    assert len(free) == 1


@pytest.mark.parametrize(
    ("kernel", "op_type", "does"),
    [
        ("MatMul", "MatMul", True),
        ("_MklMatMul", "MatMul", True),
        ("_MklNativeConv2DBackpropFilterWithBias", "Conv2DBackpropFilter", True),
        ("_MklNativeConv2DWithBias", "Conv2D", True),
        ("_MklNativeConv2DWithBias", "BiasAdd", False),
        ("_FusedConv2D", "Relu", False),
        ("_MklSwish", "Mul", False),
    ],
)
def test_a_kernel_does_the_work_of_an_op(kernel: str, op_type: str, does: bool) -> None:
    assert does_its_work(kernel, op_type) == does


def seconds(captured: Captured, *ran: tuple[str, str, float]) -> dict[str, float]:
    """Of ops (name, kernel, seconds) on one device."""
    step = TracedStep(tuple(TracedOp(name, kernel, "cpu:0", 0.0, s) for name, kernel, s in ran), ())
    return op_seconds(step, "cpu:0", operators_of(captured), absorbed(captured))


def test_the_time_of_a_kernel_that_adds_the_bias_is_the_convolutions(captured: Captured) -> None:
    bias, conv = next((name, by) for name, by in absorbed(captured).items() if captured.nodes[by].op == "Conv2D")
    assert seconds(captured, (bias, "_MklNativeConv2DWithBias", 3.0)) == {conv: 3.0}
    assert seconds(captured, (conv, "Conv2D", 2.0), (bias, "BiasAdd", 1.0)) == {conv: 2.0, bias: 1.0}
    assert seconds(captured, (bias, "_FusedMatMul", 3.0)) == {}
    assert op_seconds(TracedStep((), ()), "cpu:0", {}, {}) == {}
