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

SEARCH = """
import sys
from numba.core import event
from search.exact.exact import Exact, ExactSettings
from search.learned.hybrid import Hybrid, HybridSettings
from placer.result import Measured
from search.list_scheduling.heft import heft_placement
from search.problem.problem import Problem
from tests.search.conftest import layered, machine
for objective in ("makespan", "max-load"):
    problem = Problem(layered(3, layers=8, width=4), machine("gpu", "gpu", "cpu"), objective)
    problem.predict_many([heft_placement(problem)])
    cls = {"exact": Exact, "hybrid": Hybrid}[sys.argv[1]]
    cls.prepare(objective)
    recorded = event.RecordingListener()
    event.register("numba:compile", recorded)
    if cls is Exact:
        Exact(problem, settings=ExactSettings(enumerate=0, work=1_000_000)).ask()
    else:
        searcher = Hybrid(problem, settings=HybridSettings(enumerate=0, certify_work=1_000_000))
        for _ in range(3):  # the second round is the first with branch and bound
            mapping = searcher.ask()
            searcher.tell(mapping, Measured(problem.predict(problem.placement(mapping))))
    event.unregister("numba:compile", recorded)
    print(len(recorded.buffer))
"""


@pytest.mark.nightly
@pytest.mark.parametrize("searcher", ["exact", "hybrid"])
def test_nothing_is_compiled_in_the_time_of_a_search(searcher, tmp_path):
    env = {**os.environ, "NUMBA_CACHE_DIR": str(tmp_path)}
    done = subprocess.run([sys.executable, "-c", SEARCH, searcher], capture_output=True, text=True, check=True, env=env)
    assert done.stdout.split() == ["0", "0"]


@pytest.mark.nightly
def test_after_it_a_plan_compiles_nothing(tmp_path):
    """With a cache of its own, because other tests compile more."""
    env = {**os.environ, "NUMBA_CACHE_DIR": str(tmp_path)}
    done = subprocess.run([sys.executable, "-c", CODE], capture_output=True, text=True, check=True, env=env)
    assert done.stdout.strip() == "0"
