"""Processes that tests wait for."""

from __future__ import annotations

import time
from collections.abc import Iterable

import psutil

LATE_S = 300.0  # after which a process that should have ended will not
POLL_S = 0.05


def still_running(processes: Iterable[psutil.Process], late_s: float = LATE_S) -> list[psutil.Process]:
    """Those of the processes that still run after `late_s`; returns as soon as none does.

    A process that has ended does not run, whether or not it was reaped: in a container, nobody may reap orphans.
    """
    end_s, left = time.monotonic() + late_s, list(processes)
    while (left := [process for process in left if runs(process)]) and time.monotonic() < end_s:
        time.sleep(POLL_S)
    return left


def words(process: psutil.Process) -> list[str]:
    """The command line of the process; empty if it has ended."""
    try:
        return list(process.cmdline())
    except psutil.Error:
        return []


def runs(process: psutil.Process) -> bool:
    """Whether the process has not ended."""
    try:
        return bool(process.is_running() and process.status() != psutil.STATUS_ZOMBIE)
    except psutil.NoSuchProcess:
        return False
