"""Where the kernel refuses what Placer asks of it: it does without, or says in one line why not."""

from __future__ import annotations

import json
import os
import platform
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from tests.environments.denied import CALLS

DENIED = str(Path(__file__).with_name("denied.py"))
LATE_S = 300

pytestmark = [
    pytest.mark.workers,
    pytest.mark.skipif(platform.machine() not in CALLS["affinity"][0], reason="the test knows no such machine"),
]


START = """
from placer.devices.workers.workers import start_workers
from placer.errors import PlacerError

try:
    with start_workers(1) as workers:
        print("serves" if workers.running(0) else "ended")
except PlacerError as error:
    print(error)
"""


def started(denied):
    """What is printed where workers are started."""
    command = [sys.executable, DENIED, denied, sys.executable, "-c", START]
    done = subprocess.run(command, capture_output=True, text=True, timeout=LATE_S, check=True)
    return done.stdout.splitlines(), done.stderr.splitlines()


def test_workers_that_may_not_be_kept_to_cores_compute_on_any_and_one_line_says_so():
    printed, said = started("affinity")
    assert printed == ["serves"]
    assert len(said) == 1 and said[0].startswith("placer: workers may not be kept to cores of their own here")


def test_a_worker_for_others_that_may_not_be_kept_to_its_cores_says_so_and_serves():
    command = [sys.executable, DENIED, "affinity", sys.executable, "-m", "placer", "worker", "--listen", "localhost:0"]
    first = str(min(os.sched_getaffinity(0)))
    with subprocess.Popen([*command, "--cores", first, "--json"], stdout=-1, stderr=-1, text=True) as process:
        try:
            address = json.loads(process.stdout.readline() or "{}").get("address", "")
            process.send_signal(signal.SIGTERM)
            _, said = process.communicate(timeout=LATE_S)
        finally:
            process.kill()  # else leaving the block would wait for one that does not end
    assert address.startswith("localhost:"), said
    assert said.splitlines()[0].startswith("placer: this worker may not be kept to its cores")
    assert "Traceback" not in said


def test_a_worker_whose_port_cannot_be_tied_to_loopback_is_ended_and_one_line_says_so():
    printed, said = started("bind-to-device")
    assert said == []
    (line,) = printed
    assert "cannot be tied to loopback (Operation not permitted) and would be open to other hosts" in line
