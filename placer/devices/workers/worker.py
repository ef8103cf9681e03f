"""One worker process: serves this machine's CPU to a Placer cluster, on loopback only, until its parent ends.

Run as `python -m placer.devices.workers.worker`; started by `workers` beside it. Prints READY on stdout once it
listens, or READY_UNPINNED if it may not be kept to its cores. TensorFlow does not authenticate clusters: anyone who
reaches the port can run code. So the worker's socket is bound to the loopback interface before it listens, or if that
is impossible, right afterwards and before READY is printed.
"""

from __future__ import annotations

import argparse
import ctypes
import importlib.util
import os
import signal
import sys
from collections.abc import Collection
from contextlib import closing
from functools import partial
from types import ModuleType
from typing import Any

from placer.devices.host.child_python import module_command
from placer.devices.host.parent import when_parent_ends
from placer.devices.ports.binding import LOOPBACK, bind_to_loopback
from placer.devices.ports.keepalive import SILENT_S, keep_alive_from_now
from placer.devices.ports.listen_watch import ListenWatch
from placer.devices.workers import freed_memory
from placer.devices.workers.setting import setting
from placer.errors import PlacerError

PR_SET_PDEATHSIG = 1
READY, READY_UNPINNED = "ready", "ready, on any core"


def main() -> None:
    """Read the flags and serve until stdin closes, or until the parent ends: its forks may hold stdin open."""
    parser = argparse.ArgumentParser(prog="placer.devices.workers.worker", description=__doc__)
    parser.add_argument("--ports", required=True, help="ports of all workers, comma-separated, in task order")
    parser.add_argument("--task", type=int, required=True, help="this worker's position in --ports")
    parser.add_argument("--cores", required=True, help="cores to stay on, comma-separated")
    parser.add_argument("--die-with-parent", action="store_true", help="be killed when the starting thread ends")
    parser.add_argument("--whole", action="store_true", help="import all of TensorFlow, not its server alone")
    flags = parser.parse_args()
    if flags.die_with_parent:
        end_with_parent()
    ports, cores = ([int(n) for n in numbers.split(",")] for numbers in (flags.ports, flags.cores))
    try:
        is_pinned = stay_on(cores)
        watch = ListenWatch.forked()  # before this process has threads
        when_parent_ends(partial(os._exit, 0))
        serve(ports, flags.task, len(cores), _parts(flags.whole), watch)
        print(READY if is_pinned else READY_UNPINNED, flush=True)
    except PlacerError as error:  # printed on the one line that the parent reads
        print(error, flush=True)
        os._exit(1)
    except Exception as error:
        print(f"{type(error).__name__}: {(str(error).splitlines() or ['no reason given'])[0]}", flush=True)
        os._exit(1)
    sys.stdin.read()
    os._exit(0)


def stay_on(cores: Collection[int]) -> bool:
    """Keep this process to these cores; return False if that is not permitted, as in some sandboxes. Raises OSError if
    the machine has no such cores.
    """
    try:
        os.sched_setaffinity(0, cores)
    except PermissionError:
        return False
    return True


def end_with_parent(parent: int | None = None) -> None:
    """Ask the kernel to kill this process when the thread that started it ends. parent: the id of that thread's
    process; if the parent has ended already, this process ends now.
    """
    ctypes.CDLL(None, use_errno=True).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
    if parent is not None and os.getppid() != parent:
        os._exit(1)


def serve(ports: list[int], task: int, threads: int, parts: tuple[Any, Any], watch: ListenWatch) -> None:
    """Start the gRPC server of `task` and bind it to loopback. parts: from `server_parts`.

    Raises PlacerError if the server cannot be bound, because it would take commands from any host.
    """
    config_pb2, server_lib = parts
    config = config_pb2.ConfigProto(intra_op_parallelism_threads=threads, inter_op_parallelism_threads=threads)
    cluster = server_lib.ClusterSpec({"worker": [f"localhost:{port}" for port in ports]})
    freed_memory.heed()
    with closing(watch), watch.held([LOOPBACK.decode()]):
        server = server_lib.Server(cluster, job_name="worker", task_index=task, config=config)
    if not bind_to_loopback([ports[task]]):
        raise PlacerError(f"no socket was found that listens on port {ports[task]}, so none is tied to loopback.")
    globals()["_server"] = server  # a garbage-collected server stops serving
    keep_alive_from_now(setting() or SILENT_S)


def server_parts() -> tuple[Any, Any]:
    """TensorFlow's config_pb2 and server_lib without the rest of its Python: 0.5 s of a core instead of 4.

    On cores that a training uses, the difference costs seconds of its steps. The package's __init__ is not run, so this
    process can use TensorFlow for nothing else. Raises ImportError if TensorFlow is not installed, or if a release has
    moved the parts.
    """
    found = importlib.util.find_spec("tensorflow")
    if found is None or found.submodule_search_locations is None:
        raise ImportError("TensorFlow is not installed; install placer[cpu] or placer[gpu]")
    bare = ModuleType("tensorflow")
    bare.__path__, bare.__spec__ = list(found.submodule_search_locations), found
    sys.modules["tensorflow"] = bare
    return whole_parts()


def _parts(whole: bool) -> tuple[Any, Any]:
    """Import TensorFlow's server only, unless `whole`; if that fails, run this program again with --whole."""
    if whole:
        return whole_parts()
    try:
        return server_parts()
    except (ImportError, AttributeError):
        os.execv(sys.executable, module_command("placer.devices.workers.worker", *sys.argv[1:], "--whole"))


def whole_parts() -> tuple[Any, Any]:
    """The same parts as `server_parts`, from the package as it is imported; by default, from all of TensorFlow."""
    from tensorflow.core.protobuf import config_pb2
    from tensorflow.python.training import server_lib

    return config_pb2, server_lib


if __name__ == "__main__":
    main()
