"""Neighbours on the machine: processes that take cores, caches and memory from the workers, or a slower network, within
a `with` block.
"""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager
from dataclasses import dataclass
from typing import NamedTuple

from experiments.benches.own_network import slow_loopback

GROWS_S = 20.0  # until a growing load is fully grown
HORIZON = 1000  # steps under a load over which adapting, not adapting and a new search are compared
SHARE = 0.95  # of the best known speed, from which a step counts as recovered
SLOWED = 50  # by which the links' measured bandwidth is divided

# These programs end by themselves when their parent ends.
HOG = """
import os, sys
parent, core = os.getppid(), int(sys.argv[1])
os.sched_setaffinity(0, {core})
print("busy", flush=True)
while os.getppid() == parent:
    for _ in range(200_000):
        pass
"""
JITTER = """
import os, random, sys, time
parent, cores, rng = os.getppid(), [int(c) for c in sys.argv[1:]], random.Random(0)
print("busy", flush=True)
while os.getppid() == parent:
    time.sleep(min(rng.expovariate(2.0), 3.0))
    os.sched_setaffinity(0, {rng.choice(cores)})
    until = time.perf_counter() + 0.02
    while time.perf_counter() < until:
        pass
"""
RAMP = """
import os, sys, time
parent, core, grows_s = os.getppid(), int(sys.argv[1]), float(sys.argv[2])
os.sched_setaffinity(0, {core})
print("busy", flush=True)
begin = time.perf_counter()
while os.getppid() == parent:
    now = time.perf_counter()
    share = min(1.0, (now - begin) / grows_s)
    while time.perf_counter() < now + 0.05 * share:
        pass
    time.sleep(0.05 * (1.0 - share))
"""
MEMORY = """
import os, sys, time
import numpy as np
parent, core = os.getppid(), int(sys.argv[1])
os.sched_setaffinity(0, {core})
here, there = np.ones(8_000_000), np.zeros(8_000_000)
print("busy", flush=True)
while os.getppid() == parent:
    begin = time.perf_counter()
    np.copyto(there, here)
    time.sleep(time.perf_counter() - begin)
"""
JITTER_SAID = "bursts of 20 ms on either core, half a second apart on average"


@contextmanager
def neighbour(program: str, cores: Sequence[int], *arguments: float) -> Iterator[None]:
    """Run `program` on these cores, busy within the block, in its own session so that it gets a fair share."""
    command = [sys.executable, "-c", program, *map(str, cores), *map(str, arguments)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, start_new_session=True) as process:
        try:
            assert process.stdout is not None
            process.stdout.readline()
            yield
        finally:
            process.kill()


class Place(NamedTuple):
    """The place where a load may land. cores: of one device. free: cores on which no worker runs. bandwidth: of the
    links, in bytes per second, if the load slows them.
    """

    cores: Sequence[int]
    free: Sequence[int]
    bandwidth: float | None = None


Landing = Callable[[Place], AbstractContextManager[None]]


@dataclass(frozen=True)
class Load:
    """A load. name, said: what it is, in short and in words. land: the load is there within its block. grows_s: until
    the load is fully grown. links: whether it slows the links, for which the training needs a network of its own.
    """

    name: str
    said: str
    land: Landing
    grows_s: float = 0.0
    links: bool = False


def _hog(place: Place) -> AbstractContextManager[None]:
    return _on_each(HOG, place.cores)


def _ramp(place: Place) -> AbstractContextManager[None]:
    return _on_each(RAMP, place.cores, GROWS_S)


def _memory(place: Place) -> AbstractContextManager[None]:
    return _on_each(MEMORY, place.free or place.cores)


def _link(place: Place) -> AbstractContextManager[None]:
    assert place.bandwidth is not None
    return slow_loopback(place.bandwidth / SLOWED)


@contextmanager
def _on_each(program: str, cores: Sequence[int], *arguments: float) -> Iterator[None]:
    """Run the program once on each of these cores."""
    with ExitStack() as stack:
        for core in cores:
            stack.enter_context(neighbour(program, (core,), *arguments))
        yield


LOADS = {
    "hog": Load("CPU hog", "a busy loop on all cores of a random device", _hog),
    "ramp": Load("growing hog", f"the same, growing from nothing within {GROWS_S:.0f} s", _ramp, grows_s=GROWS_S),
    "memory": Load(
        "memory traffic",
        "copies of 64 MB, half the time, on a core without a worker; where there is none, on those of a random device",
        _memory,
    ),
    "link": Load("slow links", f"all links at a {SLOWED}th of their measured bandwidth", _link, links=True),
}
