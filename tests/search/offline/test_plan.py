"""Planning: the best of what was asked, never worse than a single device, within its time."""

from itertools import count
from pathlib import Path

import pytest

from placer.errors import BadInputError
from placer.graph.graph_files import read_graph
from placer.graph.topology import Device, Link, Topology
from search.offline.plan import plan
from search.problem.problem import Problem
from search.session.registry import SEARCHERS

GNMT = Path(__file__).parents[2] / "data" / "gnmt.json"


def ticking(step_s=0.001):
    """A clock that moves on by `step_s` whenever somebody looks."""
    ticks = count()
    return lambda: next(ticks) * step_s


def gpus(number, **fields):
    rates = {"ingress_bytes_per_s": 1e10, "egress_bytes_per_s": 1e10}
    devices = tuple(Device(f"gpu:{i}", "gpu", **rates, **fields) for i in range(number))
    return Topology(devices, (Link("*", "*", 1e-5, 1e10),))


@pytest.mark.parametrize(
    "name", [pytest.param(n, marks=pytest.mark.nightly) if n.startswith("bayes") else n for n in SEARCHERS]
)
def test_a_plan_lies_between_the_bound_and_the_best_single_device(name, problem):
    found = plan(problem, name, seconds=0.5, clock=ticking(0.02))
    assert found.value == problem.predict(problem.placement(found.mapping))
    assert found.lower_bound <= found.value
    assert found.best_single is None or found.value <= found.best_single


@pytest.mark.parametrize("objective", ["makespan", "max-load"])
def test_a_published_graph_is_planned(objective):
    problem = Problem(read_graph(GNMT), gpus(4), objective)
    found = plan(problem, seconds=0.5, clock=ticking())
    assert found.value < found.best_single
    if objective == "max-load":
        assert found.value < 0.4 * found.best_single


def test_the_same_seed_and_clock_plan_the_same(towers):
    one, two = (plan(towers, seconds=0.2, seed=5, clock=ticking()) for _ in range(2))
    assert one == two


def test_a_graph_that_no_single_device_holds_is_planned_all_the_same(tight):
    found = plan(tight, seconds=0.2, clock=ticking())
    assert found.best_single is None
    assert len(set(found.mapping.devices)) == 3


def test_no_time_at_all_still_gives_a_mapping(problem):
    assert plan(problem, seconds=0, clock=ticking()).value < float("inf")


def test_a_graph_that_fits_nowhere_is_refused_with_what_is_missing():
    problem = Problem(read_graph(GNMT), gpus(2, memory_bytes=300_000_000))
    with pytest.raises(BadInputError, match="175063808 too few"):
        plan(problem, clock=ticking())
