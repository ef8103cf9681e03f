"""Connects this process to a cluster; the port that it opens for it is never open to other hosts, not for a moment."""

from __future__ import annotations

import threading
from collections.abc import Collection
from contextlib import nullcontext

import tensorflow as tf

from placer.devices.workers.binding import LOOPBACK, bind, listening_ports
from placer.devices.workers.listen_watch import ListenWatch

_watch: ListenWatch | None = None


def connect(cluster: tf.train.ClusterSpec, interfaces: Collection[str] = ()) -> None:
    """`tf.config.experimental_connect_to_cluster`, in a thread whose ports are tied to `interfaces` before they listen.

    TensorFlow opens a port at every call, also to leave a cluster (an empty one). Without interfaces, loopback alone
    reaches it. Where the kernel allows no watch, ports are tied right after they have opened. Raises what TensorFlow
    raises, and PlacerError where a port cannot be tied.
    """
    raised: list[BaseException] = []

    def run() -> None:
        try:
            with watch.held(names) if watch is not None else nullcontext():
                tf.config.experimental_connect_to_cluster(cluster)
        except BaseException as error:
            raised.append(error)

    tf.config.list_logical_devices()  # starts what TensorFlow would start, with its port, at some later call
    names = set(interfaces) or {LOOPBACK.decode()}
    before, watch = listening_ports(), _lasting_watch()
    thread = threading.Thread(target=run, name="placer-connect")
    thread.start()
    interrupted = _join(thread)
    bind(listening_ports() - before, names)
    for error in raised + interrupted:
        raise error


def _lasting_watch() -> ListenWatch | None:
    """One for the life of this process: TensorFlow's threads that it watches live as long."""
    global _watch
    if _watch is None:
        try:
            _watch = ListenWatch.started()
        except OSError:  # no memory for a process, say
            return None
    return _watch


def _join(thread: threading.Thread) -> list[BaseException]:
    """Wait for a thread. TensorFlow cannot be interrupted in it: Ctrl-C meanwhile is returned, to be raised later."""
    interrupted: list[BaseException] = []
    while thread.is_alive():
        try:
            thread.join()
        except KeyboardInterrupt as pressed:
            interrupted = [pressed]
    return interrupted
