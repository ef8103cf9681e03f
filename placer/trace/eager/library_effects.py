"""Watches what libraries do in a trace that outlasts it: make variables, build optimizers, keep losses in layers."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from typing import Any

import tensorflow as tf

from placer.errors import BadInputError, short
from placer.trace.eager.patching import replaced


@contextmanager
def no_new_variables(note: Callable[[str], None]) -> Iterator[None]:
    """Raise BadInputError, and call `note` with the same reason, when anything in this thread and block makes a
    variable. A trace runs branches that no step has run, and would make the variables that they use; the user's
    optimizer would not know these variables.
    """

    def refuse(_: Any, **kwargs: Any) -> Any:
        what = f"a variable ({short(kwargs['name'])})" if kwargs.get("name") else "a variable"
        why = f"it makes {what} once it is traced, which its latest calls did not; make all in the first call"
        note(why)
        raise BadInputError(why)

    with ExitStack() as scopes:
        with tf.init_scope():  # Keras makes variables there
            scopes.enter_context(tf.variable_creator_scope(refuse))
        scopes.enter_context(tf.variable_creator_scope(refuse))
        yield


@contextmanager
def watched_optimizers(note: Callable[[str], None]) -> Iterator[None]:
    """Raise BadInputError, and call `note` with the same reason, when an optimizer of Keras's is built in this thread
    and block. An optimizer marks itself as built before it makes its variables, so that refusing only the variables
    would break the user's own calls. The caller holds the lock `patching`.
    """
    thread, kind = threading.get_ident(), tf.keras.optimizers.Optimizer
    build = kind.build

    def refused(optimizer: Any, variables: Any) -> Any:
        if threading.get_ident() != thread or optimizer.built:
            return build(optimizer, variables)
        why = (
            f"it builds its optimizer {short(optimizer.name)} once it is traced, which its latest calls did not; call "
            "build(model.trainable_variables) of it before the training"
        )
        note(why)
        raise BadInputError(why)

    with replaced([(kind, "build", tf.autograph.experimental.do_not_convert(refused))]):
        yield


@contextmanager
def watched_losses(note: Callable[[str], None]) -> Iterator[None]:
    """Call `note` with the reason, in words, when a layer of Keras's keeps a loss in this thread and block:
    `model.losses` would hold tensors of the trace, and no placed step would replace them by values. The caller holds
    the lock `patching`.
    """
    thread = threading.get_ident()
    add_loss = tf.keras.layers.Layer.add_loss

    def noted(layer: Any, *args: Any, **kwargs: Any) -> Any:
        if threading.get_ident() == thread:
            note(
                f"its layer {short(layer.name)} keeps a loss (by add_loss, or an activity regularizer), which "
                "`model.losses` would not show once the step is traced; decorate it with @tf.function if nothing reads "
                "that between steps"
            )
        return add_loss(layer, *args, **kwargs)

    with replaced([(tf.keras.layers.Layer, "add_loss", noted)]):
        yield
