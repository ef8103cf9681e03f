"""The memory that this process and its workers may still take: free memory, limited by control groups."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import psutil

from placer.devices.host.control_groups import ROOT, control_groups

# A control group's limit, the memory it holds, and how much of that is cached files, which the kernel frees on demand.
FILES = (
    ("memory.max", "memory.current", "inactive_file"),
    ("memory.limit_in_bytes", "memory.usage_in_bytes", "total_inactive_file"),  # version 1
)


def available_bytes(root: Path = ROOT) -> int:
    """Bytes that can be taken without swapping, and without exceeding a group's limit, for which the kernel would kill
    the process; at least 0.
    """
    return max(0, min([int(psutil.virtual_memory().available), *_left(root)]))


def _left(root: Path) -> Iterator[int]:
    """The bytes that each control group of this process with a limit may still take."""
    for group in control_groups("memory", root):
        for limit, held, cached in FILES:
            with suppress(OSError, ValueError):
                most = (group / limit).read_text().strip()
                if most != "max":
                    yield int(most) - int((group / held).read_text()) + _cached(group, cached)


def _cached(group: Path, name: str) -> int:
    with suppress(OSError, ValueError):
        for line in (group / "memory.stat").read_text().splitlines():
            key, _, value = line.partition(" ")
            if key == name:
                return int(value)
    return 0
