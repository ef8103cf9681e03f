"""Builds the command and environment that run a module in a new process of the same Python, with the same paths."""

from __future__ import annotations

import os
import sys
from pathlib import Path


def module_command(module: str, *arguments: str) -> list[str]:
    """The command that runs a module. The working folder is not searched first, where a user's `queue.py` may lie."""
    return [sys.executable, "-P", "-m", module, *arguments]


def module_paths() -> dict[str, str]:
    """PYTHONPATH for such a process: the folders in this process's PYTHONPATH, then all others on its module path."""
    named = [path for path in os.environ.get("PYTHONPATH", "").split(os.pathsep) if path]
    return {"PYTHONPATH": os.pathsep.join(dict.fromkeys([*named, *(path or str(Path.cwd()) for path in sys.path)]))}
