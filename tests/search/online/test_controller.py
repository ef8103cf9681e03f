"""The controller on a simulated machine (`simulated`): its script as a whole; its phases are tested in `phases`."""

import subprocess
import sys

import numpy as np
import pytest

from placer.train.steps.modes import UNTOUCHED, Placed
from tests.search.online.simulated.machine import Machine
from tests.search.online.simulated.mappings import TOPOLOGY
from tests.search.online.simulated.training import SEEDS, Training, rejoined, settled


def test_two_thousand_steps_take_little_longer_than_under_the_best_mapping_from_the_start():
    """Starting, capturing and profiling take 5 s of the 200 s; builds slow down the steps beside them by half."""
    ratios = []
    for seed in SEEDS:
        machine = Machine(seed, stragglers=0.0)
        Training(machine).steps(2000)
        ratios.append(machine.clock.now_s / (2000 * machine.best_s()))
    assert np.median(ratios) < 1.05
    assert max(ratios) < 1.08


def test_when_the_planner_dies_training_goes_on_with_the_best_so_far():
    for dies_at_s in (5.0, 12.0, 18.0):
        machine = Machine(untouched_s=0.19)
        machine.planner.dies_at_s = dies_at_s
        training = Training(machine).steps(400)
        assert training.controller.narrator.phase == "steady"
        tried = [machine.mapping_s(t.op_devices) for t in training.controller.tried if t.op_devices]
        assert training.true_s <= 1.02 * min([*tried, 0.19])
        assert "the planner's process ended" in training.said("error")[0]
        assert machine.planner.closed == (training.controller.planner is None)


def test_a_planner_that_dies_later_ends_the_adapting_not_the_training():
    training, _ = settled(0, (2.0, 1.0), 1000)
    mode = training.mode
    training.machine.planner.dies_at_s = 0.0
    training.steps(200)
    assert training.mode is mode
    assert "the training goes on" in training.said("error")[0]


def test_every_decision_is_one_plain_sentence_with_numbers():
    training, _ = settled(0, (2.0, 1.0), 150)
    training.steps(300)
    for entry in training.journal.entries:
        assert entry.sentence.endswith(".")
        assert "\n" not in entry.sentence
        if entry.kind in ("moved", "alarm", "end", "measured"):
            assert any(c.isdigit() for c in entry.sentence)
            assert entry.numbers


# Going over to another signature.


@pytest.mark.parametrize("begun", ["searching", "steady"])
def test_a_program_that_went_over_to_another_signature_has_it_searched_from_the_start(begun):
    training = Training(Machine()).until(begun)
    before = [placed for placed in training.controller.trials.built if isinstance(placed, Placed)]
    training.script = training.controller.script_of_another()  # as AutoStep does
    training.machine.mode = next(training.script)
    assert training.machine.mode is UNTOUCHED
    assert all(placed.step.closed for placed in before)
    assert not training.controller.tried and not training.controller.step_s
    training.until("steady")
    assert training.true_s < 1.1 * training.machine.best_s()
    assert training.mode not in before
    assert "another signature" in training.said("start")[0]
    assert len(training.said("plan")) == 2


def test_devices_that_come_back_while_it_goes_over_do_not_bring_the_old_mapping_back():
    training = Training(Machine()).until("steady")
    training.script = training.controller.script_of_another()
    training.machine.mode = next(training.script)
    training.machine.planner.calls.clear()
    rejoined(training, TOPOLOGY.names)
    training.machine.mode = UNTOUCHED
    training.until("steady")
    assert training.machine.planner.calls[0] == "start"


def test_deciding_needs_no_tensorflow():
    code = "import search.online.controller, sys; sys.exit('tensorflow' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], timeout=300).returncode == 0
