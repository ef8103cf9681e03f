"""The registry knows every searcher by name and loads none of the slow packages that some of them use."""

import subprocess
import sys

SLOW = ("tensorflow", "skopt", "deap", "sklearn", "numba", "xgboost", "matplotlib")


def test_importing_the_registry_loads_nothing_slow():
    code = f"import sys, search.session.registry; print([name for name in {SLOW!r} if name in sys.modules])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"
