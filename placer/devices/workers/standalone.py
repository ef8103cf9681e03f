"""A worker for other machines: serves this machine's devices to a Placer cluster elsewhere, until Ctrl-C.

Run as `python -m placer.devices.workers.standalone`; `placer worker` becomes it. It knows no other worker before a
coordinating process joins it. Its socket is tied to one interface before it listens, or if that is impossible, right
afterwards and before the address is printed.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import signal
import socket
import sys
from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass
from typing import Any, NoReturn

from placer.devices.host.child_python import module_command
from placer.devices.host.cores import usable_cores
from placer.devices.host.machine import cores_of_cpu
from placer.devices.host.memory import available_bytes
from placer.devices.ports.binding import LOOPBACK, bind, held_port, interface_of
from placer.devices.ports.keepalive import keep_alive_from_now
from placer.devices.ports.listen_watch import ListenWatch
from placer.devices.workers import freed_memory
from placer.devices.workers.worker import server_parts, stay_on, whole_parts
from placer.devices.workers.worker_info import WorkerInfo
from placer.devices.workers.workers import FAIL_FAST, QUIET, USUAL, no_proxy
from placer.errors import BadInputError, PlacerError, one_line, short, what_failed

UNPINNED = (
    "placer: this worker may not be kept to its cores (sched_setaffinity is not permitted here), so that it computes "
    "on any, with as many threads."
)
MODULE = "placer.devices.workers.standalone"
ENDING = (signal.SIGINT, signal.SIGTERM)
# Workers start under this job name: TensorFlow refuses sessions that name a worker by the job it started under.
JOB = "standalone"
LISTEN = re.compile(r"(?:(?P<host>[A-Za-z0-9_.\-]*):)?(?P<port>[0-9]{1,5})")


@dataclass(frozen=True)
class Listen:
    """Where a worker listens: the host as it was written, its IPv4 address, that address's interface, and a port."""

    host: str
    ip: str
    interface: str
    port: int

    @classmethod
    def parsed(cls, text: str) -> Listen:
        """Parse HOST:PORT; no HOST = loopback, port 0 = a free one. Raises BadInputError if it cannot be used."""
        found = LISTEN.fullmatch(text)
        if found is None or int(found["port"]) > 65535:
            raise BadInputError(f"--listen {short(text)} is no host:port; write localhost:5000, or 10.0.0.5:5000.")
        host = found["host"] or "localhost"
        try:
            ip = socket.gethostbyname(host)
        except (OSError, UnicodeError) as error:
            raise BadInputError(f"--listen {short(text)}: no host is called {host} ({error}).") from None
        interface = None if ip == "0.0.0.0" else interface_of(ip)
        if interface is None:
            raise BadInputError(f"--listen {short(text)}: {ip} is no address of this machine; give one that is.")
        return cls(host, ip, interface, _free(int(found["port"]), text))

    @property
    def address(self) -> str:
        """The address to give to --devices."""
        return f"{self.host}:{self.port}"

    @property
    def on_loopback(self) -> bool:
        return self.interface == LOOPBACK.decode()

    @property
    def warning(self) -> str:
        """The warning, in one line, about who may run code here."""
        who = "this machine alone does" if self.on_loopback else f"it is open to all on interface {self.interface}"
        return warning(who)


def warning(who: str) -> str:
    """The warning, in one line, for all users who serve. who: a clause that says who reaches the port."""
    return (
        "placer: TensorFlow's servers have no authentication: whoever reaches the port runs code as you; "
        f"{who}; for trusted networks only."
    )


def parse_cores(text: str | None) -> list[int]:
    """The cores named in `text`, comma-separated; None = all usable ones. Raises BadInputError for other cores."""
    if text is None:
        return usable_cores()
    allowed = sorted(os.sched_getaffinity(0))
    names = text.split(",")
    if not all(name.isascii() and name.isdecimal() for name in names) or not set(map(int, names)) <= set(allowed):
        usable = ",".join(map(str, allowed))
        raise BadInputError(f"--cores {short(text)}: this process may use {usable}; name some of them.")
    return sorted(set(map(int, names)))


def become_worker(listen: str, cores: str | None, as_json: bool) -> NoReturn:
    """Replace this process by one that serves. Raises BadInputError for arguments that are known to be invalid."""
    Listen.parsed(listen), parse_cores(cores)
    signal.pthread_sigmask(signal.SIG_BLOCK, ENDING)  # until the new program has its handlers
    flags = [*(["--cores", cores] if cores is not None else []), *(["--json"] if as_json else [])]
    os.execve(sys.executable, command(listen, *flags), environment())


def command(listen: str, *flags: str) -> list[str]:
    """The command that serves."""
    return module_command(MODULE, "--listen", listen, *flags)


def environment() -> dict[str, str]:
    """The environment for that command; unlike workers that serve this machine only, it has the GPUs."""
    inherited = {name: value for name, value in os.environ.items() if name != FAIL_FAST}
    quiet = {name: value for name, value in QUIET.items() if name != "CUDA_VISIBLE_DEVICES"}
    return {**USUAL, **inherited, **quiet, **no_proxy()}


