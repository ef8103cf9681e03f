"""Runs a command where little is permitted: as another user, and with folders that cannot be written."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
OTHER = 65534  # nobody
LATE_S = 300
NO_HOME = {"HOME": "/proc/none", "XDG_CACHE_HOME": "/proc/none/cache", "MPLCONFIGDIR": "/proc/none/plots"}
# It may read what root may, for the Python that runs the tests may be in root's home; it may write nothing of root's.
READS = ["--inh-caps=-all,+dac_read_search", "--ambient-caps=+dac_read_search", "--bounding-set=-all,+dac_read_search"]
AS_OTHER = ["setpriv", f"--reuid={OTHER}", f"--regid={OTHER}", "--clear-groups", *READS, "--"]


def _works(command: Sequence[str]) -> bool:
    found = shutil.which(command[0]) is not None
    return found and subprocess.run([*command, "true"], capture_output=True, check=False).returncode == 0


other_user = pytest.mark.skipif(not _works(AS_OTHER), reason="no other user can be become here")
own_mounts = pytest.mark.skipif(not _works(["unshare", "--mount"]), reason="no file systems may be mounted here")


def mounted(setup: str) -> list[str]:
    """What runs a command where `setup`, of a shell, has mounted file systems that nobody else sees."""
    return ["unshare", "--mount", "sh", "-c", f'{setup} && exec "$@"', "sh"]


def placer(
    *arguments: object, wrap: Sequence[str] = (), cwd: Path | str = ROOT, **environment: str
) -> subprocess.CompletedProcess[str]:
    """Run a command of Placer's; environment: variables that are set besides."""
    return started(*arguments, wrap=wrap, cwd=cwd, **environment)()


class started:  # noqa: N801, reads as a statement
    """The same, begun, and waited for by a call."""

    def __init__(
        self, *arguments: object, wrap: Sequence[str] = (), cwd: Path | str = ROOT, **environment: str
    ) -> None:
        self._process = subprocess.Popen(
            [*wrap, sys.executable, "-m", "placer", *map(str, arguments)],
            cwd=cwd,
            env={**os.environ, "PYTHONPATH": str(ROOT), "PYTHONDONTWRITEBYTECODE": "1", **environment},
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )

    def __call__(self) -> subprocess.CompletedProcess[str]:
        out, err = self._process.communicate(timeout=LATE_S)
        return subprocess.CompletedProcess(self._process.args, self._process.returncode, out, err)
