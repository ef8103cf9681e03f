"""Each example runs as its first lines say, small."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

EXAMPLES = Path(__file__).parents[2] / "examples"
TIMEOUT_S = 1500  # which an example comes near only where it hangs


def run(name: str, folder: Path, arguments: str) -> str:
    """What the example prints."""
    command = [sys.executable, str(EXAMPLES / f"{name}.py"), *arguments.split()]
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=TIMEOUT_S)
    assert done.returncode == 0, done.stderr[-3000:]
    return done.stdout


def test_all_are_here() -> None:
    tested = {name.removeprefix("test_") for name in globals() if name.startswith("test_")}
    assert {path.stem for path in EXAMPLES.glob("*.py")} <= tested


@pytest.mark.slow
@pytest.mark.workers
def test_train_loop(tmp_path: Path) -> None:
    said = run("train_loop", tmp_path, "--steps 60 --batch 4 --filters 4 --budget 2")
    assert "train_step: " in said and "left alone" not in said
    assert said.endswith("trained 60 steps.\n")


@pytest.mark.nightly
@pytest.mark.workers
def test_keras_fit(tmp_path: Path) -> None:
    said = run("keras_fit", tmp_path, "--epochs 2 --steps 12 --batch 4 --side 32 --alpha 0.35 --budget 2")
    assert "train_step: " in said and "left alone" not in said
    trained, loaded = re.findall(r"loss (\d+\.\d+), and (\d+\.\d+)", said)[0]
    assert float(trained) == pytest.approx(float(loaded), rel=0.01)  # the best weights were restored, and stored


@pytest.mark.workers
@pytest.mark.nightly
def test_offline_then_place(tmp_path: Path) -> None:
    said = run("offline_then_place", tmp_path, "--model mnist_softmax --batch 2 --measurements 3 --steps 9 --out out")
    assert (tmp_path / "out" / "mapping.json").exists()
    assert re.search(r"runs \d+ ops on worker:\d", said)


@pytest.mark.workers
@pytest.mark.nightly
def test_adaptive(tmp_path: Path) -> None:
    said = run("adaptive", tmp_path, "--batch 2 --steps 20 --search 60 --budget 2")
    assert [line.split(":")[0] for line in said.splitlines() if line.startswith("---")] == [
        "--- alone", "--- beside another job on worker", "--- alone again",
    ]  # fmt: skip
