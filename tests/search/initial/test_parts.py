"""Parts of divided ops begin side by side."""

from placer.graph.coarsen import coarsen
from placer.graph.op_graph import Edge, Op, OpGraph
from placer.graph.topology import Device, Link, Topology
from search.initial.parts import part_placements
from search.initial.starts import starts
from search.problem.problem import Problem
from search.problem.searcher import never

COST_S = {"cpu": 1.0}
TWO = Topology((Device("x", "cpu"), Device("y", "cpu")), (Link("*", "*", 0.1, 1e9),))


def divided(devices=None):
    """a -> b0, b1 -> c, and between b and c a part that may run on y alone, where `devices` says so."""
    ops = (Op("a", cost_s=COST_S), Op("b0", cost_s=COST_S, part=0), Op("b1", cost_s=COST_S, part=1, devices=devices),
           Op("c", cost_s=COST_S))  # fmt: skip
    edges = (Edge(0, 1, 8), Edge(0, 2, 8), Edge(1, 3, 8), Edge(2, 3, 8))
    return Problem(OpGraph("divided", ops, edges), TWO)


def test_part_i_is_on_device_i_in_each_rotation_and_they_are_among_the_starts():
    problem = divided()
    found = list(part_placements(problem))
    assert {(0, 0, 1, 0), (1, 1, 0, 1)} <= set(found) <= set(starts(problem, never))
    assert all(placement[1] != placement[2] for placement in found)


def test_a_part_that_cannot_run_there_runs_where_it_can():
    assert {placement[2] for placement in part_placements(divided(devices=("y",)))} == {1}


def test_without_parts_there_are_none(towers):
    assert list(part_placements(towers)) == []


def test_numbers_that_parts_compute_for_themselves_stay_apart_in_groups():
    """rate -> own copies of a bias correction -> an update of each part."""
    number_s = {"cpu": 1e-6}
    ops = (
        Op("rate", "Mul", number_s),
        *(Op(f"copy{i}", "Sqrt", number_s, part=i) for i in range(2)),
        *(Op(f"half{i}", "Mul", COST_S, part=i) for i in range(2)),
        *(Op(f"update{i}", "AssignSubVariableOp", COST_S, part=i, phase="update") for i in range(2)),
    )
    edges = [Edge(0, 1, 4), Edge(0, 2, 4), Edge(1, 3, 4), Edge(2, 4, 4), Edge(3, 5, 64), Edge(4, 6, 64)]
    groups = coarsen(OpGraph("adam", ops, tuple(edges)), 2, TWO)
    assert len({groups.group_of[v] for v in (1, 3, 5)}) == len({groups.group_of[v] for v in (2, 4, 6)}) == 1
    assert groups.group_of[1] != groups.group_of[2]
    assert {groups.graph.ops[groups.group_of[v]].part for v in (5, 6)} == {0, 1}
