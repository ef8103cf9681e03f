"""A process beside the coordinating process that ends local workers if a remote call does not end.

Run as a file, with the standard library only, so that it starts in 20 ms. It is a process, not a thread, because
TensorFlow holds the interpreter's lock while it leaves a cluster, and because Python handles Ctrl-C only between two
calls (docs/decisions/014-deadlines.md). `Guard` serves `deadline`, for a search, which ends without its workers.
`WorkerGuard` serves `worker_watch`, for a training, which goes on without them.
"""

from __future__ import annotations

import contextlib
import mmap
import os
import select
import signal
import struct
import sys
import time
from collections import deque
from dataclasses import dataclass, field
from pathlib import Path

# Memory that both processes share: when the call that is waited for began (0 = none), the seconds it may take, whether
# a first Ctrl-C leaves it time, whether only idle time counts; then this process's verdict: one of the codes below, and
# a bit per worker at fault.
CALL = struct.Struct("=dd??")
VERDICT_AT, VERDICT = 32, struct.Struct("=iQ")
TEXT_AT, SHARED_BYTES = 64, 1024  # the line to print if nothing else helps, zero-padded
OVERDUE, GONE, INTERRUPTED, TERMINATED = 1, 2, 3, 4
GIVE_UP = b"g"

# Memory that a training shares: the seconds a worker may be stopped; then the process id of each worker (0 = none);
# then for each waiting thread when its call began (0 = none), and the seconds that call may take.
STOPPED, PID, WAIT = struct.Struct("=d"), struct.Struct("=q"), struct.Struct("=dd")
PIDS_AT, MOST_PIDS, WAITS_AT, MOST_WAITS = 8, 64, 1024, 64
WATCHED_BYTES = WAITS_AT + MOST_WAITS * WAIT.size

POLL_S = 0.5
GONE_S = 10.0  # a call that still waits this long after a worker ended is taken to wait for that worker
TERMINATING = (signal.SIGTERM, signal.SIGHUP)
INTERRUPT_S = 3.0  # how long a call may still take after Ctrl-C or these signals
KILLED_S = 10.0  # how long a call may still take after all local workers were ended
LAST_WORDS_S = 30.0  # how long the coordinating process may then take to write what it has
IDLE_S, IDLE_SHARE = 10.0, 0.1  # an overdue call whose processes compute more than this share of a core is left alone
MOST = 10.0  # up to this many times its deadline


@dataclass(frozen=True)
class Process:
    """The facts about one process in /proc."""

    state: str  # R, S, D: it runs or may run; T, t: it is stopped
    began: int  # clock ticks after boot, which tells it from a later process with the same id
    cpu_s: float


