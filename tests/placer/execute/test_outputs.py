"""What a failure of a placed step is called."""

from __future__ import annotations

import pytest
import tensorflow as tf

from placer.execute.outputs import attempted


@pytest.mark.parametrize(
    ("error", "reason"),
    [(tf.errors.ResourceExhaustedError(None, None, "OOM"), "memory"),
     (tf.errors.InternalError(None, None, "Dst tensor is not initialized."), "memory"),
     (tf.errors.InternalError(None, None, "Blas GEMM launch failed"), "error")],
)  # fmt: skip
def test_running_out_of_memory_has_several_names(error, reason):
    def run():
        raise error

    assert attempted(run).reason == reason


def test_a_failure_says_what_failed_and_not_where():
    message = "Graph execution error:\n\nDetected at node dense/MatMul defined at (most recent call last):\n"

    def run():
        raise tf.errors.InvalidArgumentError(None, None, f"{message}<stack traces unavailable>\nIncompatible shapes\n")

    assert attempted(run).detail == "Incompatible shapes"
