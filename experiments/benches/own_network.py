"""A network of its own for a process and the workers that it starts; its loopback can be slowed and cut.

No other program notices. Works only on Linux, with network namespaces; `tc` and `ip` are programs of iproute2,
`unshare` and `nsenter` of util-linux. `python -m experiments.benches.own_network ARGUMENTS` runs `python ARGUMENTS` in
a network of its own.
"""

from __future__ import annotations

import ctypes
import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import psutil

from placer.errors import PlacerError, one_line

UNAVAILABLE = 69  # exit code if the system allows no network: EX_UNAVAILABLE of sysexits.h
NEW_NETWORK = 0x40000000  # CLONE_NEWNET of linux/sched.h
BURST_BYTES = 256 * 1024  # sent at once: more than the largest packet of a loopback, which would be dropped otherwise
QUEUE_MS = 200  # how long packets may wait before they are dropped
POLL_S = 0.1
TABLES = ("tcp", "tcp6")  # of sockets, in /proc/PID/net; a kernel without IPv6 lacks the latter
FIRST, LATER = 5, 1000  # priorities of routing rules: rules that cut off, and the rule that delivers locally
# The rule that delivers on this machine usually has priority 0; it moves to LATER, behind the rules that cut off.
SETUP = f"ip link set lo up && ip rule add pref {LATER} lookup local && ip rule del pref 0"


def enter() -> None:
    """Move this process into a network of its own, whose loopback is up. Needs root.

    Call it before threads are started: threads that already run stay in the old network. Raises PlacerError if the
    system does not allow it.
    """
    if ctypes.CDLL(None, use_errno=True).unshare(NEW_NETWORK) != 0:
        why = os.strerror(ctypes.get_errno())
        raise PlacerError(f"this process gets no network of its own ({why}); run it as root.")
    _run("sh", "-c", SETUP)


@contextmanager
def slow_loopback(bytes_per_s: float) -> Iterator[None]:
    """Limit all that this network sends to `bytes_per_s` within the block. Raises PlacerError."""
    rate = f"{max(8 * bytes_per_s, 8e3):.0f}bit"
    _run("tc", "qdisc", "replace", "dev", "lo", "root", "tbf", "rate", rate, "burst", f"{BURST_BYTES}b",
         "latency", f"{QUEUE_MS}ms")  # fmt: skip
    try:
        yield
    finally:
        _run("tc", "qdisc", "del", "dev", "lo", "root")


def cut_off(process: psutil.Process, seconds: float) -> subprocess.Popen[str]:
    """Cut a process off for `seconds`, or until it is dead: packets of its connections are lost, and no process can
    connect to it. New connections that it opens itself get through. The process may be in another network.

    Returns once the process is cut off. The returned shell ends when the network is whole again. A shell does the work,
    because a thread that waits for the process may keep this interpreter's lock. Raises PlacerError.
    """
    rules = sorted(" ".join(rule) for rule in _rules(process))
    lives = f"grep -qs '^State:.[^ZX]' /proc/{process.pid}/status"
    script = "\n".join(
        [
            "set -e",
            *(f"ip rule add {rule}" for rule in rules),
            f"echo cut; n={round(seconds / POLL_S)}",
            f"while [ $n -gt 0 ] && {lives}; do sleep {POLL_S}; n=$((n - 1)); done",
            *(f"ip rule del {rule}" for rule in rules),
        ]
    )
    cut = subprocess.Popen([*_within(process), "sh", "-c", script], stdout=subprocess.PIPE, text=True)
    assert cut.stdout is not None
    if not cut.stdout.readline():
        raise PlacerError(f"process {process.pid} could not be cut off: the shell ended with {cut.wait()}.")
    return cut


def tcp_ports(process: psutil.Process) -> set[tuple[int, int]]:
    """(own port, port of the other end) of each TCP socket of the process; the latter is 0 if the socket listens.

    The process may be in another network than this one, about which psutil says nothing. Raises PlacerError if the
    process has ended.
    """
    place = Path(f"/proc/{process.pid}")
    found = set()
    try:
        sockets = {link for fd in (place / "fd").iterdir() if (link := _link(fd)).startswith("socket:")}
        for name in TABLES if (place / "net" / TABLES[-1]).exists() else TABLES[:1]:
            for line in (place / "net" / name).read_text("ascii").splitlines()[1:]:
                _, own, other, _, _, _, _, _, _, inode, *_ = line.split()
                if f"socket:[{inode}]" in sockets:
                    found.add((int(own.rpartition(":")[2], 16), int(other.rpartition(":")[2], 16)))
    except OSError as error:
        raise PlacerError(f"process {process.pid} has ended ({error.strerror}).") from error
    return found


def _link(path: Path) -> str:
    with suppress(OSError):  # closed meanwhile
        return str(path.readlink())
    return ""


def _within(process: psutil.Process) -> list[str]:
    """The prefix that makes a command run in the network of `process`; empty if that is this process's network."""
    own, its = Path("/proc/self/ns"), Path(f"/proc/{process.pid}/ns")
    kinds = [kind for kind in ("user", "net") if _link(own / kind) != _link(its / kind)]
    return ["nsenter", *(f"--{kind}={its / kind}" for kind in kinds)] if kinds else []


def _rules(process: psutil.Process) -> set[tuple[str, ...]]:
    """Routing rules that drop all packets to and from the process's TCP ports. Raises PlacerError."""
    ends: set[tuple[str, ...]] = set()
    for own, other in tcp_ports(process):
        if other:
            ends |= {("sport", f"{own}", "dport", f"{other}"), ("sport", f"{other}", "dport", f"{own}")}
        else:
            ends |= {("dport", f"{own}"), ("sport", f"{own}")}
    return {("pref", str(FIRST), "ipproto", "tcp", *end, "blackhole") for end in ends}


def _run(*command: str) -> None:
    try:
        subprocess.run(command, check=True, capture_output=True, text=True)
    except FileNotFoundError:
        raise PlacerError(f"there is no program {command[0]} here; install iproute2 and util-linux.") from None
    except subprocess.CalledProcessError as error:
        raise PlacerError(f"{' '.join(command)}: {one_line(error.stderr)}") from None


def main() -> None:
    """Become `python ARGUMENTS` in a network of its own, made as root or within a user namespace."""
    said = ""
    for flags in (["--net"], ["--user", "--map-root-user", "--net"]):
        within = ["unshare", *flags, "sh", "-c", f'{SETUP} && exec "$@"', "sh"]
        try:
            _run(*within, "true")
        except PlacerError as error:
            said = str(error)
        else:
            os.execvp(within[0], [*within, sys.executable, *sys.argv[1:]])
    print(f"placer: no network of its own: {said}", file=sys.stderr)
    sys.exit(UNAVAILABLE)


if __name__ == "__main__":
    main()
