"""A user's own file or folder with the name of one of our packages is named in one line."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

HOME = Path(__file__).parents[2]
SCRIPT = """
import placer
try:
    {statement}
except placer.BadInputError as error:
    print(error)
else:
    print("found")
"""


def run(folder, *arguments):
    """Python in `folder`, with our packages behind it on the path, as in an ordinary install."""
    environment = {**os.environ, "PYTHONPATH": str(HOME)}
    done = subprocess.run(
        [sys.executable, *map(str, arguments)], cwd=folder, env=environment, capture_output=True, text=True, timeout=900
    )
    return done.returncode, done.stdout, done.stderr


@pytest.mark.parametrize(
    ("hider", "statement"),
    [
        pytest.param("search.py", "placer.autoplace", marks=pytest.mark.slow),
        *(
            pytest.param(hider, statement, marks=pytest.mark.nightly)
            for hider in ("search.py", "search/__init__.py", "surrogate/__init__.py")
            for statement in ("placer.autoplace", "from placer.keras import AutoPlace")
            if (hider, statement) != ("search.py", "placer.autoplace")
        ),
    ],
)
def test_one_line_names_both_and_what_to_do(tmp_path, hider, statement):
    path = tmp_path / hider
    path.parent.mkdir(exist_ok=True)
    path.touch()
    (tmp_path / "script.py").write_text(SCRIPT.format(statement=statement))
    _, said, _ = run(tmp_path, "script.py")
    package = hider.removesuffix(".py").split("/")[0]
    assert said.startswith(f"{tmp_path / package}") and said.count("\n") == 1
    assert f"hides Placer's own package '{package}' ({HOME / package})" in said and "python -P" in said
    assert run(tmp_path, "-P", "script.py")[:2] == (0, "found\n")


def test_the_command_says_so_too(tmp_path):
    (tmp_path / "experiments").mkdir()
    (tmp_path / "experiments" / "__init__.py").touch()
    code, said, error = run(tmp_path, "-m", "placer", "--version")
    assert (code, said) == (2, "") and error.startswith(f"placer: {tmp_path / 'experiments'} hides")
    assert error.count("\n") == 1
    assert run(tmp_path, "-P", "-m", "placer", "--version")[1] == "placer 0.1.0\n"


def test_what_hides_nothing_is_no_error(tmp_path):
    """A name of ours that the script does not need may be in use elsewhere."""
    (tmp_path / "searching.py").touch()
    (tmp_path / "search").mkdir()
    (tmp_path / "script.py").write_text(SCRIPT.format(statement="placer.Mapping; placer.check_not_hidden()"))
    assert run(tmp_path, "script.py")[:2] == (0, "found\n")
