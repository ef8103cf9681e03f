"""Which way a batch takes to a GPU: measured in a function that takes it, directly and through pinned memory."""

from __future__ import annotations

from types import SimpleNamespace

import numpy as np
import pytest
import tensorflow as tf

from placer.devices.links import staging
from placer.devices.links.staging import FASTER, REPEATS, SIZES, brought_s, on_gpus, stages_from


@pytest.fixture
def ends(two_cpus):
    """The second logical CPU stands for a GPU."""
    return two_cpus.tf_names["cpu:0"], two_cpus.tf_names["cpu:1"]


@pytest.fixture
def timed(monkeypatch):
    """Says how long staging takes, as a share of the direct way, by bytes; returns what was tried."""
    shares: dict[int, float] = {}
    tried: list[int] = []

    def probes(host, gpu, size_bytes, is_staged):
        tried.append(size_bytes)
        return shares[size_bytes] if is_staged else 1.0

    monkeypatch.setattr(staging, "_bringing", probes)
    monkeypatch.setattr(staging, "in_turn", lambda probes, clock, repeats: list(probes))
    return shares, tried


@pytest.mark.parametrize(
    ("pays", "expected"),
    [((1, 1, 1), SIZES[0]), ((0, 1, 1), SIZES[1]), ((1, 0, 1), SIZES[2]), ((1, 1, 0), None), ((0, 0, 0), None)],
)
def test_it_is_staged_from_the_size_above_which_all_are_faster(timed, pays, expected):
    shares, _ = timed
    shares |= {size: FASTER / 2 if one else 1.0 for size, one in zip(SIZES, pays, strict=True)}
    assert stages_from("host", ["gpu"]) == expected


def test_without_a_gpu_nothing_is_tried(timed):
    assert stages_from("host", []) is None and timed[1] == []


def test_a_gpu_without_room_is_not_staged_for(ends, monkeypatch):
    def full(probes, clock, repeats):
        raise tf.errors.ResourceExhaustedError(None, None, "out of memory")

    monkeypatch.setattr(staging, "in_turn", full)
    assert stages_from(ends[0], ends[1:]) is None


def test_each_way_brings_the_same_tensor(ends):
    for is_staged in (False, True):
        assert staging._bringing(*ends, 1 << 12, is_staged)().numpy() == 1.0
    assert stages_from(ends[0], ends[1:]) in (None, *SIZES)


def test_the_staged_way_copies_on_the_host_and_the_direct_one_nowhere(ends, monkeypatch):
    made = []
    copy = tf.raw_ops.DeepCopy

    def noted(x):
        made.append(copy(x=x))
        return made[-1]

    monkeypatch.setattr(staging.tf.raw_ops, "DeepCopy", noted)
    staging._bringing(*ends, 64, is_staged=False)()
    assert made == []
    staging._bringing(*ends, 64, is_staged=True)()
    assert [tensor.device for tensor in made] == [ends[0]]


def test_what_a_program_brought_to_a_gpu_is_known(two_cpus):
    names = (*two_cpus.tf_names.values(), "/job:localhost/replica:0/task:0/device:GPU:1", None)
    batch = [SimpleNamespace(device=name) for name in names]
    assert on_gpus([tf.ones([2]), np.ones(2), *batch, 3.0]) == {4}


def test_bringing_is_timed_less_what_bringing_nothing_takes(ends):
    ticks = iter([0, 1, 1, 4] * REPEATS)
    assert brought_s(*ends, 1 << 10, is_staged=False, clock=lambda: next(ticks)) == 2
    ticks = iter([0, 3, 3, 4] * REPEATS)
    assert brought_s(*ends, 1 << 10, is_staged=True, clock=lambda: next(ticks)) == 0
