"""The keys for stored results of this machine: its name, its processor, and settings that change how fast it runs."""

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
MACHINE = "PLACER_MACHINE"  # replaces the host name, for example in a container, whose host name changes
SPEED_SETTINGS = (
    *(ONEDNN, "ONEDNN_MAX_CPU_ISA", "TF_NUM_INTRAOP_THREADS", "TF_NUM_INTEROP_THREADS"),
    *("OMP_NUM_THREADS", "TF_XLA_FLAGS", "XLA_FLAGS", "NVIDIA_TF32_OVERRIDE", "TF_DETERMINISTIC_OPS"),
    *("TF_CUDNN_USE_AUTOTUNE", "TF_GPU_ALLOCATOR", "TF_GPU_THREAD_MODE"),
)


def machine_name(hardware: str = "") -> str:
    """The key for stored results of this machine. It counts the cores that this process may use, because steps take
    longer with fewer (`taskset`, a control group's quota). hardware: the device that the result is from, such as the
    product name of a GPU.
    """
    return f"{node_name()} {platform.machine()} {len(usable_cores())} {hardware}".strip()


def node_name() -> str:
    """This machine's name in stored results: PLACER_MACHINE if it is set, else the host name."""
    return os.environ.get(MACHINE) or platform.node()


def timed_on(hardware: str) -> str:
    """The key for stored times of single ops: `machine_name(hardware)`, TensorFlow's release, and the settings that
    change how fast ops run.
    """
    parts = (machine_name(hardware), f"TensorFlow {installed()}", speed_settings())
    return " / ".join(part for part in parts if part)


@cache
def cpu_model() -> str:
    """Linux's name of this machine's processor; its architecture if Linux does not name it."""
    with suppress(OSError):
        for line in CPUINFO.read_text(errors="replace").splitlines():
            field, _, value = line.partition(":")
            if field.strip() == "model name" and value.strip():
                return value.strip()
    return platform.processor() or platform.machine()


def cores_of_cpu(count: int) -> str:
    """Describe `count` cores of this machine, for display and to tell them from cores of another machine."""
    return f"{count} core{'s' * (count != 1)} of {cpu_model()}"


def speed_settings() -> str:
    """The environment variables that change how fast ops run here, with their values; "" if none is set. oneDNN turned
    on is left out on x86-64, because that is TensorFlow's default there.
    """
    given = {name: os.environ[name] for name in SPEED_SETTINGS if name in os.environ}
    if platform.machine() == "x86_64" and given.get(ONEDNN) == "1":
        del given[ONEDNN]
    return " ".join(f"{name}={value}" for name, value in given.items())
