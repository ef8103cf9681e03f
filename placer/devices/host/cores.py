"""The cores that this process may use: those that it may run on, but no more than a control group's quota pays for."""

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
    """Numbers of cores, in order; at least one. The kernel stops a process that computes on more cores than its quota
    pays for, for up to a tenth of a second, again and again.
    """
    cores = sorted(os.sched_getaffinity(0))
    return cores[: core_count(len(cores), known_quota())]


def by_place(cores: Iterable[int], root: Path = ROOT) -> list[int]:
    """Cores in the order of their places: those of one socket, and then the threads of one physical core, side by side.
    The kernel numbers threads of a core far apart on most machines. root: of the file system (sysfs).
    """
    return sorted(cores, key=lambda core: (*_place(core, root), core))


def _place(core: int, root: Path) -> tuple[int, int]:
    """(socket, physical core); as if each were one of its own where that is not known."""
    folder = root / "sys/devices/system/cpu" / f"cpu{core}" / "topology"
    try:
        socket, physical = (int((folder / name).read_text()) for name in ("physical_package_id", "core_id"))
    except (OSError, ValueError):
        return 0, core
    return socket, physical


def core_count(cores: int, quota: float | None) -> int:
    """How many of so many cores a quota pays for, at least in part; one at the least."""
    return cores if quota is None else max(1, min(cores, ceil(quota)))


@cache
def known_quota() -> float | None:
    """`quota` of this process, read once."""
    return quota()


def quota(root: Path = ROOT) -> float | None:
    """The cores that this process's control group, and those around it, may keep busy on average; None where nothing
    limits it. root: of the file system (proc_pid_cgroup(5); cpu.max, or in version 1 cpu.cfs_quota_us).
    """
    return min(_limits(root), default=None)


@cache
def say_quota() -> None:
    """Say once, in one line, that step times will vary, where a quota is below the cores that there are."""
    line = quota_line(len(os.sched_getaffinity(0)), known_quota())
    if line is not None:
        LOGGER.warning(line)


def quota_line(cores: int, quota: float | None) -> str | None:
    """What is said of a quota; None where it limits nothing."""
    if quota is None or quota >= cores:
        return None
    used = core_count(cores, quota)
    return (
        f"placer: this process may run on {cores} core{'s' * (cores > 1)}, but its control group may keep {quota:g} of "
        f"them busy, so that workers are given {used}, and step times vary where the kernel stops what computes on "
        "more; lift the quota (docker --cpus, cpu.max) to measure well."
    )


def _limits(root: Path) -> Iterator[float]:
    """The quota of each group of this process that has one, in cores."""
    for group in control_groups("cpu", root):
        with suppress(OSError, ValueError, ZeroDivisionError):
            yield from _limit(group)


def _limit(group: Path) -> Iterator[float]:
    """A group's quota, if it has one. Raises OSError and ValueError where it cannot be read."""
    if (group / "cpu.max").exists():
        most, period = (group / "cpu.max").read_text().split()
    else:
        most, period = ((group / f"cpu.cfs_{name}_us").read_text().strip() for name in ("quota", "period"))
    if most not in ("max", "-1"):
        yield int(most) / int(period)
