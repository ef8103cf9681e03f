"""Preparing: after it, a plan compiles nothing."""

import os
import subprocess
import sys

import pytest

CODE = """
from numba.core import event
from search.offline import prepare
prepare.main()
from search.offline.plan import plan
from tests.search.conftest import layered, machine
from search.problem.problem import Problem
recorded = event.RecordingListener()
event.register("numba:compile", recorded)
for objective in ("makespan", "max-load"):
    for link in ({}, {"send_s": 0.1}):
        graph, devices = layered(3, layers=8, width=4), machine("gpu", "gpu", "cpu", **link)
        problem = Problem(graph, devices, objective)
        plan(problem, seconds=0.2)
print(len(recorded.buffer))
"""


@pytest.mark.nightly
def test_after_it_a_plan_compiles_nothing(tmp_path):
    """With a cache of its own, because other tests compile more."""
    env = {**os.environ, "NUMBA_CACHE_DIR": str(tmp_path)}
    done = subprocess.run([sys.executable, "-c", CODE], capture_output=True, text=True, check=True, env=env)
    assert done.stdout.strip() == "0"
