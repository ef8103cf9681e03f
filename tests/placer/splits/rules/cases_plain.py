"""Cases of element-wise ops, matrix products, biases, reductions, softmax, losses and segments."""

from __future__ import annotations

import string

import numpy as np

from placer.splits.rules.elementwise import BINARY, GRADIENTS, UNARY
from tests.placer.splits.rules.checker import Case, Fixed
from tests.placer.splits.rules.draw import Draw, makes

FLOATS, INTEGERS = ("float32", "float64", "float16"), ("int32", "int64")
ANY_NUMBER = {"Abs", "Neg", "Sign", "Square", "Identity", "OnesLike", "ZerosLike", "Snapshot", "StopGradient", "Relu"}
EXACT_UNARY = ANY_NUMBER | {"Cast", "Bucketize", "LogicalNot", "Invert", "Floor", "Ceil", "Rint", "IsNan", "IsInf"}
LOGICAL = {"LogicalAnd", "LogicalOr", "LogicalNot"}
WHOLE = {"BitwiseAnd", "BitwiseOr", "BitwiseXor", "LeftShift", "RightShift", "TruncateMod", "Invert"}
COMPARES = {"Equal", "NotEqual", "Less", "LessEqual", "Greater", "GreaterEqual"}
EXACT_BINARY = {"Add", "AddV2", "Sub", "Mul", "Maximum", "Minimum", "RealDiv", "Div"} | COMPARES
OF_WHOLE = {"Add", "AddV2", "Sub", "Mul", "Maximum", "Minimum", "FloorDiv", "FloorMod", "TruncateDiv", "Div"} | COMPARES


@makes(*UNARY)
def unary(d: Draw, kind: str) -> Case:
    dtype = d.pick(*FLOATS[:2], *(INTEGERS if kind in ANY_NUMBER | {"Cast"} else ()))
    if kind in LOGICAL:
        dtype = "bool"
    elif kind in WHOLE:
        dtype = "int32"
    elif kind in ("Conj", "Real", "Imag", "ComplexAbs"):
        dtype = "complex64"
    elif kind in ("FakeQuantWithMinMaxArgs", "Ndtri"):
        dtype = "float32"
    attributes = {
        "Cast": {"DstT": d.pick("float32", "int32", "bool", "float16")},
        "Bucketize": {"boundaries": [-1.0, 0.5, 2.0]},
        "LeakyRelu": {"alpha": 0.3},
    }.get(kind, {})
    value = d.numbers(d.shape(), dtype)
    if value.dtype.kind == "f" and kind not in ("Cast", "Bucketize") and d.flag():
        value.flat[0] = d.pick(np.nan, np.inf, -np.inf, 0.0)
    return Case(kind, [value], attributes, exact=kind in EXACT_UNARY)


@makes(*GRADIENTS)
def gradient(d: Draw, kind: str) -> Case:
    shape, dtype = d.shape(), d.pick("float32", "float64")
    return Case(kind, [d.numbers(shape, dtype), d.numbers(shape, dtype)], {"alpha": 0.3} if "Leaky" in kind else {})


@makes(*BINARY)
def binary(d: Draw, kind: str) -> Case:
    dtype = d.pick("float32", "float64", *(INTEGERS if kind in OF_WHOLE else ()))
    if kind in LOGICAL:
        dtype = "bool"
    elif kind in WHOLE:
        dtype = "int32"
    elif kind in ("TruncateDiv", "Complex"):
        dtype = "int64" if kind == "TruncateDiv" else "float32"
    x, y = _broadcast(d, dtype, 2)
    if y.dtype.kind == "i":
        y = abs(y) + 1  # whole numbers cannot be divided by 0, nor shifted by less
    return Case(kind, [x, y], exact=kind in EXACT_BINARY)


