"""`placer plan` and `placer search` with predicted costs: a network that was never profiled is placed."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from experiments.jobs.plan_model import ModelToPlan, plan_model
from experiments.zoo import load
from placer.devices.host.machine import cores_of_cpu, timed_on
from placer.errors import BadInputError, PlacerError
from placer.graph.graph_files import write_topology
from placer.graph.mapping_files import read_mapping
from placer.graph.memory_limits import MemoryLimits
from placer.graph.topology import Device, Link, Topology
from placer.measure.store import Store
from placer.profile.operators.dataset import Operator, OperatorRow, Tensor
from placer.trace.capture import capture

MODEL = """
import tensorflow as tf

def towers():
    first = [tf.Variable(tf.random.stateless_normal([256, 256], [i, 1]) / 16) for i in range(2)]
    second = [tf.Variable(tf.random.stateless_normal([256, 256], [i, 2]) / 16) for i in range(2)]

    @tf.function
    def step(x):
        with tf.GradientTape() as tape:
            halves = [tf.nn.relu(x @ a) @ b for a, b in zip(first, second)]
            loss = tf.add_n([tf.reduce_mean(half * half) for half in halves])
        for variable, gradient in zip([*first, *second], tape.gradient(loss, [*first, *second])):
            variable.assign_sub(0.01 * gradient)
        return loss

    return step, (tf.ones([256, 256]),)
"""
TOPOLOGY = Topology(
    (Device("worker:0", "cpu"), Device("worker:1", "cpu")), (Link("*", "*", latency_s=1e-5, bandwidth_bytes_per_s=1e9),)
)


def matmul_row(m: int, k: int) -> OperatorRow:
    inputs = (Tensor((m, k), "float32"), Tensor((k, 256), "float32"))
    op = Operator("MatMul", inputs, (Tensor((m, 256), "float32"),), {}, 2.0 * m * k * 256)
    seconds = 5e-6 + (op.flops or 0.0) / 1e10
    return OperatorRow(
        op, "worker:0", "cpu", timed_on(cores_of_cpu(1)), m, "net", "forward", "step", *[seconds] * 2, 0.0, 5
    )


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A model, a topology, and a store with times of matrix products."""
    (tmp_path / "mine.py").write_text(MODEL)
    write_topology(tmp_path / "topology.json", TOPOLOGY)
    with Store(tmp_path / "ops.sqlite") as store:
        store.add_operators([matmul_row(m, k) for m in range(32, 512, 32) for k in (64, 128, 512)])
    return tmp_path


def wanted(folder: Path, **more: Any) -> ModelToPlan:
    return ModelToPlan(f"{folder / 'mine.py'}:towers", folder / "ops.sqlite", folder / "topology.json", **more)


def placer(*arguments: Any) -> Any:
    command = [sys.executable, "-m", "placer", *map(str, arguments), "--json"]
    return subprocess.run(command, capture_output=True, text=True, check=False)


def test_towers_that_were_never_profiled_are_put_on_a_device_each(folder: Path) -> None:
    found = plan_model(wanted(folder), seconds=1.0)
    single_s, value = found.facts["best_single"], found.facts["value"]
    assert single_s / value > 1.6
    assert found.facts["lower_bound"] <= value * (1 + 1e-9)
    assert found.facts["notes"] and "nothing was profiled" in found.facts["notes"][0]
    assert set(found.file.assignment.values()) == set(TOPOLOGY.names)


def test_the_mapping_is_of_the_traced_step(folder: Path) -> None:
    from placer.files import write_document

    found = plan_model(wanted(folder), seconds=0.5)
    write_document(folder / "mapping.json", found.file)
    training = load(f"{folder / 'mine.py'}:towers")
    captured = capture(training.step, training.example_inputs, training.name)
    mapping = read_mapping(folder / "mapping.json", captured.graph, TOPOLOGY)
    assert len(mapping.devices) == len(captured.graph) == found.facts["ops"]


