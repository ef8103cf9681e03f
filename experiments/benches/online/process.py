"""A process for each part of the bench `online`, which ends in bounded time."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys

from experiments.benches.bench import Facts


def in_part(name: str, settings: Facts, limit_s: float) -> Facts:
    """The part's facts, or {"failed": line} where it fails or does not end in time. Its progress goes to stderr."""
    command = [sys.executable, "-m", "experiments.benches.online.part", name, json.dumps(settings)]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True, start_new_session=True)
    try:
        text, _ = process.communicate(timeout=limit_s)
    except subprocess.TimeoutExpired:
        return {"failed": f"it did not end within {limit_s:.0f} s"}
    finally:
        _end(process)
    lines = text.strip().splitlines()
    if not lines or process.returncode < 0:
        return {"failed": f"it ended with code {process.returncode} and without a word"}
    return dict(json.loads(lines[-1]))


def _end(process: subprocess.Popen[str]) -> None:
    """Its neighbours, planner and workers end with it."""
    if process.poll() is None:
        os.killpg(process.pid, signal.SIGKILL)
        process.wait()
    if process.stdout is not None:
        process.stdout.close()
