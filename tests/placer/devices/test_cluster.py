"""Devices that get lost and come back, and keep their names."""

from __future__ import annotations

import socket
import subprocess
import sys
from dataclasses import replace
from types import SimpleNamespace

import pytest

from placer.devices.cluster import Devices
from placer.devices.joining import Joined, own_node
from placer.devices.workers.addresses import Answer, answer
from placer.errors import BadInputError, PlacerError
from placer.graph.topology import Device, Link, Topology

# Processes of their own join workers: what was made before a join must not be called after it.
WORKS = """
import socket, sys
import tensorflow as tf
from placer.devices.joining import join_workers
from placer.devices.opening import open_devices
from placer.errors import PlacerError
from placer.devices.variables import variable_on
from placer.devices.workers.deadline import LOST_ERRORS
from placer.devices.workers.workers import start_workers

mine = tf.Variable(0.0)
count = tf.function(lambda: mine.assign_add(1.0))
count()

def works(devices):
    "A variable and a function on every device; what is in this process is the same as ever."
    variables = [variable_on(name, tf.zeros([8])) for name in devices.tf_names.values()]

    @tf.function(autograph=False)
    def step():
        total = tf.zeros([])
        for variable in variables:
            with tf.device(variable.device):
                total = tf.reduce_sum(variable.assign_add(tf.ones([8]))) + total
        return total

    assert [float(step()) for _ in range(2)] == [8.0 * len(variables), 16.0 * len(variables)]
    before = float(mine)
    assert float(count()) == before + 1
    return step

def fails(step):
    try:
        step()
    except LOST_ERRORS:  # which one depends on where the call is when the worker ends
        return True

def back(devices, names):
    reconnection = devices.reconnect(names)
    while reconnection.away():
        assert not reconnection.given_up, reconnection.given_up
    return devices.join_all()

def refused(join):
    try:
        join()
    except PlacerError as error:
        return str(error)
"""
KILL_ONE = """
with open_devices("workers:2", resilient=True, include_local=True) as all_devices:
    step = works(all_devices)
    assert all_devices.lost() == ()
    all_devices.workers.processes[0].kill()
    assert fails(step)
    all_devices.workers.processes[0].wait()
    assert all_devices.lost() == ("worker:0",)
    left = all_devices.without(all_devices.lost())
    assert left.topology.names == ("worker:1", "cpu:0")
    assert {(link.src, link.dst) for link in left.topology.links} == {("worker:1", "cpu:0"), ("cpu:0", "worker:1")}
    assert left.session_target.endswith(str(all_devices.workers.ports[1]))
    assert left.lost() == ()
    works(left)
    again = back(left, ["worker:0"])
    assert (again.topology, again.tf_names) == (all_devices.topology, all_devices.tf_names)
    works(again)
    processes = list(all_devices.workers.processes)
    left.close()
    assert all(process.poll() is not None for process in processes)
print("kept")
"""
KILL_ALL = """
with open_devices("workers:2", resilient=True, links=False, workers=start_workers(2)) as devices:
    step = works(devices)
    devices.workers.restart(1)  # nobody is lost, yet what was on it is gone
    assert fails(step) and devices.lost() == ()
    devices = devices.join_all()
    works(devices.join_all())
    devices.workers.processes[0].kill()
    devices.workers.processes[0].wait()
    addresses = dict(enumerate(devices.addresses.values()))
    assert "do not answer" in refused(lambda: join_workers(addresses))
    devices.workers.processes[1].kill()
    devices.workers.processes[1].wait()
    assert devices.lost() == ("worker:0", "worker:1")
    assert "no device is left" in refused(lambda: devices.without(devices.lost()))
    works(back(devices, devices.lost()))
print("kept")
"""


@pytest.mark.slow
@pytest.mark.workers
@pytest.mark.parametrize(
    "story", [pytest.param(KILL_ONE, id="one", marks=pytest.mark.nightly), pytest.param(KILL_ALL, id="all")]
)
def test_lost_workers_come_back_under_their_names(story):
    ran = subprocess.run([sys.executable, "-c", WORKS + story], capture_output=True, text=True, timeout=900)
    assert ran.stdout == "kept\n", ran.stderr


@pytest.fixture
def served():
    """Two workers at others' addresses, as far as a TCP connection tells, and the listening sockets."""
    listeners = [socket.create_server(("127.0.0.1", 0)) for _ in range(2)]
    addresses = {f"worker:{i}": f"127.0.0.1:{s.getsockname()[1]}" for i, s in enumerate(listeners)}
    devices = tuple(Device(name, "cpu") for name in (*addresses, "cpu:0"))
    links = (Link("*", "*", 1e-3, 1e9), Link("worker:0", "worker:1", 2e-3, 1e9), Link("worker:1", "cpu:0", 3e-3, 1e9))
    names = {device.name: f"/tf/{device.name}" for device in devices}
    yield Devices(Topology(devices, links), names, "/tf/cpu:0", addresses=addresses), listeners
    for listener in listeners:
        listener.close()


def test_a_device_whose_address_refuses_is_lost_and_one_in_this_process_never(served):
    devices, listeners = served
    assert devices.lost() == ()
    listeners[1].close()
    assert devices.lost() == ("worker:1",)


