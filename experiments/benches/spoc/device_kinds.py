"""The kinds of device on which the bench `spoc` measures: how many cores, and how many of them one op may use."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True)
class DeviceKind:
    """cores: of those that this process may use; op_cores: of these for one op. None = all."""

    name: str
    cores: int | None = None
    op_cores: int | None = None

    @property
    def slug(self) -> str:
        """Usable as a part of the name of a file."""
        return self.name.replace(" ", "-")


ALL_CORES = DeviceKind("all cores")
ONE_CORE = DeviceKind("one core", cores=1)
DEVICE_KINDS = (ALL_CORES, ONE_CORE)
"""Those on which every network is measured. The first is the one that the figures of no particular kind are of."""
CORE_PER_OP = DeviceKind("a core per op", op_cores=1)
"""All cores, but an op runs on one: what as many one-core devices could do at most, if transfers cost nothing."""


def settle(kind: DeviceKind) -> None:
    """Keep this process to the cores of `kind`; call it before TensorFlow runs anything, which makes its threads."""
    cores = sorted(os.sched_getaffinity(0))[: kind.cores]
    for thread in Path("/proc/self/task").iterdir():  # of libraries that were loaded before, too
        os.sched_setaffinity(int(thread.name), cores)
    if kind == ALL_CORES:  # as TensorFlow is by itself
        return
    import tensorflow as tf

    tf.config.threading.set_intra_op_parallelism_threads(min(kind.op_cores or len(cores), len(cores)))
    tf.config.threading.set_inter_op_parallelism_threads(len(cores))
