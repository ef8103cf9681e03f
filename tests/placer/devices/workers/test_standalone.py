"""Workers for other machines: what they refuse, whom they listen to, and a search over two of them."""

from __future__ import annotations

import json
import selectors
import signal
import socket
import subprocess
import sys
from contextlib import ExitStack, contextmanager
from dataclasses import asdict

import psutil
import pytest

from placer.devices.host.cores import usable_cores
from placer.devices.joining import check_hosts
from placer.devices.ports.binding import bind_to_interfaces, interface_of, own_address
from placer.devices.specs import check_spec, worker_addresses
from placer.devices.workers.standalone import Listen, parse_cores
from placer.devices.workers.worker_info import WorkerInfo
from placer.errors import BadInputError, PlacerError

LATE_S = 300
OTHER_VERSION = """
import runpy, sys
from placer.devices.workers.worker import server_parts
server_parts()
from tensorflow.python.framework import versions
versions.VERSION = "2.99.0"
sys.argv[0] = "worker"
runpy.run_module("placer.devices.workers.standalone", run_name="__main__")
"""
SERVE = ["-m", "placer", "worker", "--listen", "localhost:0", "--json"]


@contextmanager
def serving(*arguments):
    """A worker for others, in a process of its own: (process, what it said when it was ready)."""
    process = subprocess.Popen(
        [sys.executable, *arguments],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),
    )
    with process:
        try:
            with selectors.DefaultSelector() as selector:
                selector.register(process.stdout, selectors.EVENT_READ)
                assert selector.select(LATE_S), "it did not get ready"
            yield process, json.loads(process.stdout.readline())
        finally:
            process.kill()


def placer(*arguments):
    return subprocess.run(
        [sys.executable, "-m", "placer", *arguments], capture_output=True, text=True, timeout=LATE_S, check=False
    )


def two_cores():
    """Two cores that this process may use, as `--cores` names them; the same one twice if there is a single one."""
    cores = usable_cores()
    return str(cores[0]), str(cores[-1])


def outer_address():
    """An IPv4 address of this machine that is not on loopback, where it has one."""
    owned = [entry for entries in psutil.net_if_addrs().values() for entry in entries]
    addresses = (entry.address for entry in owned if entry.family == socket.AF_INET)
    return next((address for address in addresses if not address.startswith("127.")), "127.0.0.1")


@pytest.mark.parametrize("text", ["localhost:5000", "127.0.0.1:5000", ":5000", "5000"])
def test_without_a_host_a_worker_listens_on_loopback(text, monkeypatch):
    monkeypatch.setattr("placer.devices.workers.standalone._free", lambda port, _: port)
    listen = Listen.parsed(text)
    assert (listen.ip, listen.interface, listen.port, listen.on_loopback) == ("127.0.0.1", "lo", 5000, True)
    assert listen.address.endswith(":5000")
    assert "this machine alone" in listen.warning


def test_port_0_is_a_free_one():
    assert Listen.parsed("localhost:0").port > 0


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("localhost", "no host:port"),
        ("localhost:70000", "no host:port"),
        ("tcp://localhost:5000", "no host:port"),
        ("[::1]:5000", "no host:port"),
        ("0.0.0.0:5000", "no address of this machine"),
        ("198.51.100.7:5000", "no address of this machine"),
        ("a..b:5000", "no host is called"),
    ],
)
def test_where_nothing_can_listen_is_refused(text, says):
    with pytest.raises(BadInputError, match=says):
        Listen.parsed(text)


@pytest.mark.parametrize("text", ["", "x", "1,", "9999", "-1", "0;1"])
def test_cores_that_this_process_has_not_are_refused(text):
    with pytest.raises(BadInputError, match="name some of them"):
        parse_cores(text)
    assert parse_cores(None) == usable_cores()


def test_a_port_in_use_is_bad_input_in_one_line():
    with socket.create_server(("127.0.0.1", 0)) as taken:
        ended = placer("worker", "--listen", f"localhost:{taken.getsockname()[1]}")
    assert (ended.returncode, ended.stdout) == (2, "")
    (line,) = ended.stderr.splitlines()
    assert "the port cannot be used" in line


def test_addresses_that_only_this_machine_can_reach_are_refused_beside_others():
    check_hosts(["localhost:5000", "127.0.0.1:5001"])
    check_hosts(["198.51.100.7:5000", "198.51.100.8:5000"])
    with pytest.raises(BadInputError, match="'localhost:5000': the workers on other machines cannot reach"):
        check_hosts(["198.51.100.7:5000", "localhost:5000"])
    with pytest.raises(PlacerError, match="no host is called"):
        check_hosts(["a..b:5000"])


def test_a_socket_tied_to_an_interface_takes_what_comes_from_there_and_from_this_machine(monkeypatch):
    assert interface_of("127.0.0.1") == "lo"
    assert interface_of("198.51.100.7") is None
    assert own_address("127.0.0.1") == "127.0.0.1"
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
        assert bind_to_interfaces([port], ["lo"]) == {port}
        with socket.create_connection(("127.0.0.1", port), timeout=LATE_S):
            pass
    monkeypatch.setattr("socket.if_nametoindex", lambda _: 9999)  # then loopback is another interface
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
        bind_to_interfaces([port], ["lo"])
        with pytest.raises(TimeoutError):
            socket.create_connection(("127.0.0.1", port), timeout=0.2)


