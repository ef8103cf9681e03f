"""Programs that tests run in a network of their own."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

from experiments.benches.own_network import UNAVAILABLE


def said(program: str, timeout_s: float = 900.0, **environment: str) -> list[str]:
    """The lines that a program prints there. Skips the test where this system has no network for it."""
    command = [sys.executable, "-m", "experiments.benches.own_network", "-c", program]
    told = {**os.environ, **environment}
    done = subprocess.run(command, capture_output=True, text=True, timeout=timeout_s, check=False, env=told)
    if done.returncode == UNAVAILABLE:
        pytest.skip(done.stderr.strip())
    assert done.returncode == 0, done.stderr[-3000:]
    return done.stdout.splitlines()