def main() -> None:
    """Serve until a signal comes, which sets the exit code (130 for Ctrl-C); with --until-eof, until stdin closes."""
    parser = argparse.ArgumentParser(prog=MODULE, description=__doc__)
    parser.add_argument("--listen", required=True, help="HOST:PORT")
    parser.add_argument("--cores", help="cores to stay on, comma-separated")
    parser.add_argument("--json", action="store_true", help="say it as one JSON object")
    parser.add_argument("--until-eof", action="store_true", help="end when stdin closes, not at Ctrl-C")
    parser.add_argument("--whole", action="store_true", help="import all of TensorFlow, not its server alone")
    flags = parser.parse_args()
    for number in ENDING:
        signal.signal(number, signal.SIG_IGN if flags.until_eof and number == signal.SIGINT else _leave)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, ENDING)
    try:
        listen, cores = Listen.parsed(flags.listen), parse_cores(flags.cores)
        with held_port(listen.port):  # TensorFlow takes a while to load
            info = _served(listen, cores, flags.whole)
    except PlacerError as error:
        print(one_line(f"placer: {error}"), file=sys.stderr, flush=True)
        os._exit(error.exit_code)
    if not flags.until_eof:
        print(listen.warning, file=sys.stderr, flush=True)
    facts = {"address": listen.address, "cores": cores, "tensorflow": info.tensorflow}
    shown = json.dumps(facts) if flags.json else f"ready; elsewhere, give --devices {listen.address}; Ctrl-C ends it"
    print(shown, flush=True)
    if not flags.until_eof:
        rest()
    sys.stdin.read()
    os._exit(0)


def rest() -> NoReturn:
    """Sleep until a signal's handler ends the process. Handlers run in this thread, and `signal.pause` would not wake
    it for a signal that came just before, or that another thread received.
    """
    woken, wake = os.pipe()
    os.set_blocking(wake, False)
    signal.set_wakeup_fd(wake)
    while True:
        os.read(woken, 1)


def _leave(number: int, _: Any) -> NoReturn:
    os.write(2, b"placer: this worker has ended.\n")
    os._exit(128 + number)


def _served(listen: Listen, cores: Sequence[int], whole: bool) -> WorkerInfo:
    if not stay_on(cores):
        print(UNPINNED, file=sys.stderr, flush=True)
    watch = ListenWatch.forked()  # before TensorFlow starts threads
    try:
        with _quiet():
            parts = whole_parts() if whole else server_parts()
    except (ImportError, AttributeError):
        if whole:
            raise PlacerError("TensorFlow cannot be imported; install placer[cpu] or placer[gpu].") from None
        os.execv(sys.executable, module_command(MODULE, *sys.argv[1:], "--whole"))
    with _quiet():
        return serve(listen, len(cores), parts, watch)


@contextmanager
def _quiet() -> Iterator[None]:
    """Within the block, keep TensorFlow's log lines off the terminal."""
    terminal, nowhere = os.dup(2), os.open(os.devnull, os.O_WRONLY)
    try:
        os.dup2(nowhere, 2)
        yield
    finally:
        os.dup2(terminal, 2)
        os.close(terminal)
        os.close(nowhere)


def serve(listen: Listen, threads: int, parts: tuple[Any, Any], watch: ListenWatch) -> WorkerInfo:
    """Start the server and tie it to its interface; it serves as long as this process lives. parts: from `worker`.

    Raises PlacerError if it does not start, or cannot be tied, because it would then take commands from any host.
    """
    from tensorflow.python.framework import versions

    config_pb2, server_lib = parts
    info = WorkerInfo(str(versions.VERSION), available_bytes(), heeds=True, hardware=cores_of_cpu(threads))
    info.publish()
    freed_memory.heed()
    config = config_pb2.ConfigProto(intra_op_parallelism_threads=threads, inter_op_parallelism_threads=threads)
    config.gpu_options.allow_growth = True
    cluster = server_lib.ClusterSpec({JOB: [f"{listen.ip}:{listen.port}"]})
    try:
        with closing(watch), watch.held([listen.interface]):
            server = server_lib.Server(cluster, job_name=JOB, task_index=0, config=config)
    except Exception as error:
        raise PlacerError(f"TensorFlow's server does not start at {listen.address}: {what_failed(error)}") from error
    if not bind([listen.port], [listen.interface]):
        raise PlacerError(f"no socket was found that listens on port {listen.port}, so none is tied to an interface.")
    globals()["_server"] = server  # a garbage-collected server stops serving
    keep_alive_from_now()
    return info


def _free(port: int, text: str) -> int:
    """The port, or a free one for 0. Raises BadInputError if it is taken. text: what --listen was given."""
    with socket.socket(socket.AF_INET, socket.SOCK_STREAM) as s:
        s.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)  # as TensorFlow does: a port just closed is free
        try:
            s.bind(("0.0.0.0", port))  # TensorFlow binds all addresses
            return int(s.getsockname()[1])
        except OSError as error:
            raise BadInputError(
                f"--listen {short(text)}: the port cannot be used ({error.strerror}); name another."
            ) from None


if __name__ == "__main__":
    main()
