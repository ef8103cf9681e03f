"""What a worker for other machines reports of itself. TensorFlow has no means for this, but it has an op that reads a
file. So the worker holds a file in memory open under a fixed number, and the coordinating process reads it from there.
"""

from __future__ import annotations

import json
import os
from dataclasses import asdict, dataclass

INFO_FD = 199
INFO_PATH = f"/proc/self/fd/{INFO_FD}"


@dataclass(frozen=True)
class WorkerInfo:
    """A worker's report. tensorflow: its version. memory_bytes: free when it started. heeds: whether it obeys words
    (`freed_memory`). hardware: its cores and processor; "" from a worker of an older Placer.
    """

    tensorflow: str
    memory_bytes: int
    heeds: bool = False
    hardware: str = ""

    @classmethod
    def parsed(cls, text: bytes) -> WorkerInfo | None:
        """Parse what a worker has written; None for anything else."""
        try:
            fields = json.loads(text)
            version, memory_bytes = str(fields["tensorflow"]), int(fields["memory_bytes"])
            return cls(version, memory_bytes, bool(fields.get("heeds")), str(fields.get("hardware", "")))
        except (ValueError, TypeError, KeyError):
            return None

    def publish(self) -> None:
        """Make this process give this report from now on. Call it once, before the server starts."""
        written = os.memfd_create("placer_worker")
        os.write(written, json.dumps(asdict(self)).encode())
        os.dup2(written, INFO_FD)
        os.close(written)