def _broadcast(d: Draw, dtype: str, count: int) -> list[np.ndarray]:
    """Arrays that are broadcast to one shape: some lack axes, some have extent 1 there."""
    shape, found = d.shape(1, 4), []
    for i in range(count):
        one = [1 if i and d.number(0, 3) == 0 else n for n in shape]
        found.append(d.numbers(one[d.number(0, len(one)) if i and d.flag() else 0 :], dtype))
    return found if d.flag() else found[::-1]


@makes("AddN")
def add_n(d: Draw, kind: str) -> Case:
    shape = d.shape()
    return Case(kind, [[d.numbers(shape) for _ in range(d.number(1, 4))]], exact=True)


@makes("ClipByValue")
def clip(d: Draw, kind: str) -> Case:
    shape = d.shape()
    low = d.numbers(shape if d.flag() else [])
    return Case(kind, [d.numbers(shape), low, low + np.abs(d.numbers(low.shape))], exact=True)


@makes("SelectV2")
def select_v2(d: Draw, kind: str) -> Case:
    x, y, z = _broadcast(d, "float32", 3)
    return Case(kind, [x > 0, y, z], exact=True)


@makes("Select")
def select(d: Draw, kind: str) -> Case:
    shape = d.shape(1, 3)
    condition = d.numbers(d.pick(shape, shape[:1], []), "bool")
    return Case(kind, [condition, d.numbers(shape, "int32"), d.numbers(shape, "int32")], exact=True)


@makes("MatMul")
def matmul(d: Draw, kind: str) -> Case:
    rows, columns, inner = d.shape(3, 3)
    a, b = d.flag(), d.flag()
    x, y = d.numbers([inner, rows] if a else [rows, inner]), d.numbers([columns, inner] if b else [inner, columns])
    return Case(kind, [x, y], {"transpose_a": a, "transpose_b": b})


@makes("BatchMatMul", "BatchMatMulV2", "BatchMatMulV3")
def batch_matmul(d: Draw, kind: str) -> Case:
    rows, columns, inner, *batch = d.shape(3, 6)
    a, b = d.flag(), d.flag()
    dtype = d.pick("float32", "float64", "complex64")
    other = batch if kind == "BatchMatMul" or d.flag() else batch[d.number(0, len(batch)) :]
    if other == batch and kind != "BatchMatMul":
        other = [d.pick(n, 1) if n > 1 and len(batch) > 1 else n for n in batch]
    x = d.numbers([*batch, *([inner, rows] if a else [rows, inner])], dtype)
    y = d.numbers([*other, *([columns, inner] if b else [inner, columns])], dtype)
    taken = {"Tout": dtype} if kind == "BatchMatMulV3" else {}
    return Case(kind, [x, y], {"adj_x": a, "adj_y": b} | taken)


EQUATIONS = """
    ij,jk->ik bij,bjk->bik abc,cde->abde aecd,abcd->acbe ij,ij-> ij,jk-> ij,kl->jl ii->i abc->ca i,j->ij
    BTNH,BSNH->BNTS ...ij,jk->...ik
"""


@makes("Einsum")
def einsum(d: Draw, kind: str) -> Case:
    equation = d.pick(*EQUATIONS.split())
    extent = dict(zip(string.ascii_letters, [d.number() for _ in string.ascii_letters], strict=True))
    if d.flag():
        extent = dict.fromkeys(extent, d.number(2))
    labels = equation.replace("...", "").partition("->")[0].split(",")
    return Case(kind, [[d.numbers([extent[label] for label in one]) for one in labels]], {"equation": equation})


@makes("BiasAdd", "BiasAddGrad")
def bias(d: Draw, kind: str) -> Case:
    layout = d.pick("NHWC", "NCHW")
    shape = d.shape(2 if layout == "NHWC" else 3, 5)
    channels = shape[1] if layout == "NCHW" else shape[-1]
    more = [d.numbers([channels])] if kind == "BiasAdd" else []
    return Case(kind, [d.numbers(shape), *more], {"data_format": layout}, exact=kind == "BiasAdd")


