"""From the first call on until the devices are joined: what is left alone, and says why, and what waits."""

from dataclasses import replace

import pytest

from placer.graph.op_graph import OpGraph
from placer.graph.topology import Topology
from placer.train.steps.modes import UNTOUCHED, Placed, Wanted
from search.online.replan.proposal import NoRoomError
from tests.search.online.simulated.machine import Machine
from tests.search.online.simulated.mappings import GRAPH, SINGLES, TOPOLOGY
from tests.search.online.simulated.training import Training, away


def test_a_step_that_is_left_alone_stays_untouched():
    machine = Machine()
    machine.left_alone = "it is compiled for XLA"
    training = Training(machine).steps(10)
    assert training.mode is UNTOUCHED
    assert training.said("alone") == ["step runs untouched: it is compiled for XLA."]


def test_a_step_with_one_device_is_left_alone_and_says_so_once():
    machine = Machine()
    machine.session.devices.topology = Topology(TOPOLOGY.devices[:1])
    training = Training(machine).until("left alone").steps(50)
    assert training.mode is UNTOUCHED
    assert machine.left_alone == "worker:0 is the only device here, so that there is nothing to place"
    assert training.said("alone") == [f"step runs untouched: {machine.left_alone}."]


def scarce(memory_bytes, held_bytes):
    """Workers with so much memory, and a step whose towers each hold so much in a variable."""
    machine = Machine()
    devices = tuple(replace(device, memory_bytes=memory_bytes) for device in TOPOLOGY.devices)
    machine.session.devices.topology = Topology(devices, TOPOLOGY.links)
    ops = tuple(replace(op, memory_bytes=held_bytes, devices=("cpu",)) if "/0" in op.name else op for op in GRAPH.ops)
    machine.capture = lambda: OpGraph(GRAPH.name, ops, GRAPH.edges)
    return machine


def test_a_step_whose_variables_fit_nowhere_is_left_alone_and_says_by_how_much():
    machine = scarce(1000, 700)
    training = Training(machine).until("left alone").steps(50)
    assert training.mode is UNTOUCHED and machine.planner.calls == []
    assert machine.left_alone.startswith("graph 'towers' needs 2100 memory_bytes and all devices together hold 1800")
    assert "300 too few" in machine.left_alone
    assert training.said("alone") == [f"step runs untouched: {machine.left_alone}."]


def test_a_step_whose_variables_fit_on_two_devices_is_searched():
    machine = scarce(1000, 400)
    training = Training(machine).until("steady")
    assert machine.left_alone is None and isinstance(training.mode, Placed)


def test_where_nothing_that_is_asked_fits_the_step_is_left_alone():
    machine = Machine()
    why = "no mapping that was asked fits into the devices' memory, as simulated; of the nearest, worker:0 lacks some"

    def nothing():
        raise NoRoomError(f"{why}.")

    machine.planner.singles = lambda: machine.planner._later("singles", 0.2, list)
    machine.planner.propose = lambda count, seconds=None: machine.planner._later("propose", 0.2, nothing)
    training = Training(machine)
    for _ in range(2000):
        training.steps(1)
        if machine.left_alone is not None:
            break
    assert machine.left_alone == why and training.mode is UNTOUCHED and not training.controller.tried


@pytest.mark.parametrize("script", ["script", "place"])
def test_a_step_that_starts_while_a_device_is_missing_waits_for_it(script):
    training = Training(Machine())
    if script == "place":
        training.script = training.controller.place(lambda: Wanted(SINGLES[1], (), "given"))
        next(training.script)
    away(training.machine, 300)
    training.steps(250)
    assert training.mode is UNTOUCHED and training.said("error") == []
    training.until("steady")
    assert isinstance(training.mode, Placed) and training.said("error") == []


def test_a_step_whose_capture_another_one_cancelled_captures_again():
    """As where another step goes on without a lost device, for which all work in the background is cancelled."""
    machine = Machine()
    background, cancelled = machine.background, []

    def once(work):
        future = background(work)
        if work.__name__ in ("prepare", "capture") and work.__name__ not in cancelled:
            cancelled.append(work.__name__)
            machine.thread.waiting.remove((future, work))
            future.cancel()
        return future

    machine.background = once
    machine.session.prepare = prepare
    training = Training(machine).until("steady")
    assert cancelled == ["prepare", "capture"] and training.said("error") == []


def prepare():
    pass
