"""Operations and depths of single ops, against what a loop over their elements would do."""

from __future__ import annotations

from math import ceil, log2
from types import SimpleNamespace

import keras
import pytest
import tensorflow as tf

from placer.trace.capture import capture
from placer.trace.op_counts.counts import counts_of
from placer.trace.op_counts.depth import op_depth
from placer.trace.op_counts.flops import CALLS, op_flops
from surrogate.features.spoc import spoc

raw = tf.raw_ops
IMAGE, KERNEL, DEPTHWISE = [2, 8, 8, 6], [3, 3, 6, 10], [3, 3, 6, 1]
SAME = {"strides": [1, 1, 1, 1], "padding": "SAME"}


def op_of(make, *shapes, dtype=tf.float32):
    """The op that `make` adds to a graph, given placeholders of these shapes."""
    with tf.Graph().as_default() as graph:
        make(*(tf.compat.v1.placeholder(dtype, shape) for shape in shapes))
        return graph.get_operations()[-1]


def count(make, *shapes):
    op = op_of(make, *shapes)
    return op_flops(op), op_depth(op)


def tree(operands):
    return ceil(log2(operands))


def test_a_convolution_and_both_gradients_multiply_the_same_pairs():
    pairs = 2 * 8 * 8 * 10 * 3 * 3 * 6
    out = [2, 8, 8, 10]
    forward = count(lambda x, k: raw.Conv2D(input=x, filter=k, **SAME), IMAGE, KERNEL)
    to_input = count(
        lambda k, g: raw.Conv2DBackpropInput(input_sizes=IMAGE, filter=k, out_backprop=g, **SAME), KERNEL, out
    )
    to_filter = count(
        lambda x, g: raw.Conv2DBackpropFilter(input=x, filter_sizes=KERNEL, out_backprop=g, **SAME), IMAGE, out
    )
    assert forward == (2 * pairs, 1 + tree(3 * 3 * 6))
    assert to_input == (2 * pairs, 1 + tree(3 * 3 * 10))
    assert to_filter == (2 * pairs, 1 + tree(2 * 8 * 8))


def test_a_depthwise_convolution_and_its_gradients_see_one_channel():
    flops = 2 * (2 * 8 * 8 * 6) * 9
    forward = count(lambda x, k: raw.DepthwiseConv2dNative(input=x, filter=k, **SAME), IMAGE, DEPTHWISE)
    to_input = count(
        lambda k, g: raw.DepthwiseConv2dNativeBackpropInput(input_sizes=IMAGE, filter=k, out_backprop=g, **SAME),
        DEPTHWISE,
        IMAGE,
    )
    to_filter = count(
        lambda x, g: raw.DepthwiseConv2dNativeBackpropFilter(input=x, filter_sizes=DEPTHWISE, out_backprop=g, **SAME),
        IMAGE,
        IMAGE,
    )
    assert forward == to_input == (flops, 1 + tree(9))
    assert to_filter == (flops, 1 + tree(2 * 8 * 8))


@pytest.mark.parametrize(
    ("equation", "shapes", "flops"),
    [
        ("ab,bc->ac", ([4, 5], [5, 6]), 2 * 4 * 5 * 6),
        ("...ab,...bc->...ac", ([7, 4, 5], [7, 5, 6]), 2 * 7 * 4 * 5 * 6),
        ("...ab,...bc->...ac", ([3, 7, 4, 5], [7, 5, 6]), 2 * 3 * 7 * 4 * 5 * 6),
        ("abc,cde->abde", ([2, 3, 4], [4, 5, 6]), 2 * 2 * 3 * 4 * 5 * 6),
        ("ab,b->ab", ([4, 5], [5]), 4 * 5),
    ],
)
def test_einsum_multiplies_once_per_combination_of_labels(equation, shapes, flops):
    assert count(lambda *xs: raw.Einsum(inputs=xs, equation=equation), *shapes)[0] == flops


def test_a_matrix_product_is_the_same_transposed_and_batched():
    plain = count(lambda a, b: raw.MatMul(a=a, b=b), [4, 16], [16, 8])
    turned = count(lambda a, b: raw.MatMul(a=a, b=b, transpose_a=True, transpose_b=True), [16, 4], [8, 16])
    batched = count(lambda a, b: raw.BatchMatMulV2(x=a, y=b), [3, 4, 16], [3, 16, 8])
    assert plain == turned == (2 * 4 * 8 * 16, 1 + tree(16))
    assert batched == (3 * plain[0], plain[1])


