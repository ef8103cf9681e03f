"""Copies instead of parts: each part does the whole op itself, so that its outputs need not be sent.

This pays if an op costs less than sending its result: for example bias corrections of an optimizer, and ops between a
sum of partial products and the next division.
"""

from __future__ import annotations

import sys
from typing import Any

import tensorflow as tf

from placer.splits.rules.way import Copied, Way

COPIES = "copies"
"""The name of this way in plans."""
HANDLES = (tf.resource, tf.variant)


def copies(op: Any) -> Way | None:
    """Return the way to copy an op; None if it reads or changes state, works on handles, or lacks inputs or outputs."""
    tensors = [*op.inputs, *op.outputs]
    if op.op_def.is_stateful or not (op.inputs and op.outputs) or any(t.dtype in HANDLES for t in tensors):
        return None
    return Way((None,) * len(op.inputs), (Copied(),) * len(op.outputs), sys.maxsize)
