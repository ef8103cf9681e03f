"""Starts and ends worker processes on this machine: real, separate devices for machines without a GPU."""

from __future__ import annotations

import atexit
import logging
import os
import selectors
import socket
import subprocess
import threading
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import ExitStack, suppress
from dataclasses import dataclass, field
from functools import cache

import psutil

from placer.devices.host.child_python import module_command, module_paths
from placer.devices.host.cores import by_place, usable_cores
from placer.devices.host.machine import ONEDNN
from placer.devices.host.memory import available_bytes
from placer.devices.ports.binding import held_port
from placer.devices.workers.setting import setting
from placer.devices.workers.worker import READY, READY_UNPINNED
from placer.errors import BadInputError, PlacerError, short

LOGGER = logging.getLogger("placer")
START_TIMEOUT_S = 120.0
# Let a worker keep the memory it frees. By default the C library returns large tensors' memory after every op and
# allocates it again page by page: steps of MobileNetV3 took 100-150 ms instead of 68, one op randomly 20 us or 80 us.
KEEP_MEMORY = {"MALLOC_TRIM_THRESHOLD_": "10000000000", "MALLOC_MMAP_THRESHOLD_": "33554432"}
# Defaults for what the environment leaves unset. oneDNN is on by default; turned on explicitly, it prints nothing.
USUAL = {**KEEP_MEMORY, ONEDNN: "1"}
# Otherwise gRPC would send traffic between workers through the HTTP proxy that the environment names.
GRPC_OPTIONS, NO_PROXY = "TF_GRPC_DEFAULT_OPTIONS", "grpc.enable_http_proxy=0"
# For the coordinating process only: workers must wait for one another while one of them restarts.
FAIL_FAST = "GRPC_FAIL_FAST"
# Mebibytes that a worker may take beyond its limit of --max-memory; only if this is set, the kernel enforces the limit.
FENCE = "PLACER_FENCE_MIB"
ALLOCATOR_LIMIT = "TF_MKL_ALLOC_MAX_BYTES"
QUIET = {"TF_CPP_MIN_LOG_LEVEL": "3", "CUDA_VISIBLE_DEVICES": "-1"}
ONE_CORE = (
    "this process may use one core (its affinity or a CPU quota says so), and workers need one each; give it more, or "
    "divide this process: --devices cpus:2."
)
UNPINNED = (
    "placer: workers may not be kept to cores of their own here (sched_setaffinity is not permitted), so they disturb "
    "each other, and step times vary; permit it, or divide this process: --devices cpus:2."
)


