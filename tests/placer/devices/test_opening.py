"""What devices are found, and what is measured of them when they are opened."""

from __future__ import annotations

from types import SimpleNamespace

import pytest

from placer import tf_internals
from placer.devices import opening
from placer.devices.cluster import Devices
from placer.devices.host.cores import usable_cores
from placer.devices.host.machine import cores_of_cpu
from placer.devices.opening import open_devices
from placer.devices.workers.workers import Workers
from placer.errors import PlacerError


def test_gpus_and_cpu_become_one_topology(monkeypatch):
    joined = [f"/job:worker/replica:0/task:0/device:{kind}:0" for kind in ("GPU", "CPU")]
    found = {"GPU": ["/device:GPU:0", "/device:GPU:1", joined[0]], "CPU": ["/device:CPU:0", joined[1]]}
    task = "/job:localhost/replica:0/task:0"
    monkeypatch.setattr(
        opening.tf.config, "list_logical_devices", lambda k: [SimpleNamespace(name=n) for n in found[k]]
    )
    monkeypatch.setattr(
        tf_internals.devices, "device_memory_limits", lambda: {f"{task}/device:GPU:{i}": 10 + i for i in range(2)}
    )
    monkeypatch.setattr(opening, "gpu_names", lambda: ["Card", ""])
    monkeypatch.setattr(tf_internals.devices, "joined_tasks", lambda: {0: "host:1"})
    opened = open_devices(None, links=False)
    assert opened.topology.names == ("gpu:0", "gpu:1", "cpu:0")
    assert [d.kind for d in opened.topology.devices] == ["gpu", "gpu", "cpu"]
    assert [d.memory_bytes for d in opened.topology.devices][:2] == [10, 11]
    assert [d.hardware for d in opened.topology.devices] == ["Card", "", cores_of_cpu(len(usable_cores()))]
    assert opened.host == f"{task}/device:CPU:0"
    assert (opened.tf_name(1), opened.topology.contention) == (f"{task}/device:GPU:1", "link")
    assert opened.has_local and not opened.same_bits


def test_gpus_of_workers_are_none_of_this_process_and_a_process_that_is_a_worker_has_its_own(monkeypatch):
    card = SimpleNamespace(name="/job:worker/replica:0/task:0/device:GPU:0")
    monkeypatch.setattr(opening.tf.config, "list_logical_devices", lambda kind: [card])
    for joined, own in (({0: "host:1"}, []), ({}, [card])):
        monkeypatch.setattr(tf_internals.devices, "joined_tasks", lambda joined=joined: joined)
        assert opening._of_this_process("GPU") == own


def test_workers_that_end_with_this_process_wait_for_it_longer_than_others(monkeypatch):
    def join(tasks, own):
        raise PlacerError(f"{tasks} {own}")

    monkeypatch.setattr("placer.devices.opening.join_workers", join)
    with pytest.raises(PlacerError, match="True"):
        open_devices("workers:1", workers=Workers((1,), ((0,),)))


@pytest.mark.parametrize("links", [True, False])
def test_the_way_of_batches_to_own_gpus_is_measured_with_and_without_links(two_cpus, monkeypatch, links):
    """A training opens devices without measuring links, and its steps must take the way that its predictions assume."""
    asked = []

    def measured(host, gpus):
        asked.append((host, list(gpus)))
        return 1 << 22

    monkeypatch.setattr(opening, "stages_from", measured)
    monkeypatch.setattr(Devices, "own_gpus", {"gpu:0": "/device:GPU:0"})
    with open_devices("cpus:2", links=links) as devices:
        assert devices.stages_from == 1 << 22 and asked == [(two_cpus.host, ["/device:GPU:0"])]
