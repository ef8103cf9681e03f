"""A step that a worker has no memory for fails as a value, under limits that are enforced; the worker lives on."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from placer.devices.workers.workers import fence_bytes
from placer.errors import BadInputError

PROGRAM = Path(__file__).with_name("out_of_memory.py")


@pytest.mark.slow
@pytest.mark.workers
def test_a_step_that_a_worker_has_no_memory_for_is_a_failure_and_no_worker_is_lost() -> None:
    done = subprocess.run([sys.executable, PROGRAM], capture_output=True, text=True, timeout=900)
    assert done.returncode == 0, done.stderr[-4000:]
    found = json.loads(done.stdout.splitlines()[-1])
    refused, ran_out = found["results"]
    peak = found["peaks_bytes"][0][0]
    assert (refused["reason"], refused["device"], refused["wanted_bytes"]) == ("memory", "worker:0", peak), found
    held = f"as simulated, it would have held {peak / 2**20:.1f} MiB at once"
    assert f"worker:0 has no memory for it: {held}." in refused["detail"]
    # Asked before, it seemed to fit; TensorFlow made more tensors at once than are simulated.
    assert (ran_out["reason"], ran_out["device"][:7]) == ("memory", "worker:"), found
    wanted = found["peaks_bytes"][1][int(ran_out["device"][7:])]
    assert ran_out["wanted_bytes"] == wanted, found
    held = f"as simulated, it would have held {wanted / 2**20:.1f} MiB at once"
    assert f"ran out of memory ({held})" in ran_out["detail"]
    assert found["alive"] == [True, True] and found["unharmed"], found


LARGE = """
import keras
import tensorflow as tf

def make():
    layers = [keras.layers.Dense(2048, "relu") for _ in range(32)]
    model = keras.Sequential([keras.Input((2048,)), *layers, keras.layers.Dense(10)])
    optimizer = keras.optimizers.SGD(0.01)
    optimizer.build(model.trainable_variables)

    def step(x, y):
        with tf.GradientTape() as tape:
            loss = tf.reduce_mean(tf.nn.sparse_softmax_cross_entropy_with_logits(y, model(x, training=True)))
        optimizer.apply(tape.gradient(loss, model.trainable_variables), model.trainable_variables)
        return loss

    return step, (tf.random.normal((16, 2048)), tf.zeros((16,), tf.int32))
"""


@pytest.mark.nightly
@pytest.mark.workers
def test_a_model_that_no_worker_can_hold_trains_on_two(tmp_path: Path) -> None:
    """512 MiB of variables; the allocator of each worker gives 350 + 320 / 2 MiB at most, whatever it is asked."""
    (tmp_path / "large.py").write_text(LARGE)
    limits = [word for w in (0, 1) for word in ("--max-memory", f"worker:{w}=350MiB")]
    command = ["search", "large.py:make", "--workers", "2", *limits, "--split", "off", "--json", "--quiet"]
    done = subprocess.run(
        [sys.executable, "-m", "placer", *command, "--searcher", "expert", "--measurements", "1", "--out", "out"],
        cwd=tmp_path, capture_output=True, text=True, timeout=600, env={**os.environ, "PLACER_FENCE_MIB": "320"},
    )  # fmt: skip
    assert done.returncode == 0, done.stderr[-4000:]
    found = json.loads(done.stdout)
    assert found["best"]["step_s"] > 0, found
    mapping = json.loads((tmp_path / "out" / "mapping.json").read_text())
    assert {"worker:0", "worker:1"} <= set(json.dumps(mapping).split('"'))


def test_a_fence_is_a_number_of_mebibytes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("PLACER_FENCE_MIB", raising=False)
    assert fence_bytes() is None
    monkeypatch.setenv("PLACER_FENCE_MIB", "256")
    assert fence_bytes() == 256 * 2**20
    monkeypatch.setenv("PLACER_FENCE_MIB", "a lot")
    with pytest.raises(BadInputError, match=r"^PLACER_FENCE_MIB=a lot|^PLACER_FENCE_MIB='a lot'"):
        fence_bytes()
