"""Connects this process to a cluster; the port that it opens for it is never open to other hosts, not for a moment."""

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
_server: Server | None = None  # the one that TensorFlow started last; None where it never connected, or not to the end


class Server(NamedTuple):
    """How others reach what TensorFlow starts in this process."""

    host: str
    interfaces: frozenset[str]


def connect(cluster: tf.train.ClusterSpec, interfaces: Collection[str] = ()) -> None:
    """`tf.config.experimental_connect_to_cluster`, in a thread whose ports are tied to `interfaces` before they listen.

    TensorFlow starts a server with a port, also to leave a cluster (an empty one), where none is there that will do.
    Without interfaces, loopback alone reaches it. Where the kernel allows no watch, ports are tied right after they
    have opened. Raises what TensorFlow raises, and PlacerError where a port cannot be tied.
    """

    def run() -> None:
        global _times
        with watch.held(names) if watch is not None else nullcontext():
            _times += 1
            leftovers.forget()  # a connection that fails voids what was there, too
            _connect(cluster, names)

    tf.config.list_logical_devices()  # starts what TensorFlow would start, with its port, at some later call
    names = frozenset(interfaces) or frozenset({LOOPBACK.decode()})
    before, watch = listening_ports(), _lasting_watch()
    raised = _in_thread(run)
    bind(listening_ports() - before, names)
    for error in raised:
        raise error


def _connect(cluster: tf.train.ClusterSpec, interfaces: frozenset[str]) -> None:
    """Connect to `cluster`, by TensorFlow's present server where that will do.

    It will do to leave workers, and to join workers while none is joined. TensorFlow never ends a server, and each
    takes some 40 MB and 90 threads. Where one joined cluster directly follows another, a new server is started, because
    workers may be lost and only a new server forgets them.
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
    """How often TensorFlow was asked to connect this process, in vain or not."""
    return _times


def _lasting_watch() -> ListenWatch | None:
    """One for the life of this process: TensorFlow's threads that it watches live as long."""
    global _watch
    if _watch is None:
        try:
            _watch = ListenWatch.started()
        except OSError:  # no memory for a process, say
            return None
    return _watch


def _in_thread(run: Callable[[], None]) -> list[BaseException]:
    """Run it in a thread until it is over. TensorFlow cannot be interrupted in it: Ctrl-C meanwhile is returned, to be
    raised later, like what it raised.
    """
    turns, over, ended = [run], list[bool](), threading.Lock()
    raised, interrupted = list[BaseException](), list[BaseException]()
    ended.acquire()

    def take_turn() -> None:
        try:
            turn = turns.pop()
        except IndexError:  # the thread whose start Ctrl-C broke off has it
            return
        try:
            turn()
        except BaseException as error:
            raised.append(error)
        over.append(True)
        ended.release()

    # Ctrl-C may come before a thread has started and after, and Thread.join, once it was interrupted, takes a thread
    # that runs for one that has ended.
    is_started = False
    while not over:
        try:
            if not is_started:
                threading.Thread(target=take_turn, name="placer-connect").start()
                is_started = True
            ended.acquire()
        except BaseException as pressed:  # what a handler of another signal raises, too
            if isinstance(pressed, RuntimeError):  # Python can start no thread
                with suppress(IndexError):  # unless it has, which then takes the turn
                    turns.pop()
                    raise
            interrupted = [pressed]
    return raised + interrupted
