"""Logical devices: divides this process's GPUs or its CPU before TensorFlow initialises them."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Sequence
from contextlib import suppress

import tensorflow as tf

from placer import tf_internals
from placer.devices.specs import NUMBER, LogicalDevices, logical_devices
from placer.errors import BadInputError

HEADROOM_MIB, HEADROOM_SHARE = 2048, 0.02  # of a GPU, for what TensorFlow does not count: driver context, kernels
MOST_HEADROOM_SHARE = 0.25
ASK_TIMEOUT_S = 30.0
ASK = ("nvidia-smi", "--query-gpu=index,uuid,memory.free,name,mig.mode.current", "--format=csv,noheader,nounits")
VISIBLE, GROWTH = "CUDA_VISIBLE_DEVICES", "TF_FORCE_GPU_ALLOW_GROWTH"
ORDER, BY_BUS = "CUDA_DEVICE_ORDER", "PCI_BUS_ID"


def split(spec: str | None = None) -> None:
    """Divide this process's GPUs or CPU as a devices spec says: "gpus:N", "gpus:N@MIB" or "cpus:N"; other specs divide
    nothing. Undivided GPUs are set to allocate memory as they need it, so that other processes can use the rest, unless
    the program has configured them.

    Call it before anything else uses TensorFlow, because the first tensor initialises the devices; calling it again
    with the same spec does nothing. Raises BadInputError if it is too late, or if there is no GPU.
    """
    asked = None if spec is None else logical_devices(spec)
    if asked is not None:
        _divide(asked)
    _let_memory_grow()


def gpu_names() -> list[str]:
    """The product name of each logical GPU of this process ("NVIDIA H200"), in TensorFlow's order; "" if unknown."""
    names = []
    for gpu in tf.config.get_visible_devices("GPU"):
        name = tf.config.experimental.get_device_details(gpu).get("device_name", "")
        names += [name] * len(tf.config.get_logical_device_configuration(gpu) or (gpu,))
    return names


def _divide(asked: LogicalDevices) -> None:
    physical = tf.config.get_visible_devices(asked.kind)
    parts = [tf.config.get_logical_device_configuration(device) for device in physical]
    if not physical:
        raise BadInputError(f"devices {asked.spec!r}: {_why_no_gpu()}; write cpus:{asked.count} to divide the CPU.")
    if all(map(asked.is_made, parts)):
        return
    if any(part is not None for part in parts):
        raise BadInputError(
            f"devices {asked.spec!r}: this process's {asked.kind} is divided in another way; leave them out."
        )
    if tf_internals.devices.devices_are_set_up():
        raise BadInputError(
            f"devices {asked.spec!r}: TensorFlow has set up its devices, which cannot be divided any more; "
            f"call placer.split({asked.spec!r}) first thing, before any model, variable or tensor is made."
        )
    limit_mib = (asked.mib or _share_of_free_mib(asked)) if asked.kind == "GPU" else None
    for device in physical:
        logical = [tf.config.LogicalDeviceConfiguration(memory_limit=limit_mib) for _ in range(asked.count)]
        tf.config.set_logical_device_configuration(device, logical)


def _let_memory_grow() -> None:
    """Let GPUs allocate memory as needed unless the program configured any GPU: all GPUs must have the same setting,
    and logical GPUs cannot have it.
    """
    gpus = tf.config.get_visible_devices("GPU")
    configured = [tf.config.experimental.get_memory_growth(gpu) is not None for gpu in gpus]
    if not gpus or any(configured) or any(tf.config.get_logical_device_configuration(gpu) for gpu in gpus):
        return
    if any(tf.config.get_logical_device_configuration(cpu) for cpu in tf.config.get_visible_devices("CPU")):
        os.environ.setdefault(GROWTH, "true")  # TensorFlow 2.21 still reads it at this point
    with suppress(RuntimeError):  # they are initialised already
        for gpu in gpus:
            tf.config.experimental.set_memory_growth(gpu, True)


def _why_no_gpu() -> str:
    if not tf.test.is_built_with_gpu_support():
        return "this build of TensorFlow is for CPUs only (make EXTRA=gpu installs the other)"
    return "TensorFlow sees no GPU here"


def _share_of_free_mib(asked: LogicalDevices) -> int:
    """Mebibytes for each logical GPU. nvidia-smi is asked, because TensorFlow knows the free memory only once devices
    are initialised.
    """
    try:
        table = subprocess.run(ASK, capture_output=True, text=True, timeout=ASK_TIMEOUT_S, check=True).stdout
    except (OSError, subprocess.SubprocessError):
        table = ""
    free_mib = least_free_mib(table, os.environ.get(VISIBLE), by_bus=os.environ.get(ORDER) == BY_BUS)
    share = 0 if free_mib is None else share_mib(free_mib, asked.count)
    if share < 1:
        raise BadInputError(
            f"devices {asked.spec!r}: nvidia-smi does not tell of free memory on each GPU; "
            f"say how many mebibytes each is to have, as in {asked.spec}@4096."
        )
    return share


def least_free_mib(table: str, visible: str | None, *, by_bus: bool = False) -> int | None:
    """Mebibytes free on the fullest GPU in a table of index, uuid, free memory, name, MIG mode; None if a number is
    missing, or if MIG divides a GPU, because CUDA then opens one slice.

    visible: as in CUDA_VISIBLE_DEVICES: indices or prefixes of uuids, up to the first that is neither; None = all.
    by_bus: whether CUDA numbers GPUs as nvidia-smi does; else the fastest comes first. Then, if the GPUs are unlike, an
    index does not say which GPU is meant, and all count.
    """
    rows = [[cell.strip() for cell in line.split(",")] for line in table.splitlines() if line.count(",") == 4]
    names = [] if visible is None else [name.strip() for name in visible.split(",")]
    is_known = by_bus or len({row[3] for row in rows}) < 2 or not any(map(NUMBER.fullmatch, names))
    if visible is not None and (is_known or not visible.strip()):
        rows = _named(rows, names)
    if any(row[4] == "Enabled" for row in rows):
        return None
    free = [row[2] for row in rows]
    return min(map(int, free)) if free and all(map(NUMBER.fullmatch, free)) else None


def _named(rows: Sequence[list[str]], names: Sequence[str]) -> list[list[str]]:
    found = []
    for name in names:
        row = next((r for r in rows if r[0] == name or (name.startswith("GPU-") and r[1].startswith(name))), None)
        if row is None:
            break
        found.append(row)
    return found


def share_mib(free_mib: int, count: int) -> int:
    """Mebibytes for each of `count` logical GPUs: equal shares of the free memory less head-room."""
    headroom = min(HEADROOM_MIB + HEADROOM_SHARE * free_mib, MOST_HEADROOM_SHARE * free_mib)
    return int(free_mib - headroom) // count
