"""Counts what workers keep of placed steps that were closed.

TensorFlow 2.21 can remove the function of a step, but neither the parts of it that workers were sent nor their kernels:
a worker frees these only when it is left (docs/decisions/036-workers-keep-what-was-built.md).
"""

from __future__ import annotations

MOST_OPS = 300_000  # some 2 GB on all workers together
_ops = 0  # the ops of all steps that were made and closed since the workers were joined
_times_freed = 0


def times_freed() -> int:
    """How often workers were left or joined again."""
    return _times_freed


def add(ops: int, made_at: int) -> None:
    """Note that a step of `ops` ops was closed. made_at: `times_freed` when the step was made; workers keep nothing of
    a step that was made before they were last joined.
    """
    global _ops
    if made_at == _times_freed:
        _ops += ops


def forget() -> None:
    """Note that the workers were left or joined again."""
    global _ops, _times_freed
    _ops = 0
    _times_freed += 1


def are_many() -> bool:
    """Whether it is time to join the workers again, so that they free what they keep."""
    return _ops > MOST_OPS
