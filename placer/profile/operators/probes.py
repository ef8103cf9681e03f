"""Single-op probes: an op with its original input shapes, dtypes and attributes, by itself on fresh inputs."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import tensorflow as tf

from placer import tf_internals
from placer.profile.operators.dataset import Operator
from placer.profile.operators.describe import constant_values, operator_of
from placer.trace.capture import Captured
from placer.trace.graph_def.folding import RIDERS
from placer.trace.graph_def.node_def import parse_input
from placer.trace.op_counts.flops import FREE

LARGEST_CONSTANT = 1024  # elements; a longer one counts as data, which is replaced by fresh data
# Integer inputs that pick rows or classes: input -> (the input it points into, that input's axis).
INDICES = {
    "SparseSoftmaxCrossEntropyWithLogits": {1: (0, -1)},
    "GatherV2": {1: (0, 0)},
    "UnsortedSegmentSum": {1: (0, 0)},
}
UNPROBED = RIDERS | FREE | {"RestoreV2", "SaveV2", "ConcatOffset", "BroadcastGradientArgs"}
PLAIN_INPUTS = frozenset({tf.float32, tf.float64, tf.float16, tf.bfloat16, tf.bool})


class Feed(NamedTuple):
    """One input of a probe. constant: its original value (a TensorProto). below: draw integers under this bound."""

    shape: tuple[int, ...]
    dtype: tf.DType
    constant: Any = None
    below: int | None = None


@dataclass(frozen=True)
class Probe:
    """One op to time by itself. node: its NodeDef, without inputs and device."""

    node: Any
    feeds: tuple[Feed, ...]
    operator: Operator


def probes_of(captured: Captured, operators: dict[str, Operator]) -> dict[str, Probe]:
    """Signature -> probe, for each distinct operator of a captured step that can be probed.

    Ops that touch variables, call functions or carry control flow are left to the traced step; so are those with
    inputs of unknown shape, and those with computed integers of unknown range (indices).
    """
    constants = constant_values(captured)
    found: dict[str, Probe] = {}
    for name, operator in operators.items():
        node = captured.nodes[name]
        if operator.signature not in found and _can_stand_alone(node, operator):
            feeds = _feeds(node, operator, constants)
            if feeds is not None:
                found[operator.signature] = Probe(_bare(node), feeds, operator)
    return found


def _can_stand_alone(node: Any, operator: Operator) -> bool:
    functions = any(attr.WhichOneof("value") == "func" for attr in node.attr.values())
    known = all(t.shape is not None and None not in t.shape for t in operator.inputs)
    plain = all(t.dtype not in ("resource", "variant", "string") for t in (*operator.inputs, *operator.outputs))
    return bool(operator.inputs) and known and plain and not functions and node.op not in UNPROBED


def _feeds(node: Any, operator: Operator, constants: dict[str, Any]) -> tuple[Feed, ...] | None:
    """The inputs of a probe of `node`; None if one of them cannot be generated."""
    sources = [parse_input(text)[0] for text in node.input if not text.startswith("^")]
    feeds = []
    for i, (source, tensor) in enumerate(zip(sources, operator.inputs, strict=True)):
        shape, dtype = tuple(int(d or 0) for d in tensor.shape or ()), tf.as_dtype(tensor.dtype)
        if source in constants and tensor.elements <= LARGEST_CONSTANT:
            feeds.append(Feed(shape, dtype, constant=constants[source]))
        elif dtype in PLAIN_INPUTS:
            feeds.append(Feed(shape, dtype))
        elif i in INDICES.get(node.op, {}):
            feeds.append(Feed(shape, dtype, below=_bound(node.op, i, operator)))
        else:
            return None
    return tuple(feeds)


def _bound(op_type: str, i: int, operator: Operator) -> int:
    into, axis = INDICES[op_type][i]
    if op_type == "UnsortedSegmentSum":
        return int(operator.attributes.get("input2", [1])[0])
    return int((operator.inputs[into].shape or (1,))[axis] or 1)


def _bare(node: Any) -> Any:
    bare = tf.compat.v1.NodeDef()
    bare.CopyFrom(node)
    del bare.input[:]
    bare.device = ""
    for name in [name for name in bare.attr if name.startswith("_")]:
        del bare.attr[name]
    return bare


def reshaped(probe: Probe, feeds: Sequence[Feed]) -> Probe | None:
    """The same op on other inputs; None if TensorFlow refuses their shapes."""
    graph_def = tf.compat.v1.GraphDef()
    for i, feed in enumerate(feeds):
        if feed.constant is None:
            node = graph_def.node.add(name=f"in{i}", op="Placeholder")
            node.attr["dtype"].type = feed.dtype.as_datatype_enum
            node.attr["shape"].shape.CopyFrom(tf.TensorShape(feed.shape).as_proto())
        else:
            graph_def.node.append(constant_node(f"in{i}", feed.constant))
    graph_def.node.append(with_inputs(probe.node, "probe", [f"in{i}" for i in range(len(feeds))]))
    constants = {f"in{i}": feed.constant for i, feed in enumerate(feeds) if feed.constant is not None}
    with tf.Graph().as_default() as graph:
        try:
            tf.graph_util.import_graph_def(graph_def, name="")
        except ValueError:
            return None
    return Probe(probe.node, tuple(feeds), operator_of(graph.get_operation_by_name("probe"), constants))


def with_inputs(bare: Any, name: str, inputs: Iterable[str]) -> Any:
    """A bare NodeDef with a name and inputs."""
    node = tf.compat.v1.NodeDef()
    node.CopyFrom(bare)
    node.name = name
    node.input.extend(inputs)
    return node


def constant_node(name: str, value: Any) -> Any:
    """A Const node of a TensorProto."""
    node = tf.compat.v1.NodeDef(name=name, op="Const")
    node.attr["dtype"].type = value.dtype
    node.attr["value"].tensor.CopyFrom(value)
    return node


def has_kernel(probe: Probe, device_kind: str) -> bool:
    """Whether a device of that kind can run the probe."""
    return device_kind in tf_internals.op_types.kernel_kinds(probe.node)
