"""`placer search --workers 2` of steps that print, call Python, or look up."""

from __future__ import annotations

import json
import subprocess
import sys

import pytest

pytestmark = [pytest.mark.slow, pytest.mark.workers]

MODEL = """
import numpy as np
import tensorflow as tf

def made(kind):
    weight = tf.Variable(tf.ones([64, 64]))
    table = tf.lookup.StaticHashTable(tf.lookup.KeyValueTensorInitializer([0, 1], [0.5, 1.5]), 0.0)

    @tf.function
    def step(x):
        if kind == "python":
            x = tf.ensure_shape(tf.numpy_function(lambda a: np.tanh(a), [x], tf.float32), [8, 64])
        if kind == "table":
            x = x * table.lookup(tf.cast(x[:, 0], tf.int32))[:, None]
        with tf.GradientTape() as tape:
            loss = tf.reduce_mean(tf.square(x @ weight - 1.0)) + tf.reduce_mean(x @ tf.transpose(weight))
        weight.assign_sub(0.01 * tape.gradient(loss, weight))
        if kind == "print":
            tf.print("the loss is", loss)
        return loss

    return step, (tf.ones([8, 64]),)

def printing(): return made("print")
def calling(): return made("python")
def looking_up(): return made("table")
"""


def search(folder, name):
    (folder / "model.py").write_text(MODEL)
    command = [sys.executable, "-m", "placer", "search", f"{folder / 'model.py'}:{name}", "--workers", "2"]
    return subprocess.run(
        [*command, "--measurements", "3", "--json", "--quiet"], capture_output=True, text=True, check=False
    )


@pytest.mark.parametrize("name", [pytest.param("printing", marks=pytest.mark.nightly), "calling"])
def test_what_needs_this_process_runs_in_it(tmp_path, name):
    done = search(tmp_path, name)
    assert done.returncode == 0, done.stderr
    facts = json.loads(done.stdout)
    assert facts["best"]["step_s"] > 0 and all(row["failed"] is None for row in facts["measured"])
    assert ("the loss is" in done.stderr) == (name == "printing")


@pytest.mark.nightly
def test_a_table_is_named_with_a_way_out(tmp_path):
    done = search(tmp_path, "looking_up")
    assert (done.returncode, done.stdout) == (2, "")
    (line,) = done.stderr.splitlines()
    assert "(LookupTableFindV2) uses a lookup table (StaticHashTable)" in line and "--devices cpus:2" in line
