"""What a process and all that it started left behind: processes, listening sockets, temporary files."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

import psutil

MARK = "PLACER_FAULT"  # environment variable by which a process and all that it starts are found
LIMIT_S = 5.0  # within which nothing may be left
POLL_S = 0.1
AUTOGRAPH = "__autograph_generated_file"  # files that any program of TensorFlow leaves when it is killed
CACHE = "__pycache__"
LISTEN = "0A"  # the state of a listening socket in /proc/net/tcp


@dataclass
class Family:
    """A process and all that it starts, found by the mark in their environment. folder: for their temporary files."""

    mark: str
    folder: Path
    ports: set[int] = field(default_factory=set)  # on which any of the processes was seen to listen

    def environment(self) -> dict[str, str]:
        """Make the folder. Returns the environment variables that the first process needs."""
        self.folder.mkdir(parents=True, exist_ok=True)
        return {MARK: self.mark, "TMPDIR": str(self.folder)}

    def processes(self) -> list[psutil.Process]:
        """The processes that run now."""
        return [process for process in psutil.process_iter() if self._is_ours(process)]

    def workers(self) -> list[psutil.Process]:
        """The worker processes that run now, ordered by their task numbers."""
        found: dict[int, psutil.Process] = {}
        for process in self.processes():
            with suppress(psutil.Error):
                if "placer.devices.workers.worker" in (line := process.cmdline()):
                    found.setdefault(int(line[line.index("--task") + 1]), process)  # a worker forks while it starts
        return [found[task] for task in sorted(found)]

    def look(self) -> None:
        """Note the ports on which the processes listen now."""
        for process in self.processes():
            with suppress(psutil.Error):
                self.ports |= {c.laddr.port for c in process.net_connections("tcp") if c.status == psutil.CONN_LISTEN}

    def left(self, limit_s: float = LIMIT_S, clock: Callable[[], float] = time.monotonic) -> list[str]:
        """What is still there after `limit_s`, in words. Returns as soon as nothing is."""
        end_s = clock() + limit_s
        while (found := list(self._found())) and clock() < end_s:
            time.sleep(POLL_S)
        return found

    def end(self) -> None:
        """Kill the processes that still run."""
        for process in self.processes():
            with suppress(psutil.Error):
                process.kill()

    def _is_ours(self, process: psutil.Process) -> bool:
        with suppress(psutil.Error, OSError):
            return bool(process.environ().get(MARK) == self.mark and process.status() != psutil.STATUS_ZOMBIE)
        return False

    def _found(self) -> Iterator[str]:
        for process in self.processes():
            with suppress(psutil.Error):
                yield f"process {process.pid}: {' '.join(process.cmdline())[-120:]}"
        for port in sorted(self.ports & listening()):
            yield f"a socket that listens on port {port}"
        for path in sorted(path for path in self.folder.rglob("*") if not _is_autographs(path)):
            yield f"temporary file {path.name}"


def _is_autographs(path: Path) -> bool:
    """Whether TensorFlow's autograph wrote the file, or Python compiled all files in the folder from such source."""
    with suppress(OSError):
        if path.name == CACHE and path.is_dir():
            return all(file.name.startswith(AUTOGRAPH) for file in path.iterdir())
    return path.name.startswith(AUTOGRAPH)


def listening(tables: Iterable[Path] = (Path("/proc/net/tcp"), Path("/proc/net/tcp6"))) -> set[int]:
    """The ports on which any process of this machine listens."""
    found = set()
    for table in tables:
        with suppress(OSError):
            for line in table.read_text().splitlines()[1:]:
                fields = line.split()
                if fields[3] == LISTEN:
                    found.add(int(fields[1].rpartition(":")[2], 16))
    return found
