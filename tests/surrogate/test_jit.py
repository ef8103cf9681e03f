"""The cache on disk never serves a kernel whose helper, in another file, has changed since, nor fails for one moved."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import numba
import numpy as np
import pytest
from numba.core.errors import NumbaError

import surrogate.jit as jit_module
from surrogate.jit import jit, kernel

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


TAKES_A_TUPLE = """
from {module} import Pair
from surrogate.jit import jit

@jit
def call(pair):
    return pair.left + pair.right

print(call(Pair(1, 2)))
"""
PAIR = """
from typing import NamedTuple

class Pair(NamedTuple):
    left: int
    right: int
"""


def printed_by_caller(folder):
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join([str(folder), str(Path.cwd())])}
    environment.pop("NUMBA_CACHE_DIR", None)  # each test looks at what is kept beside its files
    ran = subprocess.run(
        [sys.executable, "-B", "-c", "import caller"], capture_output=True, text=True, timeout=240, env=environment
    )
    assert ran.returncode == 0, ran.stderr
    return ran.stdout.strip()


@pytest.mark.slow
def test_a_changed_helper_compiles_its_callers_anew(tmp_path):
    (tmp_path / "caller.py").write_text(KERNEL)
    printed = []
    for more in (1, 5, 1):
        (tmp_path / "helper.py").write_text(HELPER.format(more=more))
        printed.append(printed_by_caller(tmp_path))
    assert printed == ["2", "6", "2"]


CALLS_WHAT_FOLLOWS = """
from constants import PAIRS, Pair, Two
from surrogate.jit import jit, kernel

@jit
def call(two: Two):
    return inside(two)

@kernel
def inside(two: Two):
    return 10 * two.pair.left + PAIRS[0]

print(call(Two(Pair(left=1, right=2))))
"""
CONSTANTS = """
from typing import NamedTuple

PAIRS = ({first}, 0)

class Pair(NamedTuple):
    {one}: int
    {other}: int

class Two(NamedTuple):
    pair: Pair
"""


@pytest.mark.slow
def test_changed_constants_and_fields_compile_anew_what_calls_a_function_defined_further_down(tmp_path):
    (tmp_path / "caller.py").write_text(CALLS_WHAT_FOLLOWS)
    printed = []
    for first, one, other in ((0, "left", "right"), (5, "left", "right"), (5, "right", "left")):
        (tmp_path / "constants.py").write_text(CONSTANTS.format(first=first, one=one, other=other))
        printed.append(printed_by_caller(tmp_path))
    assert printed == ["10", "15", "15"]


@pytest.mark.slow
def test_a_moved_type_of_an_argument_compiles_anew_what_takes_it(tmp_path):
    """As when a new version of Placer is installed over an old one, whose compiled code stays in __pycache__."""
    for module in ("before", "after"):
        (tmp_path / f"{module}.py").write_text(PAIR)
        (tmp_path / "caller.py").write_text(TAKES_A_TUPLE.format(module=module))
        assert printed_by_caller(tmp_path) == "3"
        (tmp_path / f"{module}.py").unlink()


@pytest.mark.some(1)
@pytest.mark.parametrize("damage", [lambda path: path.write_bytes(b""), lambda path: (path.unlink(), path.mkdir())])
def test_what_is_kept_and_cannot_be_read_or_written_is_compiled_anew(tmp_path, damage):
    """A file that was cut off when the machine lost its power; a path that the system refuses."""
    (tmp_path / "caller.py").write_text(KERNEL)
    (tmp_path / "helper.py").write_text(HELPER.format(more=1))
    assert printed_by_caller(tmp_path) == "2"
    kept = list(tmp_path.rglob("*.nbi"))
    assert kept
    for path in kept:
        damage(path)
    assert printed_by_caller(tmp_path) == "2"


def test_where_no_folder_can_be_written_functions_are_compiled_and_one_line_says_so(monkeypatch, caplog):
    monkeypatch.setattr(numba.core.caching.CompileResultCacheImpl, "_locator_classes", [])
    jit_module._say_not_kept.cache_clear()
    with pytest.raises(RuntimeError, match="no locator available"):
        numba.njit(cache=True)(added)
    assert jit(added)(1) == 2
    assert kernel(added) is not None
    (said,) = caplog.messages
    assert said.startswith("placer: compiled functions cannot be kept on disk")


def test_numba_still_has_the_private_names_that_the_stamps_are_written_to():
    """On a function of numba's alone, because ours get the names in any case."""
    plain = numba.njit(cache=True)(added)
    assert isinstance(plain, numba.core.registry.CPUDispatcher)
    assert {"_source_stamp", "_version"} <= vars(plain._cache._cache_file).keys()
    assert plain._cache._cache_file._version == numba.__version__


def test_a_kernel_counts_no_references():
    """Without these numba cannot allocate, so this shows that its option is still heard."""
    with pytest.raises(NumbaError, match="Only accept returning of array passed"):
        kernel(allocating)()


def added(x):
    return x + 1


def allocating():
    return np.zeros(3)