@makes("Sum", "Mean", "Max", "Min", "Prod", "All", "Any", "EuclideanNorm")
def reduction(d: Draw, kind: str) -> Case:
    shape = d.shape(1, 4)
    axes = [a if d.flag() else a - len(shape) for a in range(len(shape)) if d.flag()]
    dtype = "bool" if kind in ("All", "Any") else d.pick("float32", "float64", "int32")
    value = d.numbers(shape, dtype)
    if kind in ("Max", "Min") and value.dtype.kind == "f":
        special = d.pick(1.0, -np.inf, np.inf, np.nan)
        value[d.random.random(shape) < 0.3] = special
        value = value[..., :] if d.flag() else -np.abs(value)
    axis = np.array(axes[0] if len(axes) == 1 and d.flag() else axes, np.int32)
    return Case(kind, [value, Fixed(axis)], {"keep_dims": d.flag()}, exact=kind in ("Max", "Min"))


@makes("ArgMax", "ArgMin")
def arg_max(d: Draw, kind: str) -> Case:
    shape = d.shape(1, 4)
    axis = np.int32(d.number(-len(shape), len(shape) - 1))
    return Case(kind, [d.numbers(shape, d.pick("float32", "int32")), Fixed(axis)])


@makes("Cumsum", "Cumprod", "CumulativeLogsumexp")
def cumulative(d: Draw, kind: str) -> Case:
    shape = d.shape(1, 4)
    axis = np.int32(d.number(-len(shape), len(shape) - 1))
    return Case(kind, [d.numbers(shape), Fixed(axis)], {"exclusive": d.flag(), "reverse": d.flag()})


@makes("ReverseV2")
def reverse(d: Draw, kind: str) -> Case:
    shape = d.shape(1, 4)
    axes = [a if d.flag() else a - len(shape) for a in range(len(shape)) if d.flag()]
    return Case(kind, [d.numbers(shape), Fixed(np.array(axes, np.int32))], exact=True)


@makes("Softmax", "LogSoftmax")
def softmax(d: Draw, kind: str) -> Case:
    return Case(kind, [d.numbers(d.shape(1, 4))])


@makes("SparseSoftmaxCrossEntropyWithLogits")
def sparse_loss(d: Draw, kind: str) -> Case:
    rows, classes = d.shape(2, 2)
    return Case(kind, [d.numbers([rows, classes]), d.indices([rows], classes)])


@makes("SoftmaxCrossEntropyWithLogits")
def loss(d: Draw, kind: str) -> Case:
    rows, classes = d.shape(2, 2)
    logits, labels = d.pick(([rows, classes],) * 2, ([1, classes], [rows, classes]), ([rows, classes], [1, classes]))
    return Case(kind, [d.numbers(logits), np.abs(d.numbers(labels))])


@makes("L2Loss")
def l2_loss(d: Draw, kind: str) -> Case:
    return Case(kind, [d.numbers(d.shape())])


@makes("UnsortedSegmentSum", "UnsortedSegmentMax", "UnsortedSegmentMin", "UnsortedSegmentProd")
def segments(d: Draw, kind: str) -> Case:
    shape, count = d.shape(1, 4), d.number()
    ids = d.indices(shape[: d.number(1, len(shape))], count + 1) - 1  # -1 belongs to no segment
    return Case(kind, [d.numbers(shape, d.pick("float32", "int32")), ids, Fixed(np.int32(count))])


@makes("TopKV2")
def top_k(d: Draw, kind: str) -> Case:
    shape = d.shape(1, 3)
    return Case(kind, [d.numbers(shape, "int32"), Fixed(np.int32(d.number(1, shape[-1])))], exact=True)


@makes("InTopKV2")
def in_top_k(d: Draw, kind: str) -> Case:
    rows, classes = d.shape(2, 2)
    return Case(kind, [d.numbers([rows, classes]), d.indices([rows], classes), np.int32(d.number(1, classes))])
