"""Workers on other machines, of which one is cut off: the training goes on without it, and with it when it is back."""

from __future__ import annotations

import json

import pytest

from tests.experiments.benches.in_own_network import said

PROGRAM = """
import json, subprocess, sys, time
import psutil
from experiments.benches.own_network import cut_off
from experiments.benches.online.training import Training

LATE_S = 240
serve = [sys.executable, "-m", "placer", "worker", "--listen", "localhost:0", "--json"]
served = [subprocess.Popen(serve, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL) for _ in range(2)]
try:
    addresses = [json.loads(process.stdout.readline())["address"] for process in served]
    with Training("towers@2", ",".join(addresses), 4) as training:
        training.until_steady(LATE_S)
        session, start, begin_s = training.live.session, training.moment(), time.monotonic()

        def until(is_it):
            while not is_it() and time.monotonic() < begin_s + LATE_S:
                training.step()
                time.sleep(0.05)
            return is_it()

        cut = cut_off(psutil.Process(served[1].pid), 45)
        went_on = until(lambda: session.recovery.losses)
        lost = [loss.lost for loss in session.recovery.losses]
        cut.wait()
        came_back = until(lambda: not session.missing)
        training.steps(20)
        losses = training.losses[start.at :]
        same = losses == training.again(start, len(losses))
        print(json.dumps({"went_on": bool(went_on), "lost": lost, "came_back": came_back, "same": same}))
finally:
    for process in served:
        process.kill()
"""


@pytest.mark.nightly
@pytest.mark.workers
def test_a_training_goes_on_without_a_worker_that_is_cut_off_and_with_it_when_it_is_back():
    found = json.loads(said(PROGRAM, timeout_s=900.0, PLACER_DEADLINE_S="10")[-1])
    assert found == {"went_on": True, "lost": [["worker:1"]], "came_back": True, "same": True}
