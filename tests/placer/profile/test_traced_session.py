"""A traced session: its steps show what ran where, and it ends as it should where a device is lost."""

from __future__ import annotations

import pytest
import tensorflow as tf

from experiments.jobs.search.timelines import measured_timeline
from placer.devices.workers.deadline import DeviceLostError
from placer.graph.coarsen import coarsen
from placer.profile.traced_session import trace_steps, watched_session
from placer.trace.capture import capture


def test_a_traced_step_runs_ops_where_they_are_mapped(two_cpus, make_step):
    step, inputs = make_step()
    captured = capture(step, inputs, "small")
    coarse = coarsen(captured.graph, 40, two_cpus.topology)
    last = coarse.graph.colocated[-1]
    devices = [0] * len(captured.graph)
    for g in last:
        for op in coarse.members[g]:
            devices[op] = 1
    (traced,) = trace_steps(captured, two_cpus, devices, captured.flat_inputs(inputs), runs=1)
    where = {op.name: op.device for op in traced.ops}
    for op, d in zip(captured.graph.ops, devices, strict=True):
        assert where.get(op.name, f"cpu:{d}") == f"cpu:{d}"
    timeline = measured_timeline(captured.graph, two_cpus.topology, devices, traced)
    tracks = {e["args"]["name"] for e in timeline.to_trace()["traceEvents"] if e["ph"] == "M" and "name" in e["args"]}
    assert {"cpu:0", "cpu:1"} <= tracks
    assert timeline.makespan_s > 0


def test_a_session_stays_open_where_a_device_is_lost_and_is_closed_otherwise(monkeypatch):
    closed = []
    monkeypatch.setattr(tf.compat.v1.Session, "close", lambda _: closed.append(1))  # deleted ones are closed, too
    with tf.Graph().as_default() as graph:
        with pytest.raises(DeviceLostError), watched_session("", graph, None):
            raise DeviceLostError("worker:1 was lost")
        assert closed == []
        with pytest.raises(tf.errors.InvalidArgumentError), watched_session("", graph, None):
            raise tf.errors.InvalidArgumentError(None, None, "the step's own")
        with watched_session("", graph, None) as session:
            assert session.run(tf.constant(3.0)) == 3.0
    assert len(closed) >= 2
