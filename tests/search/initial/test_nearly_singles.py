"""Nearly all on one device: what it cannot run or hold is elsewhere, and nothing more."""

import pytest

from placer.graph.op_graph import Edge, Op, OpGraph
from placer.graph.topology import Device, Link, Topology
from search.initial.nearly_singles import nearly_singles
from search.problem.problem import Problem


@pytest.mark.parametrize(("gpu_bytes", "found"), [(None, [(0, 1, 0)]), (2, [])])
def test_an_op_that_a_gpu_cannot_run_leaves_the_others_on_it(gpu_bytes, found):
    devices = (Device("g", "gpu", gpu_bytes), Device("c", "cpu"), Device("d", "cpu", speed=0.5))
    ops = tuple(Op(f"v{i}", cost_s={"gpu": 1.0, "cpu": 3.0}, memory_bytes=2) for i in range(3))
    ops = (ops[0], Op("only on CPUs", cost_s={"cpu": 1.0}), ops[2])
    problem = Problem(OpGraph("g", ops, (Edge(0, 1, 1), Edge(1, 2, 1))), Topology(devices, (Link("*", "*", 0, 1),)))
    assert list(problem.singles()) == [(1, 1, 1), (2, 2, 2)]
    assert list(nearly_singles(problem)) == found


def test_a_gpu_that_cannot_hold_all_gets_what_half_of_its_memory_holds():
    devices = (Device("gpu:0", "gpu", memory_bytes=100), Device("cpu:0", "cpu", memory_bytes=1000))
    topology = Topology(devices, (Link("*", "*", 0, 1),))

    def problem(*sizes):
        ops = [Op(f"v{i}", cost_s={"gpu": 1.0, "cpu": 9.0}, memory_bytes=size) for i, size in enumerate(sizes)]
        return Problem(OpGraph("g", tuple(ops), ()), topology)

    assert list(problem(20, 60, 0, 25, 30).singles()) == [(1, 1, 1, 1, 1)]
    assert list(nearly_singles(problem(20, 60, 0, 25, 30))) == [(0, 1, 0, 0, 1)]
    assert list(nearly_singles(problem(20, 60, 0, 10))) == []  # it holds all
    assert list(nearly_singles(problem(60, 60))) == []  # nothing is left on it
    assert list(nearly_singles(problem(600, 600, 1))) == []  # the CPU cannot hold it either


def test_what_no_other_device_runs_stays_on_a_full_gpu():
    devices = (Device("gpu:0", "gpu", memory_bytes=100), Device("cpu:0", "cpu", memory_bytes=1000))
    ops = (
        Op("only on GPUs", cost_s={"gpu": 1.0}, memory_bytes=60),
        Op("anywhere", cost_s={"gpu": 1.0, "cpu": 2.0}, memory_bytes=50),
        Op("only on CPUs", cost_s={"cpu": 1.0}, memory_bytes=5),
    )
    problem = Problem(OpGraph("g", ops, ()), Topology(devices, (Link("*", "*", 0, 1),)))
    assert list(nearly_singles(problem)) == [(0, 1, 1)]


def test_devices_of_one_kind_can_all_or_are_pinned():
    topology = Topology((Device("x", "cpu"), Device("y", "cpu")), (Link("*", "*", 0, 1),))
    ops = (Op("v0", cost_s={"cpu": 1.0}, devices=("x",)), Op("v1", cost_s={"cpu": 1.0}))
    assert not list(nearly_singles(Problem(OpGraph("g", ops, ()), topology)))
