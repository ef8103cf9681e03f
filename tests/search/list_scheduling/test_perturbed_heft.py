"""Variants of HEFT: the plain one is HEFT, breeding never loses, missing links stay missing."""

from collections import Counter
from dataclasses import replace
from itertools import count

import numpy as np
import pytest

from placer.graph.op_graph import Edge, Op, OpGraph
from placer.graph.topology import Device, Link, Topology
from search.initial.starts import starts
from search.list_scheduling.heft import heft_placement
from search.list_scheduling.perturbed_heft import HeftVariant, breed, placed_by_variant, with_foresight
from search.problem.problem import Problem
from search.problem.searcher import never


@pytest.mark.parametrize("seed", range(6))
def test_the_plain_view_gives_what_heft_gives(seed, build):
    problem = Problem(build.layered(seed, layers=7), build.machine("gpu", "gpu", "cpu", send_s=0.1, receive_s=0.1))
    assert placed_by_variant(problem, HeftVariant.unperturbed(problem)) == heft_placement(problem)


def test_breeding_never_loses_and_tells_what_it_predicts(build):
    problem = Problem(build.layered(4, layers=8), build.machine("gpu", "gpu", "cpu"))
    rng = np.random.default_rng(2)
    found = breed(problem, HeftVariant.unperturbed(problem), rounds=200, rng=rng, stop=never)
    values = [v for v, _ in found]
    assert values == sorted(values, reverse=True)
    assert values[-1] < values[0]
    assert values[0] == problem.predict(placed_by_variant(problem, HeftVariant.unperturbed(problem)))
    assert all(v == problem.predict(placement) for v, placement in found)


def test_a_variant_fits_into_memory(tight):
    variant = HeftVariant.unperturbed(tight)
    rng = np.random.default_rng(0)
    for _ in range(20):
        variant = variant.child(0.5, rng)
        assert tight.fits(placed_by_variant(tight, variant))


def test_links_taken_for_dearer_are_crossed_less(build):
    def crossings(factor):
        """Over many problems, by a variant that sees links `factor` times as long."""
        count = 0
        for seed in range(8):
            problem = Problem(build.layered(seed), build.machine("gpu", "gpu", "gpu"))
            placement = placed_by_variant(problem, replace(HeftVariant.unperturbed(problem), link=np.log(factor)))
            units = problem.unit_of
            count += sum(placement[units[e.src]] != placement[units[e.dst]] for e in problem.graph.edges)
        return count

    assert crossings(100.0) < crossings(0.01)


def test_starts_hold_single_devices_and_heft_and_nothing_twice(problem):
    found = starts(problem, never)
    assert set(problem.unlike_singles()) <= set(found)
    assert heft_placement(problem) in found
    assert len(set(found)) == len(found)
    assert starts(problem, lambda: True)[0] == found[0]
    looks = count(1)
    few = starts(problem, lambda: next(looks) == 6)
    assert few == found[: len(few)] and next(looks) == 7


def test_units_that_begin_with_what_costs_nothing_are_spread_with_foresight():
    """Variables have no inputs and take no time: HEFT's rule puts all of them on the first device, and with each all
    that is colocated with it.
    """
    ops, edges = [], []
    for tower in range(16):
        ops += [
            Op(f"w{tower}", cost_s={"gpu": 0.0}, colocate=f"w{tower}"),
            Op(f"x{tower}", cost_s={"gpu": 1.0 + tower}),
        ]
        ops.append(Op(f"y{tower}", cost_s={"gpu": 1.0}, colocate=f"w{tower}"))
        edges += [Edge(3 * tower, 3 * tower + 2, 8), Edge(3 * tower + 1, 3 * tower + 2, 8)]
    devices = tuple(Device(f"gpu:{i}", "gpu") for i in range(4))
    problem = Problem(OpGraph("towers", tuple(ops), tuple(edges)), Topology(devices, (Link("*", "*", 0.0, 1e9),)))
    heft = HeftVariant.unperturbed(problem)
    (sighted,) = with_foresight(problem)
    first = [problem.units[u][0] for u in range(len(problem.units))]
    unit_device = placed_by_variant(problem, heft)
    weights = [d for d, v in zip(unit_device, first, strict=True) if ops[v].name.startswith("w")]
    assert set(weights) == {0}
    spread = placed_by_variant(problem, sighted)
    counts = Counter(d for d, v in zip(spread, first, strict=True) if ops[v].name.startswith("w"))
    assert set(counts.values()) == {4}
    assert problem.predict(spread) <= problem.predict(unit_device)
    assert HeftVariant.best(problem).foresight == float(problem.predict(spread) < problem.predict(unit_device))


def test_where_each_unit_is_one_op_there_is_no_foresight():
    ops = tuple(Op(f"x{i}", cost_s={"cpu": 1.0}) for i in range(3))
    devices = (Device("cpu:0", "cpu"), Device("cpu:1", "cpu"))
    problem = Problem(OpGraph("loose", ops, ()), Topology(devices, (Link("*", "*", 0.0, 1e9),)))
    assert with_foresight(problem) == []
