"""The features of an operator for the operator models: its family, its work, and the numbers that decide its speed."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from math import log, prod

from placer.profile.operators.dataset import Operator, Tensor

Features = dict[str, float]

FAMILY_TYPES = {
    "conv forward": ("Conv2D", "_FusedConv2D", "DepthwiseConv2dNative", "_FusedDepthwiseConv2dNative"),
    "conv backward input": ("Conv2DBackpropInput", "DepthwiseConv2dNativeBackpropInput"),
    "conv backward filter": ("Conv2DBackpropFilter", "DepthwiseConv2dNativeBackpropFilter"),
    "matmul": ("MatMul", "_FusedMatMul", "BatchMatMul", "BatchMatMulV2", "BatchMatMulV3", "_FusedBatchMatMulV2",
               "Einsum"),
    "pooling": ("MaxPool", "MaxPoolV2", "AvgPool", "MaxPoolGrad", "MaxPoolGradV2", "AvgPoolGrad", "LRN", "LRNGrad"),
    "normalisation": ("FusedBatchNormV3", "_FusedBatchNormEx", "FusedBatchNormGradV3"),
    "reduction": ("Sum", "Mean", "Max", "Min", "Prod", "BiasAddGrad", "ArgMax", "All", "Any", "L2Loss"),
    "embedding": ("GatherV2", "Gather", "GatherNd", "ResourceGather", "ResourceScatterAdd", "ResourceScatterSub",
                  "ScatterNd", "UnsortedSegmentSum", "SegmentSum", "SparseSegmentSum", "OneHot", "Unique"),
    "softmax": ("Softmax", "LogSoftmax", "SoftmaxCrossEntropyWithLogits", "SparseSoftmaxCrossEntropyWithLogits"),
    "loop": ("While", "StatelessWhile", "If", "StatelessIf", "LSTMBlockCell", "BlockLSTM", "BlockLSTMGrad",
             "GRUBlockCell"),
    "data movement": ("Transpose", "ConcatV2", "Slice", "StridedSlice", "StridedSliceGrad", "Split", "SplitV", "Pad",
                      "PadV2", "Tile", "Pack", "Unpack", "ReverseV2", "BroadcastTo", "Fill", "MirrorPad",
                      "DynamicStitch", "DynamicPartition", "InvertPermutation", "Range"),
}  # fmt: skip
ELEMENTWISE = frozenset(
    {
        "Abs", "Add", "AddN", "AddV2", "AssignAddVariableOp", "AssignSubVariableOp", "AssignVariableOp",
        "BiasAdd", "Cast", "DivNoNan", "Elu", "EluGrad", "Equal", "Erf", "Erfc", "Exp", "Expm1", "FloorDiv",
        "FloorMod", "Greater", "GreaterEqual", "HardSwish", "Inv", "LeakyRelu", "LeakyReluGrad", "Less",
        "LessEqual", "Log", "Log1p", "LogicalAnd", "LogicalNot", "LogicalOr", "Maximum", "Minimum", "Mul",
        "MulNoNan", "Neg", "NotEqual", "OnesLike", "Pow", "RealDiv", "Reciprocal", "Relu", "Relu6", "Relu6Grad",
        "ReluGrad", "ResourceApplyAdam", "ResourceApplyGradientDescent", "ResourceApplyKerasMomentum", "Round",
        "Rsqrt", "RsqrtGrad", "Select", "SelectV2", "Selu", "SeluGrad", "Sigmoid", "SigmoidGrad", "Sign",
        "Softplus", "SoftplusGrad", "Sqrt", "SqrtGrad", "Square", "SquaredDifference", "Sub", "Tanh",
        "TanhGrad", "Xdivy", "ZerosLike",
    }
)  # fmt: skip
FAMILY_OF = {type_: family for family, types in FAMILY_TYPES.items() for type_ in types}
BLOCK = 16  # floats in a vector register of 512 bits; a remainder of channels wastes part of a register


def family_of(op_type: str) -> str:
    """Return the family whose model times ops of this type; `other` for unknown types."""
    return FAMILY_OF.get(op_type, "element-wise" if op_type in ELEMENTWISE else "other")


def families() -> tuple[str, ...]:
    """Return all families, in the order of reports."""
    return (*list(FAMILY_TYPES)[:6], "element-wise", *list(FAMILY_TYPES)[6:], "other")


def work(op: Operator) -> float:
    """Return the number of floating-point operations: from shapes and attributes for convolutions and pooling, for
    other ops as counted at capture, or their elements if nothing was counted.
    """
    family = family_of(op.type)
    if family.startswith("conv"):
        return _Convolution(op).flops
    if family == "pooling":
        return _window(op) * max(t.elements for t in (*op.inputs[:1], *op.outputs))
    if op.flops is None:
        return float(sum(t.elements for t in op.outputs) or sum(t.elements for t in op.inputs))
    return op.flops


def traffic(op: Operator) -> float:
    """Return the bytes read and written. Of a table only the rows that are looked up count."""
    if op.type.startswith("Resource") or family_of(op.type) == "embedding":
        return float(2 * max([t.tensor_bytes for t in (*op.outputs, *op.inputs[2:])] or [0]))
    return float(op.bytes_in + op.bytes_out)


def features(op: Operator, single: bool) -> Features:
    """Return named numbers: logarithms of sizes, and shares. All operators of a family have the same names.

    single: whether the operator runs by itself, not inside a training step.
    """
    flops, size = work(op), traffic(op)
    found = {
        "single": float(single),
        "log_flops": _log(flops),
        "log_bytes": _log(size),
        "log_intensity": _log(flops) - _log(size),
        "log_bytes_in": _log(op.bytes_in),
        "log_bytes_out": _log(op.bytes_out),
        "inputs": float(len(op.inputs)),
        "item_bytes": {"float64": 8.0, "bfloat16": 2.0, "float16": 2.0, "half": 2.0}.get(op.dtype, 4.0),
    }
    return found | _SPECIAL.get(family_of(op.type), _general)(op)


def _log(count: float) -> float:
    return log(max(count, 1.0))


def _dims(tensor: Tensor) -> list[int]:
    return [1 if d is None else d for d in tensor.shape or ()]


def _filled(channels: int) -> float:
    """Return the share of the vector registers' lanes that `channels` fill."""
    return channels / (-(-channels // BLOCK) * BLOCK) if channels else 0.0


class _Convolution:
    """The sizes of a convolution or its gradient: x [n, h, w, c] and kernel [kh, kw, c / groups, o] give
    y [n, p, q, o].
    """

    def __init__(self, op: Operator) -> None:
        if op.type.endswith("BackpropInput"):
            x, kernel, y = op.outputs[0], op.inputs[1], op.inputs[2]
        elif op.type.endswith("BackpropFilter"):
            x, kernel, y = op.inputs[0], op.outputs[0], op.inputs[2]
        else:
            x, kernel, y = op.inputs[0], op.inputs[1], op.outputs[0]
        first = _is_channels_first(op)
        order = (0, 2, 3, 1) if first else (0, 1, 2, 3)
        self.n, self.h, self.w, self.c = (_four(x)[i] for i in order)
        _, self.p, self.q, self.o = (_four(y)[i] for i in order)
        self.kh, self.kw, inner, _ = _four(kernel)
        self.depthwise = "Depthwise" in op.type
        self.groups = self.c / max(inner, 1)  # 1 if depthwise: its kernel has all channels
        self.stride = (op.attributes.get("strides") or [1, 1])[2 if first else 1]
        self.dilation = max(op.attributes.get("dilations") or [1])
        self.per_output = self.kh * self.kw * (1 if self.depthwise else inner)
        self.flops = 2.0 * self.n * self.p * self.q * self.o * self.per_output
        self.bytes = [t.tensor_bytes for t in (x, kernel, y)]


def _is_channels_first(op: Operator) -> bool:
    return bool(op.attributes.get("data_format") == "NCHW")


def _four(tensor: Tensor) -> list[int]:
    dims = _dims(tensor)[:4]
    return [*dims, *[1] * (4 - len(dims))]


def _conv_features(op: Operator) -> Features:
    c = _Convolution(op)
    fused = " ".join(op.attributes.get("fused_ops", []))
    return {
        "log_n": _log(c.n), "log_hw": _log(c.h * c.w), "log_pq": _log(c.p * c.q), "log_q": _log(c.q),
        "log_c": _log(c.c), "log_o": _log(c.o), "log_area": _log(c.kh * c.kw), "flat": float(c.kh != c.kw),
        "tall": float(c.kh > c.kw), "stride": float(c.stride), "dilation": float(c.dilation),
        "same": float(op.attributes.get("padding") == "SAME"), "depthwise": float(c.depthwise),
        "log_groups": _log(c.groups),
        "log_rows": _log(c.n * c.p * c.q), "log_inner": _log(c.per_output),
        "filled_c": _filled(c.c), "filled_o": _filled(c.o), "tail_c": float(c.c % BLOCK > 0),
        "tail_o": float(c.o % BLOCK > 0), "few_c": float(c.c < BLOCK), "pointwise": float(c.kh * c.kw == 1),
        "log_x_bytes": _log(c.bytes[0]), "log_kernel_bytes": _log(c.bytes[1]), "log_y_bytes": _log(c.bytes[2]),
        "relu": float("Relu" in fused), "bias": float("BiasAdd" in fused), "norm": float("BatchNorm" in fused),
    }  # fmt: skip


def _matmul_features(op: Operator) -> Features:
    a, b = _dims(op.inputs[0]), _dims(op.inputs[1])
    out = _dims(op.outputs[0]) or [1]
    turned_a = bool(op.attributes.get("transpose_a") or op.attributes.get("adj_x"))
    turned_b = bool(op.attributes.get("transpose_b") or op.attributes.get("adj_y"))
    inner = a[-2 if turned_a else -1] if len(a) > 1 else 1
    rows, columns = (out[-2] if len(out) > 1 else 1), out[-1]
    return {
        "log_batch": _log(prod(out[:-2])), "log_m": _log(rows), "log_k": _log(inner), "log_n": _log(columns),
        "turned_a": float(turned_a), "turned_b": float(turned_b), "batched": float(len(out) > 2),
        "filled_m": _filled(rows), "filled_k": _filled(inner), "filled_n": _filled(columns),
        "log_a": _log(prod(a)), "log_b": _log(prod(b)), "log_smallest": _log(min(rows, inner, columns)),
        "fused": float(len(op.attributes.get("fused_ops", []))),
    }  # fmt: skip


def _window(op: Operator) -> float:
    if op.type.startswith("LRN"):
        return 2.0 * float(op.attributes.get("depth_radius", 5)) + 1.0
    return float(prod(op.attributes.get("ksize") or [1]))


def _pool_features(op: Operator) -> Features:
    big = max((*op.inputs, *op.outputs), key=lambda t: t.elements)
    first = _is_channels_first(op)
    n, h, w, c = (_four(big)[i] for i in ((0, 2, 3, 1) if first else (0, 1, 2, 3)))
    strides = op.attributes.get("strides") or [1, 1, 1]
    out = _four(op.outputs[0])
    return {
        "log_n": _log(n), "log_hw": _log(h * w), "log_c": _log(c), "log_out": _log(prod(out)),
        "log_big": _log(n * h * w * c),
        "log_window": _log(_window(op)), "stride": float(strides[2 if first else 1]),
        "same": float(op.attributes.get("padding") == "SAME"), "filled_c": _filled(c),
    }  # fmt: skip


def _norm_features(op: Operator) -> Features:
    dims = _dims(op.inputs[0]) or [1]
    c = dims[1 if _is_channels_first(op) and len(dims) > 1 else -1]
    return {"log_rows": _log(prod(dims) / max(c, 1)), "log_c": _log(c), "filled_c": _filled(c),
            "training": float(bool(op.attributes.get("is_training", True)))}  # fmt: skip


def _elementwise_features(op: Operator) -> Features:
    data = [t for t in op.inputs if t.dtype != "resource"]
    whole = max((*data, *op.outputs), key=lambda t: t.elements, default=Tensor((), "float32"))
    dims = _dims(whole)
    shares = [_log(whole.elements) - _log(t.elements) for t in data[:3]]
    shares += [0.0] * (3 - len(shares))
    spread = [t for t in data if 1 < t.elements < whole.elements]
    return {
        "log_count": _log(whole.elements), "log_last": _log(dims[-1] if dims else 1), "rank": float(len(dims)),
        "share_0": shares[0], "share_1": shares[1], "share_2": shares[2],
        "row_spread": float(any(_dims(t)[-1:] == dims[-1:] for t in spread)),
        "column_spread": float(any(_dims(t)[-1:] == [1] and dims[-1:] != [1] for t in spread)),
        "scalar": float(any(t.elements == 1 for t in data)),
        "same": float(bool(data) and len({t.shape for t in data}) == 1),
        "item_ratio": _log(op.bytes_out) - _log(op.bytes_in), "filled_last": _filled(dims[-1] if dims else 1),
    }  # fmt: skip


def _reduction_features(op: Operator) -> Features:
    dims = _dims(op.inputs[0]) if op.inputs else []
    axes = {a % len(dims) for a in op.attributes.get("input1", [])} if dims else set()
    if op.type == "BiasAddGrad":
        axes = set(range(len(dims) - 1))
    kept_last = prod(d for i, d in enumerate(dims) if i > max(axes, default=len(dims)))
    reduced = prod(d for i, d in enumerate(dims) if i in axes)
    first = prod(d for i, d in enumerate(dims) if i < min(axes, default=0))
    return {
        "log_count": _log(prod(dims)), "log_kept_last": _log(kept_last), "log_reduced": _log(reduced),
        "log_first": _log(first), "last_reduced": float(len(dims) - 1 in axes), "axes": float(len(axes)),
        "log_out": _log(op.outputs[0].elements if op.outputs else 1),
    }  # fmt: skip


def _embedding_features(op: Operator) -> Features:
    tensors = (*op.inputs, *op.outputs)
    wide = max(
        (t for t in tensors if "float" in t.dtype), key=lambda t: len(t.shape or ()), default=Tensor((1,), "float32")
    )
    moved = op.outputs[0] if op.outputs else op.inputs[-1]
    moved = op.inputs[0] if op.type in ("UnsortedSegmentSum", "SegmentSum") else moved
    dims = _dims(moved) or [1]
    return {
        "log_moved": _log(moved.elements), "log_width": _log(dims[-1]),
        "log_rows": _log(moved.elements / max(dims[-1], 1)),
        "log_table": _log(max((t.elements for t in tensors), default=1)), "log_wide": _log(wide.elements),
    }  # fmt: skip


def _softmax_features(op: Operator) -> Features:
    dims = _dims(op.inputs[0]) or [1]
    return {"log_rows": _log(prod(dims[:-1])), "log_classes": _log(dims[-1]), "filled": _filled(dims[-1])}


def _movement_features(op: Operator) -> Features:
    big = max((*op.inputs, *op.outputs), key=lambda t: t.elements, default=Tensor((), "float32"))
    dims = _dims(big)
    return {
        "log_count": _log(big.elements), "log_run": _log(_run(op, dims)), "rank": float(len(dims)),
        "log_last": _log(dims[-1] if dims else 1), "log_first": _log(dims[0] if dims else 1),
        "outputs": float(len(op.outputs)), "log_out": _log(sum(t.elements for t in op.outputs)),
        "log_first_out": _log(op.outputs[0].elements if op.outputs else 1),
    }  # fmt: skip


def _run(op: Operator, dims: Sequence[int]) -> float:
    """Return the number of elements that are copied in one piece."""
    out = _dims(op.outputs[0]) if op.outputs else []
    if op.type == "Transpose":
        order = op.attributes.get("input1", [])
        kept = next((i for i, axis in enumerate(reversed(order)) if axis != len(order) - 1 - i), len(order))
        return float(prod(dims[len(dims) - kept :])) if kept else 1.0
    axis = next(
        (v[0] for k, v in sorted(op.attributes.items(), reverse=True) if k.startswith("input") and len(v) == 1), None
    )
    if op.type in ("ConcatV2", "Split", "SplitV") and axis is not None and dims:
        part = min((*op.inputs, *op.outputs), key=lambda t: t.elements if len(_dims(t)) == len(dims) else 1 << 62)
        return float(prod(_dims(part)[axis % len(dims) :]))
    return float(out[-1] if out else 1)


def _general(op: Operator) -> Features:
    dims = _dims(max((*op.inputs, *op.outputs), key=lambda t: t.elements, default=Tensor((), "float32")))
    return {"log_count": _log(prod(dims)), "log_last": _log(dims[-1] if dims else 1), "rank": float(len(dims))}


_SPECIAL: dict[str, Callable[[Operator], Features]] = {
    "conv forward": _conv_features,
    "conv backward input": _conv_features,
    "conv backward filter": _conv_features,
    "matmul": _matmul_features,
    "pooling": _pool_features,
    "normalisation": _norm_features,
    "element-wise": _elementwise_features,
    "reduction": _reduction_features,
    "embedding": _embedding_features,
    "softmax": _softmax_features,
    "data movement": _movement_features,
}
