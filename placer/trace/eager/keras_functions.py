"""Watches for functions of Keras that compute something else while a step is traced than op by op."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import tensorflow as tf

from placer import tf_internals
from placer.trace.eager.patching import replaced

CHOOSING = (  # how the types of ops begin whose input values decide how many elements come out
    "Where", "Unique", "DynamicPartition", "NonMaxSuppression", "SparseSlice", "ListDiff", "DenseToDense",
)  # fmt: skip
CUTTING = ("StridedSlice", "Slice")  # their inputs after the first say where to cut


@contextmanager
def watched_keras(note: Callable[[str], None]) -> Iterator[None]:
    """Call `note` with the reason, in words, when Keras takes logits from the op that made a tensor, or asks for the
    unknown size of a tensor, in this thread and block. The caller holds the lock `patching`.
    """
    thread = threading.get_ident()

    def told(function: Callable[..., Any], why: Callable[..., str | None]) -> Callable[..., Any]:
        def called(*args: Any, **kwargs: Any) -> Any:
            reason = why(*args, **kwargs) if threading.get_ident() == thread else None
            if reason is not None:
                note(f"{reason}, or decorate it with @tf.function if that is meant")
            return function(*args, **kwargs)

        # AutoGraph would convert this function, though it does not convert Keras's own.
        return tf.autograph.experimental.do_not_convert(called)  # type: ignore[no-any-return]

    functions = tf_internals.keras_parts.keras_functions()
    unknown = [name for module, name in functions.values() if not hasattr(module, name)]
    if unknown:
        note(
            f"Keras has no function `{unknown[0]}`, of which Placer knows what it does otherwise once a step is traced"
        )
    with replaced(
        (module, name, told(getattr(module, name), WHY[what]))
        for what, (module, name) in functions.items()
        if name not in unknown
    ):
        yield


def _logits(output: Any, from_logits: bool, op_type: str, loss: str) -> str | None:
    """Why a crossentropy takes the logits only in a trace, in words; None if it does not. If an activation of Keras's
    made the probabilities, it takes the logits eagerly, too.
    """
    if (
        not tf.is_symbolic_tensor(output)
        or "logits" in tf_internals.keras_parts.tied_by_keras(output)
        or output.op.type != op_type
    ):
        return None
    return (
        f"its loss {loss} clips what a {op_type} op makes, and takes the logits instead once the step is traced; use "
        "an activation of Keras's or from_logits=True"
    )


def _mean(values: Any, sample_weight: Any = None, reduction: str | None = "sum_over_batch_size") -> str | None:
    """Why a loss may differ in a trace, in words; None if it may not. If there are no values, Keras eagerly returns
    none, and no gradient flows; in a trace their mean is 0.
    """
    if reduction in (None, "none") or not tf.is_symbolic_tensor(values) or values.shape.rank != 1:
        return None
    if not _is_chosen(values):
        return None
    return (
        f"a loss of it is over elements that are chosen by their values ({values.op.type}), which Keras reduces "
        "otherwise where there are none, unless the step is traced; multiply by weights in place of choosing"
    )


def _extreme(x: Any, axis: Any = None, keepdims: bool = False, initial: Any = None) -> str | None:
    """Why a maximum or minimum may differ in a trace, in words; None if it may not. If there are no values, Keras
    raises an error eagerly, and returns an infinity in a trace.
    """
    if initial is not None or not tf.is_symbolic_tensor(x) or not _is_chosen(x):
        return None
    return (
        f"it calls keras.ops.max or min with elements that are chosen by their values ({x.op.type}), which raises an "
        "error where there are none only if it is not traced; use tf.reduce_max, or give `initial`"
    )


def _is_chosen(tensor: Any) -> bool:
    """Whether values decide how many elements a tensor has. The size of a batch may be unknown, too, but is not 0."""
    if tensor.shape.is_fully_defined():
        return False
    left, seen = [tensor], set()
    while left:
        one = left.pop()
        if id(one.op) in seen:
            continue
        seen.add(id(one.op))
        if one.op.type.startswith(CHOOSING) or _is_cut(one.op):
            return True
        left += one.op.inputs
        left += [made for graph in _graphs_of(one.op) for made in graph.outputs]
        if not one.op.inputs:
            captures = getattr(one.graph, "captures", ())  # from the graph around it
            left += [outer for outer, inner in captures if inner is one and tf.is_symbolic_tensor(outer)]
    return False


def _is_cut(op: Any) -> bool:
    """Whether an op takes a slice whose ends are computed from values, and not only from constants and shapes."""
    left = list(op.inputs[1:]) if op.type in CUTTING else []
    while left:
        one = left.pop().op
        if one.type not in ("Const", "Shape"):
            if not one.inputs:
                return True
            left += one.inputs
    return False


def _graphs_of(op: Any) -> list[Any]:
    """The graphs that make an op's outputs: of its branches, of its loop's body, or of the function that it calls."""
    loop, called = tf_internals.graphs.loop_of(op), tf_internals.graphs.called_graph(op)
    if called is not None:
        return [called]
    return [loop[1]] if loop else tf_internals.graphs.branches_of(op)


WHY: dict[str, Callable[..., str | None]] = {"logits": _logits, "mean": _mean, "max": _extreme, "min": _extreme}
