"""Ends connections to and between workers when nothing comes through them any more.

If a machine loses its power, or a network is cut, no packet says so. TensorFlow would then wait until the kernel gives
up sending, a quarter of an hour, or forever if it only waits for an answer. The kernel can probe the other end instead
(SO_KEEPALIVE, tcp(7)). The kernel of a frozen or slow worker still answers, as long as its buffers have room. On one
machine only a firewall can cut a worker off; then only this module ends what waits for the worker while others compute.
"""

from __future__ import annotations

import socket
import threading
import time
from collections.abc import Callable, Collection, Iterator
from contextlib import suppress

from placer.devices.ports.binding import tcp_sockets

Peer = tuple[str, int]
"""The address and the port of the other end."""

SILENT_S = 60.0  # without any answer, after which a connection ends
PARTS = 6  # of the silence: the kernel first probes after two parts, then after each part
EVERY_S = 10.0  # between two looks for new connections
MOST_PART_S, MOST_MS = 16_383, 2**31 - 1  # the kernel takes up to 32,767 s between packets, and an int of ms


def keep_alive(silent_s: float = SILENT_S, peers: Collection[Peer] | None = None) -> int:
    """Make this process's current connections end after `silent_s` seconds of silence; return how many there are.

    peers: the other ends whose connections count; None = all.
    """
    part_s = min(max(1, round(silent_s / PARTS)), MOST_PART_S)
    found = 0
    for connection in _connections(peers):
        with connection, suppress(OSError):  # closed meanwhile
            connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPIDLE, 2 * part_s)
            connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPINTVL, part_s)
            connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT, min(round(1000 * silent_s), MOST_MS))
            connection.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
            found += 1
    return found


def keep_alive_from_now(silent_s: float = SILENT_S, peers: Callable[[], Collection[Peer]] | None = None) -> None:
    """Call `keep_alive` again and again in a thread, so that later connections are covered, too. peers: returns those
    of the moment; None = all.
    """

    def keep_on() -> None:
        while True:
            with suppress(OSError):  # no file can be opened or no name looked up at the moment
                now = None if peers is None else peers()
                if now is None or now:
                    keep_alive(silent_s, now)
            time.sleep(EVERY_S)

    threading.Thread(target=keep_on, daemon=True, name="placer-keepalive").start()


def _connections(peers: Collection[Peer] | None) -> Iterator[socket.socket]:
    """A duplicate of each connected TCP socket of this process; close it after use."""
    for found in tcp_sockets():
        try:
            host, port = found.getpeername()[:2]
        except OSError:  # it listens, or is closed
            found.close()
            continue
        if peers is None or (host.removeprefix("::ffff:"), port) in peers:
            yield found
        else:
            found.close()
