"""The kernel's control groups of this process, which may limit its cores and its memory, as in a container."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

ROOT = Path("/")
V2 = "sys/fs/cgroup", "sys/fs/cgroup/unified"  # where version 2 is mounted: alone, or beside version 1
V1 = {"cpu": ("sys/fs/cgroup/cpu", "sys/fs/cgroup/cpu,cpuacct"), "memory": ("sys/fs/cgroup/memory",)}


def control_groups(controller: str, root: Path = ROOT) -> Iterator[Path]:
    """The folders of the control groups that may limit this process, and of the groups that contain them.

    controller: a key of V1. root: of the file system (proc_pid_cgroup(5)).
    """
    for mount, folder in _hierarchies(controller, root):
        top = root / mount
        for group in (top / folder, *(top / folder).parents):
            if group.is_relative_to(top):
                yield group


def _hierarchies(controller: str, root: Path) -> Iterator[tuple[str, str]]:
    """Where each hierarchy with the controller may be mounted, and this process's folder in it. The folder may be wrong
    in a container that sees its own folder as the top; `control_groups` always includes the top.
    """
    with suppress(OSError):
        for line in (root / "proc/self/cgroup").read_text("utf-8", "replace").splitlines():
            _, controllers, folder = [*line.split(":", 2), "", ""][:3]
            mounts = V2 if not controllers else V1[controller] if controller in controllers.split(",") else ()
            for mount in mounts:
                yield mount, "" if ".." in folder else folder.lstrip("/")
