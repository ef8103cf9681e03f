"""An actor that runs one worker on the node where Ray put it; the worker ends with the actor."""

from __future__ import annotations

import json
import os
import selectors
import subprocess
from functools import partial
from typing import Any

from placer.devices.host.parent import when_parent_ends
from placer.devices.workers.addresses import listens
from placer.devices.workers.standalone import command, environment
from placer.devices.workers.workers import START_TIMEOUT_S

NO_GPU = {"CUDA_VISIBLE_DEVICES": "-1"}


class NodeWorker:
    """The worker of a node. It ends with `end`, and when its stdin closes, because the actor or the node has ended."""

    def __init__(self, host: str, first_core: int, cores: int, gpus: int) -> None:
        """host: the node's address. first_core, cores: index of the first core, and the number of cores, of the node's
        share of those that this process may use. gpus: how many GPUs the node has.
        """
        self.host, self.gpus = host, gpus
        self.cores = share(sorted(os.sched_getaffinity(0)), first_core, cores)
        self._process: subprocess.Popen[str] | None = None
        self._address = ""
        # Ray watches its raylet, too, but takes a killed raylet for alive until the raylet's parent has waited for it.
        when_parent_ends(partial(os._exit, 1))

    def serve(self, port: int = 0) -> dict[str, Any]:
        """Start the worker, or restart it, and return what it reports: its address (host:port), its cores, its
        TensorFlow version; {"error": why} if it does not start. port: 0 for a free one.
        """
        self.end()
        listen = f"{self.host}:{port}"
        flags = ["--cores", ",".join(map(str, self.cores)), "--json", "--until-eof"]
        with os.fdopen(os.memfd_create("placer_said"), "w+") as said:
            self._process = subprocess.Popen(
                command(listen, *flags),
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=said,
                text=True,
                env=environment() | ({} if self.gpus else NO_GPU),
            )
            line = _first_line(self._process)
            if line:
                facts = dict(json.loads(line))
                self._address = facts["address"]
                return facts
            self.end()
            said.seek(0)
            return {"error": said.read().strip().removeprefix("placer: ") or f"no worker came up at {listen}."}

    def serves(self) -> bool:
        """Whether the worker's process exists and accepts connections; a dying process exists for a while."""
        return self._process is not None and self._process.poll() is None and listens(self._address)

    def end(self) -> None:
        """End the worker; harmless if there is none."""
        process, self._process = self._process, None
        if process is not None:
            process.kill()
            process.communicate()


def share(allowed: list[int], first: int, count: int) -> list[int]:
    """The `count` cores of a node, from index `first` on; all `allowed` if Ray was given more CPUs than there are cores
    on the machine.
    """
    mine = allowed[first : first + count]
    return mine if len(mine) == count else allowed


def _first_line(process: subprocess.Popen[str]) -> str:
    """The first line that a process prints; "" if it ends, or takes longer than START_TIMEOUT_S."""
    assert process.stdout is not None
    with selectors.DefaultSelector() as selector:
        selector.register(process.stdout, selectors.EVENT_READ)
        return process.stdout.readline().strip() if selector.select(START_TIMEOUT_S) else ""
