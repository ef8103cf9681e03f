"""One real training step: forward pass, loss, gradients and the optimizer's update, as one function."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import keras
    import tensorflow as tf


@dataclass(frozen=True, eq=False)
class TrainingStep:
    """A training step and what it needs to run.

    step: takes tensors shaped like `example_inputs`, trains the model by one step and returns the loss, a
        float32 scalar; made to be traced by `tf.function`.
    example_inputs: one batch; the first axis of each is the batch.
    model, optimizer: whose variables the step updates; None if a user's function did not hand them over.
        Kept here because a traced step dies with the variables it captured.
    """

    name: str
    step: Callable[..., tf.Tensor]
    example_inputs: tuple[tf.Tensor, ...]
    model: keras.Model | None = None
    optimizer: keras.optimizers.Optimizer | None = None


def descend(tape: tf.GradientTape, loss: tf.Tensor, model: keras.Model, optimizer: Any) -> None:
    """Move the model's weights one step down the gradient of `loss`, which `tape` recorded."""
    variables = model.trainable_variables
    gradients = tape.gradient(loss, variables)
    optimizer.apply_gradients(zip(gradients, variables, strict=True))


def mean_cross_entropy(labels: tf.Tensor, logits: tf.Tensor) -> tf.Tensor:
    """Mean of -log softmax(logits)[label], a scalar; labels int32 [...], logits float32 [..., classes]."""
    import tensorflow as tf

    return tf.reduce_mean(tf.nn.sparse_softmax_cross_entropy_with_logits(labels=labels, logits=logits))


def classifier(model: keras.Model, optimizer: Any, x: tf.Tensor, y: tf.Tensor, name: str | None = None) -> TrainingStep:
    """The step of a model that maps `x` to logits, against int32 labels `y`; `name` = None: the model's."""
    import tensorflow as tf

    optimizer.build(model.trainable_variables)

    def step(x: tf.Tensor, y: tf.Tensor) -> tf.Tensor:
        with tf.GradientTape() as tape:
            loss = mean_cross_entropy(y, model(x, training=True))
        descend(tape, loss, model, optimizer)
        return loss

    return TrainingStep(name or model.name, step, (x, y), model, optimizer)
