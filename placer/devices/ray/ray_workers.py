"""Workers that Ray starts for this process, one on each of N nodes, and ends after use.

Ray itself is used in another process, the `lease`.
"""

from __future__ import annotations

import atexit
import contextlib
import json
import os
import selectors
import subprocess
import sys
import threading
from collections.abc import Sequence
from dataclasses import dataclass, field
from ipaddress import ip_address
from typing import Any

from placer.devices.host.child_python import module_command, module_paths
from placer.devices.ray.connection import connected_address
from placer.devices.ray.lease import MODULE
from placer.devices.ray.spec import RaySpec
from placer.devices.workers.standalone import warning
from placer.devices.workers.workers import START_TIMEOUT_S
from placer.errors import BadInputError, PlacerError, listed

LEASE_S = START_TIMEOUT_S + 120.0  # to load Ray, find the cluster, wait for free nodes, and start the workers
END_S = 20.0  # to end the workers and give the nodes back
_warned = False


@dataclass
class RayWorkers:
    """Workers on nodes of a Ray cluster. addresses: host:port of each, in task order.

    They end with `close()`, with the interpreter, and when this process dies; each worker also ends with its node.
    """

    addresses: tuple[str, ...]
    _lease: subprocess.Popen[str]
    _lock: threading.Lock = field(default_factory=threading.Lock, repr=False, compare=False)

    def bring_back(self, task: int) -> bool:
        """Restart worker number `task` if its process has ended; return whether it serves now. A lost node does not
        come back. May run in any thread.
        """
        with self._lock:
            try:
                assert self._lease.stdin is not None
                self._lease.stdin.write(f"restart {task}\n")
                self._lease.stdin.flush()
            except (OSError, ValueError):  # closed, or Ray has ended the lease
                return False
            said = _line(self._lease, START_TIMEOUT_S + END_S)
        return bool(said and json.loads(said)["back"])

    def restart_ended(self) -> None:
        """Restart the workers whose process has ended, if their nodes still exist."""
        for task in range(len(self.addresses)):
            self.bring_back(task)

    def close(self) -> None:
        """End all workers, and give the nodes back; harmless when called twice."""
        _end(self._lease)


def start_ray_workers(spec: RaySpec) -> RayWorkers:
    """Have Ray start a worker on each of `spec.count` whole nodes, and wait until all serve.

    Raises BadInputError if no Ray answers at the address or it has fewer nodes, PlacerError if too few nodes are free
    or a worker does not start.
    """
    found = RaySpec(spec.count, spec.address or connected_address())
    lease = subprocess.Popen(
        module_command(MODULE, str(found)),
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
        env={**os.environ, **module_paths()},
        start_new_session=True,  # Ctrl-C reaches the coordinating process alone, which ends the workers itself
    )
    try:
        said = _answer(lease, spec)
        workers = RayWorkers(tuple(facts["address"] for facts in said["workers"]), lease)
        atexit.register(workers.close)
        _warn(workers.addresses)
        return workers
    except BaseException:
        _end(lease)
        raise


def _answer(lease: subprocess.Popen[str], spec: RaySpec) -> dict[str, Any]:
    line = _line(lease, LEASE_S)
    if not line:
        how = f"did not answer within {LEASE_S:.0f} s" if line is None else "ended without a word"
        raise PlacerError(f"{spec}: the process that asks Ray for nodes {how}; try again, or look at Ray's logs.")
    said: dict[str, Any] = json.loads(line)
    if "error" in said:
        raise (BadInputError if said["exit_code"] == BadInputError.exit_code else PlacerError)(said["error"])
    return said


def _line(lease: subprocess.Popen[str], limit_s: float) -> str | None:
    """The next line that the lease prints; "" if it ends, None if it takes longer than `limit_s` seconds."""
    assert lease.stdout is not None
    with selectors.DefaultSelector() as selector:
        selector.register(lease.stdout, selectors.EVENT_READ)
        return lease.stdout.readline().strip() if selector.select(limit_s) else None


def _end(lease: subprocess.Popen[str]) -> None:
    if lease.stdin is not None and not lease.stdin.closed:
        with contextlib.suppress(OSError):
            lease.stdin.close()
    try:
        lease.wait(END_S)
    except subprocess.TimeoutExpired:
        lease.kill()
        lease.wait()
    if lease.stdout is not None:
        lease.stdout.close()


def _warn(addresses: Sequence[str]) -> None:
    """Say, once per process, who may run code on the workers."""
    global _warned
    if not _warned:
        _warned = True
        hosts = [address.rpartition(":")[0] for address in addresses]
        open_ones = [host for host in hosts if not ip_address(host).is_loopback]
        who = f"they are open to all on the networks of {listed(open_ones)}" if open_ones else "this machine alone does"
        print(warning(who), file=sys.stderr, flush=True)
