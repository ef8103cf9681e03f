"""This process's connection to a Ray that already runs, or to one that is started here and ended again.

Ray is loaded by `connect`, not before.
"""

from __future__ import annotations

import atexit
import logging
import os
import re
import signal
import socket
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass
from functools import partial
from typing import Any

from placer.devices.host.cores import usable_cores
from placer.devices.ports.binding import interface_of, own_address
from placer.devices.workers.addresses import listens
from placer.errors import BadInputError, short

LOCAL = "local"
VARIABLE = "RAY_ADDRESS"
ADDRESS = re.compile(r"(?P<host>[A-Za-z0-9_.\-]+):(?P<port>[0-9]{1,5})")
ON_LOOPBACK = "RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER"  # read when Ray is loaded; off by default on Windows and macOS
OUTSIDE = "8.8.8.8"  # nothing is sent there; only the interface that leads there is looked up
AUTHENTICATION = "RAY_AUTH_MODE"
TOKEN_FILE = "~/.ray/auth_token"
PROBE_S, FOUND_S = 4.0, 8.0  # for connecting to the port; the same including the search for its host
JOIN_S = 60.0  # for a gRPC server there to let this process in; Ray itself would wait for minutes
# RFC 9113: a client's preface with an empty SETTINGS frame. The server also begins with a SETTINGS frame.
GREETING, FRAME_BYTES, SETTINGS = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\0\0\0\4\0\0\0\0\0", 9, b"\4"
STORE_BYTES = 200_000_000  # of Ray's object store on this machine; by default it takes a third of the memory
INSTEAD = f"name the HOST:PORT of a cluster's head, or write {LOCAL} to start Ray on this machine."


@dataclass(eq=False)
class RayConnection:
    """This process's use of Ray, until it is closed. address: "local", or HOST:PORT of the cluster."""

    address: str

    def __enter__(self) -> RayConnection:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Stop using Ray. The end of the last use ends the Ray that `connect` started, or leaves the cluster that it
        joined. A Ray to which the program itself connected stays. Harmless when called twice.
        """
        _shared.leave(self)


def check_address(address: str | None) -> None:
    """Raises BadInputError unless `address` is None, "local" or HOST:PORT. Contacts no host."""
    if address is None or address == LOCAL:
        return
    found = ADDRESS.fullmatch(address)
    if found is None or not 0 < int(found["port"]) < 65536:
        raise BadInputError(f"Ray address {short(address)} is neither {LOCAL} nor HOST:PORT; {INSTEAD}")


def connect(address: str | None = None) -> RayConnection:
    """Connect this process to Ray; close the connection after use. Any thread may call this, and uses may overlap.

    address: "local" starts Ray in this process, on loopback and with the cores that it may use; HOST:PORT is the head
    of a cluster. None = the Ray to which this process is already connected, else that in RAY_ADDRESS, else "local".

    Raises BadInputError if Ray is not installed, if the program is connected to another Ray, if nothing at the address
    speaks gRPC (within 10 s), or if what speaks it is no Ray of the same version (70 s).
    """
    check_address(address)
    return _shared.join(address)


def connected_address() -> str | None:
    """HOST:PORT of the Ray to which this process is connected; None if it is not connected. Does not load Ray."""
    ray = _connected()
    return None if ray is None else _head(ray)


def _connected() -> Any | None:
    """The module `ray` if this process is connected to a Ray; else None."""
    ray = sys.modules.get("ray")
    return ray if ray is not None and ray.is_initialized() else None


class _Shared:
    """The one connection that Ray allows in a process, and its uses."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._uses: set[RayConnection] = set()  # of a Ray that was connected here; empty if the program did it
        self._address = LOCAL
        self._had_mode = True

    def join(self, address: str | None) -> RayConnection:
        with self._lock:
            ray = _connected()
            if ray is not None:
                self._check_same(ray, address)
                if not self._uses:
                    return RayConnection(_head(ray))
            else:
                self._address = address or _named_by_environment() or LOCAL
                self._had_mode = AUTHENTICATION in os.environ
                _start() if self._address == LOCAL else _join(self._address)
                self._uses.clear()
            use = RayConnection(self._address)
            self._uses.add(use)
            return use

    def leave(self, use: RayConnection) -> None:
        with self._lock:
            if use in self._uses:
                self._uses.remove(use)
                if not self._uses and (ray := _connected()) is not None:
                    ray.shutdown()
                    if not self._had_mode:  # Ray sets it when it starts a cluster; it may be wrong for others
                        os.environ.pop(AUTHENTICATION, None)

    def _check_same(self, ray: Any, address: str | None) -> None:
        """Raises BadInputError if the program is connected to a Ray other than the one at `address`."""
        if address is None or (self._uses and address == self._address):
            return
        if address == LOCAL or not _is_same(address, _head(ray)):
            raise BadInputError(
                f"this program is connected to Ray at {_head(ray)}, so it cannot use {address}; "
                "leave the address out, or call ray.shutdown() before."
            )


_shared = _Shared()


def _module(on_loopback: bool) -> Any:
    """Import Ray. on_loopback: make Ray keep to 127.0.0.1 where it listens, and where it looks for a head. By default
    Ray replaces that address by the machine's address in the network; a variable meant for other systems prevents this.
    Raises BadInputError if the extra is not installed.
    """
    with _unless_set(ON_LOOPBACK, "0") if on_loopback else nullcontext():
        try:
            import ray
        except ImportError as error:
            raise BadInputError(f"Ray cannot be loaded ({error}): pip install 'placer[ray]'.") from None
    return ray


