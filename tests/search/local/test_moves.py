"""Moves and clusters: what lies together moves together, and nothing goes where it cannot run."""

import numpy as np
import pytest

from search.local.clusters import clusters, neighbours
from search.local.moves import Moves
from search.problem.problem import Problem


@pytest.fixture
def rng():
    return np.random.default_rng(7)


def test_no_move_of_any_kind_sends_a_unit_where_it_cannot_run(problem, rng):
    moves = Moves(problem)
    can = problem.limits.feasible
    start = np.array([devices[0] for devices in problem.feasible], np.int32)
    other = np.array([devices[-1] for devices in problem.feasible], np.int32)
    for kind in moves.kinds:
        for _ in range(40):
            row = start.copy()
            kind(row, [start, other], 0.5, rng)
            assert can[np.arange(len(row)), row].all()


def test_every_kind_of_move_moves_something(problem, rng):
    moves = Moves(problem)
    start = np.array([devices[0] for devices in problem.feasible], np.int32)
    other = np.array([devices[-1] for devices in problem.feasible], np.int32)
    half = np.where(np.arange(len(start)) < len(start) // 2, start, other).astype(np.int32)
    for kind in moves.kinds:
        rows = [half.copy() for _ in range(60)]
        for row in rows:
            kind(row, [start, other], 0.5, rng)
        assert any((row != half).any() for row in rows), kind


def test_kinds_that_gain_are_drawn_more_often_and_none_dies_out(problem):
    moves = Moves(problem)
    before = moves.share[0]
    moves.learn(np.zeros(200, np.int64), np.ones(200, bool))
    assert moves.share[0] > before
    assert moves.share.min() > 0.01
    assert moves.share.sum() == pytest.approx(1)
    moves.forget()
    assert moves.share[0] == before


def test_attention_draws_the_units_that_are_attended_to(rng, build):
    problem = Problem(build.two_towers(10), build.machine("cpu", "cpu"))
    moves = Moves(problem)
    moves.attend([3])
    drawn = [moves._unit(rng) for _ in range(400)]
    assert drawn.count(3) > 150


def test_every_cluster_is_connected_and_holds_no_unit_twice(problem):
    talks = set(neighbours(problem))
    for cluster in clusters(problem):
        units = cluster.tolist()
        assert len(set(units)) == len(units) >= 2
        reached, front = {units[0]}, [units[0]]
        while front:
            u = front.pop()
            new = {w for w in units if (min(u, w), max(u, w)) in talks} - reached
            reached |= new
            front += new
        assert reached == set(units)


def test_clusters_come_in_all_sizes_up_to_more_than_half(build):
    problem = Problem(build.layered(5, layers=12), build.machine("gpu", "cpu"))
    sizes = [len(cluster) for cluster in clusters(problem)]
    assert min(sizes) == 2
    assert max(sizes) > len(problem.units) / 3