def test_what_a_worker_says_of_itself_is_read_and_anything_else_is_not():
    assert WorkerInfo.parsed(b'{"tensorflow": "2.21.0", "memory_bytes": 5}') == WorkerInfo("2.21.0", 5)
    told = WorkerInfo("2.21.0", 5, heeds=True, hardware="6 cores of a Xeon")
    assert WorkerInfo.parsed(json.dumps(asdict(told)).encode()) == told
    for other in (b"", b"{}", b"[1]", b'{"tensorflow": "2", "memory_bytes": null}', b"\xff"):
        assert WorkerInfo.parsed(other) is None


def written(path, *devices):
    path.write_text(json.dumps({"format": "placer.topology/1", "devices": list(devices)}))
    return str(path)


def test_a_topology_file_names_workers_in_its_order_and_each_once(tmp_path):
    devices = [{"name": n, "kind": "cpu", "address": a} for n, a in (("a", "b:2"), ("c", "a:1"), ("d", "b:2"))]
    spec = written(tmp_path / "topology.json", *devices)
    check_spec(spec)
    assert worker_addresses(spec) == ("b:2", "a:1")


@pytest.mark.parametrize(
    ("more", "says"),
    [
        ({}, "device 'a' has no address"),
        ({"address": "nowhere"}, "'nowhere' is no host:port"),
        ({"adress": "a:1"}, "adress"),
    ],
)
def test_a_topology_file_whose_workers_have_no_address_is_refused(tmp_path, more, says):
    with pytest.raises(BadInputError, match=says):
        check_spec(written(tmp_path / "topology.json", {"name": "a", "kind": "cpu", **more}))
    with pytest.raises(BadInputError, match=r"missing\.json"):
        check_spec(str(tmp_path / "missing.json"))


RESTING = """
import os, signal, threading, time
from placer.devices.workers.standalone import rest

def later():
    time.sleep(0.5)
    os.kill(os.getpid(), signal.SIGTERM)
    time.sleep(600)

signal.signal(signal.SIGTERM, lambda *_: os._exit(7))
threading.Thread(target=later, daemon=True).start()
signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGTERM])
rest()
"""


def test_a_signal_that_another_thread_takes_ends_a_worker_at_rest():
    """The same as one that comes just before the main thread sleeps: its handler waits until that thread wakes."""
    assert subprocess.run([sys.executable, "-c", RESTING], timeout=LATE_S, check=False).returncode == 7


@pytest.mark.nightly
@pytest.mark.workers
def test_a_search_over_workers_that_others_started(tmp_path):
    with ExitStack() as stack:
        served = [stack.enter_context(serving(*SERVE, "--cores", core)) for core in two_cores()]
        addresses = [said["address"] for _, said in served]
        out = tmp_path / "out"
        ended = placer(
            *("search", "mnist_softmax", "--devices", ",".join(addresses), "--measurements", "3", "--json"),
            *("--out", str(out)),
        )
        assert ended.returncode == 0, ended.stderr
        assert json.loads(ended.stdout)["devices"] == ["worker:0", "worker:1"]
        written = json.loads((out / "topology.json").read_text())
        assert [device["address"] for device in written["devices"]] == addresses
        assert [device["node"] for device in written["devices"]] == [host.rpartition(":")[0] for host in addresses]
        again = placer("devices", "--devices", str(out / "topology.json"), "--json")
        assert [device["name"] for device in json.loads(again.stdout)["devices"]] == ["worker:0", "worker:1"]
        for process, _ in served:
            process.send_signal(signal.SIGINT)
            _, said = process.communicate(timeout=LATE_S)
            warned, ended = said.splitlines()
            assert "no authentication" in warned and "has ended" in ended
            assert process.returncode == 130


@pytest.mark.slow
@pytest.mark.workers
def test_a_worker_with_another_tensorflow_is_refused_when_it_is_joined():
    with serving("-c", OTHER_VERSION, "--listen", "localhost:0", "--json") as (_, said):
        ended = placer("devices", "--devices", said["address"])
    assert (ended.returncode, ended.stdout) == (2, "")
    (line,) = ended.stderr.splitlines()
    assert f"{said['address']} has TensorFlow 2.99.0, and this process 2." in line


@pytest.mark.nightly
@pytest.mark.workers
def test_workers_at_an_outer_address_reach_one_another_and_the_coordinator():
    address = outer_address()
    arguments = ["-m", "placer", "worker", "--listen", f"{address}:0", "--json", "--cores"]
    first, second = two_cores()
    with serving(*arguments, first) as (_, one), serving(*arguments, second) as (_, other):
        spec = f"{one['address']},{other['address']}"
        ended = placer("devices", "--devices", spec, "--include-local", "--json")
    assert ended.returncode == 0, ended.stderr
    facts = json.loads(ended.stdout)
    assert [device["name"] for device in facts["devices"]] == ["worker:0", "worker:1", "cpu:0"]


def test_an_address_that_stands_there_twice_is_refused():
    with pytest.raises(BadInputError, match="names 'h:5001' twice"):
        worker_addresses("h:5001,other:5000,h:5001")
