"""A server's socket is tied before it listens. The watch cannot be undone in a process, so each has one of its own."""

import platform
import subprocess
import sys
from pathlib import Path

import pytest

from placer.devices.workers.listen_watch import MACHINES
from placer.devices.workers.workers import start_workers

WATCHED = """
import socket
from placer.devices.workers.binding import tie_to_loopback
from placer.devices.workers.listen_watch import ListenWatch

def listens(family=socket.AF_INET):
    with socket.socket(family) as server:
        if family == socket.AF_INET:
            server.bind(("0.0.0.0", 0))
        server.listen()
        return server.getsockopt(socket.SOL_SOCKET, socket.SO_BINDTODEVICE, 16).rstrip(b"\\0").decode()
"""

pytestmark = pytest.mark.skipif(platform.machine() not in MACHINES, reason="the watch knows no such machine")


def said(script: str) -> list[str]:
    done = subprocess.run([sys.executable, "-c", WATCHED + script], capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr
    return done.stdout.splitlines()


def test_what_listens_in_the_block_is_tied_before() -> None:
    lines = said("""
print(listens() or "open")
with ListenWatch(tie_to_loopback).held():
    print(listens() or "open")
""")
    assert lines == ["open", "lo"]


def test_threads_that_the_block_starts_are_watched_and_those_from_before_are_not() -> None:
    lines = said("""
import threading
go = threading.Event()
before = threading.Thread(target=lambda: (go.wait(), print("before:", listens() or "open")))
watch = ListenWatch(tie_to_loopback)
before.start()
with watch.held():
    started = threading.Thread(target=lambda: print("started:", listens() or "open"))
    started.start()
    started.join()
    go.set()
    before.join()
""")
    assert lines == ["started: lo", "before: open"]


def test_after_the_block_nothing_more_is_listened_on() -> None:
    lines = said("""
with ListenWatch(tie_to_loopback).held():
    listens()
try:
    listens()
except OSError as error:
    print("refused")
""")
    assert lines == ["refused"]


def test_a_socket_that_cannot_be_tied_listens_all_the_same_so_that_the_caller_finds_and_refuses_it() -> None:
    lines = said("""
def never(_):
    raise PermissionError(1, "Operation not permitted")
with ListenWatch(never).held():
    print(listens() or "open")
""")
    assert lines == ["open"]


def test_without_the_kernels_leave_the_block_runs_as_any_other() -> None:
    lines = said("""
import placer.devices.workers.listen_watch as module
module.MACHINES = {}
with ListenWatch(tie_to_loopback).held():
    print(listens() or "open")
print(listens() or "open")
""")
    assert lines == ["open", "open"]


@pytest.mark.parametrize(
    "forbidden",
    [
        "module.PIDFD_GETFD = 1_000_000",  # no such call: the socket cannot be copied
        "module.os.pidfd_open = never",  # the child cannot watch at all
    ],
)
def test_where_a_container_forbids_what_the_child_needs_sockets_listen_all_the_same(forbidden: str) -> None:
    lines = said(f"""
import placer.devices.workers.listen_watch as module
def never(_):
    raise PermissionError(1, "Operation not permitted")
{forbidden}
with ListenWatch(tie_to_loopback).held():
    print(listens() or "open")
""")
    assert lines == ["open"]


def test_no_child_is_left() -> None:
    lines = said("""
import psutil
watch = ListenWatch(tie_to_loopback)
print(len(psutil.Process().children()))
with watch.held():
    pass
print(len(psutil.Process().children()))
""")
    assert lines == ["1", "0"]


def test_workers_listen_under_a_watch() -> None:
    with start_workers(1) as workers:
        (process,) = workers.processes
        lines = Path(f"/proc/{process.pid}/status").read_text().splitlines()
        facts = dict(line.split(":\t", 1) for line in lines if ":\t" in line)
    assert facts["Seccomp"].strip() == "2"
