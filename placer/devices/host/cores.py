"""The cores that this process may use: those that it may run on, limited to what a control group's quota pays for."""

from __future__ import annotations

import logging
import os
from collections.abc import Iterable, Iterator
from contextlib import suppress
from functools import cache
from math import ceil
from pathlib import Path

from placer.devices.host.control_groups import ROOT, control_groups

LOGGER = logging.getLogger("placer")


def usable_cores() -> list[int]:
    """The numbers of the cores that this process may use, in order; at least one. The kernel repeatedly stops a process
    that computes on more cores than its quota pays for, for up to a tenth of a second each time.
    """
    cores = sorted(os.sched_getaffinity(0))
    return cores[: core_count(len(cores), known_quota())]


def by_place(cores: Iterable[int], root: Path = ROOT) -> list[int]:
    """Sort `cores` by socket, then by physical core, so that the threads of one physical core are side by side. On most
    machines the kernel numbers these threads far apart. root: of the file system (sysfs).
    """
    return sorted(cores, key=lambda core: (*_place(core, root), core))


def _place(core: int, root: Path) -> tuple[int, int]:
    """(socket, physical core). If they are unknown, each core counts as a physical core of its own on socket 0."""
    folder = root / "sys/devices/system/cpu" / f"cpu{core}" / "topology"
    try:
        socket, physical = (int((folder / name).read_text()) for name in ("physical_package_id", "core_id"))
    except (OSError, ValueError):
        return 0, core
    return socket, physical


def core_count(cores: int, quota: float | None) -> int:
    """How many of `cores` cores a quota pays for, at least in part; at least 1. quota: None = no limit."""
    return cores if quota is None else max(1, min(cores, ceil(quota)))


@cache
def known_quota() -> float | None:
    """`quota` of this process, read once."""
    return quota()


def quota(root: Path = ROOT) -> float | None:
    """How many cores this process's control group, and the groups that contain it, may keep busy on average; None if
    nothing limits it. root: of the file system (proc_pid_cgroup(5); cpu.max, or in version 1 cpu.cfs_quota_us).
    """
    return min(_limits(root), default=None)


@cache
def say_quota() -> None:
    """Warn once, in one line, that step times will vary, if the quota is below the cores this process may run on."""
    line = quota_line(len(os.sched_getaffinity(0)), known_quota())
    if line is not None:
        LOGGER.warning(line)


def quota_line(cores: int, quota: float | None) -> str | None:
    """The warning about a quota; None if it limits nothing. cores: how many this process may run on."""
    if quota is None or quota >= cores:
        return None
    used = core_count(cores, quota)
    return (
        f"placer: this process may run on {cores} core{'s' * (cores > 1)}, but its control group may keep {quota:g} of "
        f"them busy, so that workers are given {used}, and step times vary where the kernel stops what computes on "
        "more; lift the quota (docker --cpus, cpu.max) to measure well."
    )


def _limits(root: Path) -> Iterator[float]:
    """The quota, in cores, of each control group of this process that has one."""
    for group in control_groups("cpu", root):
        with suppress(OSError, ValueError, ZeroDivisionError):
            yield from _limit(group)


def _limit(group: Path) -> Iterator[float]:
    """A group's quota, if it has one. Raises OSError, ValueError or ZeroDivisionError if it cannot be read."""
    if (group / "cpu.max").exists():
        most, period = (group / "cpu.max").read_text().split()
    else:
        most, period = ((group / f"cpu.cfs_{name}_us").read_text().strip() for name in ("quota", "period"))
    if most not in ("max", "-1"):
        yield int(most) / int(period)
