"""The name under which results of this machine are kept."""

from __future__ import annotations

import platform

import psutil


def machine_name(hardware: str = "") -> str:
    """This machine, as results are kept under it. hardware: what its GPU is called, where the result is one's."""
    return f"{platform.node()} {platform.machine()} {psutil.cpu_count()} {hardware}".strip()
