"""Neighbours on the machine: processes that take cores from the workers, within a `with` block."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

# Both end by themselves when their parent is gone.
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
JITTER_SAID = "bursts of 20 ms on either core, half a second apart on average"


@contextmanager
def neighbour(program: str, cores: Sequence[int]) -> Iterator[None]:
    """Run `program` on these cores, in a session of its own for a fair share. It is busy when the block begins."""
    command = [sys.executable, "-c", program, *map(str, cores)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, start_new_session=True) as process:
        try:
            assert process.stdout is not None
            process.stdout.readline()
            yield
        finally:
            process.kill()
