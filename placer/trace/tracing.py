"""Tracing a step: the concrete function that is its graph, and which of a call's flat tensors each input takes."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import tensorflow as tf

from placer import tf_internals
from placer.errors import BadInputError, one_line, warn
from placer.trace.signature import Layout


def layout_of(args: Sequence[Any], kwargs: Mapping[str, Any] | None, name: str) -> Layout:
    """The layout of a call's arguments. Raises BadInputError, which names the step, if `Layout.of` does."""
    try:
        return Layout.of(args, kwargs)
    except BadInputError as error:
        raise BadInputError(f"{name}: {error}") from error


def trace(step: Any, layout: Layout, name: str) -> tuple[Any, list[int]]:
    """Trace a step. Returns (the concrete function, which flat tensor of a call each of its inputs is).

    Raises BadInputError if `step` cannot be traced.
    """
    traceable: Any = _model_step(step) if hasattr(type(step), "compute_loss") else step
    if not callable(traceable):
        raise BadInputError(f"{name}: a {type(step).__name__} is no training step; pass a function.")
    if tf_internals.autograph.compiles_for_xla(traceable):  # XLA ignores devices
        warn(f"{name}: jit_compile is switched off, because XLA ignores devices.")
        traceable = traceable.python_function
    try:
        is_function = hasattr(type(traceable), "python_function")
        return _own(traceable, layout) if is_function else _traced_anew(traceable, layout)
    except Exception as error:
        kind = f"{type(error).__name__}: "
        said = gist(error).removeprefix(kind)  # AutoGraph may have put the kind there, too
        raise BadInputError(f"{name}: TensorFlow could not trace the step: {kind}{said}") from error


def given_to(concrete: Any) -> list[str]:
    """The nodes of a concrete function's inputs in its graph, in its order, without captures."""
    captured = {inner.op.name for _, inner in concrete.graph.captures}
    return [tensor.op.name for tensor in concrete.inputs if tensor.op.name not in captured]


def _traced_anew(step: Any, layout: Layout) -> tuple[Any, list[int]]:
    concrete = tf.function(_flat_step(step, layout)).get_concrete_function(*layout.specs)
    return concrete, list(range(len(layout.specs)))


def _own(step: Any, layout: Layout) -> tuple[Any, list[int]]:
    """Find the trace that the tf.function's own first call made. A new trace would have new seeds, and the current
    Python state and summary writers.
    """
    given: list[Any] = []

    def call(*tensors: Any) -> Any:
        given.extend(tensors)
        args, kwargs = layout.filled(tensors)
        return step(*args, **kwargs)

    with tf_internals.calls.recorded_calls() as calls:
        outer = tf.function(call, autograph=False).get_concrete_function(*layout.specs)
    for concrete, inputs in calls:
        order = [next((i for i, tensor in enumerate(given) if tensor is one), -1) for one in inputs]
        if sorted(order) == list(range(len(given))):
            return concrete, order
    return outer, list(range(len(given)))  # the step converts its arguments, or calls no function of its own


def _flat_step(step: Any, layout: Layout) -> Callable[..., Any]:
    """A plain function as a function of its flat tensors."""
    filled = tf.autograph.experimental.do_not_convert(layout.filled)

    def flat_step(*tensors: Any) -> Any:
        args, kwargs = filled(tensors)
        return step(*args, **kwargs)

    return flat_step


def _model_step(model: Any) -> Callable[..., Any]:
    """The training step of a compiled Keras model."""
    if getattr(model, "optimizer", None) is None:
        raise BadInputError(f"{model.name}: the model has no optimizer; call compile(optimizer=..., loss=...) first.")
    model.optimizer.build(model.trainable_variables)

    def step(x: Any, y: Any) -> Any:
        with tf.GradientTape() as tape:
            loss = model.compute_loss(x=x, y=y, y_pred=model(x, training=True))
        gradients = tape.gradient(loss, model.trainable_variables)
        model.optimizer.apply(gradients, model.trainable_variables)
        return loss

    return step


def gist(error: Exception) -> str:
    """An exception's message in one line, without the lines that AutoGraph puts before it."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    if not lines:
        return ""
    return one_line(lines[-1] if lines[0].startswith("in user code") else lines[0])