def look(pid: int) -> Process | None:
    """Read the facts about a process; None if it has ended."""
    try:
        fields = Path(f"/proc/{pid}/stat").read_text("ascii", "replace").rpartition(")")[2].split()
    except OSError:
        return None
    if fields[0] in "ZX":
        return None
    return Process(fields[0], int(fields[19]), (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK"))


@dataclass
class Call:
    """A remote call that is being waited for; times in seconds, without those of the coordinating process's stops."""

    begun: float
    limit_s: float
    patient: bool
    loose: bool  # whether it covers anything done with open devices, so that it may well compute for hours
    elapsed_s: float = 0.0
    idle_s: float = 0.0  # how long all processes have computed next to nothing until now
    gone_s: float | None = None  # when a worker was first seen to have ended
    interrupted_s: float = 0.0
    killed_s: float | None = None
    gave_up_s: float | None = None
    cpu: deque[tuple[float, float]] = field(default_factory=deque)  # (elapsed, CPU seconds of all processes)


class Guard:
    """Watches one coordinating process and its local workers."""

    def __init__(self, shared: mmap.mmap, parent: int, workers: list[int], tell: int) -> None:
        """shared: see CALL. tell: the pipe through which the coordinating process is told to give up."""
        self.shared, self.parent, self.workers, self.tell = shared, parent, workers, tell
        self.born = {pid: found.began for pid in workers if (found := look(pid))}
        self.call = Call(0.0, 0.0, False, False)
        self.has_killed = False
        self.presses, self.is_ending = 0, False  # of Ctrl-C; whether they ask to end everything at once
        self.is_terminated = False  # whether a signal other than Ctrl-C asks to end

    def poll(self, passed_s: float, interrupts: int, terminations: int = 0) -> None:
        """Check once. passed_s: seconds since the last check. interrupts: how often Ctrl-C was pressed meanwhile.
        terminations: how many other signals that end a program came meanwhile.
        """
        self.is_terminated = self.is_terminated or terminations > 0
        parent, processes = look(self.parent), [self._look(pid) for pid in self.workers]
        begun, limit_s, patient, loose = CALL.unpack_from(self.shared, 0)
        was_patient = self.call.patient  # handling a press ends the patience, maybe before it is seen here
        if begun != self.call.begun:
            self.call = Call(begun, limit_s, patient, loose, killed_s=0.0 if self.has_killed else None)
        self.call.limit_s, self.call.patient = limit_s, patient
        if interrupts or terminations:  # also between two calls: the next one may wait for a frozen worker
            self.presses += interrupts
            self.is_ending = self.presses > (1 if patient or was_patient else 0)
        if not begun or parent is None or parent.state in "Tt":
            return
        call = self.call
        call.elapsed_s += passed_s
        if interrupts or terminations:
            call.interrupted_s = call.interrupted_s or call.elapsed_s
        call.cpu.append((call.elapsed_s, sum(p.cpu_s for p in (parent, *processes) if p)))
        call.idle_s = call.idle_s + passed_s if self._is_idle(passed_s) else 0.0
        if call.killed_s is None:
            reason = self._reason(processes)
            if reason:
                self._kill(reason, processes)
        elif call.gave_up_s is None and self._lasts_s(call.killed_s) > (KILLED_S if self.workers else 0.0):
            call.gave_up_s = call.elapsed_s
            os.write(self.tell, GIVE_UP)
        elif call.gave_up_s is not None and call.elapsed_s > call.gave_up_s + LAST_WORDS_S:
            self._end()

    def kill_all(self) -> None:
        """End all local workers, including stopped ones."""
        for pid in self.workers:
            if self._look(pid):
                with contextlib.suppress(OSError):
                    os.kill(pid, signal.SIGKILL)

    def _look(self, pid: int) -> Process | None:
        found = look(pid)
        return found if found and found.began == self.born.get(pid) else None

    def _reason(self, processes: list[Process | None]) -> int:
        """Why the call should end now; 0 if it should not."""
        call, stopped = self.call, any(p and p.state in "Tt" for p in processes)
        if None in processes:
            call.gone_s = call.elapsed_s if call.gone_s is None else call.gone_s
            if self._lasts_s(call.gone_s) > min(GONE_S, call.limit_s):
                return GONE
        meant = self.is_ending or self.is_terminated or (self.presses > 0 and (stopped or None in processes))
        if meant and self._lasts_s(call.interrupted_s) > INTERRUPT_S:
            return TERMINATED if self.is_terminated else INTERRUPTED
        is_slow = not stopped and not self._is_idle(min(IDLE_S, call.limit_s))
        if self._lasts_s(0.0) > call.limit_s and (not is_slow or call.elapsed_s > MOST * call.limit_s):
            return OVERDUE
        return 0

    def _lasts_s(self, since_s: float) -> float:
        """Seconds since `since_s` that count for this call. For a loose call only the idle time at the end counts."""
        lasts_s = self.call.elapsed_s - since_s
        return min(lasts_s, self.call.idle_s) if self.call.loose else lasts_s

    def _is_idle(self, window_s: float) -> bool:
        """Whether the processes have computed next to nothing for `window_s` seconds: they wait, and are not slow."""
        samples = self.call.cpu
        while len(samples) > 2 and samples[1][0] <= self.call.elapsed_s - max(IDLE_S, window_s):
            samples.popleft()
        now_s, after_s = samples[-1]
        since_s, before_s = next(s for s in reversed(samples) if s[0] <= now_s - window_s or s is samples[0])
        return now_s > since_s and after_s - before_s < IDLE_SHARE * (now_s - since_s)

    def _kill(self, reason: int, processes: list[Process | None]) -> None:
        """End all local workers, because the others may wait for one that ends; record which were at fault."""
        self.has_killed, self.call.killed_s = True, self.call.elapsed_s
        at_fault = sum(1 << i for i, p in enumerate(processes[:64]) if p is None or p.state in "Tt")
        VERDICT.pack_into(self.shared, VERDICT_AT, reason, at_fault)
        self.kill_all()

    def _end(self) -> None:
        """Print the coordinating process's line and end that process, which can do nothing any more."""
        text = self.shared[TEXT_AT:SHARED_BYTES].rstrip(b"\0")
        with contextlib.suppress(OSError):
            os.write(2, (b"\x1b[?25h" if os.isatty(2) else b"") + text + b"\n")
        for end in (signal.SIGHUP, signal.SIGKILL):  # SIGHUP ends it with exit code 1, unless it is ignored
            with contextlib.suppress(OSError):
                os.kill(self.parent, end)
            time.sleep(POLL_S)


@dataclass
class Waiting:
    """A remote call that a thread of a training waits for; times as for `Call`."""

    begun: float
    elapsed_s: float = 0.0
    gone_s: float = 0.0  # how long a worker has been missing until now
    is_over: bool = False  # whether all that can be done about it was done


class WorkerGuard:
    """Watches the local workers of a training, which goes on without one that ends."""

    def __init__(self, shared: mmap.mmap, parent: int) -> None:
        """shared: see STOPPED."""
        self.shared, self.parent = shared, parent
        self.born: dict[int, int] = {}
        self.stopped_s: dict[int, float] = {}  # process id -> how long the worker has been stopped
        self.waits: dict[int, Waiting] = {}
        self.idle_s = self.workers_idle_s = 0.0  # how long all processes, or the workers, have been idle until now
        self._cpu_s: dict[int, float] = {}

    def poll(self, passed_s: float) -> None:
        """Check once, unless the coordinating process is stopped. passed_s: seconds since the last check."""
        parent = look(self.parent)
        if parent is None or parent.state in "Tt":
            return
        pids = [pid for (pid,) in PID.iter_unpack(self.shared[PIDS_AT : PIDS_AT + MOST_PIDS * PID.size])]
        workers = {pid: self._look(pid) for pid in pids if pid}
        self._count_idle(parent, workers, passed_s)
        self._end_stopped(pids, workers, passed_s)
        self._end_waits(workers, passed_s)

    def kill_all(self) -> None:
        """End all local workers, including stopped ones."""
        for pid in self.born:
            self._kill(pid)

    def _look(self, pid: int) -> Process | None:
        found = look(pid)
        return found if found and found.began == self.born.setdefault(pid, found.began) else None

    def _kill(self, pid: int) -> None:
        if self._look(pid):
            with contextlib.suppress(OSError):
                os.kill(pid, signal.SIGKILL)

    def _end_stopped(self, pids: list[int], workers: dict[int, Process | None], passed_s: float) -> None:
        """End workers that are stopped for too long, even if no call waits for them. Those in a debugger (t) stay."""
        (limit_s,) = STOPPED.unpack_from(self.shared, 0)
        for pid, found in workers.items():
            stopped_s = self.stopped_s.get(pid, 0.0) + passed_s if found and found.state == "T" else 0.0
            self.stopped_s[pid] = stopped_s
            if stopped_s > limit_s:
                self._kill(pid)
                say(f"worker:{pids.index(pid)} was stopped for {limit_s:.0f} s, so it was ended; it is started again.")

    def _end_waits(self, workers: dict[int, Process | None], passed_s: float) -> None:
        """End all workers if a call waits for too long and no process computes; which one it waits for is unknown."""
        for slot in range(MOST_WAITS):
            begun, limit_s = WAIT.unpack_from(self.shared, WAITS_AT + slot * WAIT.size)
            wait = self.waits.get(slot)
            if wait is None or wait.begun != begun:
                self.waits[slot] = Waiting(begun)  # it began between two checks; its time counts from now on
            elif begun and not wait.is_over:
                wait.elapsed_s += passed_s
                wait.gone_s = wait.gone_s + passed_s if None in workers.values() else 0.0
                if self._is_over(wait, limit_s, workers):
                    wait.is_over = True
                    self._end_all(workers, wait.elapsed_s)

    def _is_over(self, wait: Waiting, limit_s: float, workers: dict[int, Process | None]) -> bool:
        idle_s = min(IDLE_S, limit_s)
        late = wait.elapsed_s > limit_s or wait.gone_s > min(GONE_S, limit_s)
        if wait.elapsed_s > MOST * limit_s and self.workers_idle_s >= idle_s:
            return True
        return late and self.idle_s >= idle_s and not any(map(_wants_core, (self.parent, *workers)))

    def _end_all(self, workers: dict[int, Process | None], waited_s: float) -> None:
        left = [pid for pid, found in workers.items() if found]
        for pid in left:
            self._kill(pid)
        if left:
            say(f"a call to workers did not end within {waited_s:.0f} s, so they were ended; they are started again.")
        elif not workers:
            say(
                f"a call to a worker has not ended for {waited_s:.0f} s. The training waits; end that worker's process "
                "where it runs, or let it go on."
            )

    def _count_idle(self, parent: Process, workers: dict[int, Process | None], passed_s: float) -> None:
        own_s = self._computed_s(self.parent, parent)
        theirs_s = sum(self._computed_s(pid, found) for pid, found in workers.items() if found)
        most_s = IDLE_SHARE * passed_s
        self.idle_s = self.idle_s + passed_s if own_s + theirs_s < most_s else 0.0
        self.workers_idle_s = self.workers_idle_s + passed_s if theirs_s < most_s else 0.0

    def _computed_s(self, pid: int, found: Process) -> float:
        before_s, self._cpu_s[pid] = self._cpu_s.get(pid, 0.0), found.cpu_s
        return found.cpu_s - before_s


def _wants_core(pid: int) -> bool:
    """Whether a thread of a process runs, or waits for a core or for the disk: then the machine may just be busy."""
    for stat in Path(f"/proc/{pid}/task").glob("*/stat"):
        with contextlib.suppress(OSError):
            if stat.read_text("ascii", "replace").rpartition(")")[2].split()[0] in "RD":
                return True
    return False


def say(sentence: str) -> None:
    """Print one line on stderr."""
    with contextlib.suppress(OSError):
        os.write(2, f"placer: {sentence}\n".encode())


def watch(shared: int, parent: int) -> None:
    """Watch the workers of a training until stdin is closed or the parent has ended; then end them."""
    watched = WorkerGuard(mmap.mmap(shared, WATCHED_BYTES), parent)
    before = time.monotonic()
    while not select.select([0], [], [], POLL_S)[0] and look(parent):
        now = time.monotonic()
        watched.poll(min(now - before, 2 * POLL_S))
        before = now
    watched.kill_all()


def main(shared: int, tell: int, parent: int, *workers: int) -> None:
    """Watch until stdin, on which the coordinating process's signals arrive, is closed; then end the workers."""
    guard = Guard(mmap.mmap(shared, SHARED_BYTES), parent, list(workers), tell)
    before = time.monotonic()
    while True:
        ready, _, _ = select.select([0], [], [], POLL_S)
        said = os.read(0, 64) if ready else b""
        if ready and not said:
            guard.kill_all()
            return
        now = time.monotonic()
        passed_s = min(now - before, 2 * POLL_S)  # capped, because this machine may have slept
        guard.poll(passed_s, said.count(signal.SIGINT), sum(map(said.count, TERMINATING)))
        before = now


if __name__ == "__main__":
    if sys.argv[1] == "watch":
        watch(*map(int, sys.argv[2:]))
    else:
        main(*map(int, sys.argv[1:]))
