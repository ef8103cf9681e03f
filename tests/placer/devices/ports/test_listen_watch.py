"""A server's socket is tied before it listens. The watch cannot be undone in a process, so each has one of its own."""

import platform
import subprocess
import sys
from contextlib import suppress
from pathlib import Path

import psutil
import pytest

from placer.devices.ports.listen_watch import MACHINES
from placer.devices.workers.workers import start_workers

WATCHED = """
import socket
from contextlib import closing
import placer.devices.ports.listen_child as child
import placer.devices.ports.listen_watch as module
from placer.devices.ports.listen_watch import ListenWatch

module.READY_S = 600.0  # on a busy machine, the child is late, and nothing is tied

def listens(family=socket.AF_INET):
    with socket.socket(family) as server:
        if family == socket.AF_INET:
            server.bind(("0.0.0.0", 0))
        server.listen()
        return server.getsockopt(socket.SOL_SOCKET, socket.SO_BINDTODEVICE, 16).rstrip(b"\\0").decode()
"""

pytestmark = pytest.mark.skipif(platform.machine() not in MACHINES, reason="the watch knows no such machine")


def said(script: str) -> list[str]:
    done = subprocess.run([sys.executable, "-c", WATCHED + script], capture_output=True, text=True, timeout=900)
    assert done.returncode == 0, done.stderr
    return done.stdout.splitlines()


def test_what_listens_in_the_block_is_tied_before() -> None:
    lines = said("""
print(listens() or "open")
with ListenWatch.forked().held(["lo"]):
    print(listens() or "open")
""")
    assert lines == ["open", "lo"]


def test_threads_that_the_block_starts_are_watched_and_those_from_before_are_not() -> None:
    lines = said("""
import threading
go = threading.Event()
before = threading.Thread(target=lambda: (go.wait(), print("before:", listens() or "open")))
watch = ListenWatch.forked()
before.start()
with watch.held(["lo"]):
    started = threading.Thread(target=lambda: print("started:", listens() or "open"))
    started.start()
    started.join()
    go.set()
    before.join()
""")
    assert lines == ["started: lo", "before: open"]


@pytest.mark.parametrize("made", ["forked", "started"])
def test_after_the_block_sockets_are_left_alone_and_once_the_watch_is_closed_none_can_listen(made: str) -> None:
    lines = said(f"""
with closing(ListenWatch.{made}()) as watch:
    with watch.held(["lo"]):
        print(listens() or "open")
    print(listens() or "open")
try:
    listens()
except OSError as error:
    print("refused")
""")
    assert lines == ["lo", "open", "refused"]


def test_a_watch_that_lasts_holds_what_is_asked_for_again_in_threads_of_before_and_of_now() -> None:
    lines = said("""
import queue, threading
watch, asked, told = ListenWatch.started(), queue.Queue(), queue.Queue()
def answer():
    while asked.get():
        told.put(listens() or "open")
def ask():
    asked.put(True)
    return told.get(timeout=600)
with watch.held(["lo"]):
    thread = threading.Thread(target=answer)
    thread.start()
    print(ask())
print(ask())
def again():
    with watch.held(["lo"]):
        print(listens() or "open", ask())
    print(listens() or "open", ask())
other = threading.Thread(target=again)
other.start()
other.join()
print(listens() or "open")
asked.put(False)
thread.join()
""")
    assert lines == ["lo", "open", "lo lo", "open open", "open"]


def test_an_interface_that_is_gone_lets_sockets_listen_all_the_same() -> None:
    assert said("""
with ListenWatch.forked().held(["no-such-interface"]):
    print(listens() or "open")
""") == ["open"]


def test_a_socket_that_cannot_be_tied_listens_all_the_same_so_that_the_caller_finds_and_refuses_it() -> None:
    lines = said("""
def never(_):
    raise PermissionError(1, "Operation not permitted")
child.tie_to = lambda names: never
with ListenWatch.forked().held(["lo"]):
    print(listens() or "open")
""")
    assert lines == ["open"]


def test_without_the_kernels_leave_the_block_runs_as_any_other() -> None:
    lines = said("""
module.MACHINES = {}
with ListenWatch.forked().held(["lo"]):
    print(listens() or "open")
print(listens() or "open")
""")
    assert lines == ["open", "open"]


@pytest.mark.parametrize(
    "forbidden",
    [
        "child.PIDFD_GETFD = 1_000_000",  # no such call: the socket cannot be copied
        "child.os.pidfd_open = never",  # the child cannot watch at all
    ],
)
def test_where_a_container_forbids_what_the_child_needs_sockets_listen_all_the_same(forbidden: str) -> None:
    lines = said(f"""
def never(_):
    raise PermissionError(1, "Operation not permitted")
{forbidden}
with ListenWatch.forked().held(["lo"]):
    print(listens() or "open")
""")
    assert lines == ["open"]


@pytest.mark.parametrize("made", ["forked", "started"])
def test_no_child_is_left(made: str) -> None:
    lines = said(f"""
import os, psutil
watch = ListenWatch.{made}()
with watch.held(["lo"]):
    print(len(psutil.Process().children()))
watch.close()
print(len(psutil.Process().children()))
last = ListenWatch.{made}()
with last.held(["lo"]):
    print(*(child.pid for child in psutil.Process().children()), flush=True)
os._exit(0)
""")
    assert lines[:2] == ["1", "0"]
    with suppress(psutil.NoSuchProcess):
        psutil.Process(int(lines[2])).wait(600)


def test_workers_listen_under_a_watch() -> None:
    with start_workers(1) as workers:
        (process,) = workers.processes
        lines = Path(f"/proc/{process.pid}/status").read_text().splitlines()
        facts = dict(line.split(":\t", 1) for line in lines if ":\t" in line)
    assert facts["Seccomp"].strip() == "2"
