"""Joining and leaving workers opens ports of this process that no other host reaches, not even for a moment, and not
one each time.
"""

import os
import platform
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from types import SimpleNamespace

import pytest

from placer.devices import connecting
from placer.devices.ports.listen_watch import MACHINES

JOINS_AND_LEAVES = """
import socket
import sys
from placer.devices import connecting, joining
from placer.devices.ports import binding, listen_watch
from placer.devices.workers.workers import start_workers

def ports():
    for listener in binding._listeners():
        with listener:
            yield listener.getsockopt(socket.SOL_SOCKET, socket.SO_BINDTODEVICE, 16).rstrip(b"\\0").decode() or "open"

if sys.argv[1] == "before":  # what is tied afterwards shows nothing of the moment before
    connecting.bind = lambda ports, names: set()
else:
    listen_watch.MACHINES = {}
listen_watch.READY_S = 600.0  # on a busy machine, the child that ties is late, and all is tied afterwards
with start_workers(1) as workers:
    tasks = dict(enumerate(workers.addresses))
    join, leave = lambda: joining.join_workers(tasks), lambda: joining.leave_if_there(workers.addresses, ends=False)
    for change in (join, leave, join, leave, join, join, leave):
        change()
        print(*ports())
"""


@pytest.mark.slow
@pytest.mark.parametrize("tied", ["before", pytest.param("afterwards", marks=pytest.mark.nightly)])
def test_every_port_is_tied_to_loopback(tied: str) -> None:
    if tied == "before" and platform.machine() not in MACHINES:
        pytest.skip("no watch is known for this machine")
    done = subprocess.run([sys.executable, "-c", JOINS_AND_LEAVES, tied], capture_output=True, text=True, check=True)
    opened = [line.split() for line in done.stdout.splitlines()]
    assert [len(ports) for ports in opened] == [1, 1, 1, 1, 1, 3, 3]  # two more where no leaving came between
    assert {port for ports in opened for port in ports} == {"lo"}


@pytest.fixture
def pressed() -> Iterator[threading.Event]:
    """Ctrl-C, and when the main thread has noticed it."""
    noticed = threading.Event()

    def interrupt(*_: object) -> None:
        noticed.set()
        raise KeyboardInterrupt

    def end(*_: object) -> None:
        noticed.set()
        sys.exit(0)

    before = {n: signal.signal(n, handler) for n, handler in ((signal.SIGINT, interrupt), (signal.SIGTERM, end))}
    yield noticed
    for number, handler in before.items():
        signal.signal(number, handler)


def press(number: int) -> None:
    os.kill(os.getpid(), number)


@pytest.mark.parametrize(("number", "error"), [(signal.SIGINT, KeyboardInterrupt), (signal.SIGTERM, SystemExit)])
@pytest.mark.parametrize("when", ["before it starts", "as it starts", "meanwhile"])
def test_a_signal_is_raised_when_tensorflow_has_connected_once_and_not_before(
    monkeypatch, pressed, when, number, error
) -> None:
    connected, returned = [], threading.Event()

    def connect(cluster: object) -> None:
        if when == "meanwhile":
            press(number)
            assert pressed.wait(300)
        returned.wait(0.3)  # long enough for a caller who does not wait for it
        connected.append(cluster)

    class Thread(threading.Thread):
        def start(self) -> None:
            if when == "before it starts" and not pressed.is_set():
                press(number)
            super().start()
            if when == "as it starts" and not pressed.is_set():
                press(number)

    monkeypatch.setattr(connecting.tf.config, "experimental_connect_to_cluster", connect)
    monkeypatch.setattr(connecting.tf.config, "list_logical_devices", list)
    monkeypatch.setattr(connecting, "_lasting_watch", lambda: None)
    monkeypatch.setattr(connecting, "_server", None)
    monkeypatch.setattr(connecting, "threading", SimpleNamespace(**{**vars(threading), "Thread": Thread}))
    before = connecting.times_connected()
    with pytest.raises(error):
        connecting.connect(connecting.tf.train.ClusterSpec({"worker": {0: "host:1"}}))
    assert [cluster.as_dict() for cluster in connected] == [{"worker": ["host:1"]}]
    assert connecting.times_connected() == before + 1


def test_where_no_thread_can_be_started_that_is_raised_at_once(monkeypatch) -> None:
    def start(_: object) -> None:
        raise RuntimeError("can't start new thread")

    monkeypatch.setattr(
        connecting,
        "threading",
        SimpleNamespace(**{**vars(threading), "Thread": type("Thread", (threading.Thread,), {"start": start})}),
    )
    with pytest.raises(RuntimeError, match="new thread"):
        connecting._in_thread(lambda: None)
