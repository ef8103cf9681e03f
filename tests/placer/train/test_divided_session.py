"""A training whose variables are divided over workers outlives these: no step is lost, and no value differs."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

# One process, for workers can be joined only there.
STORY = """
import faulthandler, os, signal, sys, time
faulthandler.dump_traceback_later(1100, exit=True)
sys.path[:0] = [sys.argv[1], sys.argv[2]]
import keras, numpy as np
from conftest import Hand
from test_divided_step import apart, batch, divided_variables, made, plan_of, same, taken, values
from placer.train.device_session import DeviceSession

keras.config.set_floatx("float64"), keras.config.set_dtype_policy("float64")
STEPS = 30
alone, _, wanted = made()
expected = []
for i in range(STEPS):
    if i == 20:
        wanted[0].assign(0.5 * wanted[0])
    expected.append(taken(alone, i))

step, _, variables = made()
session = DeviceSession("workers:2", False)
session.sync_every = 4
hand, got = Hand(step, session=session), []
got = [taken(hand, i) for i in range(4)]
hand.place()
number = hand.live.divide(plan_of(hand.live, "columns"))
apart(hand)(number)
assert len(divided_variables(hand)) >= 6

def hit(*tasks):
    for task in tasks:
        os.kill(session.connection.workers.processes[task].pid, signal.SIGKILL)

def back():
    deadline = time.monotonic() + 600
    while session.missing or session.devices is None:
        if session.back():
            session.rejoin()
        assert time.monotonic() < deadline
        time.sleep(0.05)
    apart(hand, turn=1)(number)
    assert divided_variables(hand)

for i in range(4, STEPS):
    if i == 11:  # between two snapshots: steps are taken again on what is left, undivided
        hit(1)
    if i == 14:
        back()
    if i == 17:
        session.sync_every = 100  # so that what the next step writes is nowhere else
    if i == 18:  # noticed by a read
        lost = len(session.recovery.losses)
        hit(0)
        values(variables)
        assert len(session.recovery.losses) == lost + 1
        session.sync_every = 4
    if i == 20:
        variables[0].assign(0.5 * variables[0])
    if i == 22:
        back()
    if i == 26:  # all of them
        hit(0, 1)
    got.append(taken(hand, i))
same(got, expected)
assert session.devices is None and sum(loss.repeated for loss in session.recovery.losses) > 0
assert not any(loss.forgotten for loss in session.recovery.losses)
same(values(variables), values(wanted))
hand.close()
same(values(variables), values(wanted))
print("kept")
"""


@pytest.mark.slow
@pytest.mark.workers
def test_workers_killed_while_they_hold_parts_cost_no_step_and_no_value() -> None:
    here = Path(__file__).parent
    command = [sys.executable, "-c", STORY, str(here.parent), str(here)]
    ran = subprocess.run(command, env=dict(os.environ), capture_output=True, text=True, timeout=1200)
    assert ran.stdout.endswith("kept\n"), ran.stdout + ran.stderr[-5000:]
