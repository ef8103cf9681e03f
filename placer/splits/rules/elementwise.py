"""Rules for ops that compute each element of their output from the same element of their inputs."""

from __future__ import annotations

from typing import Any

from placer.splits.rules.way import Cut, Way, Ways, axis_name, input_dims
from placer.trace.op_counts.flops import dims

# fmt: off
# CheckNumerics is left out: if one part raises an error, other parts may have updated their variables already.
UNARY = [
    "Abs", "Acos", "Acosh", "Asin", "Asinh", "Atan", "Atanh", "BesselI0e", "BesselI1e", "Bucketize", "Cast", "Ceil",
    "ComplexAbs", "Conj", "Cos", "Cosh", "Digamma", "Elu", "Erf", "Erfc", "Erfinv", "Exp", "Expm1",
    "FakeQuantWithMinMaxArgs", "Floor", "Identity", "Imag", "Inv", "Invert", "IsFinite", "IsInf", "IsNan", "LeakyRelu",
    "Lgamma", "Log", "Log1p", "LogicalNot", "Ndtri", "Neg", "OnesLike", "PreventGradient", "Real", "Reciprocal", "Relu",
    "Relu6", "Rint", "Round", "Rsqrt", "Selu", "Sigmoid", "Sign", "Sin", "Sinh", "Snapshot", "Softplus", "Softsign",
    "Sqrt", "Square", "StopGradient", "Tan", "Tanh", "ZerosLike",
]
GRADIENTS = [
    "EluGrad", "InvGrad", "LeakyReluGrad", "ReciprocalGrad", "Relu6Grad", "ReluGrad", "RsqrtGrad", "SeluGrad",
    "SigmoidGrad", "SoftplusGrad", "SoftsignGrad", "SqrtGrad", "TanhGrad",
]
"""(output or input of the forward op, gradient) -> gradient, all of one shape; some types take them in reverse."""
BINARY = [
    "Add", "AddV2", "Atan2", "BitwiseAnd", "BitwiseOr", "BitwiseXor", "Complex", "Div", "DivNoNan", "Equal", "FloorDiv",
    "FloorMod", "Greater", "GreaterEqual", "Igamma", "IgammaGradA", "Igammac", "LeftShift", "Less", "LessEqual",
    "LogicalAnd", "LogicalOr", "Maximum", "Minimum", "Mod", "Mul", "MulNoNan", "NextAfter", "NotEqual", "Pow",
    "RealDiv", "RightShift", "SquaredDifference", "Sub", "TruncateDiv", "TruncateMod", "Xdivy", "Xlog1py", "Xlogy",
    "Zeta",
]
"""Two inputs that are broadcast to the shape of the output."""
OTHERS = ["AddN", "ClipByValue", "SelectV2"]
# fmt: on


def elementwise(op: Any) -> Ways:
    """Any axis of the output. Each part takes an input whole if the input lacks the axis or has extent 1 there.

    Axes are aligned at the end, as NumPy broadcasts.
    """
    out, taken = dims(op.outputs[0]), input_dims(op)
    ways = {}
    for axis, extent in enumerate(out):
        inputs = tuple(_cut(shape, axis - (len(out) - len(shape)), extent) for shape in taken)
        if any(inputs):
            ways[axis_name(axis)] = Way(inputs, (Cut(axis),), extent)
    return ways


def _cut(shape: list[int], axis: int, extent: int) -> Cut | None:
    return Cut(axis) if axis >= 0 and shape[axis] == extent and extent > 1 else None


def select(op: Any) -> Ways:
    """Select: condition [], [rows] or the shape of the output; a vector chooses rows, so only axis 0 cuts it."""
    out, condition = dims(op.outputs[0]), dims(op.inputs[0])
    ways = {}
    for axis, extent in enumerate(out):
        chooses = axis < len(condition)
        ways[axis_name(axis)] = Way((Cut(axis) if chooses else None, Cut(axis), Cut(axis)), (Cut(axis),), extent)
    return ways
