"""How far off a placed step may be, coarser where a GPU rounds coarsely; and what a failure is called."""

from __future__ import annotations

import numpy as np
import pytest
import tensorflow as tf

from placer.execute import output_check
from placer.execute.output_check import (
    MOST_TOLERANCE,
    SPREAD,
    TF32_TOLERANCE,
    TOLERANCE,
    Agreement,
    LossDiffersError,
    attempted,
    tolerance,
)


def returned(*losses):
    return [[np.float32(loss), np.int64(3)] for loss in losses]


@pytest.fixture
def tf32(monkeypatch):
    monkeypatch.setattr(output_check, "rounds_coarsely", lambda: True)


def test_a_process_without_gpu_never_rounds_coarsely():
    assert not output_check.rounds_coarsely()
    assert tolerance([returned(5.0, 4.0), returned(5.0, 3.0)]) == TOLERANCE


@pytest.mark.usefixtures("tf32")
def test_tensor_float_32_is_allowed_for():
    assert tolerance([returned(5.0, 4.0)]) == TF32_TOLERANCE
    assert tolerance([returned(5.0, 4.0), returned(5.0, 4.001)]) == TF32_TOLERANCE


@pytest.mark.usefixtures("tf32")
def test_a_step_that_magnifies_rounding_may_differ_as_it_does_from_itself():
    found = tolerance([returned(5.0, 4.0), returned(5.0, 4.1)])
    assert found == pytest.approx(SPREAD * 0.1 / 4.1, rel=1e-4)
    assert tolerance([returned(5.0, 4.0), returned(5.0, 9.0)]) == MOST_TOLERANCE
    assert tolerance([returned(np.nan, np.inf), returned(np.nan, np.inf)]) == TF32_TOLERANCE


@pytest.mark.parametrize(("apart", "agrees"), [(5e-3, True), (2e-2, False)])
@pytest.mark.usefixtures("tf32")
def test_a_coarse_step_agrees_within_its_tolerance(apart, agrees):
    references = [returned(5.0, 4.0)]
    held = Agreement(references, exact=False, random=False, tolerance=tolerance(references))
    if agrees:
        held.check(returned(5.0, 4.0 * (1 + apart)))
    else:
        with pytest.raises(LossDiffersError):
            held.check(returned(5.0, 4.0 * (1 + apart)))


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
