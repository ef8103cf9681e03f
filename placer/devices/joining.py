"""Joins worker processes to this one, checks that they fit it, and leaves them again."""

from __future__ import annotations

import os
import socket
import time
from collections.abc import Collection, Iterable, Mapping, Sequence
from contextlib import nullcontext, suppress
from dataclasses import dataclass
from functools import lru_cache
from ipaddress import ip_address
from itertools import permutations

import tensorflow as tf

from placer import tf_internals
from placer.devices.connecting import HOST_JOB, connect
from placer.devices.ports.binding import interface_of, own_address
from placer.devices.ports.keepalive import SILENT_S, Peer, keep_alive, keep_alive_from_now
from placer.devices.workers import freed_memory
from placer.devices.workers.addresses import listens
from placer.devices.workers.deadline import drop_deadlines, waiting
from placer.devices.workers.setting import setting
from placer.devices.workers.worker_info import INFO_PATH, WorkerInfo
from placer.devices.workers.workers import FAIL_FAST, free_ports, no_proxy
from placer.errors import BadInputError, PlacerError, listed, short, warn, what_failed

JOIN_TIMEOUT_S = 30.0
RETRY_S = 0.25
KEPT_S = 30 * 24 * 3600  # how long own workers wait for a call: this machine may be suspended, or its clock set
STREAMING = "TF_ENABLE_EAGER_CLIENT_STREAMING_ENQUEUE"
RESILIENT = {STREAMING: "false", FAIL_FAST: "true"}


@dataclass(frozen=True)
class Joined:
    """The result of joining: TensorFlow's names of all CPUs and of the workers' GPUs, and the workers' own reports."""

    cpus: tuple[str, ...]
    gpus: tuple[str, ...]
    infos: dict[int, WorkerInfo]  # by task number; only of workers that report something


def check_hosts(addresses: Iterable[str]) -> None:
    """Raises BadInputError if loopback addresses are mixed with network addresses: workers on other machines would look
    for a loopback address on themselves.
    """
    ips = {address: _ip(address) for address in addresses}
    inner = [address for address, ip in ips.items() if ip_address(ip).is_loopback]
    if inner and len(inner) < len(ips):
        raise BadInputError(
            f"devices {short(inner[0])}: the workers on other machines cannot reach this address; "
            "serve it with --listen HOST:PORT, HOST being this machine's address in the network, and name it so."
        )


def join_workers(tasks: Mapping[int, str], *, own: bool = False) -> Joined:
    """Join exactly these workers (task number -> address) to this process. own: whether they end with this process.

    The ports that this process opens for joining are tied to the interfaces through which it reaches the workers.
    Raises PlacerError if a worker does not answer, BadInputError if a worker has another TensorFlow version.
    """
    global _heeding
    os.environ.update(no_proxy())  # before the first channel
    deadline = time.monotonic() + JOIN_TIMEOUT_S
    mine = [own_address(_ip(address)) for address in tasks.values()]
    interfaces = {name for name in map(interface_of, mine) if name is not None}
    try:
        while True:
            try:
                with waiting("the devices were joined"):
                    with tf_internals.devices.kept_by_workers(KEPT_S) if own else nullcontext():
                        joined = _joined_once(tasks, mine[0], interfaces)
                    _check_versions(tasks, joined.infos)
                    _heeding = set(tasks) if own else {task for task, info in joined.infos.items() if info.heeds}
                    _say(freed_memory.KEEP)
                    return joined
            except tf.errors.UnavailableError:  # TensorFlow retries a restarted process about once a second
                if time.monotonic() > deadline or not all(map(listens, tasks.values())):
                    raise
            time.sleep(RETRY_S)
    except tf.errors.OpError as error:
        where = ", ".join(tasks.values())
        raise PlacerError(f"the workers at {where} do not answer: {what_failed(error)}") from error


def keep_joined_alive() -> None:
    """Have connections to the joined workers end after PLACER_DEADLINE_S seconds (SILENT_S if unset) without an answer,
    including connections that TensorFlow opens later.
    """
    global _keeps_alive
    silent_s = setting() or SILENT_S
    with suppress(OSError):  # if a name is not found now, the thread looks it up again
        keep_alive(silent_s, _joined_peers())
    if not _keeps_alive:
        keep_alive_from_now(silent_s, _joined_peers)
        _keeps_alive = True


_keeps_alive = False


def _joined_peers() -> set[Peer]:
    return set().union(*map(_peers, tf_internals.devices.joined_tasks().values()))


@lru_cache(maxsize=256)
def _peers(address: str) -> frozenset[Peer]:
    """The IP addresses and ports to which TensorFlow may connect for host:port. Raises OSError if the host is not
    found; this failure is not cached.
    """
    host, _, port = address.rpartition(":")
    found = socket.getaddrinfo(host, int(port), type=socket.SOCK_STREAM)
    return frozenset((str(sockaddr[0]), int(port)) for *_, sockaddr in found)


