"""A network of its own: what is cut off is not heard, what is slowed takes its time, and it is whole afterwards."""

from __future__ import annotations

import socket
import subprocess
import sys

import psutil
import pytest

from experiments.benches import own_network
from placer.errors import PlacerError
from tests.experiments.benches.in_own_network import said

ECHO = """
import socket
server = socket.create_server(("127.0.0.1", 0))
print(server.getsockname()[1], flush=True)
while True:
    peer, _ = server.accept()
    while data := peer.recv(1 << 16):
        peer.sendall(data)
"""
BEGIN = f"""
import contextlib, socket, subprocess, sys, time
import psutil
from experiments.benches import own_network
process = subprocess.Popen([sys.executable, "-c", {ECHO!r}], stdout=subprocess.PIPE, text=True)
port = int(process.stdout.readline())
peer = socket.create_connection(("127.0.0.1", port), timeout=60)
def answer(timeout_s):
    peer.settimeout(timeout_s)
    with contextlib.suppress(TimeoutError):
        return peer.recv(1)
def connects():
    with contextlib.suppress(OSError):
        return socket.create_connection(("127.0.0.1", port), timeout=1)
"""
CUT = """
peer.sendall(b"a")
print(answer(60))
echo = psutil.Process(process.pid)
for seconds in (4, 40):
    cut = own_network.cut_off(echo, seconds)
    peer.sendall(b"b")
    heard, connected = answer(1), connects()
    if cut.poll() is None:
        break
    heard or answer(60)  # this process stood still until the cut was over
print(heard, connected)
print(cut.wait(), answer(120))
begin_s = time.monotonic()
cut = own_network.cut_off(echo, 100)
process.kill()
process.wait()
print(cut.wait(), time.monotonic() - begin_s < 60)
try:
    own_network.cut_off(echo, 1)
except own_network.PlacerError as error:
    print("has ended" in str(error))
"""
SLOW = """
def seconds(pieces):
    begin_s = time.monotonic()
    for _ in range(pieces):  # each fits into the buffers of any kernel
        peer.sendall(b"a" * (1 << 15))
        left = 1 << 15
        while left:
            left -= len(peer.recv(left))
    return time.monotonic() - begin_s
with own_network.slow_loopback(1e6):
    print(seconds(32) > 1.0)  # one megabyte, there and back
process.kill()
"""


@pytest.mark.slow
def test_a_process_that_is_cut_off_is_not_heard_until_it_is_over_or_the_process_dead():
    assert said(BEGIN + CUT) == ["b'a'", "None None", "0 b'b'", "0 True", "True"]


def test_the_ports_of_a_process_are_found_where_the_kernel_has_no_ipv6(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(own_network, "TABLES", ("tcp", "no such table"))
    with socket.create_server(("127.0.0.1", 0)) as server:
        assert (server.getsockname()[1], 0) in own_network.tcp_ports(psutil.Process())
    with subprocess.Popen([sys.executable, "-c", ""]) as ended:
        ours = psutil.Process(ended.pid)
    with pytest.raises(PlacerError, match="has ended"):
        own_network.tcp_ports(ours)


def test_a_slow_network_takes_its_time():
    assert said(BEGIN + SLOW) == ["True"]
