"""The problem: what may go where, and which devices are the same but for their names."""

from itertools import islice, product

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from placer.errors import BadInputError
from placer.graph.op_graph import Edge, Op, OpGraph
from placer.graph.pins import parse_pin, pinned
from placer.graph.topology import Device, Link, Topology
from search.problem.memory_fit import fitted, packed
from search.problem.problem import Problem
from surrogate.simulate.max_load import loads

CPUS = Topology((Device("x", "cpu", 10), Device("y", "cpu", 10)), (Link("*", "*", 0, 1),))


def problem_of(*sizes, topology=CPUS, **fields):
    ops = tuple(Op(f"v{i}", cost_s={"cpu": 1.0}, memory_bytes=size) for i, size in enumerate(sizes))
    edges = tuple(Edge(i, i + 1, 1) for i in range(len(sizes) - 1))
    return Problem(OpGraph("g", ops, edges), topology, **fields)


def test_devices_that_are_alike_are_known():
    devices = (Device("a", "gpu"), Device("b", "cpu"), Device("c", "gpu"), Device("d", "gpu", 5))
    ops = (Op("v", cost_s={"gpu": 1.0, "cpu": 1.5}),)
    problem = Problem(OpGraph("g", ops, ()), Topology(devices, (Link("*", "*", 0, 1),)))
    assert problem.alike == (0, 1, 0, 3)
    far = Topology(devices, (Link("*", "*", 0, 1), Link("b", "c", 9, 1)))
    assert Problem(OpGraph("g", ops, ()), far).alike == (0, 1, 2, 3)


def test_canonical_placements_forget_names():
    problem = problem_of(1, 1, 1)
    assert problem.canonical((1, 0, 1)) == problem.canonical((0, 1, 0)) == (0, 1, 0)


def test_a_unit_that_cannot_run_where_it_is_put_goes_where_it_costs_least():
    devices = (Device("g", "gpu"), Device("c", "cpu"), Device("d", "cpu", speed=2.0))
    ops = (Op("anywhere", cost_s={"gpu": 1.0, "cpu": 3.0}), Op("only on CPUs", cost_s={"cpu": 1.0}))
    problem = Problem(OpGraph("g", ops, ()), Topology(devices, (Link("*", "*", 0, 1),)))
    assert problem.moved_where_able((0, 0)) == problem.moved_where_able(np.array([0, 0])) == (0, 2)
    assert problem.moved_where_able([1, 1]) == (1, 1)


def test_only_a_makespan_has_seconds_beside_it():
    assert problem_of(1, base_s=0.5).beside_s == 0.5
    assert problem_of(1, base_s=0.5, objective="max-load").beside_s == 0.0


def test_a_placement_is_changed_only_as_far_as_memory_needs():
    problem = problem_of(6, 4, 4)
    assert fitted(problem, (0, 0, 1)) == (0, 0, 1)
    repaired = fitted(problem, (0, 0, 0))
    assert problem.fits(repaired) and sum(repaired) == 1


def test_packing_looks_further_than_the_first_fit():
    # Best-fit decreasing puts 6 with 4 and then fails; 6+2+2 and 4+3+3 fit.
    assert problem_of(6, 4, 3, 3, 2, 2).fits(packed(problem_of(6, 4, 3, 3, 2, 2)))


@pytest.mark.parametrize(
    ("sizes", "says"),
    [
        ((11, 1), "needs 11 bytes.*holds 10.*1 too few"),
        ((9, 9, 9), "needs 27.*hold 20.*7 too few"),
        ((6, 6, 6), "needs 18.*hold 20 together .0% kept free., but every way"),
    ],
)
def test_what_does_not_fit_is_refused_with_the_bytes_missing(sizes, says):
    with pytest.raises(BadInputError, match=says):
        packed(problem_of(*sizes))


@st.composite
def packings(draw):
    """Up to seven ops of whole bytes, each for some of three devices, of which one may be unlimited."""
    limits = (draw(st.integers(0, 20)), draw(st.integers(0, 20)), draw(st.sampled_from((None, 0, 10))))
    devices = tuple(Device(f"d{d}", "cpu", limit) for d, limit in enumerate(limits))
    where = st.sets(st.sampled_from(("d0", "d1", "d2")), min_size=1)
    ops = tuple(
        Op(f"v{i}", cost_s=dict.fromkeys(sorted(draw(where)), 1.0), memory_bytes=draw(st.sampled_from((0, 3, 6, 7))))
        for i in range(draw(st.integers(1, 7)))
    )
    return Problem(OpGraph("g", ops, ()), Topology(devices, CPUS.links))


@settings(max_examples=200, deadline=None)
@given(packings())
def test_a_packing_is_found_where_there_is_one_and_refused_where_there_is_none(problem):
    exists = any(problem.fits(placement) for placement in product(*problem.feasible))
    if exists:
        assert problem.fits(packed(problem))
    else:
        with pytest.raises(BadInputError, match=r"too few|every way") as refused:
            packed(problem)
        assert "\n" not in str(refused.value) and "inf" not in str(refused.value)


