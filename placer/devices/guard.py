"""A process beside the coordinating one that ends local workers where a remote call does not end.

Run as a file, by placer.devices.deadline, with the standard library alone: it starts in 20 ms. It is a process, not a
thread, because TensorFlow holds the interpreter's lock while it leaves a cluster, and because Python handles Ctrl-C
only between two calls (docs/decisions/014-deadlines.md).
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

# What both processes share: when the call that is waited for began (0 = none), the seconds it may take, whether a first
# Ctrl-C leaves it time, whether only idle time counts; then what this process did about it: one of the codes below,
# and a bit per worker at fault.
CALL = struct.Struct("=dd??")
VERDICT_AT, VERDICT = 32, struct.Struct("=iQ")
TEXT_AT, SHARED_BYTES = 64, 1024  # the line to print where nothing else helps, zero-padded
OVERDUE, GONE, INTERRUPTED = 1, 2, 3
GIVE_UP = b"g"

POLL_S = 0.5
GONE_S = 10.0  # a call that still waits so long after a worker ended waits for that worker
INTERRUPT_S = 3.0  # a call may take so long after Ctrl-C
KILLED_S = 10.0  # and so long after all local workers were ended
LAST_WORDS_S = 30.0  # and the coordinating process so long to write what it has
IDLE_S, IDLE_SHARE = 10.0, 0.1  # an overdue call whose processes compute more than this share of a core is left alone
MOST = 10.0  # up to this many times its deadline


@dataclass(frozen=True)
class Process:
    """What /proc says of one process."""

    state: str  # R, S, D: it runs or may run; T, t: it is stopped
    began: int  # clock ticks after boot, which tells it from a later process with the same id
    cpu_s: float


def look(pid: int) -> Process | None:
    """None where the process has ended."""
    try:
        fields = Path(f"/proc/{pid}/stat").read_text("ascii", "replace").rpartition(")")[2].split()
    except OSError:
        return None
    if fields[0] in "ZX":
        return None
    return Process(fields[0], int(fields[19]), (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK"))


@dataclass
class Call:
    """A remote call that is being waited for; times in seconds that the coordinating process was not suspended."""

    begun: float
    limit_s: float
    patient: bool
    loose: bool  # whether it is anything done with open devices, so that it may well compute for hours
    elapsed_s: float = 0.0
    idle_s: float = 0.0  # for how long now all processes have computed next to nothing
    gone_s: float | None = None  # when a worker was first seen to be gone
    interrupted_s: float = 0.0
    killed_s: float | None = None
    gave_up_s: float | None = None
    cpu: deque[tuple[float, float]] = field(default_factory=deque)  # (elapsed, CPU seconds of all)


class Guard:
    """Watches one coordinating process and its local workers."""

    def __init__(self, shared: mmap.mmap, parent: int, workers: list[int], tell: int) -> None:
        """shared: see CALL. tell: the pipe on which the coordinating process is told to give up."""
        self.shared, self.parent, self.workers, self.tell = shared, parent, workers, tell
        self.born = {pid: found.began for pid in workers if (found := look(pid))}
        self.call = Call(0.0, 0.0, False, False)
        self.has_killed = False
        self.presses, self.is_ending = 0, False  # of Ctrl-C; whether by them all is to end at once

    def poll(self, passed_s: float, interrupts: int) -> None:
        """Look once; passed_s: since the last look. interrupts: how often Ctrl-C was pressed meanwhile."""
        parent, processes = look(self.parent), [self._look(pid) for pid in self.workers]
        begun, limit_s, patient, loose = CALL.unpack_from(self.shared, 0)
        was_patient = self.call.patient  # a press that was heard ends the patience, maybe before it is seen here
        if begun != self.call.begun:
            self.call = Call(begun, limit_s, patient, loose, killed_s=0.0 if self.has_killed else None)
        self.call.limit_s, self.call.patient = limit_s, patient
        if not begun or parent is None or parent.state in "Tt":
            return
        call = self.call
        call.elapsed_s += passed_s
        if interrupts:
            self.presses += interrupts
            self.is_ending = self.presses > (1 if patient or was_patient else 0)
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
        """End all local workers, stopped ones too."""
        for pid in self.workers:
            if self._look(pid):
                with contextlib.suppress(OSError):
                    os.kill(pid, signal.SIGKILL)

    def _look(self, pid: int) -> Process | None:
        found = look(pid)
        return found if found and found.began == self.born.get(pid) else None

    def _reason(self, processes: list[Process | None]) -> int:
        """Why the call should end now; 0 where it should not."""
        call, stopped = self.call, any(p and p.state in "Tt" for p in processes)
        if None in processes:
            call.gone_s = call.elapsed_s if call.gone_s is None else call.gone_s
            if self._lasts_s(call.gone_s) > min(GONE_S, call.limit_s):
                return GONE
        meant = self.is_ending or (self.presses > 0 and (stopped or None in processes))
        if meant and self._lasts_s(call.interrupted_s) > INTERRUPT_S:
            return INTERRUPTED
        is_slow = not stopped and not self._is_idle(min(IDLE_S, call.limit_s))
        if self._lasts_s(0.0) > call.limit_s and (not is_slow or call.elapsed_s > MOST * call.limit_s):
            return OVERDUE
        return 0

    def _lasts_s(self, since_s: float) -> float:
        """How long the call has been waited for since then; of a loose one, the idle time at its end."""
        lasts_s = self.call.elapsed_s - since_s
        return min(lasts_s, self.call.idle_s) if self.call.loose else lasts_s

    def _is_idle(self, window_s: float) -> bool:
        """Whether the processes have computed next to nothing lately: they wait, and are not merely slow."""
        samples = self.call.cpu
        while len(samples) > 2 and samples[1][0] <= self.call.elapsed_s - max(IDLE_S, window_s):
            samples.popleft()
        now_s, after_s = samples[-1]
        since_s, before_s = next(s for s in reversed(samples) if s[0] <= now_s - window_s or s is samples[0])
        return now_s > since_s and after_s - before_s < IDLE_SHARE * (now_s - since_s)

    def _kill(self, reason: int, processes: list[Process | None]) -> None:
        """End all local workers, because one alone may leave the others waiting for it; say who was at fault."""
        self.has_killed, self.call.killed_s = True, self.call.elapsed_s
        at_fault = sum(1 << i for i, p in enumerate(processes[:64]) if p is None or p.state in "Tt")
        VERDICT.pack_into(self.shared, VERDICT_AT, reason, at_fault)
        self.kill_all()

    def _end(self) -> None:
        """The coordinating process can do nothing any more, so end it, with its line."""
        text = self.shared[TEXT_AT:SHARED_BYTES].rstrip(b"\0")
        with contextlib.suppress(OSError):
            os.write(2, (b"\x1b[?25h" if os.isatty(2) else b"") + text + b"\n")
        for end in (signal.SIGHUP, signal.SIGKILL):  # the first ends it with exit code 1, unless it is ignored
            with contextlib.suppress(OSError):
                os.kill(self.parent, end)
            time.sleep(POLL_S)


def main(shared: int, tell: int, parent: int, *workers: int) -> None:
    """Watch until stdin, on which the coordinating process's signals arrive, is closed."""
    guard = Guard(mmap.mmap(shared, SHARED_BYTES), parent, list(workers), tell)
    before = time.monotonic()
    while True:
        ready, _, _ = select.select([0], [], [], POLL_S)
        said = os.read(0, 64) if ready else b""
        if ready and not said:
            guard.kill_all()
            return
        now = time.monotonic()
        guard.poll(min(now - before, 2 * POLL_S), said.count(signal.SIGINT))  # no more where this machine slept
        before = now


if __name__ == "__main__":
    main(*map(int, sys.argv[1:]))
