"""What bringing the batch to a GPU takes: measured, and shared among the ops that take it there."""

from __future__ import annotations

from dataclasses import replace

import pytest
import tensorflow as tf

from placer.graph.topology import Topology
from placer.profile import arrivals as module
from placer.profile import profiler
from placer.profile.arrivals import REPEATS, arrivals, copy_s, shared, takers
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
    monkeypatch.setattr(module, "copy_s", lambda tensor, tf_name: 1.0 if len(tensor.shape) == 2 else 0.0)
    found = arrivals(captured, called_gpu, inputs)
    assert {tuple(seconds) for seconds in found.values()} == {("gpu:0",)}
    assert sorted(seconds["gpu:0"] for seconds in found.values()) == [0.5, 0.5, 1.0]
    devices = called_gpu.topology.devices
    remote = replace(called_gpu.topology, devices=(replace(devices[0], address="there:1"), devices[1]))
    assert arrivals(captured, replace(called_gpu, topology=remote), inputs) == {}


def test_copying_is_timed_less_what_copying_nothing_takes(two_cpus):
    ticks = iter([0, 9, 9, 99] + [0, 1, 1, 4] * REPEATS)  # the first round sets up
    assert copy_s(tf.ones([2]), two_cpus.tf_names["cpu:1"], lambda: next(ticks)) == 2
    assert copy_s(tf.constant("a path"), two_cpus.tf_names["cpu:1"]) == 0.0


def test_each_copy_is_of_a_tensor_that_was_never_copied_there(two_cpus, monkeypatch):
    batch, copied = tf.ones([2]), []
    cpu_0, cpu_1 = (two_cpus.tf_names[name] for name in ("cpu:0", "cpu:1"))
    identity = tf.identity

    def noting(tensor):
        made = identity(tensor)
        if made.device == cpu_1:
            copied.append(tensor)
        return made

    monkeypatch.setattr(module.tf, "identity", noting)
    copy_s(batch, cpu_1)
    assert len(copied) == len({id(tensor) for tensor in copied}) == 2 * (1 + REPEATS)
    assert all(tensor is not batch and tensor.device == cpu_0 for tensor in copied)


def test_what_does_not_fit_is_not_paid_for(two_cpus, monkeypatch):
    def full(_):
        raise tf.errors.ResourceExhaustedError(None, None, "out of memory")

    monkeypatch.setattr(module.tf, "identity", full)
    assert copy_s(tf.ones([2]), two_cpus.tf_names["cpu:1"]) == 0.0


def test_a_profile_has_them_in_the_costs_of_what_can_run_there(setting, two_cpus, monkeypatch):
    captured, inputs = setting
    product = next(op.name for op in captured.graph.ops if op.type == "MatMul")
    monkeypatch.setattr(profiler, "arrivals", lambda *_: {product: {"cpu:1": 5.0, "gpu:0": 5.0}})
    graph = profile(captured, two_cpus, inputs, runs=1, warm_up=1)
    costs = graph.ops[graph.index[product]].cost_s
    assert set(costs) == {"cpu:0", "cpu:1"} and costs["cpu:0"] < 5.0 < costs["cpu:1"]