@dataclass
class Workers:
    """Running worker processes, each pinned to its own cores, reachable from this machine only.

    They end with `close()`, with the interpreter, and when this process dies.
    """

    ports: tuple[int, ...]
    cores: tuple[tuple[int, ...], ...]
    processes: list[subprocess.Popen[str]] = field(default_factory=list)
    limits: Mapping[int, int] = field(default_factory=dict)  # task -> bytes that a fenced worker may hold
    closed: bool = False
    changed: Callable[[], None] | None = field(default=None, repr=False, compare=False)  # called after a restart
    _lock: threading.Lock = field(default_factory=threading.Lock, repr=False, compare=False)
    _held: ExitStack = field(default_factory=ExitStack, repr=False, compare=False)  # the ports, from `hold_ports` on

    def __len__(self) -> int:
        return len(self.ports)

    @property
    def addresses(self) -> tuple[str, ...]:
        """host:port of each worker, in task order."""
        return tuple(f"localhost:{port}" for port in self.ports)

    def __enter__(self) -> Workers:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def running(self, task: int) -> bool:
        """Whether the process of worker number `task` is alive."""
        return task < len(self.processes) and self.processes[task].poll() is None

    def hold_ports(self) -> None:
        """Keep the ports for the workers until `close`, even while none listens there because it starts or restarts."""
        for port in self.ports:
            self._held.enter_context(held_port(port))

    def restart(self, task: int, clock: Callable[[], float] = time.monotonic) -> None:
        """Restart worker number `task` on its port and cores, and wait until it serves, which takes seconds.

        May run in any thread. Raises PlacerError if it does not come up, or if all workers are closed meanwhile.
        """
        with self._lock:
            if self.closed:
                raise PlacerError(f"worker:{task} cannot be restarted: the workers are closed; open the devices again.")
            _end([self.processes[task]])
            process = self.processes[task] = _start(self, task)
            changed = self.changed
            if changed is not None:
                changed()
        try:
            _wait_ready(process, f"worker:{task} (port {self.ports[task]})", clock() + START_TIMEOUT_S, clock)
        except BaseException:
            process.kill()
            raise

    def restart_ended(self) -> None:
        """Restart the workers whose process has ended, as `restart` does."""
        for task in range(len(self.processes)):
            if not self.running(task):
                self.restart(task)

    def fence(self) -> None:
        """Make the kernel refuse memory to workers with a limit: each may take its limit plus PLACER_FENCE_MIB in
        addition to what it has now. Call this after workers were joined and links measured, which needs threads and
        buffers of its own. Does nothing if PLACER_FENCE_MIB is not set, and never raises a worker's lower fence.

        RLIMIT_DATA counts private memory that can be written. RLIMIT_AS would also count libraries, and what the C
        library only reserves, 64 MiB for each thread (docs/decisions/026-memory-limits.md).
        """
        more = fence_bytes()
        for task, limit in {} if more is None else self.limits.items():
            if not self.running(task):
                continue
            with suppress(psutil.NoSuchProcess):
                process = psutil.Process(self.processes[task].pid)
                soft, hard = process.rlimit(psutil.RLIMIT_DATA)
                most = process.memory_info().data + limit + (more or 0)
                if soft == psutil.RLIM_INFINITY or soft > most:  # an earlier join may have set a lower fence
                    process.rlimit(psutil.RLIMIT_DATA, (most, hard))

    def close(self) -> None:
        """End every worker; harmless when called twice."""
        with self._lock:
            self.closed = True
            _end(self.processes)
            self.processes.clear()
            self._held.close()


def start_workers(
    count: int,
    ports: Iterable[int] = (),
    clock: Callable[[], float] = time.monotonic,
    cores: Sequence[tuple[int, ...]] = (),
    limits: Mapping[int, int] | None = None,
) -> Workers:
    """Start `count` workers, divide this process's cores among them, and wait until all of them serve.

    cores: of each worker, instead of an equal share. Workers may share cores, and then slow each other down. limits:
    the bytes of variables and tensors that workers may hold, by task; enforced if PLACER_FENCE_MIB is set. Raises
    BadInputError for a count that does not fit the cores, a port in use, and a fence or a deadline that is no number,
    PlacerError if a worker does not come up.
    """
    fence_bytes(), setting()  # checked here, because a worker that reads a bad value would be blamed itself
    cores = tuple(cores) or share_cores(count, by_place(usable_cores()))
    wanted = tuple(ports) or free_ports(count)
    for port in wanted:
        _check_free(port)
    workers = Workers(wanted, cores, limits=limits or {})
    atexit.register(workers.close)
    try:
        workers.hold_ports()
        for task in range(count):
            workers.processes.append(_start(workers, task))
        deadline = clock() + START_TIMEOUT_S
        for task, process in enumerate(workers.processes):
            _wait_ready(process, f"worker:{task} (port {wanted[task]})", deadline, clock)
    except BaseException:
        workers.close()
        raise
    return workers


def no_proxy() -> dict[str, str]:
    """The environment variable that makes gRPC use no HTTP proxy; it keeps the options that the user has set."""
    mine = os.environ.get(GRPC_OPTIONS, "")
    return {GRPC_OPTIONS: mine if NO_PROXY in mine.split(",") else ",".join(filter(None, (mine, NO_PROXY)))}


