"""What Keras's functions compute otherwise while a step is traced than op by op."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import tensorflow as tf

from placer import tf_internals


@contextmanager
def watched_keras(note: Callable[[str], None]) -> Iterator[None]:
    """Call `note` with the reason, in words, where Keras takes logits of the op that made a tensor, or asks for the
    size of a tensor that is not known, in this thread and block. Under the lock `patching`.
    """
    thread = threading.get_ident()

    def told(function: Callable[..., Any], why: Callable[..., str | None]) -> Callable[..., Any]:
        def called(*args: Any, **kwargs: Any) -> Any:
            reason = why(*args, **kwargs) if threading.get_ident() == thread else None
            if reason is not None:
                note(f"{reason}, or decorate it with @tf.function if that is meant")
            return function(*args, **kwargs)

        # AutoGraph would convert what it finds here, and not Keras's own.
        return tf.autograph.experimental.do_not_convert(called)  # type: ignore[no-any-return]

    before = []
    for what, (module, name) in tf_internals.keras_functions().items():
        before.append((module, name, getattr(module, name)))
        setattr(module, name, told(getattr(module, name), WHY[what]))
    try:
        yield
    finally:
        for module, name, function in before:
            setattr(module, name, function)


def _logits(output: Any, from_logits: bool, op_type: str, loss: str) -> str | None:
    """Of a tensor that a layer of Keras made, the logits are known in any case."""
    if not tf.is_symbolic_tensor(output) or "logits" in tf_internals.tied_by_keras(output) or output.op.type != op_type:
        return None
    return (
        f"its loss {loss} clips what a {op_type} op makes, and takes the logits instead once the step is traced; use "
        "an activation of Keras's or from_logits=True"
    )


def _mean(values: Any, sample_weight: Any = None, reduction: str | None = "sum_over_batch_size") -> str | None:
    """Of no values, eagerly none come back, and no gradient with them; a trace makes their mean 0."""
    if reduction in (None, "none") or not tf.is_symbolic_tensor(values) or values.shape.rank != 1:
        return None
    if values.shape[0] is not None:
        return None
    return (
        f"a loss of it is over a tensor ({values.op.type}) whose size is not known while the step is traced, which "
        "Keras reduces otherwise where it is empty; multiply by weights in place of choosing elements"
    )


def _extreme(x: Any, axis: Any = None, keepdims: bool = False, initial: Any = None) -> str | None:
    """Of no values, it raises an error eagerly, and gives an infinity once it is traced."""
    if initial is not None or not tf.is_symbolic_tensor(x) or x.shape.is_fully_defined():
        return None
    return (
        f"it calls keras.ops.max or min with a tensor ({x.op.type}) whose size is not known while the step is traced, "
        "which raises an error where it is empty only if it is not traced; use tf.reduce_max or give `initial`"
    )


WHY: dict[str, Callable[..., str | None]] = {"logits": _logits, "mean": _mean, "max": _extreme, "min": _extreme}
