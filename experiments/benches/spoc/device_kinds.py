"""The kinds of device on which the bench `spoc` measures: how many cores, and how many of them one op may use."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True)
class DeviceKind:
    """A kind of device. cores: how many of the process's cores it has; op_cores: how many of them one op may use. None
    = all.
    """

    name: str
    cores: int | None = None
    op_cores: int | None = None

    @property
    def slug(self) -> str:
        """The name, usable as a part of a file name."""
        return self.name.replace(" ", "-")


ALL_CORES = DeviceKind("all cores")
ONE_CORE = DeviceKind("one core", cores=1)
DEVICE_KINDS = (ALL_CORES, ONE_CORE)
"""The kinds on which every network is measured. Figures that name no kind are of the first."""
CORE_PER_OP = DeviceKind("a core per op", op_cores=1)
"""All cores, but each op runs on one: the most that a one-core device per core could do, if transfers cost nothing."""


def settle(kind: DeviceKind) -> None:
    """Keep this process to the cores of `kind`. Call it before TensorFlow runs anything and starts its threads."""
    cores = sorted(os.sched_getaffinity(0))[: kind.cores]
    for thread in Path("/proc/self/task").iterdir():  # of libraries that were loaded before, too
        os.sched_setaffinity(int(thread.name), cores)
    if kind == ALL_CORES:  # TensorFlow's own settings
        return
    import tensorflow as tf

    tf.config.threading.set_intra_op_parallelism_threads(min(kind.op_cores or len(cores), len(cores)))
    tf.config.threading.set_inter_op_parallelism_threads(len(cores))