def test_many_equal_ops_are_proven_not_to_fit():
    """Three devices hold five each; of sixteen one is left, though the bytes would do."""
    topology = Topology(tuple(Device(f"d{i}", "cpu", 33) for i in range(3)), CPUS.links)
    with pytest.raises(BadInputError, match=r"needs 96 .*hold 99 together .*every way"):
        packed(problem_of(*[6] * 16, topology=topology))


def test_where_the_proof_would_take_too_long_nothing_is_claimed(monkeypatch):
    monkeypatch.setattr("search.problem.memory_fit.PACK_STEPS", 0)
    with pytest.raises(BadInputError, match=r"no way .* was found in 0 steps, and there may be none"):
        packed(problem_of(6, 6, 6))


@pytest.mark.parametrize(
    ("sizes", "pins", "says"),
    [
        ((6, 6, 6), ["v[01]=x"], r"pinned to x, .* need 12 bytes, it holds 9 \(10% kept free\), 3 too few: v0, v1\. "),
        ((6, 1, 5), ["v0=x"], None),
        (
            (9, 9, 6),
            ["v.=cpu"],
            r"pinned to x, y, .* need 24 bytes, together they hold 18 \(10% kept free\), 6 too few",
        ),
        ((10, 1), ["v0=y"], r"op 'v0' needs 10 bytes, 'y', .* holds 9 \(10% kept free\), 1 too few"),
    ],
)
def test_pins_that_memory_forbids_are_refused_with_the_bytes_missing(sizes, pins, says):
    topology = Topology((*CPUS.devices, Device("z", "gpu")), CPUS.links)
    ops = tuple(Op(f"v{i}", cost_s={"cpu": 1.0, "gpu": 1.0}, memory_bytes=size) for i, size in enumerate(sizes))
    graph = pinned(OpGraph("g", ops, ()), [parse_pin(pin) for pin in pins], topology)
    problem = Problem(graph, topology, headroom=0.1)
    if says is None:
        assert problem.fits(packed(problem))
    else:
        with pytest.raises(BadInputError, match=says):
            packed(problem)


def test_headroom_stays_free():
    assert problem_of(10).fits((0,)) and not problem_of(10, headroom=0.1).fits((0,))


@pytest.mark.parametrize("at_once", [1, 7, 1 << 20])
@settings(max_examples=50, deadline=None)
@given(
    sizes=st.lists(st.one_of(st.integers(0, 9), st.floats(0, 9)), min_size=1, max_size=9),
    limits=st.lists(st.one_of(st.none(), st.integers(0, 30)), min_size=1, max_size=4),
    headroom=st.sampled_from((0.0, 0.1)),
    seed=st.integers(0, 99),
)
def test_a_batch_fits_where_each_of_its_rows_does(at_once, sizes, limits, headroom, seed):
    topology = Topology(tuple(Device(f"d{i}", "cpu", limit) for i, limit in enumerate(limits)), CPUS.links)
    problem = problem_of(*sizes, topology=topology, headroom=headroom)
    rows = np.random.default_rng(seed).integers(0, len(limits), (5, len(sizes)))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("search.problem.problem.AT_ONCE", at_once)
        assert problem.fits_many(rows).tolist() == [problem.fits(tuple(row)) for row in rows.tolist()]


def test_no_device_and_no_rows_in_a_batch():
    assert problem_of(6, 6).fits_many(np.zeros((0, 2))).tolist() == []
    with pytest.raises(BadInputError, match=r"outside 0\.\.1"):
        problem_of(6, 6).fits_many([[0, 2]])


def test_what_is_predicted_is_the_objective_of_each_row(problem):
    rows = list(islice(product(*problem.feasible), 0, 5000, 500))
    by_row = [problem.devices(row) for row in rows]
    if problem.objective == "max-load":
        defined = [max(loads(problem.graph, problem.costs.tolist(), problem.topology, row)) for row in by_row]
    else:
        defined = [problem.simulator.reference.makespan(row) for row in by_row]
    assert problem.predict_many(rows).tolist() == [problem.predict(row) for row in rows] == defined


def test_colocated_ops_without_a_common_device_are_refused():
    ops = (Op("a", cost_s={"x": 1.0}, colocate="w"), Op("b", cost_s={"y": 1.0}, colocate="w"))
    with pytest.raises(BadInputError, match="'a', 'b' can run together on none of x, y: 'a' on x, 'b' on y"):
        Problem(OpGraph("g", ops, ()), CPUS)


@pytest.mark.parametrize("fields", [{"objective": "cost"}, {"headroom": 1.0}])
def test_unknown_options_are_refused(fields):
    with pytest.raises(BadInputError):
        problem_of(1, **fields)
