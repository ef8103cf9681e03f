"""The planner: a plan in a process of its own answers as one here does, and what happens to it stays there."""

import os
import subprocess
import sys
from concurrent.futures import wait
from pathlib import Path

import psutil
import pytest

from placer.errors import PlacerError
from placer.graph.op_graph import Edge, Op, OpGraph
from placer.graph.topology import Device, Link, Topology
from placer.result import Measured
from search.online.replan.planner_client import Planner
from search.online.replan.planner_server import BEGIN, NICENESS, CallServer
from search.online.replan.proposal import PlanSettings
from search.online.replan.replanner import Replanner
from tests.processes import still_running

PATIENCE_S = 300
TOPOLOGY = Topology((Device("a", "cpu"), Device("b", "cpu")), (Link("*", "*", 1e-4, 1e9),))


def fork(length=10):
    """Two chains between a fork and a join."""
    ops = tuple(Op(f"op{i}", cost_s={"cpu": 1e-3 + i * 1e-5}) for i in range(2 * length + 2))
    ends = [(0, 1), (0, length + 1), (length, 2 * length + 1), (2 * length, 2 * length + 1)]
    inside = [(v, v + 1) for t in range(2) for v in range(t * length + 1, (t + 1) * length)]
    return OpGraph("fork", ops, tuple(Edge(u, v, 1000) for u, v in ends + inside))


@pytest.fixture
def planner():
    made = Planner(fork(), TOPOLOGY, PlanSettings(seed=3))
    made.start().result(PATIENCE_S)
    yield made
    made.close()


def error_of(future):
    """The line of the PlacerError that the future holds."""
    error = future.exception(PATIENCE_S)
    assert isinstance(error, PlacerError)
    return str(error)


# The server, which needs no process.


def test_a_server_answers_what_its_plan_says():
    server, plan = CallServer(), Replanner(fork(), TOPOLOGY)
    assert server.answer(BEGIN, (fork(), TOPOLOGY)) == (True, None)
    assert server.answer("singles", ()) == (True, plan.singles())
    assert server.answer("ended", ()) == (True, None)


def test_a_server_that_could_not_begin_says_why_at_every_call():
    server = CallServer()
    worked, (kind, why) = server.answer(BEGIN, (fork(), TOPOLOGY, PlanSettings(searcher="oracle")))
    assert not worked and kind is PlacerError
    assert "there is no searcher 'oracle'" in why
    assert server.answer("singles", ()) == (False, (PlacerError, why))


def test_what_goes_wrong_at_a_server_is_one_line():
    server = CallServer()
    assert not server.answer("singles", ())[0]
    server.answer(BEGIN, (fork(), TOPOLOGY))
    worked, (kind, why) = server.answer("tell", (3,))
    assert not worked and kind is PlacerError
    assert why.startswith("planning failed in tell: TypeError")
    assert "\n" not in why
    assert server.answer("singles", ())[0]


# The process.


@pytest.mark.workers
def test_a_planner_answers_in_order_what_a_plan_here_does(planner):
    """Two rounds, asked all at once; its process runs at low priority and has never seen TensorFlow."""
    plan = Replanner(fork(), TOPOLOGY, PlanSettings(seed=3))
    told = [(p.op_devices, Measured(1.1 * p.predicted_s, 1e-4, 12)) for p in plan.singles()]
    best = (1,) * len(fork())
    calls = [
        planner.singles(),
        planner.tell(told),
        planner.propose(3),
        planner.ended(),
        planner.slowed({"b": 2.0}, {("a", "b"): 3.0}),
        planner.predict(best),
        planner.only(["b"]),
        planner.propose(2),
    ]
    expected = [
        plan.singles(),
        plan.tell(told),
        plan.propose(3),
        plan.ended,
        plan.slowed({"b": 2.0}, {("a", "b"): 3.0}),
        plan.predict(best),
        plan.only(["b"]),
        plan.propose(2),
    ]
    wait([calls[-1]], PATIENCE_S)
    assert all(call.done() for call in calls)
    assert [call.result() for call in calls] == expected
    assert "no searcher" not in error_of(planner.predict((0,)))
    assert planner.singles().result(PATIENCE_S)
    assert psutil.Process(planner.pid).nice() == min(os.nice(0) + NICENESS, 19)
    loaded = Path(f"/proc/{planner.pid}/maps").read_text()
    assert "numpy" in loaded
    assert "tensorflow" not in loaded


@pytest.mark.workers
def test_the_calls_of_a_planner_whose_process_is_gone_fail_and_say_so(planner):
    psutil.Process(planner.pid).kill()
    assert "ended with code -9" in error_of(planner.singles())
    assert "ended with code -9" in error_of(planner.propose(3))


@pytest.mark.workers
def test_closing_waits_for_no_search_and_leaves_no_process_and_no_call_open(planner):
    process = psutil.Process(planner.pid)
    calls = [planner.propose(4), planner.propose(4)]
    planner.close()
    planner.close()
    assert not process.is_running()
    waiting = wait([*calls, planner.singles()], PATIENCE_S).not_done
    assert not waiting
    assert "was closed" in error_of(planner.singles())


def test_what_was_never_started_answers_nothing():
    planner = Planner(fork(), TOPOLOGY)
    assert "not started" in error_of(planner.singles())
    planner.close()


def test_a_process_that_cannot_be_started_is_an_answer(monkeypatch):
    monkeypatch.setattr(sys, "executable", "/nowhere/python")
    planner = Planner(fork(), TOPOLOGY)
    assert "could not be started (No such file" in error_of(planner.start())
    assert error_of(planner.singles())


ORPHAN = """
import os, sys, time
from placer.graph.topology import Device, Link, Topology
from placer.graph.op_graph import Op, OpGraph
from search.online.replan.planner_client import Planner

ops = tuple(Op(f"op{i}", cost_s={"cpu": 1.0}) for i in range(40))
planner = Planner(OpGraph("g", ops, ()), Topology((Device("a", "cpu"), Device("b", "cpu")), (Link("*", "*", 0, 1),)))
planner.start().result()
planner.propose(1000)
loaded = ["tensorflow" in sys.modules, "numba" in sys.modules]
child = os.fork() if sys.argv[1:] else 0
if sys.argv[1:] and child == 0:  # like a worker of a data loader: it holds the planner's pipes open
    sys.stdout = os.fdopen(os.dup(2), "w")
    os.close(1)
    time.sleep(600)  # longer than the test waits
print(planner.pid, child, *loaded, flush=True)
input()
"""


@pytest.mark.workers
@pytest.mark.parametrize("forks", [False, True])
def test_a_planner_dies_with_its_parent_in_the_middle_of_a_search(forks):
    """And beside the training it costs no import of what a search needs."""
    command = [sys.executable, "-c", ORPHAN, *(["forks"] if forks else [])]
    parent = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    with parent:
        pid, child, *loaded = parent.stdout.readline().split()
        orphan = psutil.Process(int(pid))
        parent.kill()
    try:
        assert loaded == ["False", "False"] and bool(int(child)) == forks
        assert not still_running([orphan])
    finally:
        if forks:
            psutil.Process(int(child)).kill()
