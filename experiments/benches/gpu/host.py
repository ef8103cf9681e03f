"""The process that the bench `gpu` asks, one at a time: a process that holds a GPU leaves little of it to others."""

from __future__ import annotations

from functools import partial
from types import TracebackType
from typing import Any

import psutil

from experiments.benches.bench import Facts
from experiments.benches.process import Caps, Doer, Measurer

MEMORY_SHARE = 0.85  # of the machine's
ALL = 10_000  # questions before a process is renewed: never


def opened(devices: str | None) -> Doer:
    """Made in the process that measures."""
    from experiments.benches.gpu.study import GpuStudy

    return GpuStudy(devices)


class Host:
    """The process that holds certain devices; it ends when others are asked for."""

    def __init__(self) -> None:
        self.caps = Caps(memory_bytes=int(MEMORY_SHARE * psutil.virtual_memory().total), batch=ALL)
        self.devices: str | None = None
        self.measurer: Measurer | None = None

    def __enter__(self) -> Host:
        return self

    def __exit__(self, *_: type[BaseException] | BaseException | TracebackType | None) -> None:
        self.end()

    def ask(self, devices: str | None, method: str, argument: Any, seconds: float) -> Facts:
        """What the method returns in a process that holds these devices, or {"failed": line, "why": word}."""
        if self.measurer is None or devices != self.devices:
            self.end()
            self.devices, self.measurer = devices, Measurer(partial(opened, devices), self.caps)
        found = self.measurer.ask(method, argument, seconds)
        if "skipped" not in found:
            return found
        return {"failed": f"{found['skipped']}: {found['detail']}", "why": found["skipped"]}

    def end(self) -> None:
        """End the process: the next question is asked in a fresh one. Harmless when called twice."""
        if self.measurer is not None:
            self.measurer.end()
        self.measurer = None
