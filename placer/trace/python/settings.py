"""What the whole program has set in Keras and TensorFlow, which a trace freezes."""

from __future__ import annotations

import sys
from collections.abc import Hashable
from typing import Any

from placer import tf_internals


def settings() -> Hashable:
    """The settings that the code of the libraries reads while a step runs; equal ones compare equal.

    A setting that only decides how layers and optimizers are made is none of them.
    """
    keras: Any = sys.modules.get("keras")  # whoever has not imported it has set nothing in it
    of_keras = (
        () if keras is None else (keras.config.epsilon(), keras.config.floatx(), keras.config.image_data_format())
    )
    return of_keras, tf_internals.op_callbacks()
