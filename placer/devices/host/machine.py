"""The name under which results of this machine are kept."""

from __future__ import annotations

import platform

import psutil


def machine_name(hardware: str = "") -> str:
    """This machine's key for stored results. hardware: the GPU's product name, where the result is from a GPU."""
    return f"{platform.node()} {platform.machine()} {psutil.cpu_count()} {hardware}".strip()
