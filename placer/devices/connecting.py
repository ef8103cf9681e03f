"""Connects this process to a cluster; the port that it opens for it is never open to other hosts, not for a moment."""

from __future__ import annotations

import threading
from collections.abc import Callable, Collection
from contextlib import nullcontext

import tensorflow as tf

from placer.devices.workers.binding import LOOPBACK, bind, listening_ports
from placer.devices.workers.listen_watch import ListenWatch

_watch: ListenWatch | None = None
_times = 0


def connect(cluster: tf.train.ClusterSpec, interfaces: Collection[str] = ()) -> None:
    """`tf.config.experimental_connect_to_cluster`, in a thread whose ports are tied to `interfaces` before they listen.

    TensorFlow opens a port at every call, also to leave a cluster (an empty one). Without interfaces, loopback alone
    reaches it. Where the kernel allows no watch, ports are tied right after they have opened. Raises what TensorFlow
    raises, and PlacerError where a port cannot be tied.
    """

    def run() -> None:
        global _times
        with watch.held(names) if watch is not None else nullcontext():
            _times += 1
            tf.config.experimental_connect_to_cluster(cluster)

    tf.config.list_logical_devices()  # starts what TensorFlow would start, with its port, at some later call
    names = set(interfaces) or {LOOPBACK.decode()}
    before, watch = listening_ports(), _lasting_watch()
    raised = _in_thread(run)
    bind(listening_ports() - before, names)
    for error in raised:
        raise error


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
        except KeyboardInterrupt as pressed:
            interrupted = [pressed]
    return raised + interrupted
