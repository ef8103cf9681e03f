"""The operators of a captured step: what decides each op's time, read from its TensorFlow node."""

from __future__ import annotations

from typing import Any

import tensorflow as tf

from placer.profile.operators.dataset import Operator, Tensor
from placer.profile.operators.fusion import absorbed
from placer.trace.capture import Captured
from placer.trace.op_counts.flops import op_flops

IRRELEVANT = frozenset(
    {
        "use_cudnn_on_gpu", "leakyrelu_alpha", "epsilon", "exponential_avg_factor", "num_args", "num_host_args",
        "validate_shape", "container", "shared_name", "use_locking", "validate_indices", "is_weight_const",
        "filter_format", "is_filter_const",
    }
)  # fmt: skip
PLAIN_ELEMENTS = 16  # longer integer constants count as data, not as settings


def operators_of(captured: Captured) -> dict[str, Operator]:
    """Op name -> operator, for every op of the captured graph. If the kernel of another op may do an op's work, the op
    has the attribute `absorbed`, and the other op has its type among its `fused_ops`.
    """
    taken = absorbed(captured)
    more: dict[str, dict[str, Any]] = {name: {"absorbed": True} for name in taken}
    more |= {by: {"fused_ops": [captured.nodes[name].op]} for name, by in taken.items()}
    with tf.Graph().as_default() as graph:
        tf.graph_util.import_graph_def(captured.graph_def, name="")
    constants = constant_values(captured)
    return {
        op.name: operator_of(graph.get_operation_by_name(op.name), constants, more.get(op.name, {}))
        for op in captured.graph.ops
    }


def constant_values(captured: Captured) -> dict[str, Any]:
    """Const node -> its TensorProto."""
    return {node.name: node.attr["value"].tensor for node in captured.graph_def.node if node.op == "Const"}


def operator_of(op: Any, constants: dict[str, Any], more: dict[str, Any] | None = None) -> Operator:
    """The operator of a tf.Operation. constants: Const node -> TensorProto. more: attributes not in its node."""
    return Operator(
        op.type,
        tuple(_tensor(t) for t in op.inputs),
        tuple(_tensor(t) for t in op.outputs),
        {**_plain_attributes(op.node_def), **_settings(op, constants), **(more or {})},
        op_flops(op),
    )


def _tensor(tensor: Any) -> Tensor:
    shape = tensor.shape
    return Tensor(None if shape.rank is None else tuple(shape.as_list()), tensor.dtype.base_dtype.name)


def _plain_attributes(node: Any) -> dict[str, Any]:
    """The attributes that change the work, as plain values, without dtypes, which the tensors have."""
    found = {}
    for name, attr in node.attr.items():
        value = None if name.startswith("_") or name in IRRELEVANT else _plain(attr)
        if value is not None and not (name == "dilations" and set(value) == {1}):
            found[name] = value
    return found


def _plain(attr: Any) -> Any:
    kind = attr.WhichOneof("value")
    if kind in ("i", "f", "b"):
        return getattr(attr, kind)
    if kind == "s":
        return attr.s.decode(errors="replace")
    if kind == "list":
        return list(attr.list.i) or list(attr.list.f) or [s.decode(errors="replace") for s in attr.list.s] or None
    return None


def _settings(op: Any, constants: dict[str, Any]) -> dict[str, Any]:
    """The values of small integer constants among the inputs: axes, paddings, sizes."""
    found = {}
    for i, tensor in enumerate(op.inputs):
        proto = constants.get(tensor.op.name)
        if proto is not None and tensor.dtype.is_integer and _count(proto) <= PLAIN_ELEMENTS:
            found[f"input{i}"] = tf.make_ndarray(proto).reshape(-1).tolist()
    return found


def _count(proto: Any) -> int:
    count = 1
    for dim in proto.tensor_shape.dim:
        count *= dim.size
    return count
