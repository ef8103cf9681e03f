"""Ties a server's socket before it listens, so that nobody else reaches its port, not even for a moment.

TensorFlow opens its socket and listens in one call, out of Python's reach. So the kernel is asked to hold the calls of
listen(2) of this thread, and of those that it starts (seccomp(2), SECCOMP_RET_USER_NOTIF), until a child process has
tied the socket in question.

server   socket  bind  listen ............................ listens
kernel                    |held                            |goes on
child                     |copies the socket |ties it |says so

Whatever the child cannot do, the held call goes on.
"""

from __future__ import annotations

import ctypes
import fcntl
import os
import platform
import signal
import socket
import struct
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress

Tie = Callable[[socket.socket], None]
"""Restricts whom a socket hears; raises OSError where the kernel refuses."""

PR_SET_PDEATHSIG, PR_SET_NO_NEW_PRIVS, PR_SET_PTRACER = 1, 38, 0x59616D61  # linux/prctl.h
SET_MODE_FILTER, NEW_LISTENER, CONTINUE = 1, 1 << 3, 1  # linux/seccomp.h
# The ioctls of a listener, and their structs: seccomp_notif, of which the call's first argument is read, and its reply.
RECEIVE, SEND = 0xC0502100, 0xC0182101
REQUEST_BYTES, ID_AT, ARGUMENT_AT, REPLY = 80, 0, 32, "QqiI"
# Classic BPF (linux/filter.h): opcodes, where a call's number and architecture are read, and what is to happen.
LOAD, JUMP_IF_EQUAL, RETURN = 0x20, 0x15, 0x06
NUMBER_AT, ARCHITECTURE_AT = 0, 4
ALLOW, NOTIFY = 0x7FFF0000, 0x7FC00000
# By machine: its architecture in linux/audit.h, and its numbers of listen(2) and seccomp(2).
MACHINES = {"x86_64": (0xC000003E, 50, 317), "aarch64": (0xC00000B7, 201, 277)}
PIDFD_GETFD = 438  # on every machine
READY, READY_S = b"r", 10.0  # what the child says once it can watch, and how long it may take


class ListenWatch:
    """A child process that ties sockets of this process with `tie` before they listen.

    Make it while this process has one thread. Where the kernel, or a container, allows no such watch, nothing happens:
    tie sockets afterwards, too.
    """

    def __init__(self, tie: Tie) -> None:
        self._ours, theirs = socket.socketpair()
        watched = os.getpid()
        self._child = os.fork()
        if self._child == 0:
            self._ours.close()
            _watch(theirs, watched, tie)
        theirs.close()

    @contextmanager
    def held(self) -> Iterator[None]:
        """What this thread, or one that it starts, listens on in the block is tied before. After the block they can
        listen on nothing more.
        """
        listener = _listener(self._child) if self._is_ready() else None
        if listener is not None:
            socket.send_fds(self._ours, [b"l"], [listener])
            os.close(listener)
        try:
            yield
        finally:
            self.close()

    def _is_ready(self) -> bool:
        """Whether the child can watch: where it cannot, nothing may be held, because nobody would let it go on."""
        self._ours.settimeout(READY_S)
        try:
            return self._ours.recv(1) == READY
        except OSError:
            return False

    def close(self) -> None:
        """End the child."""
        self._ours.close()
        with suppress(ProcessLookupError):
            os.kill(self._child, signal.SIGKILL)
        with suppress(ChildProcessError):
            os.waitpid(self._child, 0)


def _listener(child: int) -> int | None:
    """The descriptor on which held calls of this thread are read from now on; None where that is not allowed."""
    if platform.machine() not in MACHINES:
        return None
    architecture, listen, seccomp = MACHINES[platform.machine()]
    code = b"".join(
        struct.pack("HBBI", *instruction)
        for instruction in (
            (LOAD, 0, 0, ARCHITECTURE_AT),
            (JUMP_IF_EQUAL, 0, 3, architecture),
            (LOAD, 0, 0, NUMBER_AT),
            (JUMP_IF_EQUAL, 0, 1, listen),
            (RETURN, 0, 0, NOTIFY),
            (RETURN, 0, 0, ALLOW),
        )
    )
    program = ctypes.create_string_buffer(code)
    pointer = ctypes.create_string_buffer(struct.pack("HP", len(code) // 8, ctypes.addressof(program)))
    libc = ctypes.CDLL(None, use_errno=True)
    libc.prctl(PR_SET_PTRACER, ctypes.c_ulong(child), 0, 0, 0)  # where Yama forbids it otherwise
    if libc.prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) != 0:  # else only root may set a filter
        return None
    found = libc.syscall(ctypes.c_long(seccomp), SET_MODE_FILTER, NEW_LISTENER, pointer)
    return None if found < 0 else int(found)


def _watch(theirs: socket.socket, watched: int, tie: Tie) -> None:
    """In the child: answer held calls until the watched process is gone."""
    try:
        libc = ctypes.CDLL(None, use_errno=True)
        libc.prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
        if os.getppid() != watched:
            return
        process = os.pidfd_open(watched)
        theirs.send(READY)
        _, (listener,), _, _ = socket.recv_fds(theirs, 1, 1)
        while True:
            request = bytearray(REQUEST_BYTES)
            fcntl.ioctl(listener, RECEIVE, request)
            (call,) = struct.unpack_from("Q", request, ID_AT)
            (number,) = struct.unpack_from("Q", request, ARGUMENT_AT)
            with suppress(Exception):  # then it is tied after it has begun to listen
                # A container may forbid the copy: -1 is no descriptor.
                copied = libc.syscall(ctypes.c_long(PIDFD_GETFD), process, ctypes.c_uint(number), 0)
                with socket.socket(fileno=copied) as copy:
                    if copy.family in (socket.AF_INET, socket.AF_INET6):
                        tie(copy)
            fcntl.ioctl(listener, SEND, bytearray(struct.pack(REPLY, call, 0, 0, CONTINUE)))
    finally:
        os._exit(0)
