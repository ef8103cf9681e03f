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
