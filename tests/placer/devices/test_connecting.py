"""Joining and leaving workers opens ports of this process that no other host reaches, not even for a moment."""

import platform
import subprocess
import sys

import pytest

from placer.devices.workers.listen_watch import MACHINES

JOINS_AND_LEAVES = """
import socket
import sys
from placer.devices import connecting, joining
from placer.devices.workers import binding, listen_watch
from placer.devices.workers.workers import start_workers

def ports():
    for listener in binding._listeners():
        with listener:
            yield listener.getsockopt(socket.SOL_SOCKET, socket.SO_BINDTODEVICE, 16).rstrip(b"\\0").decode() or "open"

if sys.argv[1] == "before":  # what is tied afterwards shows nothing of the moment before
    connecting.bind = lambda ports, names: set()
else:
    listen_watch.MACHINES = {}
with start_workers(1) as workers:
    tasks = dict(enumerate(workers.addresses))
    for change in (lambda: joining.join_workers(tasks), lambda: joining.leave(workers.addresses)) * 2:
        change()
        print(*ports())
"""


@pytest.mark.slow
@pytest.mark.parametrize("tied", ["before", "afterwards"])
def test_every_port_is_tied_to_loopback(tied: str) -> None:
    if tied == "before" and platform.machine() not in MACHINES:
        pytest.skip("no watch is known for this machine")
    done = subprocess.run([sys.executable, "-c", JOINS_AND_LEAVES, tied], capture_output=True, text=True, check=True)
    opened = [line.split() for line in done.stdout.splitlines()]
    assert [len(ports) for ports in opened] == [1, 2, 3, 4]
    assert {port for ports in opened for port in ports} == {"lo"}
