"""What bringing the batch to a GPU takes: measured, and shared among the ops that take it there."""

from __future__ import annotations

from dataclasses import replace

import pytest
import tensorflow as tf

from placer.graph.topology import Topology
from placer.profile import arrivals as module
from placer.profile import profiler
from placer.profile.arrivals import arrivals, copied_bytes, shared, takers
from placer.profile.profiler import profile
from placer.trace.capture import capture


@pytest.fixture(scope="module")
def setting(two_cpus):
    """A step whose image is taken by two ops and whose label by one."""
    weight = tf.Variable(tf.ones([4, 2]))

    @tf.function
    def step(image, label):
        wide, high = tf.matmul(image, weight), tf.reduce_max(image)
        loss = tf.reduce_mean((wide - label) ** 2) + high
        weight.assign_sub(tf.ones([4, 2]) * loss)
        return loss

    inputs = (tf.ones([8, 4]), tf.ones([8, 2]))
    captured = capture(step, inputs, "takes")
    return captured, captured.flat_inputs(inputs)


@pytest.fixture
def called_gpu(two_cpus):
    """The second logical CPU under the name and the kind of a GPU."""
    cpu, other = two_cpus.topology.devices
    topology = Topology((replace(other, name="gpu:0", kind="gpu"), cpu), two_cpus.topology.links)
    return replace(
        two_cpus,
        topology=topology,
        tf_names={"gpu:0": two_cpus.tf_names[other.name], cpu.name: two_cpus.tf_names[cpu.name]},
    )


def test_an_input_is_taken_by_the_ops_that_name_it(setting):
    captured, _ = setting
    image, label = captured.input_names
    found = takers(captured.graph_def.node, captured.input_names, captured.graph.index)
    types = {
        name: sorted(captured.graph.ops[captured.graph.index[op]].type for op in ops) for name, ops in found.items()
    }
    assert types == {image: ["MatMul", "Max"], label: ["SquaredDifference"]}


def test_takers_of_one_input_share_its_seconds_and_one_op_pays_for_all_that_it_takes():
    took = {"image": {"gpu:0": 4.0, "gpu:1": 2.0}, "label": {"gpu:0": 1.0}}
    found = shared(took, {"image": ["a", "b"], "label": ["b"]})
    assert found == {"a": {"gpu:0": 2.0, "gpu:1": 1.0}, "b": {"gpu:0": 3.0, "gpu:1": 1.0}}
    assert shared({"unused": {"gpu:0": 1.0}}, {"unused": []}) == {}


def test_only_gpus_of_this_process_are_paid_for(setting, two_cpus, called_gpu, monkeypatch):
    captured, inputs = setting
    assert arrivals(captured, two_cpus, inputs) == {}
    monkeypatch.setattr(module, "brought_s", lambda *_, is_staged: 1.0)
    found = arrivals(captured, called_gpu, inputs)
    assert {tuple(seconds) for seconds in found.values()} == {("gpu:0",)}
    assert sorted(seconds["gpu:0"] for seconds in found.values()) == [0.5, 0.5, 1.0]
    assert arrivals(captured, replace(called_gpu, addresses={"gpu:0": "there:1"}), inputs) == {}


def test_a_batch_is_timed_on_the_way_that_it_takes(setting, called_gpu, monkeypatch):
    captured, inputs = setting
    took = []

    def noted(host, gpu, size_bytes, *, is_staged):
        took.append((host, gpu, size_bytes, is_staged))
        return 0.0

    monkeypatch.setattr(module, "brought_s", noted)
    ends = called_gpu.host, called_gpu.tf_names["gpu:0"]
    arrivals(captured, called_gpu, inputs)
    assert took == [(*ends, 128, False), (*ends, 64, False)]
    arrivals(captured, replace(called_gpu, stages_from=100), inputs)
    assert took[2:] == [(*ends, 128, True), (*ends, 64, False)]


def test_what_the_program_brought_itself_is_not_paid_for(setting, called_gpu, monkeypatch):
    captured, inputs = setting
    monkeypatch.setattr(module, "brought_s", lambda *_, is_staged: 1.0)
    monkeypatch.setattr(module, "on_gpus", lambda tensors: {0})
    (label,) = arrivals(captured, called_gpu, inputs)
    assert captured.graph.ops[captured.graph.index[label]].type == "SquaredDifference"


def test_what_is_never_copied_or_does_not_fit_is_not_paid_for(setting, called_gpu, monkeypatch):
    assert [copied_bytes(tf.constant(value)) for value in ("a path", [1.0, 2.0], [True])] == [0, 8, 1]

    def full(*_, is_staged):
        raise tf.errors.ResourceExhaustedError(None, None, "out of memory")

    monkeypatch.setattr(module, "brought_s", full)
    found = arrivals(setting[0], called_gpu, setting[1])
    assert found and {s for seconds in found.values() for s in seconds.values()} == {0.0}


def test_a_profile_has_them_in_the_costs_of_what_can_run_there(setting, two_cpus, monkeypatch):
    captured, inputs = setting
    product = next(op.name for op in captured.graph.ops if op.type == "MatMul")
    monkeypatch.setattr(profiler, "arrivals", lambda *_: {product: {"cpu:1": 5.0, "gpu:0": 5.0}})
    graph = profile(captured, two_cpus, inputs, runs=1, warm_up=1)
    costs = graph.ops[graph.index[product]].cost_s
    assert set(costs) == {"cpu:0", "cpu:1"} and costs["cpu:0"] < 5.0 < costs["cpu:1"]
