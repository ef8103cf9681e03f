"""A fault: what is done to which process, at which moment of which stage; and its outcome."""

from __future__ import annotations

import random
import signal
import subprocess
import time
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass, field

import psutil

from experiments.benches.bench import Facts
from experiments.benches.own_network import cut_off
from placer.errors import PlacerError

KILL, FREEZE, PAUSE, INTERRUPT, TERMINATE, PARENT = "kill", "freeze", "pause", "interrupt", "terminate", "parent"
CUT, GAP = "cut", "gap"
OF_WORKERS = (KILL, FREEZE, PAUSE, CUT, GAP)  # the others are done to the coordinating process
OF_NETWORKS = (CUT, GAP)  # for which the coordinating process needs a network of its own (own_network.py)
IN_OWN_NETWORK = ("-m", "experiments.benches.own_network")
WORDS = {
    KILL: "a worker killed (SIGKILL)",
    FREEZE: "a worker frozen (SIGSTOP)",
    PAUSE: "a worker frozen for a while (SIGSTOP, then SIGCONT)",
    CUT: "the network to a worker cut",
    GAP: "the network to a worker cut for a while",
    INTERRUPT: "Ctrl-C (SIGINT)",
    TERMINATE: "SIGTERM",
    PARENT: "the coordinating process killed (SIGKILL)",
}
DEADLINE_S = 10.0  # PLACER_DEADLINE_S if Placer is to notice a freeze
LONG_PAUSE_S, SHORT_PAUSE_S = 30.0, 5.0  # within the default deadline of 60 s, and within DEADLINE_S
GAP_S = 3.0  # much less than DEADLINE_S, because lost packets may be sent again only GAP_S after the gap
CUT_S = 90.0  # the longest cut, of a worker that Placer does not count as lost before


@dataclass(frozen=True)
class Fault:
    """A fault that is to be injected.

    how: a key of WORDS. stage: the stage that the fault falls into. at: the moment, as a share of the stage. which: the
    worker, as a share of all workers. deadline_s: PLACER_DEADLINE_S, None for the default. pause_s: seconds until
    SIGCONT, or until the network is whole again.
    """

    how: str
    stage: str
    at: float
    which: float
    deadline_s: float | None = None
    pause_s: float = 0.0


@dataclass
class Outcome:
    """The outcome of a fault."""

    how: str
    stage: str
    problems: list[str] = field(default_factory=list)  # what went wrong; empty if the fault was survived
    lost: int = 0  # measurements, steps or values that are missing or changed
    left: list[str] = field(default_factory=list)  # what was left behind
    code: int | None = None
    seconds: float = 0.0
    injected: bool = True  # whether the fault was injected before the program ended

    def facts(self) -> Facts:
        """The outcome as plain data."""
        return {**asdict(self), "survived": self.survived}

    @property
    def survived(self) -> bool:
        """Whether nothing went wrong, was lost or was left behind."""
        return not (self.problems or self.lost or self.left)


def faults(how: str, stages: Sequence[str], repeats: int, seed: int = 0) -> Iterator[Fault]:
    """Yield `repeats` faults of one kind for each stage. The seed decides their moments and workers.

    The first pause in each stage is a long one, under the default deadline.
    """
    rng = random.Random(f"{how} {seed}")
    for repeat in range(repeats):
        for stage in stages:
            is_long = how == PAUSE and repeat == 0
            pause_s = {PAUSE: LONG_PAUSE_S if is_long else SHORT_PAUSE_S, GAP: GAP_S}.get(how, 0.0)
            deadline_s = DEADLINE_S if how in OF_WORKERS and not is_long else None
            yield Fault(how, stage, rng.random(), rng.random(), deadline_s, pause_s)


def hit(workers: Sequence[psutil.Process], fault: Fault) -> bool:
    """Inject the fault into one of the workers; wait until a killed worker is dead, or a pause or cut is over. False if
    there was no worker, or it had ended.
    """
    if not workers:
        return False
    victim = workers[min(int(fault.which * len(workers)), len(workers) - 1)]
    if fault.how == PAUSE:
        return _paused(victim, fault.pause_s)
    if fault.how in OF_NETWORKS:
        return _cut_off(victim, fault.pause_s or CUT_S)
    try:
        victim.send_signal(signal.SIGKILL if fault.how == KILL else signal.SIGSTOP)
    except psutil.Error:
        return False
    if fault.how == KILL:
        _gone(victim)
    return True


def _paused(process: psutil.Process, pause_s: float) -> bool:
    """Stop a process for `pause_s`. False if it had ended. A shell does the work, because a thread that waits for the
    process may keep this interpreter's lock, so that no other thread here could continue the process.
    """
    pause = f"kill -STOP {process.pid} || exit 1; sleep {pause_s}; kill -CONT {process.pid}"
    return subprocess.run(["sh", "-c", pause], stderr=subprocess.DEVNULL, check=False).returncode == 0


def _cut_off(process: psutil.Process, seconds: float) -> bool:
    """Cut the process off for `seconds`, or until it ends. False if it had ended before."""
    try:
        with cut_off(process, seconds) as cut:
            return cut.wait() == 0
    except PlacerError:
        return False


def _gone(process: psutil.Process) -> None:
    """Wait until a killed process is dead, even if another process has to reap it."""
    with suppress(psutil.Error):
        while process.status() != psutil.STATUS_ZOMBIE:
            time.sleep(0.01)