def test_pins_and_max_load_hold_here_too(folder: Path) -> None:
    found = plan_model(wanted(folder, pins=(".*MatMul.*=worker:1",)), objective="max-load", seconds=0.5)
    products = {device for op, device in found.file.assignment.items() if "MatMul" in op}
    assert products == {"worker:1"}
    loads = [device["load"] for device in found.facts["devices"].values()]
    assert found.facts["value"] == pytest.approx(max(loads))


def test_a_plan_has_room_for_the_tensors_of_the_step(folder: Path) -> None:
    """The step holds 2.2 MiB on one device, of which its variables are 1 MiB."""
    alone = plan_model(wanted(folder), seconds=0.2).facts
    whole = sum(device["memory_peak_bytes"] for device in alone["devices"].values())
    limits = MemoryLimits.parsed([f"worker:{i}={0.75 * whole:.0f}" for i in range(2)])
    found = plan_model(wanted(folder, max_memory=limits), seconds=0.5).facts
    assert max(d["memory_peak_bytes"] for d in found["devices"].values()) <= 0.9 * 0.75 * whole
    assert found["best_single"] is None
    scarce = MemoryLimits.parsed([f"worker:{i}=700KiB" for i in range(2)])
    with pytest.raises(PlacerError, match=r"of the nearest, worker:\d would hold .* MiB too few"):
        plan_model(wanted(folder, max_memory=scarce), seconds=0.2)


@pytest.mark.parametrize(
    ("more", "says"),
    [({"objective": "speed"}, "objective"), ({"schedule": "late"}, "schedule"), ({"seconds": -1.0}, "--seconds"),
     ({"searcher": "luck"}, "luck")],
)  # fmt: skip
def test_options_are_refused_before_anything_is_traced(folder: Path, more: dict[str, Any], says: str) -> None:
    (folder / "mine.py").write_text("raise SystemExit('traced')")
    with pytest.raises(BadInputError, match=says):
        plan_model(wanted(folder), **more)


def test_a_graph_file_has_nothing_to_predict_from(folder: Path) -> None:
    (folder / "graph.json").write_text("{}")
    with pytest.raises(BadInputError, match="no shapes"):
        plan_model(ModelToPlan(str(folder / "graph.json"), folder / "ops.sqlite", folder / "topology.json"))
    with pytest.raises(BadInputError, match="both name the devices"):
        plan_model(wanted(folder, devices="workers:2"))


@pytest.mark.nightly
@pytest.mark.workers
def test_two_workers_place_what_was_never_profiled(folder: Path) -> None:
    """The store is filled by a small network; another one is planned on workers, and searched without a profile."""
    store, model = folder / "profiled.sqlite", f"{folder / 'mine.py'}:towers"
    predicted = ("--workers", 2, "--costs", "predicted", "--operators", store)
    refused = placer("search", model, *predicted, "--quiet")
    assert refused.returncode == 2 and "--workers 2 --store" in refused.stderr and refused.stdout == ""
    filled = placer("profile", "mnist_softmax", "--workers", 2, "--passes", 1, "--store", store, "--quiet")
    assert filled.returncode == 0, filled.stderr
    planned = placer("plan", model, *predicted, "--seconds", 1, "--out", folder / "mapping.json")
    assert planned.returncode == 0, planned.stderr
    assert set(json.loads(planned.stdout)["devices"]) == {"worker:0", "worker:1"}
    searched = placer("search", model, *predicted, "--measurements", 4, "--quiet", "--split", "off")
    assert searched.returncode == 0, searched.stderr
    facts = json.loads(searched.stdout)
    assert facts["best"]["step_s"] > 0 and all(row["failed"] is None for row in facts["measured"])
    assert sum("nothing was profiled" in note for note in facts["notes"]) == 1
    whole = placer("search", model, "--devices", "cpus:2", "--costs", "predicted", "--operators", store, "--quiet")
    assert whole.returncode == 2 and "other hardware" in whole.stderr.splitlines()[-1]
