"""Two nodes of a real Ray cluster, on loopback: they compute, a training outlives one of them, and nothing is left."""

from __future__ import annotations

import os
import selectors
import subprocess
import sys
import uuid
from contextlib import suppress
from dataclasses import dataclass

import psutil
import pytest

from tests.processes import still_running

LATE_S = 900
MARK = "PLACER_TEST_OF_RAY"
CLUSTER = """
import sys
from ray.cluster_utils import Cluster
node = {"node_ip_address": "127.0.0.1", "include_dashboard": False, "object_store_memory": 80_000_000}
cluster = Cluster(initialize_head=True, head_node_args=node | {"num_cpus": 0})
for _ in range(2):
    cluster.add_node(**node, num_cpus=1)
print(cluster.address, flush=True)
sys.stdin.read()
cluster.shutdown()
"""
OPS = """
import os, sys
import tensorflow as tf
from placer.devices.opening import open_devices
with open_devices(sys.argv[1], links=False, deadlines=True) as devices:
    assert devices.topology.names == ("worker:0", "worker:1")
    assert [device.address for device in devices.topology.devices] == list(devices.ray_workers.addresses)
    for name in devices.tf_names.values():
        with tf.device(name):
            made = tf.random.uniform([8])
        assert made.device == name and float(tf.reduce_max(made)) < 1.0
assert "ray" not in sys.modules
print("done")
"""
# Linear in the weights and of whole numbers: sums are exact in any order, so that every bit can be compared.
TRAINING = """
import sys
import numpy as np
import tensorflow as tf
import placer
from placer.train.device_session import DeviceSession

def made():
    weights = [tf.Variable(tf.ones([32, 32], tf.float64)) for _ in range(2)]
    moments = [tf.Variable(tf.zeros([32, 32], tf.float64)) for _ in range(2)]
    count = tf.Variable(0, dtype=tf.int64)

    @tf.function
    def step(x):
        with tf.GradientTape() as tape:
            loss = tf.add_n([tf.reduce_sum(x @ weight) for weight in weights])
        for weight, moment, gradient in zip(weights, moments, tape.gradient(loss, weights)):
            weight.assign_sub(0.125 * moment.assign(0.5 * moment + gradient))
        count.assign_add(1)
        return loss

    return step, [*weights, *moments, count]

batches = [tf.constant(np.random.default_rng(i).integers(-4, 5, (16, 32)).astype(float)) for i in range(3)]
step, variables = made()
losses = []

def train(step):
    losses.append(float(step(batches[len(losses) % 3])))

with placer.autoplace(step, devices=sys.argv[1], budget=2, beat_untouched=False) as placed:
    while placed.phase != "steady" or placed.mapping is None:
        train(placed)
        assert placed.phase != "left alone", placed.report()
    assert placed.device_names == ("worker:0", "worker:1")
    (session,) = DeviceSession._open.values()
    print(session.present.addresses[placed.device_names[placed.mapping.devices[0]]], flush=True)
    killed = sys.stdin.readline()
    while not (killed and any(entry.kind == "lost" for entry in placed.journal.entries)):
        train(placed)
    for _ in range(300):
        train(placed)
    lost = [entry.sentence for entry in placed.journal.entries if entry.kind == "lost"]
    values = [variable.numpy() for variable in variables]
assert len(lost) == 1, lost
plain, wanted = made()

@tf.function(autograph=False)  # in one call: there are tens of thousands of steps
def all_of_them(count):
    def one(i, found):
        return i + 1, found.write(i, plain(tf.stack(batches)[i % 3]))

    return tf.while_loop(lambda i, _: i < count, one, (0, tf.TensorArray(tf.float64, count)))[1].stack()

np.testing.assert_array_equal(losses, all_of_them(tf.constant(len(losses))).numpy())
assert int(values[-1]) == len(losses)
for found, variable in zip(values, wanted):
    np.testing.assert_array_equal(found, variable.numpy())
print(lost[0])
"""
HELD = """
import sys
from placer.devices.ray.ray_workers import start_ray_workers
from placer.devices.ray.spec import RaySpec
workers = start_ray_workers(RaySpec.parsed(sys.argv[1]))
print("held", flush=True)
sys.stdin.read()
"""


def line(process):
    """What a process prints next."""
    with selectors.DefaultSelector() as selector:
        selector.register(process.stdout, selectors.EVENT_READ)
        assert selector.select(LATE_S), "it said nothing"
    return process.stdout.readline().strip()


@dataclass
class Cluster:
    """A cluster of two nodes and a head that may not compute, in a process of its own."""

    process: subprocess.Popen
    mark: str
    spec: str

    def started(self, program):
        """A process that runs a program with two nodes."""
        pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
        return subprocess.Popen([sys.executable, "-c", program, self.spec], text=True, **pipes)

    def workers(self):
        """The workers on its nodes, and who holds them: all that a use of them should take away again."""
        found = []
        for process in psutil.process_iter():
            with suppress(psutil.Error):
                command = " ".join(process.cmdline())
                ours = process.environ().get(MARK) == self.mark and "placer.devices.workers.standalone" in command
                if ours or f"placer.devices.ray.lease {self.spec}" in command:
                    found.append(process)
        return found

    def is_left(self):
        """Whether a worker or who holds them is still there, once what is about to end has had time to do so."""
        return bool(still_running(self.workers()))

    def kill_node_of(self, address):
        """Kill the raylet under which the worker at an address runs."""
        port = int(address.rpartition(":")[2])
        (worker,) = [p for p in self.workers() if port in [c.laddr.port for c in p.net_connections("tcp")]]
        next(parent for parent in worker.parents() if parent.name() == "raylet").kill()


@pytest.fixture(scope="module")
def cluster():
    mark = uuid.uuid4().hex
    environment = os.environ | {MARK: mark, "RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER": "0", "RAY_AUTH_MODE": "disabled"}
    process = subprocess.Popen(
        [sys.executable, "-c", CLUSTER],
        env=environment,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
    )
    with process:
        yield Cluster(process, mark, f"ray:2@{line(process)}")
        process.stdin.close()
        process.wait(LATE_S)


@pytest.mark.slow
@pytest.mark.workers
def test_two_nodes_compute_and_are_given_back(cluster):
    with cluster.started(OPS) as program:
        out, said = program.communicate(timeout=LATE_S)
    assert out == "done\n", said
    (warning,) = [text for text in said.splitlines() if "no authentication" in text]
    assert "this machine alone" in warning
    assert not cluster.is_left()


@pytest.mark.nightly
@pytest.mark.workers
def test_a_program_that_is_killed_leaves_no_worker_and_no_node_in_use(cluster):
    with cluster.started(HELD) as program:
        assert line(program) == "held"
        left = cluster.workers()
        assert len(left) == 3
        program.kill()
    assert not still_running(left)


@pytest.mark.nightly
@pytest.mark.workers
def test_a_training_outlives_a_node_and_keeps_every_bit(cluster):
    """Both nodes are free again after the tests above."""
    with cluster.started(TRAINING) as program:
        in_use = line(program)
        assert ":" in in_use, program.communicate()
        cluster.kill_node_of(in_use)
        out, said = program.communicate("killed\n", timeout=LATE_S)
    assert "worker:" in out, said[-3000:]
    assert program.returncode == 0, said[-3000:]
    assert not cluster.is_left()