def test_reductions_take_all_that_goes_in_and_a_level_per_doubling():
    assert count(lambda x: raw.Sum(input=x, axis=[1]), [4, 64]) == (256, 6)
    assert count(lambda x: raw.Mean(input=x, axis=[0, 1]), [4, 63]) == (252, 8)
    assert count(lambda x: raw.BiasAddGrad(out_backprop=x), [32, 5]) == (160, 5)
    assert count(lambda *xs: raw.AddN(inputs=xs), [9], [9], [9], [9]) == (36, 2)
    pool = {"ksize": [1, 2, 4, 1], "strides": [1, 2, 4, 1], "padding": "VALID"}
    assert count(lambda x: raw.MaxPool(input=x, **pool), IMAGE) == (2 * 4 * 2 * 6 * 8, 3)


def test_what_reduces_and_goes_on_takes_the_levels_of_both():
    flops, depth = count(lambda x: raw.Softmax(logits=x), [4, 1024])
    assert flops == 5 * 4096 and depth == 3 + 2 * 10
    trained, at_rest = (
        count(lambda *x, t=t: raw.FusedBatchNormV3(x=x[0], scale=x[1], offset=x[2], mean=x[3], variance=x[4],
                                                   is_training=t), IMAGE, *[[6]] * 4)
        for t in (True, False)
    )  # fmt: skip
    assert trained[0] > at_rest[0] and trained[1] == 4 + tree(2 * 8 * 8) and at_rest[1] == 2


def test_element_by_element_is_one_level_and_a_new_name_none():
    assert count(lambda x: raw.Relu(features=x), [4, 5]) == (20, 1)
    assert count(lambda x: raw.Reshape(tensor=x, shape=[20]), [4, 5]) == (0, 0)


def test_what_the_graph_does_not_tell_is_not_known():
    assert count(lambda x: raw.Relu(features=x), [None, 5]) == (None, None)
    assert count(lambda x: tf.raw_ops.StatelessIf(cond=True, input=[x], Tout=[tf.float32], then_branch=_same(),
                                                  else_branch=_same()), [4]) == (None, None)  # fmt: skip


def _same():
    return tf.function(lambda x: x).get_concrete_function(tf.TensorSpec([4]))


def test_an_update_counts_what_it_writes():
    with tf.Graph().as_default():
        handle = raw.VarHandleOp(dtype=tf.float32, shape=[3, 4], shared_name="v")
        value = tf.compat.v1.placeholder(tf.float32, [3, 4])
        raw.AssignSubVariableOp(resource=handle, value=value)
        op = tf.compat.v1.get_default_graph().get_operations()[-1]
    assert (op_flops(op), op_depth(op)) == (12, 1)


def test_a_call_counts_what_it_calls():
    """What XLA must compile is left whole: a product with a variable, and in a call within two element-wise ops."""
    weight = tf.Variable(tf.ones([6, 8]))

    @tf.function(jit_compile=True)
    def within(x):
        return tf.nn.relu(x) + 1.0

    @tf.function(jit_compile=True)
    def inner(x):
        return within(x @ weight)

    graph = capture(inner.python_function, (tf.ones([4, 6]),), "step", trains=False).graph
    outer = capture(lambda x: inner(x), (tf.ones([4, 6]),), "step", trains=False).graph
    assert spoc(outer).multiply_adds == spoc(graph).multiply_adds == 4 * 6 * 8
    assert spoc(outer).operations == spoc(graph).operations == 2 * 4 * 6 * 8 + 2 * (4 * 8)
    assert spoc(outer).span == spoc(graph).span == 1 + tree(6) + 2
    assert sum(op.type in CALLS for op in outer.ops) == 1


def test_a_call_of_what_is_not_there_is_not_known():
    op = SimpleNamespace(type="PartitionedCall", inputs=(), outputs=())
    assert counts_of(op, lambda op: None) == (None, None, None, None)


@pytest.mark.parametrize(("groups", "times"), [(1, 1), (4, 4), (16, 16)])
def test_a_grouped_convolution_that_is_compiled_is_a_dense_one_for_a_cpu(groups, times):
    """Keras has XLA compile convolutions in groups; by their definition they multiply `groups` times less."""
    convolve = keras.layers.Conv2D(16, 3, padding="same", groups=groups)
    x = tf.ones([2, 8, 8, 16])
    convolve(x)

    def step(x):
        with tf.GradientTape() as tape:
            tape.watch(x)
            y = convolve(x)
        return tape.gradient(y, [x, convolve.kernel])

    found = spoc(capture(step, (x,), "step", trains=False).graph)
    dense = 2 * 8 * 8 * 16 * 16 * 9
    assert found.multiply_adds * times == found.dense_multiply_adds
    assert found.dense_multiply_adds % dense == 0 and found.dense_multiply_adds >= 2 * dense
