"""Reads the settings of Keras and TensorFlow, which a trace freezes."""

from __future__ import annotations

import sys
from collections.abc import Hashable
from typing import Any

from placer import tf_internals
from placer.trace.signature import Same


def settings() -> Hashable:
    """The settings that the code of the libraries reads while a step runs; equal settings compare equal.

    Settings that only decide how layers and optimizers are made are left out.
    """
    keras: Any = sys.modules.get("keras")  # a program that has not imported Keras has set nothing in it
    return (
        () if keras is None else _of(keras),
        tf_internals.settings.op_callbacks(),
        tf_internals.settings.number_promotion(),
    )


def _of(keras: Any) -> Hashable:
    config = keras.config
    floats, (policy, attention) = config.floatx(), tf_internals.keras_parts.keras_settings()
    if policy is None:  # Keras's own function would set the policy to `floats`, and keep it
        policy = floats
    elif type(policy) is keras.DTypePolicy:
        policy = policy.name
    else:
        policy = Same(policy)
    return config.epsilon(), floats, config.image_data_format(), policy, attention
