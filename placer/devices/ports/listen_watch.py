"""Ties a server's socket before it listens, so that other hosts cannot reach its port even for a moment.

TensorFlow opens its socket and listens in one call, out of Python's reach. So the kernel is asked to hold the calls of
listen(2) by this thread, and by threads that it starts (seccomp(2), SECCOMP_RET_USER_NOTIF), until a child process
(`listen_child`) has tied the socket.

server   socket  bind  listen ............................ listens
kernel                    |held                            |goes on
child                     |copies the socket |ties it |says so

If the child cannot tie the socket, the held call still goes on. A worker forks its child before it has threads, and
ends it once its server listens. The coordinating process, which has threads, starts its child as a program and keeps
it, because the threads that TensorFlow starts in the block of `held` stay watched.
"""

from __future__ import annotations

import ctypes
import os
import platform
import signal
import socket
import struct
import subprocess
from collections.abc import Collection, Iterator
from contextlib import contextmanager, suppress

from placer.devices.host.child_python import module_command, module_paths
from placer.devices.ports import listen_child
from placer.devices.ports.listen_child import FREE, READY

PR_SET_NO_NEW_PRIVS, PR_SET_PTRACER = 38, 0x59616D61  # linux/prctl.h
# linux/seccomp.h. Without SPEC_ALLOW, kernels before 5.16 slow watched threads down, against Speculative Store Bypass.
SET_MODE_FILTER, SPEC_ALLOW, NEW_LISTENER = 1, 1 << 2, 1 << 3
# Classic BPF (linux/filter.h): opcodes, the offsets of a call's number and architecture, and the verdicts.
LOAD, JUMP_IF_EQUAL, RETURN = 0x20, 0x15, 0x06
NUMBER_AT, ARCHITECTURE_AT = 0, 4
ALLOW, NOTIFY = 0x7FFF0000, 0x7FC00000
# By machine: its architecture in linux/audit.h, and its numbers of listen(2) and seccomp(2).
MACHINES = {"x86_64": (0xC000003E, 50, 317), "aarch64": (0xC00000B7, 201, 277)}
READY_S = 10.0  # how long a child may take until it can watch


class ListenWatch:
    """A child process that ties sockets of this process before they listen.

    If the kernel, or a container, allows no such watch, it ties nothing. So always tie sockets afterwards, too.
    """

    def __init__(self, child: int, ours: socket.socket, program: subprocess.Popen[bytes] | None = None) -> None:
        """Use `forked` or `started` instead. child: its process id. ours: the socket that leads to the child. program:
        the child, if it was started as a program.
        """
        self._child, self._ours, self._program = child, ours, program
        self._ready: bool | None = None

    @classmethod
    def forked(cls) -> ListenWatch:
        """Fork the child now; only for a process that has a single thread."""
        ours, theirs = socket.socketpair(type=socket.SOCK_SEQPACKET)
        watched = os.getpid()
        child = os.fork()
        if child == 0:
            ours.close()
            listen_child.answer_until_it_ends(theirs, watched)
        theirs.close()
        return cls(child, ours)

    @classmethod
    def started(cls) -> ListenWatch:
        """Start the child now; it is ready in a tenth of a second. Raises OSError if it cannot be started."""
        ours, theirs = socket.socketpair(type=socket.SOCK_SEQPACKET)
        with theirs:
            words = module_command(listen_child.__name__, str(theirs.fileno()), str(os.getpid()))
            program = subprocess.Popen(
                words,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
                pass_fds=[theirs.fileno()],
                env={**os.environ, **module_paths()},
                start_new_session=True,  # Ctrl-C must not reach it
            )
        return cls(program.pid, ours, program)

    @contextmanager
    def held(self, names: Collection[str]) -> Iterator[None]:
        """Within the block, sockets on which this thread, or a thread that it starts, is about to listen are first tied
        to the interfaces `names`. Once the watch is closed, these threads cannot listen any more.
        """
        listeners = _listeners(self._child) if self._is_ready() else []
        with suppress(OSError):  # the child has ended
            socket.send_fds(self._ours, [",".join(names).encode()], listeners)
        for listener in listeners:
            os.close(listener)
        try:
            yield
        finally:
            with suppress(OSError):
                self._ours.send(FREE)

    def _is_ready(self) -> bool:
        """Whether the child can watch. If it cannot, no call may be held, because nothing would let the call go on."""
        if self._ready is None:
            self._ours.settimeout(READY_S)
            try:
                self._ready = self._ours.recv(1) == READY
            except OSError:
                self._ready = False
        return self._ready

    def close(self) -> None:
        """End the child."""
        self._ours.close()
        if self._program is not None:
            self._program.kill()
            self._program.wait()
            return
        with suppress(ProcessLookupError):
            os.kill(self._child, signal.SIGKILL)
        with suppress(ChildProcessError):
            os.waitpid(self._child, 0)


def _listeners(child: int) -> list[int]:
    """Hold this thread's calls of listen(2) from now on; return the descriptor on which held calls are read. The list
    is empty if that is not allowed, or if this thread is watched already because a watched thread started it.
    """
    if platform.machine() not in MACHINES:
        return []
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
    libc.prctl(PR_SET_PTRACER, ctypes.c_ulong(child), 0, 0, 0)  # else Yama may forbid copying sockets
    if libc.prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) != 0:  # else only root may set a filter
        return []
    found = libc.syscall(ctypes.c_long(seccomp), SET_MODE_FILTER, NEW_LISTENER | SPEC_ALLOW, pointer)
    return [] if found < 0 else [int(found)]
