"""A model that one worker may not hold trains on two, as it would without Placer."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

PROGRAM = Path(__file__).with_name("limited_training.py")
pytestmark = [pytest.mark.slow, pytest.mark.workers]


def ran(way: str) -> dict[str, Any]:
    """What the program found out."""
    done = subprocess.run([sys.executable, PROGRAM, way], capture_output=True, text=True, timeout=1500)
    assert done.returncode == 0, done.stderr[-4000:]
    found: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return found


@pytest.mark.nightly
def test_a_search_with_limits_hands_back_a_mapping_over_both() -> None:
    found = ran("searched")
    assert found["failed"] == [] and not found["single"] and found["step_s"] > 0, found
    assert sum(found["held_mib"]) == found["variables_mib"]
    assert min(found["held_mib"]) > 0 and max(found["held_mib"]) <= 0.9 * found["may_mib"], found


@pytest.mark.nightly
def test_a_training_with_limits_goes_on_over_both_as_it_would_without() -> None:
    found = ran("trained")
    assert found["left_alone"] is None and found["placed"] > 0, found
    assert min(found["held_mib"]) > 0 and max(found["held_mib"]) <= 0.9 * found["may_mib"], found
    assert found["worst_loss"] < 1e-4 and found["worst_weight"] < 1e-5 < found["moved"], found
