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

PRODUCTS = (16, 64, 192, 512, 1024)  # rows and columns, from what only begins to what fills all cores
SUMS = (2**8, 2**12, 2**15, 2**18, 2**20, 2**23)  # elements, from the nearest cache to main memory


def yardsticks(devices: Devices, device: int) -> OperatorProfile:
    """Their profile on a device, without times."""
    inputs = [tf.ones([n, n]) for n in PRODUCTS for _ in range(2)] + [tf.ones([n]) for n in SUMS for _ in range(2)]
    return OperatorProfile(capture(_step, inputs, YARDSTICKS, needs_loss=False, trains=False), inputs, devices, device)


def _step(*inputs: tf.Tensor) -> Sequence[Any]:
    """Two different tensors each, because Grappler makes a product of a sum of one with itself."""
    pairs = list(zip(inputs[::2], inputs[1::2], strict=True))
    products, sums = pairs[: len(PRODUCTS)], pairs[len(PRODUCTS) :]
    return [*(tf.matmul(x, y) for x, y in products), *(tf.raw_ops.AddV2(x=x, y=y) for x, y in sums)]
