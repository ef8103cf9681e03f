"""The guard, looked at poll by poll: which calls it ends, and which it leaves alone. Time is a parameter."""

from __future__ import annotations

import mmap
import os
import signal
import subprocess
import sys
import time

import pytest

from placer.devices.workers import guard
from placer.devices.workers.guard import (
    CALL,
    GIVE_UP,
    GONE,
    INTERRUPTED,
    OVERDUE,
    PID,
    PIDS_AT,
    SHARED_BYTES,
    STOPPED,
    TERMINATED,
    VERDICT,
    VERDICT_AT,
    WAIT,
    WAITS_AT,
    WATCHED_BYTES,
    Guard,
    WorkerGuard,
    look,
)


def sleeping():
    """A process that sleeps by now: the guard waits for one that still wants a core, however late it is."""
    process = subprocess.Popen(["sleep", "600"])
    while look(process.pid).state != "S":
        time.sleep(0.01)
    return process


class Scene:
    """A guard of this process with two workers that only sleep, and a call that may take `limit_s`."""

    def __init__(self, limit_s, patient=False, loose=False, workers=2):
        self.processes = [sleeping() for _ in range(workers)]
        self.told, self.tell = os.pipe()
        self.shared = mmap.mmap(-1, SHARED_BYTES)
        CALL.pack_into(self.shared, 0, 1.0, limit_s, patient, loose)
        self.guard = Guard(self.shared, os.getpid(), [process.pid for process in self.processes], self.tell)

    def polls(self, seconds, interrupts=0, terminations=0):
        """Poll once a second."""
        for second in range(seconds):
            self.guard.poll(1.0, *((interrupts, terminations) if second == 0 else (0, 0)))

    @property
    def verdict(self):
        return VERDICT.unpack_from(self.shared, VERDICT_AT)

    def end(self):
        for process in self.processes:
            process.kill()
            process.wait()
        os.close(self.told)
        os.close(self.tell)


@pytest.fixture
def scene():
    made = []

    def make(*args, **named):
        made.append(Scene(*args, **named))
        return made[-1]

    yield make
    for one in made:
        one.end()


def stop(process):
    process.send_signal(signal.SIGSTOP)
    while look(process.pid).state != "T":
        time.sleep(0.01)


def test_a_call_within_its_time_is_left_alone_and_then_all_workers_end(scene):
    s = scene(limit_s=20.0)
    s.polls(20)
    assert s.verdict == (0, 0)
    assert all(process.poll() is None for process in s.processes)
    s.polls(1)
    assert s.verdict == (OVERDUE, 0)
    assert [process.wait(60) for process in s.processes] == [-signal.SIGKILL] * 2


def test_every_call_has_its_own_time_and_none_is_waited_for_between_calls(scene):
    s = scene(limit_s=20.0)
    s.polls(15)
    CALL.pack_into(s.shared, 0, 2.0, 20.0, False, False)
    s.polls(15)
    CALL.pack_into(s.shared, 0, 0.0, 0.0, False, False)
    s.polls(100)
    assert s.verdict == (0, 0)


def test_the_frozen_worker_is_named_and_ends_though_it_is_stopped(scene):
    s = scene(limit_s=5.0)
    stop(s.processes[1])
    s.polls(6)
    assert s.verdict == (OVERDUE, 0b10)
    assert s.processes[1].wait(60) == -signal.SIGKILL


def test_a_call_whose_processes_compute_is_slow_and_not_overdue(scene):
    s = scene(limit_s=5.0)
    begin_s, computed_s = time.process_time(), 0.0
    for second in range(20):
        computed_s += 2.0  # seconds of a core; the clock of the guard goes a hundred times as slow
        while time.process_time() - begin_s < computed_s / 100:
            pass
        s.guard.poll(0.01, 0)
        if second == 0:
            CALL.pack_into(s.shared, 0, 1.0, 0.05, False, False)
    assert s.verdict == (0, 0)
    s.polls(2)  # past ten times the deadline
    assert s.verdict[0] == OVERDUE


def test_of_what_is_done_with_open_devices_only_idle_time_counts(scene):
    s = scene(limit_s=20.0, loose=True)
    for _ in range(3):
        s.polls(15)
        begin_s = time.process_time()
        while time.process_time() - begin_s < 0.5:
            pass
    assert s.verdict == (0, 0)
    s.polls(25)
    assert s.verdict[0] == OVERDUE


def test_a_call_that_waits_for_a_worker_that_is_gone_ends_early(scene):
    s = scene(limit_s=300.0)
    s.processes[0].kill()
    s.processes[0].wait()
    s.polls(10)
    assert s.verdict == (0, 0)
    s.polls(2)
    assert s.verdict == (GONE, 0b01)
    assert s.processes[1].wait(60) == -signal.SIGKILL


