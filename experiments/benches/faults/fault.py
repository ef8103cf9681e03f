"""A fault: what is done to which process, at which moment of which stage; and what came of it."""

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
DEADLINE_S = 10.0  # PLACER_DEADLINE_S where a freeze is to be noticed
LONG_PAUSE_S, SHORT_PAUSE_S = 30.0, 5.0  # within the default deadline of 60 s, and within DEADLINE_S
GAP_S = 3.0  # much less than DEADLINE_S, because what was lost is sent again after up to as long as the gap was
CUT_S = 90.0  # at most, for a worker that nobody takes for lost


@dataclass(frozen=True)
class Fault:
    """how: one of WORDS. stage: where. at: the moment, as a share of the stage. which: the worker, as a share of them.

    deadline_s: PLACER_DEADLINE_S, None for the default. pause_s: until SIGCONT, or until the network is whole again.
    """

    how: str
    stage: str
    at: float
    which: float
    deadline_s: float | None = None
    pause_s: float = 0.0


@dataclass
class Outcome:
    """What came of a fault."""

    how: str
    stage: str
    problems: list[str] = field(default_factory=list)  # what should not have been; none where it was survived
    lost: int = 0  # measurements, steps or values that are gone or changed
    left: list[str] = field(default_factory=list)  # what was left behind
    code: int | None = None
    seconds: float = 0.0
    injected: bool = True  # whether it was done before the end

    def facts(self) -> Facts:
        """As plain data."""
        return {**asdict(self), "survived": self.survived}

    @property
    def survived(self) -> bool:
        """Whether nothing is wrong."""
        return not (self.problems or self.lost or self.left)


def faults(how: str, stages: Sequence[str], repeats: int, seed: int = 0) -> Iterator[Fault]:
    """So many faults of one kind in each stage, at moments and of workers that the seed decides.

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
    """Do it to one of the workers; waits until it is dead, or a pause is over. False where none was there."""
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
    """Stop a process for a while. A shell does it, because what waits for the process may keep this interpreter's lock,
    so that no thread here could let it go on. False where it had ended.
    """
    pause = f"kill -STOP {process.pid} || exit 1; sleep {pause_s}; kill -CONT {process.pid}"
    return subprocess.run(["sh", "-c", pause], stderr=subprocess.DEVNULL, check=False).returncode == 0


def _cut_off(process: psutil.Process, seconds: float) -> bool:
    """Cut the process off for so long, or until it has ended. False where it had before."""
    try:
        with cut_off(process, seconds) as cut:
            return cut.wait() == 0
    except PlacerError:
        return False


def _gone(process: psutil.Process) -> None:
    """Wait until a process that was killed is dead, whoever reaps it."""
    with suppress(psutil.Error):
        while process.status() != psutil.STATUS_ZOMBIE:
            time.sleep(0.01)
