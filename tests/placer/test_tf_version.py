"""With another release of TensorFlow, commands end with one line, and trainings run untouched."""

from __future__ import annotations

import os
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest
import tensorflow as tf
from packaging.requirements import Requirement

import placer
from placer.other_tensorflow import LeftAlone, stand_in
from placer.tf_version import SUPPORTED, OtherTensorFlowError, check_version

HOME = Path(__file__).parents[2]
OTHER = "2.19.1"
# A TensorFlow of which nothing private can be imported.
TENSORFLOW = f"""
from unittest.mock import MagicMock
__version__ = "{OTHER}"
class errors:
    class OpError(Exception):
        pass
def __getattr__(name):
    if name.startswith("__"):
        raise AttributeError(name)
    return MagicMock()
"""
KERAS = """
class callbacks:
    class Callback:
        pass
"""
TRAINING = """
import sys
import placer
assert "tensorflow" not in sys.modules
placer.split("cpus:2")
with placer.autoplace(lambda x: 2 * x, devices="cpus:2", budget=3) as step:
    print([step(x) for x in range(3)], step.steps, step.phase, step.mapping)
    print(step.left_alone)
    print(step.report())
from placer.keras import AutoPlace
print(AutoPlace(devices="workers:2").report())
try:
    placer.place(print, "mapping.json")
except placer.BadInputError as error:
    print(error)
"""


@pytest.fixture
def other(tmp_path: Path) -> dict[str, str]:
    """An environment in which another TensorFlow is found."""
    for name, text in (("tensorflow", TENSORFLOW), ("keras", KERAS)):
        (tmp_path / name).mkdir()
        (tmp_path / name / "__init__.py").write_text(text)
    return {**os.environ, "PYTHONPATH": os.pathsep.join((str(tmp_path), str(HOME)))}


def run(environment: dict[str, str], *arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, *arguments], env=environment, capture_output=True, text=True, timeout=900, check=False
    )


@pytest.mark.parametrize(
    "version", [f"{SUPPORTED[-1]}.0", f"{SUPPORTED[-1]}.3", f"{SUPPORTED[-1]}.0-rc1", tf.__version__]
)
def test_a_supported_release_passes(version: str) -> None:
    check_version(version)


def test_the_extras_install_one_of_them() -> None:
    extras = tomllib.loads((HOME / "pyproject.toml").read_text())["project"]["optional-dependencies"]
    asked = {extra: Requirement(extras[extra][0]).specifier for extra in ("cpu", "gpu")}
    assert all(asked["cpu"].contains(f"{release}.1") for release in SUPPORTED)
    assert not any(asked[extra].contains(other) for extra in asked for other in ("2.19.1", "2.22.0", "3.0.0"))


@pytest.mark.parametrize("version", ["2.19.1", "2.210.0", "2.2", "2", "3.21.0", "", "x\ny"])
def test_another_one_is_refused_in_one_line(version: str) -> None:
    with pytest.raises(OtherTensorFlowError, match="pip install 'tensorflow-cpu==") as refused:
        check_version(version)
    assert len(str(refused.value).splitlines()) == 1 and refused.value.exit_code == 2


@pytest.mark.parametrize(
    "command",
    [
        ("devices", "--workers", "2"),
        ("search", "mnist_softmax", "--devices", "cpus:2", "--measurements", "2"),
    ],
)
def test_a_command_ends_with_one_line(other: dict[str, str], command: tuple[str, ...]) -> None:
    done = run(other, "-m", "placer", *command)
    lines = done.stderr.splitlines()
    assert (done.returncode, done.stdout, len(lines)) == (2, "", 1), done.stderr
    assert lines[0].startswith(f"placer: TensorFlow '{OTHER}'".replace("'", "")) and "pip install" in lines[0]


def test_what_needs_no_tensorflow_works(other: dict[str, str], tmp_path: Path) -> None:
    done = run(other, "-m", "placer", "plan", "nosuch.json", "nosuch.json")
    assert done.returncode == 2 and OTHER not in done.stderr


def test_a_training_runs_untouched_and_one_line_says_why(other: dict[str, str]) -> None:
    done = run(other, "-c", TRAINING)
    assert done.returncode == 0, done.stderr
    first, why, report, callback, place = done.stdout.splitlines()
    assert first == "[0, 2, 4] 3 left alone None"
    assert OTHER in why and why in report and why in callback and place == why
    assert done.stderr.splitlines() == [f"the training runs untouched: {why}"]


def test_the_stand_in_has_what_an_auto_step_has() -> None:
    public = {name for name in dir(placer.AutoStep) if not name.startswith("_")}
    left = LeftAlone(abs, "why")
    assert public - set(dir(left)) == {"controller"}
    assert left.tried == left.journal.entries == () and left.journal.lines() == "left alone: why"
    with pytest.raises(placer.PlacerError, match="no page to write: why"):
        left.later_report_html()()
    assert left.pass_over(3) and left.steps == 3 and left(-2) == 2
    with pytest.raises(placer.PlacerError, match="no mapping to save: why"):
        left.save("mapping.json")


def test_what_can_do_nothing_raises() -> None:
    with pytest.raises(OtherTensorFlowError, match=r"2\.19\.1"):
        stand_in("place", OtherTensorFlowError(OTHER))
    with pytest.raises(placer.BadInputError, match="a int is no training step"):
        stand_in("autoplace", OtherTensorFlowError(OTHER))(3)


def test_a_function_whose_attribute_would_be_hidden_is_refused() -> None:
    def counting() -> None: ...

    counting.steps = 0  # type: ignore[attr-defined]
    with pytest.raises(placer.BadInputError, match="counting has steps of its own"):
        stand_in("autoplace", OtherTensorFlowError(OTHER))(counting)
