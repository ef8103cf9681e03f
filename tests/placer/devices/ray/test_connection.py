"""The connection to Ray: where it leads, what is refused, and who takes it back."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import threading
from contextlib import contextmanager

import pytest

from placer.devices.ray import connection
from placer.devices.ray.connection import RayConnection, check_address, connect
from placer.errors import BadInputError

LATE_S = 300
HEAD = "10.0.0.1:6379"
STARTS = """
import os, sys
from placer.devices.host.cores import usable_cores
from placer.devices.ray.connection import connect
assert "ray" not in sys.modules
with connect("local") as outer:
    import ray
    with connect() as inner:
        assert (outer.address, inner.address) == ("local", "local")
    assert ray.cluster_resources()["CPU"] == len(usable_cores())
    (node,) = ray.nodes()
    assert node["NodeManagerAddress"] == "127.0.0.1", node
assert not ray.is_initialized()
assert "RAY_AUTH_MODE" not in os.environ
"""


class FakeRay:
    """Ray as far as `connect` uses it: what was asked of it, and whether it is connected."""

    def __init__(self, fails=None):
        self.fails, self.calls, self.head = fails, [], None

    def is_initialized(self):
        return self.head is not None

    def init(self, address, **_):
        self.calls.append(address)
        if self.fails:
            raise self.fails
        self.head = "127.0.0.1:5555" if address == "local" else address

    def shutdown(self):
        self.calls.append("shutdown")
        self.head = None

    def get_runtime_context(self):
        return self

    @property
    def gcs_address(self):
        return self.head


@pytest.fixture
def ray(monkeypatch):
    """A Ray that answers everywhere."""
    fake = FakeRay()
    monkeypatch.setitem(sys.modules, "ray", fake)
    monkeypatch.setattr(connection, "_probe", lambda address: None)
    monkeypatch.setattr(connection, "_shared", connection._Shared())
    monkeypatch.delenv("RAY_ADDRESS", raising=False)
    return fake


@pytest.mark.parametrize("address", [None, "local", HEAD, "head-1.lan:6379", "localhost:1"])
def test_addresses_are_local_or_host_and_port(address):
    check_address(address)


@pytest.mark.parametrize(
    "address", ["", "head", "ray://head:10001", "auto", ":6379", "a:0", "a:70000", "a:1,b:2", "x y:1"]
)
def test_other_addresses_are_refused_with_what_to_write(address):
    with pytest.raises(BadInputError, match="neither local nor HOST:PORT"):
        check_address(address)


def test_without_an_address_it_is_the_environment_s_else_local(ray, monkeypatch):
    with connect() as local:
        assert local.address == "local"
    monkeypatch.setenv("RAY_ADDRESS", HEAD)
    with connect() as there:
        assert there.address == HEAD
    assert ray.calls == ["local", "shutdown", HEAD, "shutdown"]
    monkeypatch.setenv("RAY_ADDRESS", "ray://head:1")
    with pytest.raises(BadInputError, match="RAY_ADDRESS is set: Ray address 'ray://head:1'"):
        connect()


def test_the_last_of_overlapping_uses_ends_what_the_first_began(ray):
    first, second = connect(HEAD), connect()
    first.close()
    first.close()
    assert ray.is_initialized()
    second.close()
    assert ray.calls == [HEAD, "shutdown"]


def test_what_the_program_connected_is_used_and_stays(ray, monkeypatch):
    ray.init(HEAD)
    monkeypatch.setenv("RAY_ADDRESS", "10.0.0.9:1")
    for address in (None, HEAD):
        with connect(address) as use:
            assert use.address == HEAD
    assert ray.calls == [HEAD]


@pytest.mark.parametrize("address", ["local", "10.0.0.1:6380", "10.0.0.2:6379", "a..b:6379"])
def test_another_ray_than_the_program_s_is_refused(ray, address):
    ray.init(HEAD)
    with pytest.raises(BadInputError, match=r"connected to Ray at 10\.0\.0\.1:6379"):
        connect(address)
    assert ray.calls == [HEAD]


def test_a_head_on_this_machine_has_several_names(ray):
    ray.init("127.0.0.1:6379")
    connect("localhost:6379").close()
    with pytest.raises(BadInputError, match="cannot use localhost:6380"):
        connect("localhost:6380")


def test_a_ray_that_the_program_ended_is_connected_anew_and_old_uses_end_nothing(ray):
    old = connect(HEAD)
    ray.shutdown()
    with connect(HEAD):
        old.close()
        assert ray.is_initialized()
    assert ray.calls == [HEAD, "shutdown", HEAD, "shutdown"]


def test_what_ray_says_against_it_is_one_line(ray, monkeypatch):
    ray.fails = RuntimeError("Version mismatch: The cluster was started with:\n    Ray: 2.9.0\n    Python: 3.10.1\n")
    for mode, hint in (("disabled", "set RAY_AUTH_MODE=token, and have its head's"), ("token", "must be that of its")):
        monkeypatch.setenv("RAY_AUTH_MODE", mode)
        with pytest.raises(BadInputError) as refused:
            connect(HEAD)
        said = "Version mismatch: The cluster was started with: Ray: 2.9.0 Python: 3.10.1; where it asks for a token"
        assert str(refused.value).startswith(f"Ray at {HEAD}: {said}")
        assert hint in str(refused.value)
    ray.fails = OSError()
    with pytest.raises(BadInputError, match="does not start on this machine: OSError"):
        connect("local")


def test_an_address_where_nothing_listens_is_refused_and_ray_never_asked(ray, monkeypatch):
    really_probed(ray, monkeypatch)
    with socket.create_server(("127.0.0.1", 0)) as closed:
        address = f"127.0.0.1:{closed.getsockname()[1]}"
    for dead in (address, "a..b:6379"):
        with pytest.raises(BadInputError, match=f"no Ray answers at {dead}"):
            connect(dead)
    monkeypatch.setattr(connection, "FOUND_S", 0.01)
    monkeypatch.setattr(connection, "_probe", lambda address: threading.Event().wait(LATE_S))
    with pytest.raises(BadInputError, match="no answer within"):
        connect(address)
    assert ray.calls == []


def really_probed(ray, monkeypatch):
    """What listens is asked, for as long as it takes on a busy machine, and `ray` answers what is asked further."""
    monkeypatch.undo()
    monkeypatch.setitem(sys.modules, "ray", ray)
    monkeypatch.setattr(connection, "PROBE_S", LATE_S)
    monkeypatch.setattr(connection, "FOUND_S", LATE_S)


@contextmanager
def answering(says):
    """host:port of a server that says so to the first that greets it."""
    with socket.create_server(("127.0.0.1", 0)) as listener:

        def answer():
            client, _ = listener.accept()
            with client:
                client.recv(len(connection.GREETING), socket.MSG_WAITALL)
                client.sendall(says)

        threading.Thread(target=answer, daemon=True).start()
        yield f"127.0.0.1:{listener.getsockname()[1]}"


@pytest.mark.parametrize("says", [b"HTTP/1.1 400 Bad Request\r\n\r\n", b"SSH-2.0-OpenSSH_9.2\r\n", b"", b"-ERR"])
def test_what_listens_and_does_not_speak_grpc_is_refused_and_ray_never_asked(ray, monkeypatch, says):
    really_probed(ray, monkeypatch)
    with answering(says) as address, pytest.raises(BadInputError, match="does not speak as Ray does"):
        connect(address)
    assert ray.calls == []


def test_a_server_that_greets_as_grpc_does_is_asked_further(ray, monkeypatch):
    really_probed(ray, monkeypatch)
    with answering(b"\0\0\x18\4\0\0\0\0\0") as address:
        connect(address).close()
    assert ray.calls == [address, "shutdown"]


def test_what_speaks_grpc_and_is_no_ray_is_given_up_and_left_should_it_still_answer(ray, monkeypatch):
    answers, left = threading.Event(), threading.Event()
    unregistered = []
    monkeypatch.setattr(connection, "JOIN_S", 0.01)
    monkeypatch.setattr("atexit.unregister", unregistered.append)
    monkeypatch.setattr(ray, "init", lambda **_: answers.wait(LATE_S))
    monkeypatch.setattr(ray, "shutdown", left.set)
    with pytest.raises(BadInputError, match=f"what listens at {HEAD} did not let this process in"):
        connect(HEAD)
    assert unregistered == [left.set]
    assert not left.is_set()
    answers.set()
    assert left.wait(LATE_S)


def test_a_head_that_listens_on_loopback_alone_is_told_from_one_that_does_not(monkeypatch):
    """By other addresses of loopback: a machine's address in the network stands for 127.0.0.2 here."""
    monkeypatch.setattr(connection, "own_address", lambda outside: "127.0.0.2")
    with socket.create_server(("127.0.0.1", 0)) as inner, socket.create_server(("", 0)) as outer:
        assert connection._only_on_loopback(f"localhost:{inner.getsockname()[1]}")
        assert not connection._only_on_loopback(f"localhost:{outer.getsockname()[1]}")
    assert connection._is_here("localhost:1")
    assert not connection._is_here("198.51.100.7:1")
    assert not connection._is_here("a..b:1")


