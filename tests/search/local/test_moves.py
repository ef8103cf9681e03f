"""Moves and clusters: what lies together moves together, and nothing goes where it cannot run."""

import numpy as np
import pytest

from placer.graph.op_graph import Edge, Op, OpGraph
from search.local.clusters import LARGEST_SHARE, clusters, neighbours
from search.local.kernels.move_shares import FLIP, GRAFT, KINDS, RUN
from search.local.moves import Moves
from search.problem.problem import Problem


@pytest.fixture
def rng():
    return np.random.default_rng(7)


def only(moves, kind):
    """Moves of one kind."""
    moves.share = np.eye(len(KINDS))[kind]
    return moves


def ends_of(problem):
    """(all on their first device, all on their last)."""
    return (np.array([devices[i] for devices in problem.feasible], np.int32) for i in (0, -1))


def test_no_move_of_any_kind_sends_a_unit_where_it_cannot_run(problem, rng):
    moves = Moves(problem)
    can = problem.limits.feasible
    start, other = ends_of(problem)
    for kind in np.flatnonzero(moves.able):
        for _ in range(40):
            row = start.copy()
            only(moves, kind).draw(row, [start, other], 0.5, rng)
            assert can[np.arange(len(row)), row].all()


def test_every_kind_of_move_moves_something(problem, rng):
    moves = Moves(problem)
    start, other = ends_of(problem)
    half = np.where(np.arange(len(start)) < len(start) // 2, start, other).astype(np.int32)
    for kind in np.flatnonzero(moves.able):
        rows = [half.copy() for _ in range(60)]
        for row in rows:
            only(moves, kind).draw(row, [start, other], 0.5, rng)
        assert any((row != half).any() for row in rows), KINDS[kind]


@pytest.mark.parametrize(("kind", "objective", "most"), [(RUN, "makespan", 0.25), (GRAFT, "max-load", 0.1)])
def test_a_run_or_a_graft_is_no_longer_than_its_scale_allows(kind, objective, most, rng, build):
    """The scale of grafts is fixed: for max-load a large one would take as long as many other moves."""
    problem = Problem(build.layered(5, layers=12), build.machine("gpu", "gpu"), objective)
    moves, start = only(Moves(problem), kind), np.zeros(36, np.int32)
    lengths = set()
    for _ in range(300):
        row = start[: len(problem.units)].copy()
        moves.draw(row, [row + 1], 0.25, rng)
        lengths.add(int((row != 0).sum()))
    assert max(lengths) <= len(problem.units) * most and len(lengths) > 2


def test_a_graft_takes_a_part_of_another_row_and_nothing_else(rng, build):
    problem = Problem(build.two_towers(10), build.machine("cpu", "cpu", "cpu"))
    moves, row = only(Moves(problem), GRAFT), np.zeros(len(problem.units), np.int32)
    moves.draw(row, [np.full(len(row), 2, np.int32)], 0.5, rng)
    assert set(row.tolist()) == {0, 2} or set(row.tolist()) == {2}


def test_where_no_other_row_differs_no_graft_is_drawn(rng, build):
    """It would change nothing."""
    problem = Problem(build.two_towers(10), build.machine("cpu", "cpu", "cpu"))
    moves, start = Moves(problem), np.zeros(len(problem.units), np.int32)
    moves.share = 0.5 * (np.eye(len(KINDS))[GRAFT] + np.eye(len(KINDS))[FLIP])
    rows = [start.copy() for _ in range(50)]
    for row in rows:
        moves.draw(row, [start], 0.5, rng)
    assert all((row != start).any() for row in rows)


def test_kinds_that_gain_are_drawn_more_often_and_none_dies_out(problem):
    moves = Moves(problem)
    before = moves.share[0]
    moves.learn(np.eye(len(KINDS), dtype=int)[0] * 200)
    assert moves.share[0] > before
    assert moves.share[moves.able].min() > 0.01
    assert moves.share.sum() == pytest.approx(1)
    moves.forget()
    assert moves.share[0] == before


def test_what_two_units_exchange_is_the_sum_over_the_edges_between_them(build):
    problem = Problem(build.layered(5, layers=12), build.machine("gpu", "cpu"))
    link = problem.topology.mean_link
    seconds = {}
    for e in problem.graph.edges:
        pair = tuple(sorted((problem.unit_of[e.src], problem.unit_of[e.dst])))
        if len(set(pair)) == 2:
            own_s = link.latency_s + e.edge_bytes / link.bandwidth_bytes_per_s
            seconds[pair] = seconds.get(pair, 0.0) + own_s
    talk = neighbours(problem)
    assert list(map(tuple, talk.pairs.tolist())) == list(seconds)  # by first edge
    assert talk.seconds == pytest.approx(list(seconds.values()))
    assert len(seconds) < len(problem.graph.edges)  # some units exchange several tensors


def sets_of(problem):
    found = clusters(problem, neighbours(problem))
    return np.split(found.member, np.cumsum(found.sizes)[:-1])


def test_every_cluster_is_connected_and_holds_no_unit_twice(problem):
    talks = set(map(tuple, neighbours(problem).pairs.tolist()))
    for cluster in sets_of(problem):
        units = cluster.tolist()
        assert len(set(units)) == len(units) >= 2
        reached, front = {units[0]}, [units[0]]
        while front:
            u = front.pop()
            new = {w for w in units if (min(u, w), max(u, w)) in talks} - reached
            reached |= new
            front += new
        assert reached == set(units)


def test_around_a_hub_clusters_double_in_size_and_there_are_few_rounds(build):
    leaves = 400
    ops = [Op("hub", cost_s={"cpu": 1.0}), *(Op(f"leaf{i}", cost_s={"cpu": 1.0}) for i in range(leaves))]
    star = OpGraph("star", tuple(ops), tuple(Edge(0, v, 1) for v in range(1, leaves + 1)))
    found = sets_of(Problem(star, build.machine("cpu", "cpu")))
    assert all(len(set(cluster.tolist())) == len(cluster) for cluster in found)
    assert sum(map(len, found)) < 20 * leaves  # not half of their square
    assert {2, 4, 8} <= {len(cluster) for cluster in found}


def test_clusters_come_in_all_sizes_up_to_their_largest_share_of_the_work(build):
    problem = Problem(build.layered(5, layers=12), build.machine("gpu", "cpu"))
    work_s = np.array(problem.unit_mean_s)
    found = sets_of(problem)
    sizes = [len(cluster) for cluster in found]
    assert min(sizes) == 2 and any(2 < size < len(problem.units) / 4 for size in sizes)
    assert len(problem.units) / 3 < max(sizes)
    assert max(work_s[cluster].sum() for cluster in found) <= LARGEST_SHARE * work_s.sum() * (1 + 1e-9)