def share_cores(count: int, cores: list[int]) -> tuple[tuple[int, ...], ...]:
    """Equal, disjoint shares of `cores`; cores that do not divide evenly stay with the coordinating process."""
    if count < 1:
        raise BadInputError(f"{count} workers were asked for; ask for at least 1.")
    if count > len(cores):
        if len(cores) == 1:
            raise BadInputError(f"{count} workers were asked for, but {ONE_CORE}")
        raise BadInputError(
            f"{count} workers were asked for, but this process may use {len(cores)} cores; "
            f"ask for --workers {len(cores)} or fewer."
        )
    each = len(cores) // count
    return tuple(tuple(cores[i * each : (i + 1) * each]) for i in range(count))


def free_ports(count: int) -> tuple[int, ...]:
    """`count` different ports that are free right now."""
    sockets = [socket.socket(socket.AF_INET, socket.SOCK_STREAM) for _ in range(count)]
    try:
        for s in sockets:
            s.bind(("0.0.0.0", 0))  # TensorFlow binds all addresses
        return tuple(int(s.getsockname()[1]) for s in sockets)
    finally:
        for s in sockets:
            s.close()


def memory_bytes_each(count: int) -> int:
    """The bytes of available memory for each of `count` workers, with an equal share for the coordinating process."""
    return available_bytes() // (count + 1)


def fence_bytes() -> int | None:
    """The bytes of PLACER_FENCE_MIB; None if it is not set. Raises BadInputError if it is no number."""
    text = os.environ.get(FENCE)
    if text is None:
        return None
    if not (text.isascii() and text.isdecimal() and len(text) < 10):
        raise BadInputError(f"{FENCE}={short(text)} is no number of mebibytes; write {FENCE}=256, or unset it.")
    return int(text) << 20


def _check_free(port: int) -> None:
    with socket.socket(socket.AF_INET, socket.SOCK_STREAM) as s:
        try:
            s.bind(("0.0.0.0", port))
        except OSError as error:
            raise BadInputError(f"port {port} cannot be used for a worker ({error.strerror}); name another.") from error


def _start(workers: Workers, task: int) -> subprocess.Popen[str]:
    flags = ["--ports", ",".join(map(str, workers.ports)), "--task", str(task)]
    flags += ["--cores", ",".join(map(str, workers.cores[task]))]
    if threading.current_thread() is threading.main_thread():  # the kernel watches the starting thread, not the process
        flags.append("--die-with-parent")
    fenced, fence = {}, fence_bytes()
    if task in workers.limits and fence is not None:
        # TensorFlow's allocator doubles its request whenever it is short. Without a limit of its own it would take all
        # that the kernel grants and leave nothing to gRPC, which would then end the process.
        fenced = {ALLOCATOR_LIMIT: str(workers.limits[task] + fence // 2)}  # copies under way are tensors, too
    inherited = {name: value for name, value in os.environ.items() if name != FAIL_FAST}
    return subprocess.Popen(
        module_command("placer.devices.workers.worker", *flags),
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
        env={**USUAL, **inherited, **QUIET, **fenced, **module_paths(), **no_proxy()},
        start_new_session=True,  # Ctrl-C reaches the coordinating process alone, which ends the workers itself
    )


def _end(processes: Sequence[subprocess.Popen[str]]) -> None:
    for process in processes:
        process.kill()
    for process in processes:
        process.wait()
        for pipe in (process.stdin, process.stdout, process.stderr):
            if pipe is not None:
                pipe.close()


@cache
def _say_unpinned() -> None:
    LOGGER.warning(UNPINNED)


def _wait_ready(process: subprocess.Popen[str], who: str, deadline: float, clock: Callable[[], float]) -> None:
    assert process.stdout is not None
    with selectors.DefaultSelector() as selector:
        selector.register(process.stdout, selectors.EVENT_READ)
        ready = selector.select(max(0.0, deadline - clock()))
    line = process.stdout.readline().strip() if ready else ""
    if line == READY_UNPINNED:
        _say_unpinned()
    elif line != READY:
        what = "did not answer in time" if not ready else f"could not start: {line or 'it ended without a word'}"
        raise PlacerError(f"{who} {what}" if line.endswith(".") else f"{who} {what}; try again, or fewer --workers.")
