"""Profiling: every op that runs gets a time on every device, and what a device cannot hold or run is told."""

from __future__ import annotations

from types import SimpleNamespace

import pytest
import tensorflow as tf

from placer.graph.op_graph import Edge, Op, OpGraph
from placer.graph.topology import Device, Topology
from placer.profile import profiler
from placer.profile.profiler import profile
from placer.profile.step_trace import TracedOp, TracedStep
from placer.profile.traced_session import trace_steps
from placer.trace.capture import capture


@pytest.fixture(scope="module")
def setting(two_cpus, make_step):
    step, inputs = make_step()
    captured = capture(step, inputs, "small")
    return captured, captured.flat_inputs(inputs)


def test_every_device_gets_costs_and_real_work_costs_something(setting, two_cpus):
    captured, inputs = setting
    graph = profile(captured, two_cpus, inputs)
    assert (graph.fingerprint, graph.content) == (captured.graph.fingerprint, captured.graph.content)
    for op in graph.ops:
        assert set(op.cost_s) == {"cpu:0", "cpu:1"}
        if "MatMul" in op.type:
            assert min(op.cost_s.values()) > 0


def test_a_step_with_a_branch_is_profiled(two_cpus):
    """As gradient accumulation has one, or a loss that is scaled."""
    total, count = tf.Variable([0.0, 0.0]), tf.Variable(0)

    @tf.function
    def step(x):
        total.assign_add(x)
        if count.assign_add(1) % 3 == 0:
            total.assign(tf.zeros(2))
        return tf.reduce_sum(total)

    captured = capture(step, (tf.ones(2),), "branch")
    graph = profile(captured, two_cpus, captured.flat_inputs((tf.ones(2),)))
    assert all(set(op.cost_s) == {"cpu:0", "cpu:1"} for op in graph.ops)


def held_bytes(graph, assignment, device):
    return sum(op.memory_bytes for op, d in zip(graph.ops, assignment, strict=True) if d == device)


def test_a_device_that_cannot_hold_the_step_is_profiled_without_its_largest_variables(setting, two_cpus, monkeypatch):
    captured, inputs = setting
    graph = captured.graph
    limit = held_bytes(graph, [0] * len(graph), 0) - 1
    tried = []

    def trace(captured, devices, assignment, *rest):
        tried.append(assignment)
        if held_bytes(graph, assignment, 0) > limit:
            raise tf.errors.ResourceExhaustedError(None, None, "OOM when allocating tensor")
        return trace_steps(captured, devices, assignment, *rest)

    monkeypatch.setattr(profiler, "trace_steps", trace)
    found = profile(captured, two_cpus, inputs, runs=2, warm_up=1)
    assert tried[0] == (0,) * len(graph)
    assert len(tried) == 3 and set(tried[1]) == {0, 1} and set(tried[2]) == {1}
    elsewhere = [op.name for op, d in zip(graph.ops, tried[1], strict=True) if d == 1]
    assert elsewhere
    for op in found.ops:
        assert set(op.cost_s) == {"cpu:0", "cpu:1"}
    assert any(found.ops[found.index[name]].cost_s["cpu:0"] > 0 for name in elsewhere)


def gpu_and_cpu():
    topology = Topology((Device("gpu:0", "gpu"), Device("cpu:0", "cpu")))
    return SimpleNamespace(topology=topology, same_bits=False, addresses={}, tf_names={"gpu:0": "CPU:0"}, own_gpus={})


def pretend(monkeypatch, run):
    """Profile three ops on a GPU and a CPU: run(places) gives seconds and device of each, or raises."""
    names = ("a", "b", "c")
    graph = OpGraph("g", tuple(Op(n, "X", devices=("cpu", "gpu")) for n in names), (Edge(0, 1, 8), Edge(1, 2, 8)))

    def trace(captured, devices, assignment, *rest):
        at = [devices.topology.names[d] for d in assignment]
        ops = [TracedOp(name, "X", device, 0, s, kernel_s=s) for name, (s, device) in zip(names, run(at), strict=True)]
        return [TracedStep(tuple(ops), (), kernel_s=1.0)]

    monkeypatch.setattr(profiler, "trace_steps", trace)
    captured = SimpleNamespace(graph=graph, graph_def=tf.compat.v1.GraphDef(), input_names=())
    return profile(captured, gpu_and_cpu(), ())


def test_what_tensorflow_runs_elsewhere_has_no_cost_where_it_was_put(monkeypatch):
    found = pretend(monkeypatch, lambda at: [(1.0, at[0]), (2.0, "cpu:0"), (3.0, at[2])])
    assert [dict(op.cost_s) for op in found.ops] == [
        {"gpu:0": 1.0, "cpu:0": 1.0},
        {"cpu:0": 2.0},
        {"gpu:0": 3.0, "cpu:0": 3.0},
    ]


def test_an_op_that_fails_on_a_gpu_is_left_to_others(monkeypatch):
    def run(at):
        for name, device in zip("bc", at[1:], strict=True):
            if device == "gpu:0":
                raise tf.errors.UnimplementedError(None, None, f"not on a GPU\n\t [[{{{{node {name}}}}}]]")
        return [(1.0, device) for device in at]

    found = pretend(monkeypatch, run)
    assert [set(op.cost_s) for op in found.ops] == [{"gpu:0", "cpu:0"}, {"cpu:0"}, {"cpu:0"}]


def test_a_gpu_that_can_run_nothing_is_told_and_gets_no_ops(monkeypatch):
    def run(at):
        if "gpu:0" in at:
            raise tf.errors.InvalidArgumentError(None, None, "no kernel image is available")
        return [(1.0, device) for device in at]

    with pytest.warns(UserWarning, match="gpu:0 gets no ops.*no kernel image"):
        found = pretend(monkeypatch, run)
    assert all(set(op.cost_s) == {"cpu:0"} for op in found.ops)


def test_what_is_no_lack_of_memory_or_kernel_is_raised(monkeypatch):
    def run(at):
        raise tf.errors.InternalError(None, None, "something else")

    with pytest.raises(tf.errors.InternalError):
        pretend(monkeypatch, run)
