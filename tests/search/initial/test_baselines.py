"""The baselines ask what an expert would: single devices, layers in runs, branches side by side."""

from placer.graph.op_graph import Edge, Op, OpGraph
from placer.graph.topology import Device, Link, Topology
from search.initial.expert import device_counts, expert_placements, rotations
from search.problem.problem import Problem
from search.session.registry import make_searcher


def all_asked(name, problem, count=100):
    searcher = make_searcher(name, problem)
    asked = []
    while len(asked) < count:
        try:
            asked.append(searcher.ask())
        except Exception as end:
            assert type(end).__name__ == "SearchExhausted"
            break
    return asked


def test_single_asks_each_device_that_holds_it_all(towers, tight):
    assert [m.devices[0] for m in all_asked("single", towers) if m.is_single] == [0, 1]
    assert all_asked("single", tight) == []


def test_single_asks_the_fastest_first(towers):
    fast = towers.topology.devices[1].__class__("cpu:1", "cpu", speed=2.0)
    topology = type(towers.topology)((towers.topology.devices[0], fast), towers.topology.links)
    assert all_asked("single", Problem(towers.graph, topology))[0].devices[0] == 1


def test_the_expert_puts_towers_side_by_side(towers):
    def tower(placement, t):
        unit = {towers.graph.ops[unit[0]].name: d for unit, d in zip(towers.units, placement, strict=True)}
        return {d for name, d in unit.items() if name.startswith(f"tower{t}/")}

    splits = list(expert_placements(towers))
    assert any(tower(p, 0) == {0} and tower(p, 1) == {1} for p in splits)
    assert any(tower(p, 0) == {1} and tower(p, 1) == {0} for p in splits)


def test_a_tower_with_an_op_for_the_host_alone_still_has_a_device_of_its_own():
    """Two towers on two GPUs; one cheap op of each runs on the CPU only."""
    heavy, host, light = {"gpu": 1.0, "cpu": 10.0}, {"cpu": 0.01}, {"gpu": 0.001, "cpu": 0.001}
    towers = [
        Op(f"tower{t}/{i}", cost_s=cost_s) for t in range(2) for i, cost_s in enumerate((heavy, heavy, host, heavy))
    ]
    ways = [(0, 1), (0, 5), *((v, v + 1) for v in (1, 2, 3, 5, 6, 7)), (4, 9), (8, 9)]
    graph = OpGraph(
        "g", (Op("fork", cost_s=light), *towers, Op("join", cost_s=light)), tuple(Edge(*w, 8) for w in ways)
    )
    devices = (Device("gpu:0", "gpu"), Device("gpu:1", "gpu"), Device("cpu:0", "cpu"))
    problem = Problem(graph, Topology(devices, (Link("*", "*", 1e-6, 1e9),)))
    splits = [problem.devices(placement) for placement in expert_placements(problem)]
    assert any({split[v] for v in (1, 2, 4)} == {0} and {split[v] for v in (5, 6, 8)} == {1} for split in splits)


def test_of_many_devices_the_expert_tries_few_counts_and_rotations(build):
    assert device_counts(64) == [64, 32, 16, 8, 7, 6, 5, 4, 3, 2] and device_counts(9) == [9, *range(8, 1, -1)]
    assert (
        list(rotations(8)) == list(range(8)) and list(rotations(64)) == list(range(0, 64, 8)) and len(rotations(9)) == 5
    )
    problem = Problem(build.layered(1, layers=20), build.machine(*["gpu"] * 64))
    assert 8 < len(list(expert_placements(problem))) <= 67  # one of each rotation, those of branches left out


def test_random_fits_into_tight_memory(tight):
    asked = all_asked("random", tight, count=30)
    assert len(asked) == 30
    assert max(max(m.memory_bytes) for m in asked) <= 24
