"""A real control group with a quota, where one may be made."""

from __future__ import annotations

import os
import subprocess
import sys
from contextlib import suppress
from pathlib import Path

import pytest

GROUPS = Path("/sys/fs/cgroup/cpu")  # version 1
QUOTA = "from placer.devices.host.cores import known_quota; print(known_quota())"


@pytest.fixture
def half_a_core():
    group = GROUPS / f"placer-test-{os.getpid()}"
    try:
        group.mkdir()
        (group / "cpu.cfs_quota_us").write_text("50000")
    except OSError:
        with suppress(OSError):
            group.rmdir()
        pytest.skip("no control group may be made here")
    yield group
    group.rmdir()


def test_the_quota_of_a_control_group_is_found(half_a_core):
    def enter():
        (half_a_core / "cgroup.procs").write_text(str(os.getpid()))

    done = subprocess.run([sys.executable, "-c", QUOTA], preexec_fn=enter, capture_output=True, text=True, check=True)
    assert done.stdout == "0.5\n"
