"""The process that the bench `gpu` asks, one at a time: a process that holds a GPU leaves little of it to others."""

from __future__ import annotations

from functools import partial

import psutil

from experiments.benches.bench import Facts
from experiments.benches.process import Caps, Doer, Measurer

MEMORY_SHARE = 0.85  # of the machine's
ALL = 10_000  # questions before a process is renewed: never


def opened(devices: str | None) -> Doer:
    """Made in the process that measures."""
    from experiments.benches.gpu.study import GpuStudy

    return GpuStudy(devices)


class Host(Measurer):
    """The process that holds certain devices; it ends when others are asked for."""

    def __init__(self) -> None:
        memory_bytes = int(MEMORY_SHARE * psutil.virtual_memory().total)
        super().__init__(partial(opened, None), Caps(memory_bytes=memory_bytes, batch=ALL))
        self.devices: str | None = None

    def ask_on(self, devices: str | None, method: str, argument: object, seconds: float) -> Facts:
        """What the method returns in a process that holds these devices, or {"failed": line, "why": word}."""
        if devices != self.devices:
            self.end()
            self.devices, self.make = devices, partial(opened, devices)
        found = self.ask(method, argument, seconds)
        if "skipped" not in found:
            return found
        return {"failed": f"{found['skipped']}: {found['detail']}", "why": found["skipped"]}
