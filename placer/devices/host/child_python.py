"""How a process of this one's own Python is started as a module: it finds modules where this process does."""

from __future__ import annotations

import os
import sys
from pathlib import Path


def module_command(module: str, *arguments: str) -> list[str]:
    """The command that runs a module. The working folder is not searched first, where a user's `queue.py` may lie."""
    return [sys.executable, "-P", "-m", module, *arguments]


def module_paths() -> dict[str, str]:
    """What the environment of such a process needs: what this one's names, then where this process finds modules."""
    named = [path for path in os.environ.get("PYTHONPATH", "").split(os.pathsep) if path]
    return {"PYTHONPATH": os.pathsep.join(dict.fromkeys([*named, *(path or str(Path.cwd()) for path in sys.path)]))}
