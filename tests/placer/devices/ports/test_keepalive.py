"""Connections that nothing comes through end; others, and other people's, stay as they are."""

from __future__ import annotations

import socket
from contextlib import ExitStack

import pytest

from placer.devices.ports.keepalive import keep_alive
from tests.experiments.benches.in_own_network import said
from tests.experiments.benches.test_own_network import BEGIN

SILENT = """
from placer.devices.ports.keepalive import keep_alive
keep_alive(3.0, {("127.0.0.1", port)})
with own_network.cut_off(psutil.Process(process.pid), 100) as cut:
    peer.settimeout(60)
    try:
        peer.recv(1)
    except OSError as error:
        print(type(error).__name__, error.errno is not None)
    process.kill()
    process.wait()
"""

BETWEEN_WORKERS = """
import psutil
import tensorflow as tf
from experiments.benches.own_network import cut_off
from placer.devices.opening import open_devices
from placer.devices.workers.workers import start_workers

with start_workers(2) as workers, open_devices("workers:2", resilient=True, links=False, workers=workers) as devices:
    names = [devices.tf_names[f"worker:{i}"] for i in (0, 1)]

    @tf.function
    def apart(x):
        with tf.device(names[1]):
            x = tf.tanh(x)
        with tf.device(names[0]):
            return x + 1.0

    with tf.device(names[0]):
        x = tf.ones(4)
    print(float(apart(x)[0]) > 1)
    with cut_off(psutil.Process(workers.processes[1].pid), 100) as cut:
        try:
            while True:
                apart(x)
        except tf.errors.OpError as error:
            print(type(error).__name__, cut.poll())
        workers.processes[1].kill()
"""


def test_only_connections_to_the_peers_are_changed():
    def option(connection):
        return (
            connection.getsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE),
            connection.getsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT),
        )

    with ExitStack() as stack:
        servers = [stack.enter_context(socket.create_server(("127.0.0.1", 0))) for _ in range(2)]
        mine, others = (stack.enter_context(socket.create_connection(server.getsockname())) for server in servers)
        before = option(others)
        assert keep_alive(30.0, {servers[0].getsockname()}) == 1
        assert option(mine) == (1, 30_000) and option(others) == before
        assert mine.getsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPIDLE) == 10
        assert keep_alive(30.0) >= 2 and option(others) == (1, 30_000)


def test_a_deadline_that_the_kernel_cannot_count_is_the_longest_it_can():
    with socket.create_server(("127.0.0.1", 0)) as server, socket.create_connection(server.getsockname()) as mine:
        assert keep_alive(1e9, {server.getsockname()}) == 1
        assert mine.getsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT) == 2**31 - 1


def test_a_connection_that_is_cut_and_only_waits_ends():
    assert said(BEGIN + SILENT) == ["TimeoutError True"]  # with a number: the kernel's, not the socket's own time limit


@pytest.mark.nightly
@pytest.mark.workers
def test_a_call_that_waits_for_a_local_worker_that_is_cut_off_ends():
    assert said(BETWEEN_WORKERS, PLACER_DEADLINE_S="6") == ["True", "UnavailableError None"]
