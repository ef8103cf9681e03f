"""Whether a worker listens at an address, host:port."""

from __future__ import annotations

import socket
from enum import Enum, auto

from placer.errors import PlacerError

CONNECT_TIMEOUT_S = 5.0
ANSWER_TIMEOUT_S = 0.2


class Answer(Enum):
    """The answer of an address to a connection attempt."""

    LISTENS = auto()
    REFUSES = auto()  # the machine answers, but no worker listens
    SILENT = auto()  # the machine, the network or the name server does not answer, which may pass


_known: dict[str, str] = {}  # host -> the IP address at which it listened last


def listens(address: str) -> bool:
    """Whether host:port accepts a connection within ANSWER_TIMEOUT_S."""
    return answer(address) is Answer.LISTENS


def answer(address: str) -> Answer:
    """The answer of host:port within ANSWER_TIMEOUT_S, not counting the time to look up the host's name. The name is
    looked up again only if nothing listens at its last IP address: an unreachable name server is no lost worker.
    """
    host, _, port = address.rpartition(":")
    if host in _known and _answer(_known[host], port) is Answer.LISTENS:
        return Answer.LISTENS
    return _answer(host, port)


def _answer(host: str, port: str) -> Answer:
    try:
        with socket.create_connection((host, int(port)), timeout=ANSWER_TIMEOUT_S) as found:
            _known[host] = found.getpeername()[0]
            return Answer.LISTENS
    except ConnectionRefusedError:
        return Answer.REFUSES
    except (OSError, OverflowError):
        return Answer.SILENT


def check_answers(address: str) -> None:
    """Raises PlacerError if no worker answers within CONNECT_TIMEOUT_S; TensorFlow would wait for minutes."""
    host, _, port = address.rpartition(":")
    try:
        with socket.create_connection((host, int(port)), timeout=CONNECT_TIMEOUT_S):
            pass
    except (OSError, OverflowError) as error:
        raise PlacerError(
            f"no worker answers at {address} ({error}); start it, or leave it out of --devices."
        ) from error