@contextmanager
def _unless_set(name: str, value: str) -> Iterator[None]:
    """Within the block, give the environment variable `name` the value `value`, unless it is set already."""
    sets = name not in os.environ
    os.environ.setdefault(name, value)
    try:
        yield
    finally:
        if sets:
            os.environ.pop(name, None)


def _named_by_environment() -> str | None:
    address = os.environ.get(VARIABLE) or None
    try:
        check_address(address)
    except BadInputError as error:
        raise BadInputError(f"{VARIABLE} is set: {error}") from None
    return address


def _start() -> None:
    """Start Ray on this machine, reachable through loopback only."""
    ray = _module(on_loopback=True)
    handler = signal.getsignal(signal.SIGTERM)
    try:
        ray.init(
            address=LOCAL,
            num_cpus=len(usable_cores()),
            object_store_memory=STORE_BYTES,
            include_dashboard=False,
            log_to_driver=False,
            logging_level=logging.ERROR,
        )
    except Exception as error:
        raise BadInputError(f"Ray does not start on this machine: {_said(error)}") from error
    finally:
        if threading.current_thread() is threading.main_thread():  # restore what Ray replaces
            signal.signal(signal.SIGTERM, handler)


def _join(address: str) -> None:
    """Join the cluster at HOST:PORT."""
    try:
        _within(FOUND_S, partial(_probe, address))
    except (OSError, UnicodeError) as error:
        raise BadInputError(f"no Ray answers at {address} ({error}); {INSTEAD}") from None
    ray = _module(on_loopback=_is_here(address) and _only_on_loopback(address))
    join = partial(ray.init, address=address, log_to_driver=False, logging_level=logging.ERROR)
    try:
        _within(JOIN_S, join, late=ray.shutdown)
    except TimeoutError:
        atexit.unregister(ray.shutdown)  # it would wait for that call when the program ends
        raise BadInputError(
            f"what listens at {address} did not let this process in as Ray does, in {JOIN_S:.0f} s; {INSTEAD}"
        ) from None
    except Exception as error:
        raise BadInputError(f"Ray at {address}: {_said(error)}{_hint()}") from error


def _probe(address: str) -> None:
    """Raises OSError if nothing at HOST:PORT answers a greeting of HTTP/2, on which gRPC and so Ray are built."""
    host, _, port = address.rpartition(":")
    with socket.create_connection((host, int(port)), timeout=PROBE_S) as head:
        if os.environ.get("RAY_USE_TLS", "0") == "1":  # the greeting would have to be encrypted
            return
        head.sendall(GREETING)
        if head.recv(FRAME_BYTES, socket.MSG_WAITALL)[3:4] != SETTINGS:
            raise OSError("what listens there does not speak as Ray does")


def _is_here(address: str) -> bool:
    """Whether HOST:PORT is on this machine."""
    try:
        return interface_of(socket.gethostbyname(address.rpartition(":")[0])) is not None
    except (OSError, UnicodeError):
        return False


def _only_on_loopback(address: str) -> bool:
    """Whether a head on this machine listens on loopback only, not at the machine's address in the network."""
    try:
        return not listens(f"{own_address(OUTSIDE)}:{address.rpartition(':')[2]}")
    except OSError:
        return True


def _hint() -> str:
    """Advice for the end of an error line. Ray does not say that a cluster asks for a token, and a cluster that is sent
    a token unasked starts no actors.
    """
    if os.environ.get(AUTHENTICATION) == "token":
        return f"; where it asks for a token, {TOKEN_FILE} must be that of its head."
    return f"; where it asks for a token, set {AUTHENTICATION}=token, and have its head's {TOKEN_FILE} here."


def _within(limit_s: float, call: Callable[[], object], late: Callable[[], object] = lambda: None) -> None:
    """Call `call`, which cannot be interrupted, in a thread. Raises what it raises, and TimeoutError after `limit_s`
    seconds; the call then goes on in its thread, and `late` is called if it still succeeds.
    """
    errors: list[Exception] = []
    ended, given_up = threading.Event(), threading.Event()

    def run() -> None:
        try:
            call()
        except Exception as error:
            errors.append(error)
        ended.set()
        if given_up.is_set() and not errors:
            late()

    threading.Thread(target=run, daemon=True, name="placer-ray").start()
    if not ended.wait(limit_s):
        given_up.set()
        raise TimeoutError(f"no answer within {limit_s:.0f} s")
    if errors:
        raise errors[0]


def _head(ray: Any) -> str:
    """HOST:PORT of the cluster to which this process is connected."""
    return str(ray.get_runtime_context().gcs_address)


def _is_same(address: str, head: str) -> bool:
    """Whether HOST:PORT names a cluster's head, possibly by another name of the same machine."""
    (host, _, port), (head_host, _, head_port) = address.rpartition(":"), head.rpartition(":")
    try:
        ip = socket.gethostbyname(host)
    except (OSError, UnicodeError):
        return False
    return port == head_port and (ip == head_host or (_is_here(address) and _is_here(head)))


def _said(error: BaseException) -> str:
    """Ray's message, or the type of the error, in one line."""
    return " ".join(str(error).split()) or type(error).__name__
