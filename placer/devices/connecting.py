"""Connects this process to a cluster through a port that is tied to chosen network interfaces before it listens."""

from __future__ import annotations

import threading
from collections.abc import Callable, Collection
from contextlib import nullcontext, suppress
from typing import NamedTuple

import tensorflow as tf

from placer import tf_internals
from placer.devices.ports.binding import LOOPBACK, bind, listening_ports
from placer.devices.ports.listen_watch import ListenWatch
from placer.devices.workers import leftovers

HOST_JOB = "localhost"  # what TensorFlow calls the job of the process that joins

_watch: ListenWatch | None = None
_times = 0
_server: Server | None = None  # the server TensorFlow started last; None if it never connected or failed to


class Server(NamedTuple):
    """How other processes reach the server that TensorFlow starts in this process."""

    host: str
    interfaces: frozenset[str]


def connect(cluster: tf.train.ClusterSpec, interfaces: Collection[str] = ()) -> None:
    """Connect to `cluster` in a thread whose ports are tied to `interfaces` before they listen.

    An empty `cluster` leaves the current one. Unless it can reuse a server, TensorFlow starts one with a port, even to
    leave a cluster. Without interfaces, the port is reached through loopback only. If the kernel allows no watch, ports
    are tied right after they have opened. Raises what TensorFlow raises, and PlacerError if a port cannot be tied.
    """

    def run() -> None:
        global _times
        with watch.held(names) if watch is not None else nullcontext():
            _times += 1
            leftovers.forget()  # even a failed connection drops what was there
            _connect(cluster, names)

    tf.config.list_logical_devices()  # starts now what TensorFlow would start, with its port, at a later call
    names = frozenset(interfaces) or frozenset({LOOPBACK.decode()})
    before, watch = listening_ports(), _lasting_watch()
    raised = _in_thread(run)
    bind(listening_ports() - before, names)
    for error in raised:
        raise error


def _connect(cluster: tf.train.ClusterSpec, interfaces: frozenset[str]) -> None:
    """Connect to `cluster`, with TensorFlow's current server if that is enough.

    The current server is enough to leave workers, and to join workers while none are joined. TensorFlow never ends a
    server, and each takes some 40 MB and 90 threads. If one joined cluster directly follows another, a new server is
    started, because workers may be lost and only a new server forgets them.
    """
    global _server
    host = cluster.job_tasks(HOST_JOB)[0].rpartition(":")[0] if HOST_JOB in cluster.jobs else "localhost"
    wanted, found = Server(host, interfaces), _server
    leaves, joins = not set(cluster.jobs) - {HOST_JOB}, found == wanted and not tf_internals.devices.joined_tasks()
    _server = None
    if found is not None and (leaves or joins) and tf_internals.devices.serve_cluster(cluster):
        _server = found
    else:
        tf.config.experimental_connect_to_cluster(cluster)
        _server = wanted


def times_connected() -> int:
    """How often TensorFlow was asked to connect this process, including failed attempts."""
    return _times


def _lasting_watch() -> ListenWatch | None:
    """The one watch of this process, which lasts as long as the TensorFlow threads that it watches; None if it cannot
    be started.
    """
    global _watch
    if _watch is None:
        try:
            _watch = ListenWatch.started()
        except OSError:  # for example, no memory for a process
            return None
    return _watch


def _in_thread(run: Callable[[], None]) -> list[BaseException]:
    """Call `run` in a thread and wait until it ends. Return what it raised and a Ctrl-C pressed meanwhile, to be raised
    later, because TensorFlow cannot be interrupted.
    """
    turns, over, ended = [run], list[bool](), threading.Lock()
    raised, interrupted = list[BaseException](), list[BaseException]()
    ended.acquire()

    def take_turn() -> None:
        try:
            turn = turns.pop()
        except IndexError:  # another thread, whose start Ctrl-C interrupted, has taken the turn
            return
        try:
            turn()
        except BaseException as error:
            raised.append(error)
        over.append(True)
        ended.release()

    # Ctrl-C may come before or after the thread has started. Thread.join is not used: once it was interrupted, it takes
    # a running thread for an ended one.
    is_started = False
    while not over:
        try:
            if not is_started:
                threading.Thread(target=take_turn, name="placer-connect").start()
                is_started = True
            ended.acquire()
        except BaseException as pressed:  # Ctrl-C, or what the handler of another signal raises
            if isinstance(pressed, RuntimeError):  # Python can start no thread
                with suppress(IndexError):  # a thread was started after all, and has taken the turn
                    turns.pop()
                    raise
            interrupted = [pressed]
    return raised + interrupted
