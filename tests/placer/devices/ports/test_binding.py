"""Sockets of the process are looked at, and left as they are."""

import multiprocessing
import os
import socket

from placer.devices.ports.binding import tcp_sockets


def test_the_programs_own_sockets_go_on_to_block_whatever_its_default_timeout():
    ours, theirs = multiprocessing.Pipe()
    listener = socket.create_server(("127.0.0.1", 0))
    socket.setdefaulttimeout(30.0)
    try:
        found = []
        for handle in tcp_sockets():
            found.append(handle.getsockname())
            handle.close()
    finally:
        socket.setdefaulttimeout(None)
    assert listener.getsockname() in found
    assert all(map(os.get_blocking, (ours.fileno(), theirs.fileno(), listener.fileno())))
    listener.close()
