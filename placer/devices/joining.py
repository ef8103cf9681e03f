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
KEPT_S = 30 * 24 * 3600  # for so long workers of ours wait for a call: this machine may be suspended, or its clock set
STREAMING = "TF_ENABLE_EAGER_CLIENT_STREAMING_ENQUEUE"
RESILIENT = {STREAMING: "false", FAIL_FAST: "true"}


@dataclass(frozen=True)
class Joined:
    """What was joined: TensorFlow's names of all CPUs and of the workers' GPUs, and what workers say of themselves."""

    cpus: tuple[str, ...]
    gpus: tuple[str, ...]
    infos: dict[int, WorkerInfo]  # by task number; a worker that says nothing has none


def check_hosts(addresses: Iterable[str]) -> None:
    """Raises BadInputError for addresses on this machine's loopback beside addresses on a network: the workers there
    would look for the former on themselves.
    """
    ips = {address: _ip(address) for address in addresses}
    inner = [address for address, ip in ips.items() if ip_address(ip).is_loopback]
    if inner and len(inner) < len(ips):
        raise BadInputError(
            f"devices {short(inner[0])}: the workers on other machines cannot reach this address; "
            "serve it with --listen HOST:PORT, HOST being this machine's address in the network, and name it so."
        )


def join_workers(tasks: Mapping[int, str], *, own: bool = False) -> Joined:
    """Join exactly these workers (task number -> address) to this process. own: whether they end with it.

    The ports that this process opens for it are tied to the interfaces through which it reaches the workers. Raises
    PlacerError where one does not answer, BadInputError for one with another TensorFlow than this process's.
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
    """Have connections to the joined workers end after PLACER_DEADLINE_S, or SILENT_S, without an answer; those that
    TensorFlow opens later, too.
    """
    global _keeps_alive
    silent_s = setting() or SILENT_S
    with suppress(OSError):  # a name that is not found just now is looked up again by the thread
        keep_alive(silent_s, _joined_peers())
    if not _keeps_alive:
        keep_alive_from_now(silent_s, _joined_peers)
        _keeps_alive = True


_keeps_alive = False


def _joined_peers() -> set[Peer]:
    return set().union(*map(_peers, tf_internals.devices.joined_tasks().values()))


@lru_cache(maxsize=256)
def _peers(address: str) -> frozenset[Peer]:
    """Where TensorFlow may connect to for host:port. Raises OSError for a host that is not found, and keeps no such
    answer.
    """
    host, _, port = address.rpartition(":")
    found = socket.getaddrinfo(host, int(port), type=socket.SOCK_STREAM)
    return frozenset((str(sockaddr[0]), int(port)) for *_, sockaddr in found)


def _joined_once(tasks: Mapping[int, str], mine: str, interfaces: Collection[str]) -> Joined:
    """mine: this machine's address, by which workers reach this process. TensorFlow would tell them "localhost"."""
    # Joining the same cluster twice in a row breaks it (the workers get a port that is closed), so join a cluster in
    # which the first worker has another number in between.
    clusters = [dict(tasks)]
    if tf_internals.devices.joined_tasks() == clusters[0]:
        clusters.insert(0, {max(tasks) + 1: tasks[min(tasks)]})
    for cluster in clusters:
        host = {} if ip_address(mine).is_loopback else {HOST_JOB: [f"{mine}:{free_ports(1)[0]}"]}
        connect(tf.train.ClusterSpec({"worker": cluster, **host}), interfaces)
    cpus, gpus = ([device.name for device in tf.config.list_logical_devices(kind)] for kind in ("CPU", "GPU"))
    if not tf.test.is_built_with_gpu_support():  # this process would not know which ops have a kernel for them
        gpus = []
    infos = {task: info for task in tasks if (info := _info(task)) is not None}
    return Joined(tuple(cpus), tuple(name for name in gpus if "/job:worker" in name), infos)


def _info(task: int) -> WorkerInfo | None:
    """What a worker says of itself; None for servers that `placer worker` did not start."""
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
    """The IPv4 address of host:port. Raises PlacerError where the host is unknown."""
    host = address.rpartition(":")[0]
    try:
        return socket.gethostbyname(host)
    except (OSError, UnicodeError) as error:
        raise PlacerError(f"no host is called {short(host)} ({error}); correct --devices.") from None


def own_node(addresses: Sequence[str]) -> str:
    """The host of those addresses (host:port) that is this machine; where none is, this machine's own address."""
    hosts = [address.rpartition(":")[0] for address in addresses]
    mine = own_address(_ip(addresses[0]))
    return next((host for host, address in zip(hosts, addresses, strict=True) if _ip(address) == mine), mine)


def reach_one_another(names: Sequence[str], addresses: Sequence[str]) -> None:
    """Wait until a tensor gets from each worker to each other. A worker that met a dead one tries it again only about a
    second later, and transfers until then fail although no worker is lost. Raises PlacerError after JOIN_TIMEOUT_S.
    """
    deadline = time.monotonic() + JOIN_TIMEOUT_S
    for src, dst in permutations(names, 2):
        while True:
            try:
                with tf.device(src):
                    # Not a constant, which would be made where it is used, nor drawn from the program's own stream.
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
    """Leave workers that live on, having told them to give the memory that they free then back to the kernel. Like any
    call to a worker, telling one that is frozen does not return.
    """
    _say(freed_memory.GIVE_BACK)
    disconnect()


def _say(word: str) -> None:
    """Tell the joined workers that heed it. Those that cannot be told keep their memory: one is lost, which shows soon,
    or a sandbox opens no pipe by its number.
    """
    for task in _heeding & tf_internals.devices.joined_tasks().keys():
        with suppress(tf.errors.OpError), tf.device(f"/job:worker/task:{task}/device:CPU:0"):
            tf.io.write_file(freed_memory.WORDS_PATH, word)


_heeding: set[int] = set()  # the tasks of joined workers that heed words, because Placer started them


def leave_if_there(addresses: Iterable[str], *, ends: bool) -> None:
    """Leave the cluster while its workers are there: later, TensorFlow complains that it cannot tell them.

    ends: whether the workers end as soon as they are left.
    """
    try:
        if all(map(listens, addresses)):
            with waiting("the devices were left"):
                (disconnect if ends else leave_living)()
    except PlacerError:  # a worker was lost now that nothing is left to do
        pass
    finally:
        drop_deadlines()


def fail_at_once() -> None:
    """Turn off streaming of ops, which never notices a lost worker, and gRPC's waiting for one to come back."""
    if tf_internals.devices.joined_tasks() and os.environ.get(STREAMING) != "false":
        warn(
            "workers were joined earlier in this process, so a lost worker will not be noticed: "
            f"call open_devices(resilient=True) first, or set {STREAMING}=false."
        )
    else:
        os.environ.update(RESILIENT)