def _joined_once(tasks: Mapping[int, str], mine: str, interfaces: Collection[str]) -> Joined:
    """Try once to join the workers. mine: this machine's address at which workers reach this process; TensorFlow would
    tell them "localhost".
    """
    # Joining the same cluster twice in a row breaks it, because the workers get a port that is closed. So join another
    # cluster in between: the first worker alone, under another number.
    clusters = [dict(tasks)]
    if tf_internals.devices.joined_tasks() == clusters[0]:
        clusters.insert(0, {max(tasks) + 1: tasks[min(tasks)]})
    for cluster in clusters:
        host = {} if ip_address(mine).is_loopback else {HOST_JOB: [f"{mine}:{free_ports(1)[0]}"]}
        connect(tf.train.ClusterSpec({"worker": cluster, **host}), interfaces)
    cpus, gpus = ([device.name for device in tf.config.list_logical_devices(kind)] for kind in ("CPU", "GPU"))
    if not tf.test.is_built_with_gpu_support():  # this process cannot know which ops have a GPU kernel
        gpus = []
    infos = {task: info for task in tasks if (info := _info(task)) is not None}
    return Joined(tuple(cpus), tuple(name for name in gpus if "/job:worker" in name), infos)


def _info(task: int) -> WorkerInfo | None:
    """A worker's report of itself; None for servers that `placer worker` did not start."""
    try:
        with tf.device(f"/job:worker/task:{task}/device:CPU:0"):
            return WorkerInfo.parsed(tf.io.read_file(INFO_PATH).numpy())
    except (tf.errors.NotFoundError, tf.errors.PermissionDeniedError, tf.errors.FailedPreconditionError):
        return None


def _check_versions(tasks: Mapping[int, str], infos: Mapping[int, WorkerInfo]) -> None:
    mine = tf.version.VERSION
    others = [(tasks[task], info.tensorflow) for task, info in infos.items() if info.tensorflow != mine]
    if others:
        connect(tf.train.ClusterSpec({}))
        raise BadInputError(
            f"{listed([f'{address} has TensorFlow {theirs}' for address, theirs in others])}, and this process "
            f"{mine}; install the same version on all machines."
        )


def _ip(address: str) -> str:
    """The IPv4 address of host:port. Raises PlacerError if the host is unknown."""
    host = address.rpartition(":")[0]
    try:
        return socket.gethostbyname(host)
    except (OSError, UnicodeError) as error:
        raise PlacerError(f"no host is called {short(host)} ({error}); correct --devices.") from None


def own_node(addresses: Sequence[str]) -> str:
    """The host in `addresses` (host:port) that is this machine; if there is none, this machine's own IPv4 address."""
    hosts = [address.rpartition(":")[0] for address in addresses]
    mine = own_address(_ip(addresses[0]))
    return next((host for host, address in zip(hosts, addresses, strict=True) if _ip(address) == mine), mine)


def reach_one_another(names: Sequence[str], addresses: Sequence[str]) -> None:
    """Wait until each worker can send a tensor to each other worker. A worker that found another one dead retries it
    only about a second later, and until then transfers fail although no worker is lost. Raises PlacerError after
    JOIN_TIMEOUT_S, or if a worker no longer listens.
    """
    deadline = time.monotonic() + JOIN_TIMEOUT_S
    for src, dst in permutations(names, 2):
        while True:
            try:
                with tf.device(src):
                    # A constant would be made where it is used; a stateful draw would advance the program's own stream.
                    tensor = tf.random.stateless_uniform([], [1, 2], alg="philox")
                with tf.device(dst):
                    tf.identity(tensor).numpy()
                break
            except tf.errors.OpError as error:
                if time.monotonic() > deadline or not all(map(listens, addresses)):
                    raise PlacerError(f"{src} does not reach {dst}: {what_failed(error)}") from error
            time.sleep(RETRY_S)


def disconnect() -> None:
    """Leave the workers that are joined, if any. Raises what TensorFlow raises."""
    if tf_internals.devices.joined_tasks():
        connect(tf.train.ClusterSpec({}))


def leave_living() -> None:
    """Leave workers that live on, after telling them to return the memory that they then free to the kernel. Like any
    call to a worker, this does not return if a worker is frozen.
    """
    _say(freed_memory.GIVE_BACK)
    disconnect()


def _say(word: str) -> None:
    """Write `word` to the joined workers that heed words. A worker that cannot be told keeps its memory: it is lost,
    which shows soon, or its sandbox does not let it open a pipe by number.
    """
    for task in _heeding & tf_internals.devices.joined_tasks().keys():
        with suppress(tf.errors.OpError), tf.device(f"/job:worker/task:{task}/device:CPU:0"):
            tf.io.write_file(freed_memory.WORDS_PATH, word)


_heeding: set[int] = set()  # the tasks of joined workers that heed words, because Placer started them


def leave_if_there(addresses: Iterable[str], *, ends: bool) -> None:
    """Leave the cluster now if all its workers still listen; once they have ended, TensorFlow complains that it cannot
    tell them.

    ends: whether the workers end as soon as they are left.
    """
    try:
        if all(map(listens, addresses)):
            with waiting("the devices were left"):
                (disconnect if ends else leave_living)()
    except PlacerError:  # a worker was lost, but is no longer needed
        pass
    finally:
        drop_deadlines()


def fail_at_once() -> None:
    """Turn off streaming of ops, which never notices a lost worker, and gRPC's waiting for a lost worker."""
    if tf_internals.devices.joined_tasks() and os.environ.get(STREAMING) != "false":
        warn(
            "workers were joined earlier in this process, so a lost worker will not be noticed: "
            f"call open_devices(resilient=True) first, or set {STREAMING}=false."
        )
    else:
        os.environ.update(RESILIENT)
