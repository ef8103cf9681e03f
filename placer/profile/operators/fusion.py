"""Ops whose work the kernel of another op does. On CPUs (TensorFlow with oneDNN), the kernel of a convolution adds the
bias, and the kernel of its filter's gradient also computes the gradient of the bias. A profile has no times of such
ops.
"""

from __future__ import annotations

from collections import defaultdict

from placer.trace.capture import Captured
from placer.trace.graph_def.node_def import parse_input

CONVOLUTION, FILTER_GRADIENT = "Conv2D", "Conv2DBackpropFilter"
BIAS, BIAS_GRADIENT = "BiasAdd", "BiasAddGrad"
KERNELS = ("_MklNative", "_Mkl", "_Fused")  # what kernels' names begin with, before the name of the op


def absorbed(captured: Captured) -> dict[str, str]:
    """Op -> the op whose kernel may do its work, for all ops of a step that have one."""
    readers: dict[str, list[str]] = defaultdict(list)
    sources: dict[str, list[str]] = {}
    for op in captured.graph.ops:
        sources[op.name] = [parse_input(text)[0] for text in captured.nodes[op.name].input if not text.startswith("^")]
        for source in sources[op.name]:
            readers[source].append(op.name)
    found = {}
    for op in captured.graph.ops:
        first = sources[op.name][0] if sources[op.name] else ""
        if op.type == BIAS and first in captured.nodes and captured.nodes[first].op == CONVOLUTION:
            if readers[first] == [op.name]:
                found[op.name] = first
        elif op.type == BIAS_GRADIENT:
            beside = [name for name in readers[first] if captured.nodes[name].op == FILTER_GRADIENT]
            if len(beside) == 1:
                found[op.name] = beside[0]
    return found


def does_its_work(kernel: str, op_type: str) -> bool:
    """Whether a kernel, by its name in traces, does the work of an op of this type, and at most a bias in addition."""
    for prefix in KERNELS:
        kernel = kernel.removeprefix(prefix)
    return kernel.startswith(op_type)