@pytest.mark.parametrize(("heard", "lost"), [(2, ()), (1000, ("worker:0",))])
def test_a_device_that_is_silent_for_a_moment_is_not_lost(served, monkeypatch, heard, lost):
    """heard: how many looks later something comes through again."""
    devices, _ = served
    now, looks = [0.0], []

    def answer(address):
        looks.append(address)
        return Answer.SILENT if address == devices.addresses["worker:0"] and len(looks) < 2 * heard else Answer.LISTENS

    monkeypatch.setattr("placer.devices.cluster.answer", answer)
    monkeypatch.setattr("placer.devices.cluster.time", SimpleNamespace(monotonic=lambda: now[0], sleep=passes(now)))
    assert devices.lost() == ("worker:0",)
    assert devices.lost(3.0) == lost and (now[0] >= 3.0) == bool(lost)


def test_a_device_that_refuses_beside_a_silent_one_is_named_with_it_after_the_silence(served, monkeypatch):
    devices, listeners = served
    listeners[1].close()
    silent = devices.addresses["worker:0"]
    monkeypatch.setattr(
        "placer.devices.cluster.answer", lambda address: Answer.SILENT if address == silent else answer(address)
    )
    assert devices.lost(0.01) == ("worker:0", "worker:1")


def passes(now):
    def sleep(seconds):
        now[0] += seconds

    return sleep


def test_what_an_address_answers(served, monkeypatch):
    devices, listeners = served
    listeners[1].close()
    assert answer(devices.addresses["worker:0"]) is Answer.LISTENS
    assert answer(devices.addresses["worker:1"]) is Answer.REFUSES

    def unreached(*_, **__):
        raise OSError("no route to host")

    monkeypatch.setattr("socket.create_connection", unreached)
    assert answer("host:1") is Answer.SILENT


def test_survivors_keep_their_names_order_links_and_task_numbers(served, monkeypatch):
    devices, _ = served
    joined = []

    def join(tasks, own):
        joined.append(tasks)
        assert not own  # what a process that was killed left on them must go some time
        return Joined((), (), {})

    monkeypatch.setattr("placer.devices.cluster.join_workers", join)
    left = devices.without(["worker:0"])
    assert joined == [{1: devices.addresses["worker:1"]}]
    assert left.topology.names == ("worker:1", "cpu:0")
    assert left.topology.link(0, 1).latency_s == 3e-3
    assert left.session_target == f"grpc://{devices.addresses['worker:1']}"
    assert left.join_all() is devices
    with pytest.raises(PlacerError, match="no device is left without worker:1"):
        left.without(["worker:1"])


@pytest.mark.parametrize(
    ("addresses", "node"),
    [
        (["127.0.0.1:70", "127.0.0.1:71"], "127.0.0.1"),
        (["localhost:70"], "localhost"),
        (["10.1.2.3:70", "10.1.2.4:70"], "10.1.2.4"),
        (["10.1.2.3:70"], "10.1.2.4"),
    ],
)
def test_the_node_of_this_process_is_that_of_the_workers_beside_it(monkeypatch, addresses, node):
    """On a machine that other machines know as 10.1.2.4."""
    monkeypatch.setattr("placer.devices.joining.own_address", lambda ip: ip if ip == "127.0.0.1" else "10.1.2.4")
    assert own_node(addresses) == node


def test_a_worker_that_does_not_answer_is_refused_before_tensorflow_waits_for_it(served):
    devices, listeners = served
    listeners[0].close()
    with pytest.raises(PlacerError, match="no worker answers at"):
        devices.join_all()


def test_devices_that_are_not_there_or_never_lost_are_refused(served):
    devices, _ = served
    with pytest.raises(BadInputError, match="worker:9 is no device here; the topology has worker:0"):
        devices.without(["worker:9"])
    with pytest.raises(BadInputError, match="cpu:0 is in this process"):
        devices.reconnect(["cpu:0"])


def test_devices_of_this_process_are_left_out_without_joining_anything(two_cpus):
    left = two_cpus.without(["cpu:0"])
    assert left.topology.names == ("cpu:1",)
    assert (left.lost(), left.join_all()) == ((), two_cpus)
    assert replace(left, original=None).whole.topology.names == ("cpu:1",)


def test_each_device_is_found_by_tensorflows_name(two_cpus):
    assert [two_cpus.name_of[two_cpus.tf_name(d)] for d in range(2)] == ["cpu:0", "cpu:1"]


def test_own_gpus_are_those_of_this_process(two_cpus):
    kinds = (replace(device, kind="gpu") for device in two_cpus.topology.devices)
    both = replace(two_cpus, topology=replace(two_cpus.topology, devices=tuple(kinds)))
    assert not two_cpus.own_gpus and both.own_gpus == two_cpus.tf_names
    assert list(replace(both, addresses={"cpu:0": "there:1"}).own_gpus) == ["cpu:1"]


def test_a_name_server_that_is_away_is_no_silent_worker(monkeypatch):
    with socket.create_server(("127.0.0.1", 0)) as listener:
        address = f"localhost:{listener.getsockname()[1]}"
        assert answer(address) is Answer.LISTENS
        resolve = socket.getaddrinfo

        def away(host, *more, **how):
            if host == "localhost":
                raise socket.gaierror(socket.EAI_AGAIN, "try again")
            return resolve(host, *more, **how)

        monkeypatch.setattr(socket, "getaddrinfo", away)
        assert answer(address) is Answer.LISTENS
    assert answer(address) is Answer.SILENT
