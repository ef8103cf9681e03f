"""Deadlines of remote calls, with real processes that freeze."""

from __future__ import annotations

import os
import signal
import subprocess
import sys

import pytest
import tensorflow as tf

from placer.devices.workers import deadline
from placer.devices.workers.deadline import Deadlines, DeviceLostError, waiting
from placer.devices.workers.workers import Workers, start_workers
from placer.errors import BadInputError

# In a process of its own, because joining workers changes a process for good.
FROZEN = """
import os, signal, sys
from placer.devices.opening import open_devices, with_measured_links
from placer.devices.workers.deadline import DeviceLostError
from placer.devices.workers.workers import start_workers

def frozen(run, workers):
    os.kill(workers.processes[1].pid, signal.SIGSTOP)
    processes = list(workers.processes)
    try:
        run()
        said = ""
    except DeviceLostError as error:
        said = str(error)
    workers.close()
    assert all(process.poll() is not None for process in processes)
    return said

workers = start_workers(2)
said = frozen(lambda: open_devices("workers:2", workers=workers, deadlines=True), workers)
assert "worker:1 did not answer within 3 s while the devices were joined" in said, said

devices = open_devices("workers:2", links=False, deadlines=True)
said = frozen(lambda: with_measured_links(devices), devices.workers)
assert "worker:1 did not answer within 3 s while links were measured" in said, said
devices.close()

devices = open_devices("workers:2", links=False, deadlines=True)
assert frozen(devices.close, devices.workers) == ""

with open_devices("workers:2", deadlines=True) as devices:  # and this process can join others
    assert len(devices.topology.links) == 2
print("done")
"""


@pytest.fixture
def sleeper():
    process = subprocess.Popen(["sleep", "600"], text=True)
    yield process
    process.kill()
    process.wait()


@pytest.fixture
def deadlines(sleeper, monkeypatch):
    monkeypatch.setenv("PLACER_DEADLINE_S", "600")  # a call that is held up must not become one that does not answer
    monkeypatch.setattr(deadline, "NOTICE_S", 0.0)
    before = signal.set_wakeup_fd(-1)
    signal.set_wakeup_fd(before)
    kept = Deadlines(["worker:0"], Workers((1,), ((0,),), [sleeper]), lambda: lost)
    lost: list[str] = []
    kept.found = lost
    yield kept
    kept.close()
    kept.close()
    assert signal.set_wakeup_fd(before) == before


def test_a_guard_that_was_killed_leaves_nothing_behind(deadlines):
    kept = deadlines._shared_fd
    deadlines._guard.kill()
    deadlines._guard.wait()
    deadlines.close()  # the fixture sees that signals are told as before
    with pytest.raises(OSError, match="Bad file descriptor"):
        os.fstat(kept)


def test_without_deadlines_a_call_is_just_made():
    with waiting("nothing happened"):
        pass


def test_a_frozen_process_is_ended_and_named(deadlines, sleeper):
    deadlines.setting_s = 1.0
    said = "worker:0 did not answer within 1 s while steps were measured"
    with pytest.raises(DeviceLostError, match=said), deadlines.call("steps were measured", first=False):
        os.kill(sleeper.pid, signal.SIGSTOP)
        assert sleeper.wait() == -signal.SIGKILL
        raise tf.errors.UnavailableError(None, None, "Connection reset by peer")


def test_a_lost_device_is_named_and_other_errors_stay_what_they_are(deadlines):
    with pytest.raises(tf.errors.UnavailableError), deadlines.call("steps were measured", first=False):
        raise tf.errors.UnavailableError(None, None, "something else")
    deadlines.found.append("worker:0")
    with pytest.raises(tf.errors.InvalidArgumentError), deadlines.call("steps were measured", first=False):
        raise tf.errors.InvalidArgumentError(None, None, "the step's own")
    said = "worker:0 was lost while steps were measured"
    with pytest.raises(DeviceLostError, match=said), deadlines.call("steps were measured", first=False):
        raise tf.errors.UnavailableError(None, None, "Connection refused")


def test_what_killed_a_worker_is_said(deadlines, sleeper):
    said = r"worker:0 was lost while steps were measured \(ended by SIGKILL, as by the kernel where memory runs out\); "
    with pytest.raises(DeviceLostError, match=said), deadlines.call("steps were measured", first=False):
        sleeper.kill()
        sleeper.wait()
        deadlines.found.append("worker:0")
        raise tf.errors.UnavailableError(None, None, "Connection reset by peer")


def test_ctrl_c_within_an_error_of_tensorflows_is_ctrl_c(deadlines):
    with pytest.raises(KeyboardInterrupt), deadlines.call("steps were measured", first=False):
        raise RuntimeError("pybind11::error_already_set: ORIGINAL UnavailableError REPLACED BY KeyboardInterrupt")


def test_a_call_may_take_longer_where_such_a_call_did(deadlines):
    deadlines.longest_s["steps were measured"] = 100.0
    with deadlines.call("steps were measured", first=False):
        _, limit_s, *_ = deadline.guard.CALL.unpack_from(deadlines._shared, 0)
        assert limit_s == deadline.TIMES * 100.0
        with deadlines.call("links were measured", first=False):
            assert deadline.guard.CALL.unpack_from(deadlines._shared, 0)[1] == 600.0
        assert deadline.guard.CALL.unpack_from(deadlines._shared, 0)[1] == limit_s
    assert deadline.guard.CALL.unpack_from(deadlines._shared, 0)[0] == 0.0


@pytest.mark.parametrize("text", ["", "soon", "0", "-1", "nan", "inf"])
def test_a_setting_that_is_no_number_of_seconds_is_refused(monkeypatch, text):
    monkeypatch.setenv("PLACER_DEADLINE_S", text)
    for use in (lambda: Deadlines([], None, list), lambda: start_workers(1)):
        with pytest.raises(BadInputError, match=r"^PLACER_DEADLINE_S is"):
            use()


@pytest.mark.nightly
@pytest.mark.workers
def test_a_worker_that_freezes_while_it_is_joined_probed_or_left_holds_nothing_up():
    environment = {**os.environ, "PLACER_DEADLINE_S": "3"}
    ran = subprocess.run([sys.executable, "-c", FROZEN], env=environment, capture_output=True, text=True)
    assert ran.stdout == "done\n", ran.stderr
