"""The kernel's control groups that this process is in: what may limit its cores and its memory, as in a container."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

ROOT = Path("/")
V2 = "sys/fs/cgroup", "sys/fs/cgroup/unified"  # where it is mounted: alone, or beside version 1
V1 = {"cpu": ("sys/fs/cgroup/cpu", "sys/fs/cgroup/cpu,cpuacct"), "memory": ("sys/fs/cgroup/memory",)}


def control_groups(controller: str, root: Path = ROOT) -> Iterator[Path]:
    """The folders of the groups that may limit this process, and of those around them. controller: of V1. root: of the
    file system (proc_pid_cgroup(5)).
    """
    for mount, folder in _hierarchies(controller, root):
        top = root / mount
        for group in (top / folder, *(top / folder).parents):
            if group.is_relative_to(top):
                yield group


def _hierarchies(controller: str, root: Path) -> Iterator[tuple[str, str]]:
    """Where a hierarchy with the controller is mounted, and this process's folder in it. A container may see another
    folder than is written there, its own as the top, which is looked at in any case.
    """
    with suppress(OSError):
        for line in (root / "proc/self/cgroup").read_text("utf-8", "replace").splitlines():
            _, controllers, folder = [*line.split(":", 2), "", ""][:3]
            mounts = V2 if not controllers else V1[controller] if controller in controllers.split(",") else ()
            for mount in mounts:
                yield mount, "" if ".." in folder else folder.lstrip("/")
