"""Batches on disk come back as they were written, in turn, and their rate is that of the clock."""

from __future__ import annotations

from itertools import count

import numpy as np
import pytest

from experiments.benches.scaling.batches import BATCHES, BatchFile, bytes_per_s, copied

ARRAYS = [np.arange(6, dtype=np.float32).reshape(2, 3), np.array([7, 8], dtype=np.int32)]


def test_every_batch_is_what_was_written_also_the_second_time_round(tmp_path):
    with BatchFile(tmp_path / "b", ARRAYS) as file:
        assert file.batch_bytes == 6 * 4 + 2 * 4
        assert (tmp_path / "b").stat().st_size == BATCHES * file.batch_bytes
        for _ in range(BATCHES + 2):
            for array, given in zip(file.read(), ARRAYS, strict=True):
                np.testing.assert_array_equal(array, given, strict=True)


def test_a_file_that_was_cut_is_told(tmp_path):
    with BatchFile(tmp_path / "b", ARRAYS) as file:
        (tmp_path / "b").write_bytes(b"12")
        with pytest.raises(OSError, match="ends within a batch"):
            file.read()


def test_a_rate_is_bytes_over_the_median_of_repeats():
    ticks = count(0.0, 0.5)
    assert bytes_per_s(lambda: None, 100.0, 3, lambda: next(ticks)) == 200.0


@pytest.mark.slow
def test_copies_are_on_the_devices_named():
    found = copied(ARRAYS, ["/device:CPU:0"] * 2)
    for tensor, given in zip(found, ARRAYS, strict=True):
        np.testing.assert_array_equal(tensor.numpy(), given)