@pytest.mark.parametrize(("patient", "presses", "ends"), [(False, 1, True), (True, 1, False), (True, 2, True)])
def test_ctrl_c_ends_a_call_in_seconds_unless_what_is_under_way_shall_be_finished(scene, patient, presses, ends):
    s = scene(limit_s=300.0, patient=patient)
    s.polls(5, interrupts=presses)
    assert s.verdict[0] == (INTERRUPTED if ends else 0)


@pytest.mark.parametrize("patient", [False, True])
def test_sigterm_ends_a_call_in_seconds_and_each_later_one(scene, patient):
    s = scene(limit_s=300.0, patient=patient)
    s.polls(1, terminations=1)
    CALL.pack_into(s.shared, 0, 2.0, 300.0, patient, False)
    s.polls(3)
    assert s.verdict[0] == 0
    s.polls(1)
    assert s.verdict[0] == TERMINATED


def test_sigterm_between_two_calls_counts(scene):
    s = scene(limit_s=300.0)
    CALL.pack_into(s.shared, 0, 0.0, 0.0, False, False)
    s.polls(1, terminations=1)
    CALL.pack_into(s.shared, 0, 2.0, 300.0, False, False)
    s.polls(5)
    assert s.verdict[0] == TERMINATED


def test_ctrl_c_ends_a_call_to_a_frozen_worker_even_where_it_is_patient(scene):
    s = scene(limit_s=300.0, patient=True)
    stop(s.processes[0])
    s.polls(5, interrupts=1)
    assert s.verdict == (INTERRUPTED, 0b01)


@pytest.mark.parametrize("patient", [False, True])
def test_ctrl_c_that_was_heard_before_the_call_ends_a_call_to_a_frozen_worker(scene, patient):
    s = scene(limit_s=300.0, patient=patient)
    s.polls(1, interrupts=1)
    stop(s.processes[0])
    CALL.pack_into(s.shared, 0, 2.0, 300.0, False, False)
    s.polls(5)
    assert s.verdict == (INTERRUPTED, 0b01)


def test_ctrl_c_between_two_calls_ends_the_next_one_to_a_frozen_worker(scene):
    s = scene(limit_s=300.0)
    CALL.pack_into(s.shared, 0, 0.0, 0.0, False, False)
    s.polls(1, interrupts=1)
    stop(s.processes[0])
    CALL.pack_into(s.shared, 0, 2.0, 300.0, False, False)
    s.polls(5)
    assert s.verdict == (INTERRUPTED, 0b01)


def test_a_request_to_finish_leaves_later_calls_their_time(scene):
    s = scene(limit_s=300.0, patient=True)
    s.polls(1)
    CALL.pack_into(s.shared, 0, 2.0, 300.0, False, False)  # Python heard it before the guard did
    s.polls(1, interrupts=1)
    CALL.pack_into(s.shared, 0, 3.0, 300.0, False, False)
    s.polls(60)
    assert s.verdict == (0, 0)
    s.polls(5, interrupts=1)
    assert s.verdict[0] == INTERRUPTED


def test_where_there_is_no_worker_to_end_the_process_is_told_to_give_up(scene):
    s = scene(limit_s=5.0, workers=0)
    s.polls(8)
    assert os.read(s.told, 1) == GIVE_UP


def test_a_process_that_came_later_with_the_same_number_is_not_ended(scene):
    s = scene(limit_s=5.0)
    s.guard.born[s.processes[0].pid] -= 1
    s.guard.kill_all()
    assert s.processes[1].wait(60) == -signal.SIGKILL
    assert s.processes[0].poll() is None


def test_the_guard_needs_nothing_of_ours():
    from placer.devices.workers import guard

    program = f"import runpy, sys; runpy.run_path({guard.__file__!r}); print(*sys.modules)"
    loaded = subprocess.run([sys.executable, "-I", "-S", "-c", program], capture_output=True, text=True, check=True)
    assert "placer" not in loaded.stdout.split()


def test_who_was_at_fault_first_stays_named_and_calls_after_it_are_soon_given_up(scene):
    s = scene(limit_s=5.0)
    stop(s.processes[1])
    s.polls(6)
    for process in s.processes:
        process.wait()
    CALL.pack_into(s.shared, 0, 2.0, 300.0, False, False)
    s.polls(12)
    assert s.verdict == (OVERDUE, 0b10)
    assert os.read(s.told, 1) == GIVE_UP


