"""The child process of a `listen_watch`: ties the sockets of the watched process before it listens on them.

Run as `python -m placer.devices.ports.listen_child DESCRIPTOR PROCESS`, or called in a forked child.
"""

from __future__ import annotations

import ctypes
import fcntl
import os
import select
import socket
import struct
import sys
from collections.abc import Callable
from contextlib import suppress
from typing import NoReturn

from placer.devices.ports.binding import tie_to

# linux/seccomp.h: the ioctls of a listener, and their structs: seccomp_notif, of which the id and the call's first
# argument are read, and its reply.
RECEIVE, SEND = 0xC0502100, 0xC0182101
REQUEST_BYTES, ID_AT, ARGUMENT_AT, REPLY, CONTINUE = 80, 0, 32, "QqiI", 1
PIDFD_GETFD = 438  # the same number on every architecture
READY = b"r"  # the child sends this once it can watch
FREE = b"/"  # the child is sent this once nothing is to be tied; no interface has this name
NAMES_BYTES = 65_536


def answer_until_it_ends(theirs: socket.socket, watched: int) -> NoReturn:
    """Answer held calls of the process `watched`, the parent of this one, until it ends or `theirs` is closed.

    Through `theirs`, the parent sends names of interfaces, separated by commas, together with the descriptor on which
    held calls are read; or FREE.
    """
    try:
        if os.getppid() == watched:
            _answer(theirs, os.pidfd_open(watched))
    finally:
        os._exit(0)


def _answer(theirs: socket.socket, process: int) -> None:
    poll = select.poll()
    poll.register(process, select.POLLIN)  # ready when it ends; a process that it forked may keep `theirs` open
    poll.register(theirs, select.POLLIN)
    theirs.send(READY)
    tie: Callable[[socket.socket], None] | None = None
    while True:
        ready = dict(poll.poll())
        if process in ready:
            return
        if ready.pop(theirs.fileno(), 0):  # handled first: the names are sent before calls are held
            said, listeners, _, _ = socket.recv_fds(theirs, NAMES_BYTES, 1)
            if not said:
                return
            tie = None
            if said != FREE:
                with suppress(OSError):  # an interface no longer exists
                    tie = tie_to(said.decode().split(","))
            for listener in listeners:
                poll.register(listener, select.POLLIN)
            continue
        for listener, event in ready.items():
            if event & select.POLLIN:
                _let_go(listener, process, tie)
            else:  # the watched threads have ended
                poll.unregister(listener)
                os.close(listener)


def _let_go(listener: int, process: int, tie: Callable[[socket.socket], None] | None) -> None:
    """Tie the socket of a held call, then let the call go on."""
    request = bytearray(REQUEST_BYTES)
    try:
        fcntl.ioctl(listener, RECEIVE, request)
    except OSError:  # its thread has ended meanwhile
        return
    (call,) = struct.unpack_from("Q", request, ID_AT)
    (number,) = struct.unpack_from("Q", request, ARGUMENT_AT)
    if tie is not None:
        with suppress(Exception):  # on failure, the socket is tied after it has begun to listen
            # A container may forbid the copy: -1 is no descriptor.
            copied = ctypes.CDLL(None).syscall(ctypes.c_long(PIDFD_GETFD), process, ctypes.c_uint(number), 0)
            with socket.socket(fileno=copied) as copy:
                if copy.family in (socket.AF_INET, socket.AF_INET6):
                    tie(copy)
    with suppress(OSError):
        fcntl.ioctl(listener, SEND, bytearray(struct.pack(REPLY, call, 0, 0, CONTINUE)))


if __name__ == "__main__":
    answer_until_it_ends(socket.socket(fileno=int(sys.argv[1])), int(sys.argv[2]))
