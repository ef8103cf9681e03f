"""Who is asked for memory, and who is named as lacking it; tests of real limits are in test_real_limits.py."""

from __future__ import annotations

from dataclasses import replace

import pytest

from placer.devices import memory_room
from placer.devices.memory_room import LEAST_BYTES, short_of_room

ROOM_BYTES = 4 * LEAST_BYTES


@pytest.fixture
def asked(monkeypatch):
    """The workers that were asked, by TensorFlow's name; each has ROOM_BYTES."""
    found = []
    monkeypatch.setattr(memory_room, "_gives", lambda device, size: found.append(device) or size <= ROOM_BYTES)
    return found


def test_the_first_worker_that_lacks_memory_is_named_as_the_topology_names_it(two_cpus, asked):
    workers = {f"worker:{i}": f"/job:worker/replica:0/task:{i}/device:CPU:0" for i in range(3)}
    devices = replace(two_cpus, tf_names=workers)
    assert short_of_room(devices, dict.fromkeys(workers, ROOM_BYTES)) is None
    assert asked == list(workers.values())
    asked.clear()
    wanted = {"worker:0": LEAST_BYTES - 1, "worker:1": ROOM_BYTES + 1, "worker:2": ROOM_BYTES + 1}
    assert short_of_room(devices, wanted) == "worker:1"
    assert asked == [workers["worker:1"]]  # what is next to nothing is not worth a question


def test_a_worker_that_is_lost_and_devices_of_this_process_are_not_asked(two_cpus, asked):
    assert short_of_room(two_cpus, {"worker:0": ROOM_BYTES + 1, "cpu:1": ROOM_BYTES + 1}) is None
    assert asked == []
