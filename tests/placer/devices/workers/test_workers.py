"""Worker processes: their share of the cores, loopback only, and gone when their parent is."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
from contextlib import nullcontext
from types import SimpleNamespace

import psutil
import pytest

from placer.devices.ports import binding
from placer.devices.ports.binding import bind_to_loopback, held_port, listening_ports
from placer.devices.workers import workers as workers_module
from placer.devices.workers.worker import serve
from placer.devices.workers.workers import Workers, _check_free, free_ports, no_proxy, share_cores, start_workers
from placer.errors import BadInputError, PlacerError
from tests.processes import still_running

LATE_S = 300
PARENT = """
import os, sys, threading, time
from placer.devices.workers.workers import start_workers

def start():
    workers = start_workers(1)
    print(workers.processes[0].pid, workers.ports[0], flush=True)

{start}
sys.stdin.read()
"""
# Like the workers of a data loader, a child holds the pipes of its parent open.
FORKS = """
thread = threading.Thread(target=start)
thread.start()
thread.join()
child = os.fork()
if child == 0:
    os.close(1)
    time.sleep(300)
    os._exit(0)
print(child, flush=True)
"""


def test_cores_are_shared_equally_and_never_twice():
    assert share_cores(2, [0, 1, 2, 3, 4]) == ((0, 1), (2, 3))
    assert share_cores(1, [3]) == ((3,),)


def test_on_one_core_another_way_than_workers_is_named():
    with pytest.raises(BadInputError, match=r"2 workers were asked for, but this process may use one core.*cpus:2\."):
        share_cores(2, [3])


@pytest.mark.parametrize(
    ("count", "says"), [(3, "3 workers were asked for, but this process may use 2"), (0, "at least 1")]
)
def test_more_workers_than_cores_and_none_are_refused(count, says):
    with pytest.raises(BadInputError, match=says):
        share_cores(count, [0, 1])


def test_a_port_in_use_is_refused():
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        with pytest.raises(BadInputError, match="cannot be used for a worker"):
            start_workers(1, ports=[taken.getsockname()[1]])


def test_free_ports_are_free_and_different():
    ports = free_ports(5)
    assert len(set(ports)) == 5
    for port in ports:
        _check_free(port)


def test_a_port_that_is_held_is_given_to_no_other_program_and_a_server_can_listen_there():
    (port,) = free_ports(1)
    with held_port(port):
        with pytest.raises(BadInputError, match="cannot be used for a worker"):
            _check_free(port)
        for address in ("0.0.0.0", "::") if has_ipv6() else ("0.0.0.0",):
            family = socket.AF_INET6 if address == "::" else socket.AF_INET  # where there is IPv6, TensorFlow uses it
            with (
                socket.create_server((address, port), family=family, dualstack_ipv6=address == "::"),
                socket.create_connection(("127.0.0.1", port), timeout=LATE_S),
            ):
                assert port in listening_ports()
        assert port not in listening_ports()
        with held_port(port), pytest.raises(ConnectionRefusedError):
            socket.create_connection(("127.0.0.1", port), timeout=LATE_S)
    _check_free(port)


def has_ipv6():
    """Whether a server can listen on IPv6 here, and serve IPv4, too."""
    try:
        socket.create_server(("::", 0), family=socket.AF_INET6, dualstack_ipv6=True).close()
    except (OSError, ValueError):
        return False
    return True


def test_ports_of_workers_are_held_until_they_are_closed(monkeypatch):
    monkeypatch.setattr(workers_module, "_start", lambda *_: subprocess.Popen(["sleep", "60"], text=True))
    monkeypatch.setattr(workers_module, "_wait_ready", lambda *_: None)
    with start_workers(2, cores=[(0,), (0,)]) as workers:
        for port in workers.ports:
            with pytest.raises(BadInputError, match="cannot be used for a worker"):
                _check_free(port)
    for port in workers.ports:
        _check_free(port)


def test_only_the_ports_named_are_tied_to_loopback():
    with socket.socket() as ours, socket.socket() as theirs:
        for s in (ours, theirs):
            s.bind(("127.0.0.1", 0))
            s.listen()
        port = ours.getsockname()[1]
        assert {port, theirs.getsockname()[1]} <= listening_ports()
        bind_to_loopback([port])
        assert ours.getsockopt(socket.SOL_SOCKET, socket.SO_BINDTODEVICE, 16).rstrip(b"\0") == b"lo"
        assert theirs.getsockopt(socket.SOL_SOCKET, socket.SO_BINDTODEVICE, 16) == b""


def test_a_worker_without_a_socket_that_is_tied_to_loopback_is_not_ready(capsys):
    server = SimpleNamespace(ClusterSpec=dict, Server=lambda *_, **__: object())
    port = free_ports(1)[0]
    watch = SimpleNamespace(held=nullcontext, close=lambda: None)
    with pytest.raises(PlacerError, match=f"no socket was found that listens on port {port}"):
        serve([port], 0, 1, (SimpleNamespace(ConfigProto=dict), server), watch)
    assert capsys.readouterr().out == ""


def test_where_the_kernel_does_not_tie_to_loopback_the_line_says_what_to_do(monkeypatch):
    class Refused(socket.socket):
        def setsockopt(self, *_):
            raise PermissionError(1, "Operation not permitted")

    with socket.socket() as ours:
        ours.bind(("127.0.0.1", 0))
        ours.listen()
        monkeypatch.setattr(binding.socket, "socket", Refused)
        with pytest.raises(PlacerError, match=r"cannot be tied to loopback .*CAP_NET_RAW") as refused:
            bind_to_loopback([ours.getsockname()[1]])
    assert "\n" not in str(refused.value)


def test_a_worker_that_dies_at_start_is_told_in_one_line(monkeypatch):
    monkeypatch.setattr(sys, "executable", "/bin/false")
    with pytest.raises(PlacerError, match="could not start") as failed:
        start_workers(1)
    assert "\n" not in str(failed.value)


def test_workers_may_be_given_cores_that_they_share(monkeypatch):
    started = []
    monkeypatch.setattr(workers_module, "_start", lambda workers, task: started.append(workers.cores[task]))
    monkeypatch.setattr(workers_module, "_wait_ready", lambda *_: None)
    start_workers(3, cores=[(0,), (1,), (0,)]).processes.clear()
    assert started == [(0,), (1,), (0,)]


def test_a_worker_that_does_not_come_back_is_told_and_not_left_running(monkeypatch):
    workers = Workers(free_ports(1), ((0,),), [subprocess.Popen(["sleep", "60"], text=True)])
    with workers:
        old = workers.processes[0]
        assert workers.running(0)
        monkeypatch.setattr(sys, "executable", "/bin/false")
        with pytest.raises(PlacerError, match=r"worker:0 .* could not start"):
            workers.restart(0)
        assert old.poll() is not None
        assert workers.processes[0].wait() != 0
        assert not workers.running(0)


def test_no_worker_is_started_again_once_all_are_closed():
    workers = Workers(free_ports(1), ((0,),), [subprocess.Popen(["sleep", "60"], text=True)])
    workers.close()
    with pytest.raises(PlacerError, match="the workers are closed"):
        workers.restart(0)
    assert not workers.running(0)


@pytest.mark.slow
@pytest.mark.workers
@pytest.mark.parametrize("start", ["start()", "threading.Thread(target=start).start()"], ids=["main", "thread"])
def test_a_worker_ends_when_its_parent_is_killed(start):
    code = PARENT.format(start=start)
    parent = subprocess.Popen([sys.executable, "-c", code], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    with parent:
        pid, port = map(int, parent.stdout.readline().split())
        worker = psutil.Process(pid)
        with socket.create_connection(("127.0.0.1", port), timeout=LATE_S):
            pass
        parent.kill()
    assert not still_running([worker])


@pytest.mark.slow
@pytest.mark.workers
def test_a_worker_ends_when_its_parent_is_killed_though_a_child_of_that_lives_on():
    code = PARENT.format(start=FORKS)
    parent = subprocess.Popen([sys.executable, "-c", code], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    with parent:
        worker = psutil.Process(int(parent.stdout.readline().split()[0]))
        child = psutil.Process(int(parent.stdout.readline()))
        parent.kill()
    try:
        assert not still_running([worker])
    finally:
        child.kill()


def test_a_worker_needs_tensorflows_server_alone():
    """The canary for TensorFlow's next release: without its parts a worker takes 4 s to start instead of 0.5."""
    program = "import sys; from placer.devices.workers.worker import server_parts; server_parts(); print(*sys.modules)"
    loaded = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True).stdout.split()
    assert "tensorflow.python.training.server_lib" in loaded
    assert not {"tensorflow.python.eager.context", "tensorflow.python.framework.ops", "keras"} & set(loaded)


