"""The cache on disk never serves a kernel whose helper, in another file, has changed since."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

KERNEL = """
from helper import add
from surrogate.jit import jit

@jit
def call(x):
    return add(x)

print(call(1))
"""
HELPER = """
from surrogate.jit import inlined

@inlined
def add(x):
    return x + {more}
"""


def test_a_changed_helper_compiles_its_callers_anew(tmp_path):
    (tmp_path / "caller.py").write_text(KERNEL)
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join([str(tmp_path), str(Path.cwd())])}
    printed = []
    for more in (1, 5, 1):
        (tmp_path / "helper.py").write_text(HELPER.format(more=more))
        ran = subprocess.run(
            [sys.executable, "-B", "-c", "import caller"], capture_output=True, text=True, timeout=240, env=environment
        )
        assert ran.returncode == 0, ran.stderr
        printed.append(ran.stdout.strip())
    assert printed == ["2", "6", "2"]
