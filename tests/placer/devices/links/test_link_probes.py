"""Links: the straight line through the probes, and a real measurement between two devices."""

from __future__ import annotations

import pytest
import tensorflow as tf

from placer import tf_internals
from placer.devices.links import link_probes as probes
from placer.devices.links.link_probes import _line, _line_over_sizes, measure_links


def test_line_finds_intercept_and_slope():
    sizes = [64.0, 65536.0, 1048576.0]
    intercept, slope = _line(sizes, [1e-4 + 5e-10 * size for size in sizes])
    assert intercept == pytest.approx(1e-4)
    assert slope == pytest.approx(5e-10)


def test_line_is_never_below_zero():
    assert min(_line([1.0, 2.0, 3.0], [3e-3, 2e-3, 1e-3])) >= 0


class Machine:
    """Devices that add at their own speeds, and a way between any two, on a clock that only they move."""

    HOP_S = 2e-5

    def __init__(self):
        self.add_s = {"/device:GPU:0": 1e-5, "/device:GPU:1": 1e-5, "/device:CPU:0": 1e-3}
        self.now = 0.0
        self.asked = []

    def clock(self):
        return self.now

    def probe(self, a, b, start, count):
        self.asked.append((a, b))

        def run():
            self.now += count / 2 * (self.add_s[a] + self.add_s[b]) + count * self.HOP_S * (a != b)
            return tf.zeros([])

        return run


@pytest.mark.parametrize("ends", [("/device:GPU:0", "/device:CPU:0"), ("/device:CPU:0", "/device:GPU:0")])
def test_how_fast_the_ends_compute_is_not_charged_to_the_way(ends):
    machine = Machine()
    per_tensor, per_byte = _line_over_sizes(machine.probe, ends, ends, machine.clock, ((16, 8), (4096, 4)), 3)
    assert per_tensor == pytest.approx(machine.HOP_S)
    assert per_byte == pytest.approx(0, abs=1e-12)


def test_a_copy_to_or_from_a_gpu_is_no_work_of_the_ends(monkeypatch):
    machine = Machine()
    monkeypatch.setattr(probes, "_chain", machine.probe)
    monkeypatch.setattr(probes, "_stream", None)
    names = ("gpu:0", "gpu:1", "cpu:0")
    for link in measure_links(names, list(machine.add_s), machine.clock, ((16, 8), (4096, 4)), 3):
        assert link.latency_s == pytest.approx(machine.HOP_S)
        assert (link.send_busy_s(1e6), link.receive_busy_s(1e6)) == (0.0, 0.0)


def test_one_link_between_two_nodes_stands_for_all_of_its_kind(monkeypatch):
    machine = Machine()
    monkeypatch.setattr(probes, "_chain", machine.probe)
    names = [f"worker:{i}" for i in range(10)]
    machine.add_s = {f"/task:{i}/device:GPU:0": 1e-5 for i in range(10)}
    nodes = ["one"] * 5 + ["two"] * 5
    links = measure_links(names, list(machine.add_s), machine.clock, ((16, 8), (4096, 4)), 1, nodes=nodes)
    assert len({(link.src, link.dst) for link in links}) == len(links) == 90
    crossing = {tuple(sorted(ends)) for ends in machine.asked if ends[0] != ends[1]}
    assert len(crossing) == 10 + 10 + 1
    assert [link.latency_s for link in links] == pytest.approx([Machine.HOP_S] * 90)


@pytest.mark.parametrize("probe", [probes._chain, probes._stream])
@pytest.mark.parametrize("floats", [16, 65_536])
def test_every_tensor_of_a_probe_crosses_whole(two_cpus, probe, floats):
    """No pass of TensorFlow's cuts, merges or moves what is to cross."""
    a, b = two_cpus.tf_name(0), two_cpus.tf_name(1)
    run = probe(a, b, tf.zeros([floats]), 4)
    with tf_internals.functions.collected_nodes() as nodes:
        run()
    sends = [n for n in nodes if n.op in ("_Send", "_HostSend") and crosses(n)]
    made = {n.name: n for n in nodes}
    whole = [
        n for n in sends if made[n.input[0].split(":")[0]].op in ("AddV2", "Identity", "ReadVariableOp", "Snapshot")
    ]
    assert len(whole) == 4
    slices = [n.device for n in made.values() if n.op == "StridedSlice"]
    assert sorted(slices) == ([a, a, b, b] if probe is probes._chain else [b] * 4)


def crosses(send):
    return send.attr["send_device"].s != send.attr["recv_device"].s


def test_links_go_both_ways_between_every_pair(two_cpus):
    names = two_cpus.topology.names
    links = measure_links(names, [two_cpus.tf_name(d) for d in range(2)])
    assert [(link.src, link.dst) for link in links] == [("cpu:0", "cpu:1"), ("cpu:1", "cpu:0")]
    assert all(link.latency_s > 0 and link.bandwidth_bytes_per_s > 0 for link in links)