@pytest.mark.slow
def test_where_its_parts_have_moved_a_worker_imports_all_of_tensorflow(tmp_path, monkeypatch):
    """A package in the way that cannot be entered without being run."""
    (tmp_path / "sitecustomize.py").write_text(
        "import sys\n"
        "if '--whole' not in sys.argv:\n"
        "    sys.modules['tensorflow.python.training.server_lib'] = None\n"
    )  # fmt: skip
    monkeypatch.setenv("PYTHONPATH", str(tmp_path), prepend=":")
    workers = start_workers(1)
    try:
        assert "--whole" in psutil.Process(workers.processes[0].pid).cmdline()
    finally:
        workers.close()


@pytest.mark.parametrize(
    ("mine", "options"),
    [
        ("", "grpc.enable_http_proxy=0"),
        ("grpc.x=1", "grpc.x=1,grpc.enable_http_proxy=0"),
        ("grpc.enable_http_proxy=0", "grpc.enable_http_proxy=0"),
    ],
)
def test_no_proxy_is_asked_for_workers_and_the_users_options_stay(monkeypatch, mine, options):
    monkeypatch.setenv("TF_GRPC_DEFAULT_OPTIONS", mine)
    assert no_proxy() == {"TF_GRPC_DEFAULT_OPTIONS": options}


@pytest.mark.slow
def test_workers_are_joined_where_the_environment_names_a_proxy():
    program = (
        "from placer.devices.opening import open_devices\n"
        "with open_devices('workers:2', links=False):\n"
        "    print('joined')\n"
    )
    hosts = {name: value for name, value in os.environ.items() if "proxy" not in name.lower()}
    env = hosts | {"http_proxy": "http://127.0.0.1:9", "TF_GRPC_DEFAULT_OPTIONS": ""}
    done = subprocess.run([sys.executable, "-c", program], env=env, capture_output=True, text=True, timeout=900)
    assert done.stdout == "joined\n", done.stderr
