"""One-core worker processes for the bench scaling, also more of them than there are cores."""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from placer.devices.cluster import Devices


def own_cores() -> tuple[int, ...]:
    """The cores that this process may use."""
    return tuple(sorted(os.sched_getaffinity(0)))


def dealt(count: int, cores: Sequence[int]) -> tuple[int, ...]:
    """The core of each of `count` workers, dealt in turn; workers share cores if there are more workers than cores."""
    return tuple(cores[i % len(cores)] for i in range(count))


def workers_per_core(count: int, cores: Sequence[int]) -> tuple[int, ...]:
    """[workers]: for each of `count` workers, how many workers are on its core."""
    found = dealt(count, cores)
    return tuple(found.count(core) for core in found)


def open_one_core_workers(count: int) -> Devices:
    """Open `count` workers on a core each, which the caller must close. Their links are not measured."""
    from placer.devices.opening import open_devices
    from placer.devices.workers.workers import start_workers

    workers = start_workers(count, cores=[(core,) for core in dealt(count, own_cores())])
    # By address, because `workers:N` refuses more workers than cores.
    return open_devices(",".join(workers.addresses), links=False, workers=workers, deadlines=True)
