"""Profiling: every op that runs gets a time on every device, and a traced step shows what crossed."""

from __future__ import annotations

import pytest

from experiments.tracing import measured_timeline
from placer.capture import capture
from placer.coarsen import coarsen
from placer.profiler import profile, scaled, trace_steps


@pytest.fixture(scope="module")
def setting(two_cpus, make_step):
    step, inputs = make_step()
    captured = capture(step, inputs, "small")
    return captured, captured.flat_inputs(inputs)


def test_every_device_gets_costs_and_real_work_costs_something(setting, two_cpus):
    captured, inputs = setting
    graph = profile(captured, two_cpus, inputs)
    assert graph.fingerprint == captured.graph.fingerprint
    for op in graph.ops:
        assert set(op.cost_s) == {"cpu:0", "cpu:1"}
        if "MatMul" in op.type:
            assert min(op.cost_s.values()) > 0


def test_scaling_multiplies_one_devices_costs(setting, two_cpus):
    captured, inputs = setting
    graph = profile(captured, two_cpus, inputs)
    twice = scaled(graph, {"cpu:1": 2.0})
    for before, after in zip(graph.ops, twice.ops, strict=True):
        assert after.cost_s["cpu:0"] == before.cost_s["cpu:0"]
        assert after.cost_s["cpu:1"] == 2 * before.cost_s["cpu:1"]


def test_a_traced_step_runs_ops_where_they_are_mapped(setting, two_cpus):
    captured, inputs = setting
    coarse = coarsen(captured.graph, 40)
    last = coarse.graph.colocated[-1]
    devices = [0] * len(captured.graph)
    for g in last:
        for op in coarse.members[g]:
            devices[op] = 1
    (step,) = trace_steps(captured, two_cpus, devices, inputs, runs=1)
    where = {op.name: op.device for op in step.ops}
    for op, d in zip(captured.graph.ops, devices, strict=True):
        assert where.get(op.name, f"cpu:{d}") == f"cpu:{d}"
    timeline = measured_timeline(captured.graph, two_cpus.topology, devices, step)
    tracks = {e["args"]["name"] for e in timeline.to_trace()["traceEvents"] if e["ph"] == "M" and "name" in e["args"]}
    assert {"cpu:0", "cpu:1"} <= tracks
    assert timeline.makespan_s > 0
