"""Ties the ports this process listens on to network interfaces, because TensorFlow's servers listen on all interfaces
and do not ask who calls.
"""

from __future__ import annotations

import ctypes
import os
import socket
import struct
from collections.abc import Callable, Collection, Iterator
from contextlib import contextmanager, suppress
from ipaddress import ip_address
from pathlib import Path

from placer.errors import PlacerError

LOOPBACK = b"lo"
INTERFACE_BYTES = 16  # of an interface's name: IFNAMSIZ
INSTEAD = "divide this process with --devices cpus:2"
SO_ATTACH_FILTER = 26  # asm-generic/socket.h; Python's socket module does not name it
# Classic BPF (linux/filter.h, linux/bpf_common.h): opcodes, and the offset of a packet's incoming interface.
LOAD, JUMP_IF_EQUAL, RETURN = 0x20, 0x15, 0x06
INTERFACE_INDEX = 0xFFFFFFFF & (-0x1000 + 8)
DROP, ACCEPT = 0, 0xFFFFFFFF


def bind_to_loopback(ports: Collection[int]) -> set[int]:
    """Bind this process's sockets that listen on `ports` to the loopback interface; return the ports that were bound.

    Raises PlacerError if the kernel refuses: the port must then not stay open.
    """
    return _tied(ports, tie_to_loopback, "loopback", INSTEAD)


def bind_to_interfaces(ports: Collection[int], names: Collection[str]) -> set[int]:
    """Make this process's sockets that listen on `ports` accept connections only through the interfaces `names` and
    from this machine itself; return the ports that were bound. Errors as for `bind_to_loopback`.
    """
    return _tied(ports, tie_to_interfaces(names), ", ".join(names), "serve on loopback")


def bind(ports: Collection[int], names: Collection[str]) -> set[int]:
    """Call `bind_to_loopback` if `names` contains nothing but loopback, else `bind_to_interfaces`."""
    only_loopback = set(names) <= {LOOPBACK.decode()}
    return bind_to_loopback(ports) if only_loopback else bind_to_interfaces(ports, names)


def tie_to(names: Collection[str]) -> Callable[[socket.socket], None]:
    """Return the function that restricts a socket as `bind` does."""
    return tie_to_loopback if set(names) <= {LOOPBACK.decode()} else tie_to_interfaces(names)


def tie_to_loopback(listener: socket.socket) -> None:
    """Make a socket accept connections from loopback only. Raises OSError if the kernel refuses."""
    tied = listener.getsockopt(socket.SOL_SOCKET, socket.SO_BINDTODEVICE, INTERFACE_BYTES).rstrip(b"\0")
    if tied != LOOPBACK:  # tying it again would need CAP_NET_RAW
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_BINDTODEVICE, LOOPBACK)


def tie_to_interfaces(names: Collection[str]) -> Callable[[socket.socket], None]:
    """Return a function that makes a socket accept connections only through the interfaces `names` and from this
    machine.

    SO_BINDTODEVICE takes a single interface, and workers may be behind several, so a filter checks the interface of
    each packet.
    """
    program = _only_from([socket.if_nametoindex(name) for name in {LOOPBACK.decode(), *names}])

    def tie(listener: socket.socket) -> None:
        code = ctypes.create_string_buffer(program)  # the kernel copies it during the call
        pointer = struct.pack("HP", len(program) // 8, ctypes.addressof(code))
        listener.setsockopt(socket.SOL_SOCKET, SO_ATTACH_FILTER, pointer)

    return tie


def interface_of(address: str) -> str | None:
    """The name of this machine's interface that has an IPv4 address; None if the address is not this machine's."""
    import psutil  # imported here, because workers on loopback do not need it and must start fast

    if ip_address(address).is_loopback:
        return LOOPBACK.decode()
    owned = psutil.net_if_addrs().items()
    return next((name for name, has in owned if any(entry.address == address for entry in has)), None)


def own_address(host: str) -> str:
    """The IPv4 address from which this machine reaches `host`; sends nothing. Raises OSError for an unknown host."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as s:
        s.connect((host, 9))
        return str(s.getsockname()[0])


def listening_ports() -> set[int]:
    """The TCP ports this process listens on."""
    ports = set()
    for listener in _listeners():
        with listener:
            ports.add(int(listener.getsockname()[1]))
    return ports


@contextmanager
def held_port(port: int) -> Iterator[None]:
    """Within the block, the kernel gives a port that is in use by nobody to no other program that asks for any port, or
    connects from one. A server that sets SO_REUSEADDR, as TensorFlow's does, can listen there nevertheless.
    """
    with socket.socket(socket.AF_INET, socket.SOCK_STREAM) as holder:
        with suppress(OSError):  # it is in use: whoever wants to listen there says so
            holder.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            holder.bind(("0.0.0.0", port))
        yield


def _only_from(indices: Collection[int]) -> bytes:
    """A filter that drops packets from all interfaces other than these. indices: of interfaces."""
    tests = [(JUMP_IF_EQUAL, len(indices) - i, 0, index) for i, index in enumerate(indices)]
    program = [(LOAD, 0, 0, INTERFACE_INDEX), *tests, (RETURN, 0, 0, DROP), (RETURN, 0, 0, ACCEPT)]
    return b"".join(struct.pack("HBBI", *instruction) for instruction in program)


def _tied(ports: Collection[int], tie: Callable[[socket.socket], None], to: str, instead: str) -> set[int]:
    bound = set()
    for listener in _listeners():
        with listener:
            port = int(listener.getsockname()[1])
            if port in ports:
                try:
                    tie(listener)
                except OSError as error:
                    raise PlacerError(
                        f"port {port} cannot be tied to {to} ({error.strerror}) and would be open to other hosts; "
                        f"use Linux 5.7 or later, allow CAP_NET_RAW, or {instead}."
                    ) from error
                bound.add(port)
    return bound


def _duplicate(descriptor: int) -> socket.socket:
    """Another handle of a socket; the socket's mode does not change. Without SOCK_NONBLOCK, Python would apply the
    program's default timeout, which would make the program's own socket non-blocking, too.
    """
    copy = os.dup(descriptor)
    try:
        return socket.socket(type=socket.SOCK_STREAM | socket.SOCK_NONBLOCK, fileno=copy)
    except BaseException:
        os.close(copy)
        raise


def tcp_sockets() -> Iterator[socket.socket]:
    """A duplicate of each TCP socket of this process; close it after use."""
    for entry in list(Path("/proc/self/fd").iterdir()):
        try:
            if not str(entry.readlink()).startswith("socket:"):
                continue
            handle = _duplicate(int(entry.name))
        except OSError:  # closed since it was listed
            continue
        kind = handle.getsockopt(socket.SOL_SOCKET, socket.SO_TYPE)
        if handle.family in (socket.AF_INET, socket.AF_INET6) and kind == socket.SOCK_STREAM:
            yield handle
        else:
            handle.close()


def _listeners() -> Iterator[socket.socket]:
    """A duplicate of each listening TCP socket of this process; close it after use."""
    for handle in tcp_sockets():
        if handle.getsockopt(socket.SOL_SOCKET, socket.SO_ACCEPTCONN):
            yield handle
        else:
            handle.close()