class Training:
    """A watch of a program and two workers that only sleep; one that is stopped may be so for 20 s."""

    def __init__(self):
        self.program = sleeping()
        self.processes = [sleeping() for _ in range(2)]
        self.shared = mmap.mmap(-1, WATCHED_BYTES)
        STOPPED.pack_into(self.shared, 0, 20.0)
        self.renew()
        self.watch = WorkerGuard(self.shared, self.program.pid)

    def renew(self):
        for i, process in enumerate(self.processes):
            PID.pack_into(self.shared, PIDS_AT + i * PID.size, process.pid)

    def waits(self, slot=0, limit_s=60.0, begun=1.0):
        WAIT.pack_into(self.shared, WAITS_AT + slot * WAIT.size, begun, limit_s)

    def polls(self, seconds, compute=False):
        """Poll once a second; compute: have this process use a fifth of a core meanwhile."""
        for _ in range(seconds):
            until_s = time.process_time() + 0.2
            while compute and time.process_time() < until_s:
                pass
            self.watch.poll(1.0)

    @property
    def alive(self):
        return [look(process.pid) is not None for process in self.processes]


@pytest.fixture
def training():
    found = Training()
    yield found
    for process in (found.program, *found.processes):
        process.kill()
        process.wait()


def test_of_a_training_the_frozen_worker_alone_is_ended_whoever_waits(training, capfd):
    stop(training.processes[1])
    training.polls(20)
    assert training.alive == [True, True]
    training.polls(1)
    assert training.processes[1].wait(60) == -signal.SIGKILL
    assert training.alive == [True, False]
    assert "placer: worker:1 was stopped for 20 s, so it was ended" in capfd.readouterr().err


def test_a_worker_that_is_stopped_for_a_while_goes_on(training):
    for _ in range(3):
        stop(training.processes[0])
        training.polls(15)
        training.processes[0].send_signal(signal.SIGCONT)
        while look(training.processes[0].pid).state == "T":
            time.sleep(0.01)
        training.polls(1)
    assert training.alive == [True, True]


def test_no_time_passes_while_the_training_itself_is_stopped(training):
    stop(training.program)
    stop(training.processes[0])
    training.waits(limit_s=5.0)
    training.polls(100)
    assert training.alive == [True, True]


def test_a_worker_that_was_started_again_is_watched(training):
    training.processes[0].kill()
    training.processes[0].wait()
    training.processes[0] = sleeping()
    training.renew()
    stop(training.processes[0])
    training.polls(21)
    assert training.processes[0].wait(60) == -signal.SIGKILL


def test_all_workers_end_where_a_call_is_overdue_and_nobody_computes(training, capfd):
    training.waits(slot=3, limit_s=60.0)
    training.polls(60)
    assert training.alive == [True, True]
    training.polls(2)
    assert [process.wait() for process in training.processes] == [-signal.SIGKILL] * 2
    assert "a call to workers did not end within 61 s" in capfd.readouterr().err


def test_a_call_of_a_training_that_computes_is_slow_and_not_overdue(training, monkeypatch):
    monkeypatch.setattr(guard, "_wants_core", lambda pid: False)
    training.watch.parent = os.getpid()
    training.waits(limit_s=3.0)
    training.polls(10, compute=True)
    assert training.alive == [True, True]


def test_a_call_is_not_overdue_where_somebody_waits_for_a_core(training):
    training.watch.parent = os.getpid()  # which runs
    training.waits(limit_s=20.0)
    training.polls(200)
    assert training.alive == [True, True]
    training.polls(5)  # past ten times the deadline
    assert training.processes[0].wait(60) == -signal.SIGKILL


def test_each_call_of_a_training_has_its_own_time(training):
    for call in range(5):
        training.waits(slot=call % 2, limit_s=60.0, begun=call + 1.0)
        training.waits(slot=1 - call % 2, begun=0.0)
        training.polls(50)
    training.waits(begun=0.0)
    training.polls(100)
    assert training.alive == [True, True]


def test_a_call_that_waits_though_a_worker_is_gone_ends_the_others(training):
    training.waits(limit_s=300.0)
    training.polls(20)
    training.processes[0].kill()
    training.processes[0].wait()
    training.polls(10)
    assert training.alive == [False, True]
    training.polls(2)
    assert training.processes[1].wait(60) == -signal.SIGKILL


def test_where_workers_run_elsewhere_it_is_only_said_once(capfd):
    shared = mmap.mmap(-1, WATCHED_BYTES)
    WAIT.pack_into(shared, WAITS_AT, 1.0, 1.0)
    watch = WorkerGuard(shared, os.getpid())
    for _ in range(30):
        watch.poll(1.0)
    assert capfd.readouterr().err.count("The training waits; end that worker's process where it runs") == 1
