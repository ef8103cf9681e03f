"""Calibration: steps made with known corrections are replayed, and unseen ones predicted."""

from dataclasses import replace

import numpy as np
import pytest

from placer.graph.op_graph import Edge, Op, OpGraph
from placer.graph.topology import Device, Link, Topology
from surrogate.calibrate.calibration import Calibration, Predictor, launches
from surrogate.simulate.simulator import Simulator

LINK = Link("*", "*", 1e-4, 1e9, send_s=1e-4, send_s_per_byte=2e-10, receive_s=1e-4, receive_s_per_byte=2e-10)
TRUTH = Calibration((1.15, 1.1), op_s=2e-6, tensor_factor=2.0, byte_factor=3.0, base_s=2e-3)


@pytest.fixture(scope="module")
def profiled():
    """Four towers of ten ops with large tensors, joined at the end."""
    rng = np.random.default_rng(3)
    ops = tuple(Op(f"op{i}", cost_s={"cpu": float(s)}) for i, s in enumerate(rng.uniform(5e-4, 5e-3, 41)))
    edges = [Edge(t * 10 + i, t * 10 + i + 1, int(rng.uniform(1e5, 5e6))) for t in range(4) for i in range(9)]
    edges += [Edge(t * 10 + 9, 40, 1000) for t in range(4)]
    graph = OpGraph("towers", ops, tuple(edges))
    topology = Topology((Device("a", "cpu"), Device("b", "cpu")), (LINK,))
    return Predictor(Simulator(graph, topology), launches(graph))


def mappings(count, seed=0):
    """The single devices, then mappings that cut much or little."""
    rng = np.random.default_rng(seed)
    rows = [[0] * 41, [1] * 41]
    while len(rows) < count:
        rows.append((rng.random(41) < rng.choice([0.1, 0.5])).astype(int).tolist())
    return np.array(rows[:count])


def error(predictor, rows, step_s):
    return float(np.mean(np.abs(predictor.step_s(rows) / step_s - 1)))


def test_eight_measured_mappings_tell_what_the_others_take(profiled):
    truth = replace(profiled, given=TRUTH)
    shown, unseen = mappings(8), mappings(40, seed=1)
    noise = np.random.default_rng(5).normal(1, 0.01, 8)
    found = profiled.calibrated(shown, truth.step_s(shown) * noise)
    assert error(profiled, unseen, truth.step_s(unseen)) > 0.15
    assert error(found, unseen, truth.step_s(unseen)) < 0.04
    assert error(found, shown, truth.step_s(shown)) < 0.03


def test_measurements_that_scattered_are_believed_less(profiled):
    """Another program ran while the first mappings were measured, and their steps scattered."""
    truth = replace(profiled, given=TRUTH)
    shown, unseen = mappings(12), mappings(40, seed=1)
    disturbed = np.zeros(12)
    disturbed[2:6] = 0.4
    measured_s = truth.step_s(shown) * (1 + disturbed)
    trusting, wary = (profiled.calibrated(shown, measured_s, errors) for errors in (None, disturbed / 2))
    assert error(wary, unseen, truth.step_s(unseen)) < 0.5 * error(trusting, unseen, truth.step_s(unseen))


def test_exact_predictions_are_left_alone(profiled):
    rows = mappings(6)
    found = profiled.calibrated(rows, profiled.step_s(rows))
    assert found.calibration.device_factor == pytest.approx((1, 1), abs=1e-3)
    assert found.calibration.byte_factor == pytest.approx(1, abs=1e-2)
    assert found.calibration.base_s < 1e-4


def test_single_devices_say_nothing_about_links(profiled):
    singles = mappings(2)
    found = profiled.calibrated(singles, 1.1 * profiled.step_s(singles))
    assert found.step_s(singles) == pytest.approx(1.1 * profiled.step_s(singles), rel=0.02)
    assert found.calibration.byte_factor == pytest.approx(1.0, abs=1e-6)


