"""How a process of this one's own Python is started as a module: it finds modules where this process does."""

from __future__ import annotations

import os
import sys
from pathlib import Path


def module_command(module: str, *arguments: str) -> list[str]:
    """The command that runs a module. The working folder is not searched first, where a user's `queue.py` may lie."""
    return [sys.executable, "-P", "-m", module, *arguments]


def module_paths() -> dict[str, str]:
    """What the environment of such a process needs."""
    return {"PYTHONPATH": os.pathsep.join(path or str(Path.cwd()) for path in sys.path)}