def test_ray_is_told_to_stay_on_loopback_only_while_it_is_loaded(monkeypatch):
    monkeypatch.delenv(connection.ON_LOOPBACK, raising=False)
    with connection._unless_set(connection.ON_LOOPBACK, "0"):
        assert os.environ[connection.ON_LOOPBACK] == "0"
    assert connection.ON_LOOPBACK not in os.environ
    monkeypatch.setenv(connection.ON_LOOPBACK, "1")
    with connection._unless_set(connection.ON_LOOPBACK, "0"):
        assert os.environ[connection.ON_LOOPBACK] == "1"
    assert os.environ[connection.ON_LOOPBACK] == "1"


def test_ray_that_is_not_installed_is_refused_with_the_extra(monkeypatch):
    monkeypatch.setitem(sys.modules, "ray", None)
    with pytest.raises(BadInputError, match=r"pip install 'placer\[ray\]'"):
        connect("local")
    assert connection.ON_LOOPBACK not in os.environ


def test_the_program_s_way_to_end_at_a_signal_stays(ray, monkeypatch):
    before = signal.getsignal(signal.SIGTERM)
    monkeypatch.setattr(ray, "init", lambda **_: signal.signal(signal.SIGTERM, lambda *_: None))
    assert isinstance(connect("local"), RayConnection)
    assert signal.getsignal(signal.SIGTERM) is before


@pytest.mark.slow
@pytest.mark.workers
def test_ray_starts_on_loopback_with_this_process_s_cores_says_nothing_and_is_ended():
    environment = {name: value for name, value in os.environ.items() if name != "RAY_AUTH_MODE"}
    command = [sys.executable, "-c", STARTS]
    ran = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=LATE_S)
    assert (ran.returncode, ran.stdout) == (0, ""), ran.stderr