def test_contention_is_found_where_it_is(profiled):
    graph = profiled.profiled.graph
    busy = Topology(profiled.profiled.topology.devices, (replace(LINK, bandwidth_bytes_per_s=2e8),))
    free = Predictor(Simulator(graph, busy), profiled.launches)
    truth = replace(free, given=Calibration((1.0, 1.0), contention="port"))
    rows = mappings(16)
    assert free.calibrated(rows, truth.step_s(rows)).calibration.contention == "port"


def test_a_fused_op_launches_nothing():
    graph = OpGraph("two", (Op("conv", cost_s={"cpu": 0.0}), Op("bias", cost_s={"cpu": 1.0})), (Edge(0, 1, 4),))
    assert launches(graph).tolist() == [0.0, 1.0]


LENGTHS = (100, 100, 5, 5)  # ops in each tower: two of many short ones, two of few long ones


@pytest.fixture(scope="module")
def unlike():
    """Four towers on a GPU and a CPU, as long each, of which launches matter to two. kinds: what the devices are."""
    rng = np.random.default_rng(4)
    ops, edges = [], []
    for length in LENGTHS:
        for i in range(length):
            gpu_s, cpu_s = (1e-5, 2e-5) if length > 10 else (2e-4, 6e-4)
            ops.append(Op(f"op{len(ops)}", cost_s={"a": gpu_s * rng.uniform(0.7, 1.3), "b": cpu_s}))
            if i:
                edges.append(Edge(len(ops) - 2, len(ops) - 1, 10_000))
    graph = OpGraph("towers", tuple(ops), tuple(edges))

    def predictor(*kinds):
        devices = tuple(Device(name, kind) for name, kind in zip("ab", kinds, strict=True))
        topology = Topology(devices, (Link("*", "*", 2e-5, 1e10),))
        return Predictor(Simulator(graph, topology), launches(graph))

    return predictor


def towers(count, seed):
    """The single devices, then towers cut in two at random, and their ends exchanged."""
    rng = np.random.default_rng(seed)
    rows = [[0] * sum(LENGTHS), [1] * sum(LENGTHS)]
    while len(rows) < count:
        first, cuts = rng.integers(0, 2, len(LENGTHS)), [rng.integers(0, n + 1) for n in LENGTHS]
        rows.append([int(f ^ (i >= cut)) for f, cut, n in zip(first, cuts, LENGTHS, strict=True) for i in range(n)])
    return np.array(rows)


@pytest.mark.parametrize("op_s", [(-4e-6, 4e-6), (8e-6, 0.0)])
def test_kinds_of_devices_launch_ops_at_their_own_pace(unlike, op_s):
    """Launches under a tracer take longer than they do in training: on the GPU the truth may be less than the trace."""
    free = unlike("gpu", "cpu")
    truth = replace(free, given=Calibration((1.0, 1.0), op_s=op_s))
    shown, unseen = towers(10, 0), towers(40, 1)
    found = free.calibrated(shown, truth.step_s(shown))
    alike = unlike("cpu", "cpu").calibrated(shown, truth.step_s(shown))
    gpu_s, cpu_s = found.calibration.op_s
    assert np.sign(gpu_s - cpu_s) == np.sign(op_s[0] - op_s[1])
    errors = [error(predictor, unseen, truth.step_s(unseen)) for predictor in (free, alike, found)]
    assert errors[2] < 0.5 * errors[1] < 0.5 * errors[0], errors


def test_a_correction_takes_no_op_below_nothing(unlike):
    predictor = replace(unlike("gpu", "cpu"), given=Calibration((1.0, 1.0), op_s=(-1e-3, 0.0)))
    assert predictor.simulator.costs.min() == 0
    assert predictor.step_s(towers(2, 0)).min() >= 0


def test_equal_devices_have_one_pace(profiled):
    truth = replace(profiled, given=TRUTH)
    found = profiled.calibrated(mappings(8), truth.step_s(mappings(8)))
    assert isinstance(found.calibration.op_s, float)
