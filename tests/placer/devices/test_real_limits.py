"""A step that a worker has no memory for fails as a value, under limits that are enforced; the worker lives on."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from placer.devices.workers.workers import fence_bytes
from placer.errors import BadInputError

PROGRAM = Path(__file__).with_name("out_of_memory.py")


@pytest.mark.slow
@pytest.mark.workers
def test_a_step_that_a_worker_has_no_memory_for_is_a_failure_and_no_worker_is_lost() -> None:
    done = subprocess.run([sys.executable, PROGRAM], capture_output=True, text=True, timeout=600)
    assert done.returncode == 0, done.stderr[-4000:]
    found = json.loads(done.stdout.splitlines()[-1])
    refused, ran_out = found["results"]
    peak = found["peaks_bytes"][0][0]
    assert (refused["reason"], refused["device"], refused["wanted_bytes"]) == ("memory", "worker:0", peak), found
    assert f"worker:0 has no memory for it, where it would have held {peak / 2**20:.1f} MiB" in refused["detail"]
    # Asked before, it seemed to fit; TensorFlow made more tensors at once than are simulated.
    assert (ran_out["reason"], ran_out["device"][:7]) == ("memory", "worker:"), found
    wanted = found["peaks_bytes"][1][int(ran_out["device"][7:])]
    assert ran_out["wanted_bytes"] == wanted, found
    assert f"ran out of memory where it would have held {wanted / 2**20:.1f} MiB at once, as sim" in ran_out["detail"]
    assert found["alive"] == [True, True] and found["unharmed"], found


def test_a_fence_is_a_number_of_mebibytes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("PLACER_FENCE_MIB", raising=False)
    assert fence_bytes() is None
    monkeypatch.setenv("PLACER_FENCE_MIB", "256")
    assert fence_bytes() == 256 * 2**20
    monkeypatch.setenv("PLACER_FENCE_MIB", "a lot")
    with pytest.raises(BadInputError, match=r"^PLACER_FENCE_MIB=a lot|^PLACER_FENCE_MIB='a lot'"):
        fence_bytes()
