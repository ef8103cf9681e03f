"""The name under which results of this machine are kept."""

from __future__ import annotations

import platform

from placer.devices.host.cores import usable_cores


def machine_name(hardware: str = "") -> str:
    """The key for stored results of this machine, and of the cores that this process may use of it: with fewer
    (`taskset`, a control group's quota) steps take longer. hardware: the GPU's product name, where the result is from a
    GPU.
    """
    return f"{platform.node()} {platform.machine()} {len(usable_cores())} {hardware}".strip()
