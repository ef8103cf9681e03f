"""Yardsticks: matrix products and sums of several sizes, which say how fast a device is (surrogate/operators/hardware).

They are profiled as the ops of one more network, which is no training step.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import tensorflow as tf

from placer.devices.cluster import Devices
from placer.profile.operators.dataset import YARDSTICKS
from placer.profile.operators.operator_profile import OperatorProfile
from placer.trace.capture import capture

PRODUCTS = (16, 64, 192, 512, 1024)  # rows and columns; the least are mostly overhead, the largest fill all cores
SUMS = (2**8, 2**12, 2**15, 2**18, 2**20, 2**23)  # elements, from the nearest cache to main memory


def yardsticks(devices: Devices, numbers: Sequence[int]) -> list[OperatorProfile]:
    """The profiles of the yardsticks on the devices with these `numbers`, still without times. Each op will be timed by
    itself, and in a step of two chains, in which it runs beside another op of its size. Most ops of a training step run
    like that, too: another op uses the cores that one leaves free.
    """
    with tf.device("CPU:0"):
        inputs = [tf.ones(shape) for shape in ([n, n] for n in PRODUCTS) for _ in range(3)]
        inputs += [tf.ones([n]) for n in SUMS for _ in range(3)]
    captured = capture(_step, inputs, YARDSTICKS, needs_loss=False, trains=False)
    return [OperatorProfile(captured, inputs, devices, number) for number in numbers]


def _step(*inputs: tf.Tensor) -> Sequence[Any]:
    """A step of two chains of products and sums. All ops have different inputs, because Grappler merges equal ops, and
    turns the sum of a tensor with itself into a product.
    """
    found: list[Any] = []
    triples = list(zip(inputs[::3], inputs[1::3], inputs[2::3], strict=True))
    for first, second in ((0, 1), (1, 2)):
        last: list[Any] = []
        for i, tensors in enumerate(triples):
            x, y = tensors[first], tensors[second]
            with tf.control_dependencies(last):
                last = [tf.matmul(x, y) if i < len(PRODUCTS) else tf.raw_ops.AddV2(x=x, y=y)]
            found += last
    return found
