"""Where folders cannot be written, Placer does without them; where TensorFlow cannot, one line says so."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.environments.surroundings import AS_OTHER, NO_HOME, ROOT, mounted, other_user, own_mounts, placer

SEARCH = (
    "search",
    "mnist_softmax",
    "--devices",
    "cpus:2",
    "--measurements",
    "2",
    "--split",
    "off",
    "--quiet",
    "--json",
)
READ_ONLY = "mount -t tmpfs -o ro,mode=1777 none {}"
NOT_KEPT = "compiled functions cannot be kept on disk"
TRAINS = """
import tensorflow as tf
import placer

placer.split("cpus:2")
weights = [tf.Variable(tf.fill([64, 64], 0.01)) for _ in range(2)]

@tf.function
def step(x):
    with tf.GradientTape() as tape:
        loss = tf.add_n([tf.reduce_mean(tf.square(x @ w - 1.0)) for w in weights])
    for w, g in zip(weights, tape.gradient(loss, weights)):
        w.assign_sub(0.1 * g)
    return loss

with placer.autoplace(step, devices="cpus:2", budget=1) as placed:
    while placed.phase not in ("steady", "left alone"):
        placed(tf.ones([8, 64]))
    print(*(entry.kind for entry in placed.journal.entries))
"""


@pytest.mark.nightly
@other_user
@own_mounts
def test_a_search_by_a_user_who_can_write_nowhere_but_for_temporary_files() -> None:
    """Neither at home, nor in Placer's own folder, where root's compiled functions are, nor in the present one."""
    done = placer(*SEARCH, wrap=[*mounted(READ_ONLY.format("/dev/shm")), *AS_OTHER], cwd="/proc", **NO_HOME)
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["best"]
    assert "Traceback" not in done.stderr and done.stderr.count(NOT_KEPT) == 1


@pytest.mark.nightly
@other_user
def test_a_training_by_a_user_who_can_write_nowhere_finds_a_mapping() -> None:
    """Its planner compiles in a process of its own."""
    environment = {**os.environ, **NO_HOME, "PYTHONPATH": str(ROOT), "TF_CPP_MIN_LOG_LEVEL": "3"}
    command = [*AS_OTHER, sys.executable, "-c", TRAINS]
    done = subprocess.run(command, cwd="/proc", env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    kinds = done.stdout.split()
    assert "measured" in kinds and "error" not in kinds


TEMPORARY = ("/tmp", "/var/tmp", "/dev/shm")


@pytest.mark.slow
@own_mounts
@pytest.mark.skipif(any(Path(sys.executable).is_relative_to(f) for f in TEMPORARY), reason="Python itself lies in one")
def test_without_any_folder_for_temporary_files_one_line_says_what_to_set() -> None:
    folders = " && ".join(READ_ONLY.format(folder) for folder in TEMPORARY)
    done = placer(*SEARCH, wrap=mounted(folders), cwd="/proc", TMPDIR="/proc/none")
    assert done.returncode == 1 and done.stdout == ""
    (line,) = done.stderr.splitlines()
    assert line.startswith("placer: there is no folder for temporary files") and "set TMPDIR" in line
