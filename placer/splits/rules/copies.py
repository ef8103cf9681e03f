"""Copies instead of parts: each part does the whole op for itself, so that nobody has to send what it makes.

That is worth it where an op costs less than sending its result: bias corrections of an optimizer, and what lies
between a sum of partial products and the next division.
"""

from __future__ import annotations

import sys
from typing import Any

import tensorflow as tf

from placer.splits.rules.way import Copied, Way

COPIES = "copies"
"""How plans call it."""
HANDLES = (tf.resource, tf.variant)


def copies(op: Any) -> Way | None:
    """The way to copy an op; None where it reads or changes state, or works on handles, or has no input or output."""
    tensors = [*op.inputs, *op.outputs]
    if op.op_def.is_stateful or not (op.inputs and op.outputs) or any(t.dtype in HANDLES for t in tensors):
        return None
    return Way((None,) * len(op.inputs), (Copied(),) * len(op.outputs), sys.maxsize)
