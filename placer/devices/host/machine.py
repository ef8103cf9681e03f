"""What results of this machine are kept under: its name, its processor, and settings that change how fast it runs."""

from __future__ import annotations

import os
import platform
from contextlib import suppress
from functools import cache
from pathlib import Path

from placer.devices.host.cores import usable_cores
from placer.tf_version import installed

CPUINFO = Path("/proc/cpuinfo")
# Environment variables by which TensorFlow and its libraries choose kernels, precision and threads.
ONEDNN = "TF_ENABLE_ONEDNN_OPTS"
MACHINE = "PLACER_MACHINE"  # names this machine in its name's place, as in a container, whose name changes
SPEED_SETTINGS = (
    *(ONEDNN, "ONEDNN_MAX_CPU_ISA", "TF_NUM_INTRAOP_THREADS", "TF_NUM_INTEROP_THREADS"),
    *("OMP_NUM_THREADS", "TF_XLA_FLAGS", "XLA_FLAGS", "NVIDIA_TF32_OVERRIDE", "TF_DETERMINISTIC_OPS"),
    *("TF_CUDNN_USE_AUTOTUNE", "TF_GPU_ALLOCATOR", "TF_GPU_THREAD_MODE"),
)


def machine_name(hardware: str = "") -> str:
    """The key for stored results of this machine, and of the cores that this process may use of it: with fewer
    (`taskset`, a control group's quota) steps take longer. hardware: the GPU's product name, where the result is from a
    GPU.
    """
    return f"{node_name()} {platform.machine()} {len(usable_cores())} {hardware}".strip()


def node_name() -> str:
    """This machine's name among stored results: PLACER_MACHINE, where that is set, or else its host name."""
    return os.environ.get(MACHINE) or platform.node()


def timed_on(hardware: str) -> str:
    """The key for stored times of single ops: a `machine_name` of `hardware`, with TensorFlow's release and the
    settings that change how fast ops run.
    """
    parts = (machine_name(hardware), f"TensorFlow {installed()}", speed_settings())
    return " / ".join(part for part in parts if part)


@cache
def cpu_model() -> str:
    """What Linux calls this machine's processor; its architecture where Linux does not say."""
    with suppress(OSError):
        for line in CPUINFO.read_text(errors="replace").splitlines():
            field, _, value = line.partition(":")
            if field.strip() == "model name" and value.strip():
                return value.strip()
    return platform.processor() or platform.machine()


def cores_of_cpu(count: int) -> str:
    """So many cores of this machine, as they are shown and told from those of another machine."""
    return f"{count} core{'s' * (count != 1)} of {cpu_model()}"


def speed_settings() -> str:
    """The environment variables that change how fast ops run here, with their values; "" where none is set to another
    one than TensorFlow's own.
    """
    given = {name: os.environ[name] for name in SPEED_SETTINGS if name in os.environ}
    if platform.machine() == "x86_64" and given.get(ONEDNN) == "1":
        del given[ONEDNN]
    return " ".join(f"{name}={value}" for name, value in given.items())
