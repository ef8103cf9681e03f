"""A connection to this process's own devices is made once, and nothing of it can get lost."""

from __future__ import annotations

import subprocess
import sys
from contextlib import nullcontext
from types import SimpleNamespace

import pytest
import tensorflow as tf

from placer.errors import PlacerError
from placer.train.connection import AGAIN_S, BY_GRPC, MOST_AGAIN, OTHERS_S, UNREAD, Connection


def test_devices_of_this_process_are_joined_once_and_never_lost(two_cpus):
    connection = Connection(None, False)
    assert not connection.is_joined and not connection.joins_workers and connection.generation == 0
    with pytest.raises(PlacerError):
        _ = connection.whole
    connection.prepare()
    devices = connection.join()
    assert connection.join() is devices is connection.whole is connection.devices
    assert connection.generation == 1 and not connection.fragile and not connection.workers
    assert connection.lost() == () and not connection.back()
    assert connection.lost_by(tf.errors.UnavailableError(None, None, "gone")) is None
    connection.close()


@pytest.mark.parametrize(("spec", "joins"), [("workers:2", True), ("host:1,host:2", True), ("cpus:2", False)])
def test_only_other_processes_are_joined(spec, joins):
    assert Connection(spec, False).joins_workers == joins


@pytest.mark.parametrize(
    "error",
    [
        tf.errors.InternalError(None, None, f"{UNREAD} Additional {BY_GRPC} from remote target"),
        tf.errors.UnavailableError(None, None, f"recvmsg:Connection reset by peer Additional {BY_GRPC}"),
    ],
)
def test_a_call_that_did_not_reach_a_worker_is_made_again_but_not_for_ever(error):
    now = [0.0]

    def clock():
        now[0] += 1.0
        return now[0]

    connection = Connection("host:1,host:2", False, clock)
    connection._whole = connection.devices = SimpleNamespace(addresses={"worker:0": "host:1"}, lost=lambda: ())
    assert [connection.lost_by(error) for _ in range(MOST_AGAIN + 1)] == [()] * MOST_AGAIN + [None]
    now[0] += AGAIN_S
    assert connection.lost_by(error) == ()
    assert connection.lost_by(tf.errors.InternalError(None, None, f"a kernel failed Additional {BY_GRPC}")) is None
    assert connection.lost_by(tf.errors.UnavailableError(None, None, "the step's own")) is None


class Reconnecting:
    """Brings devices back: those of `names` are away, and of these `given_up` for good."""

    def __init__(self, *names):
        self.names, self.given_up = names, {}

    def away(self):
        return self.names


def missing_two(monkeypatch):
    """A connection that misses two workers of three, the time, what brings those back, and what was joined since."""
    now, joined, reconnecting = [0.0], [], []

    def reconnect(names):
        reconnecting.append(Reconnecting(*names))
        return reconnecting[-1]

    def joins(left):
        joined.append(left)
        return f"all but {left}"

    monkeypatch.setattr("placer.train.connection.renew_all", lambda: None)
    connection = Connection("host:1,host:2,host:3", False, lambda: now[0])
    connection.devices = connection._whole = SimpleNamespace(
        lost=lambda silent_s=0.0: (),
        without=joins,
        join_all=lambda: joins(()),
        reconnect=reconnect,
        addresses={f"worker:{task}": f"host:{task + 1}" for task in range(3)},
    )
    connection.go_on_without(["worker:1", "worker:2"])
    assert joined.pop() == ("worker:1", "worker:2") and connection.back() == ()
    return connection, now, reconnecting, joined


def joins_the_second_time(whole, lost):
    """The first time, one of the devices `lost` does not answer; returns what is left out each time."""
    tried = []

    def without(names):
        tried.append(names)
        if len(tried) == 1:
            raise PlacerError("no worker answers")
        return "those left"

    whole.without, whole.lost = without, lambda silent_s=0.0: lost
    return tried


def test_a_device_that_is_back_waits_a_while_for_others_and_then_is_joined_without_them(monkeypatch):
    connection, now, (reconnecting,), joined = missing_two(monkeypatch)
    reconnecting.names = ("worker:2",)
    assert connection.back() == ()
    now[0] = OTHERS_S
    assert connection.back() == ("worker:1",)
    connection.rejoin()
    assert joined == [("worker:2",)] and connection.missing == ("worker:2",) and connection.back() == ()
    now[0] += 2 * OTHERS_S
    assert connection.back() == ()
    reconnecting.names = ()
    assert connection.back() == ("worker:2",)
    connection.rejoin()
    assert joined[1:] == [()] and connection.missing == connection.back() == ()


def test_devices_that_come_back_soon_after_one_another_are_joined_at_once(monkeypatch):
    connection, now, (reconnecting,), joined = missing_two(monkeypatch)
    reconnecting.names = ("worker:1",)
    assert connection.back() == ()
    now[0], reconnecting.names = OTHERS_S / 2, ()
    assert connection.back() == ("worker:1", "worker:2")
    connection.rejoin()
    assert joined == [()]


def test_nobody_waits_for_a_device_that_is_given_up(monkeypatch):
    connection, _, (reconnecting,), joined = missing_two(monkeypatch)
    reconnecting.names, reconnecting.given_up = ("worker:2",), {"worker:2": "it does not start"}
    assert connection.back() == ("worker:1",) and connection.given_up == {"worker:2": "it does not start"}
    connection.rejoin()
    assert joined == [("worker:2",)] and connection.given_up == {"worker:2": "it does not start"}


def test_a_device_that_was_back_and_is_gone_again_is_brought_back_once_more(monkeypatch):
    connection, now, reconnecting, _ = missing_two(monkeypatch)
    reconnecting[0].names = ("worker:2",)
    connection.back()
    now[0] = OTHERS_S
    assert connection.back()
    tried = joins_the_second_time(connection.whole, ("worker:1", "worker:2"))
    connection.rejoin()
    assert tried == [("worker:2",), ("worker:2", "worker:1")] and connection.devices == "those left"
    assert connection.missing == ("worker:2", "worker:1") and reconnecting[1].names == ("worker:1",)


def test_what_is_lost_while_others_are_left_out_is_brought_back_too(monkeypatch):
    connection, _, reconnecting, _ = missing_two(monkeypatch)
    tried = joins_the_second_time(connection.whole, ("worker:0", "worker:1"))
    connection.missing, connection._reconnections = (), []
    connection.go_on_without(["worker:1"])
    assert tried == [("worker:1",), ("worker:1", "worker:0")] and connection.devices == "those left"
    assert connection.missing == ("worker:1", "worker:0")
    assert [one.names for one in reconnecting[1:]] == [("worker:1",), ("worker:0",)]


def left_and_joined(monkeypatch):
    """A connection to a worker that is joined, and with it all that TensorFlow would do."""
    module, tasks = "placer.train.connection", {0: "host:1"}
    monkeypatch.setattr(f"{module}.refusal", lambda done: None)
    monkeypatch.setattr(f"{module}.leave_living", tasks.clear)
    monkeypatch.setattr(f"{module}.renew_all", lambda: None)
    connection = Connection("host:1", False)
    connection._whole = connection.devices = SimpleNamespace(
        addresses={"worker:0": "host:1"}, join_all=lambda: tasks.update({0: "host:1"}) or connection._whole
    )
    return connection, tasks


def test_devices_that_were_left_very_often_stay_joined(monkeypatch):
    monkeypatch.setattr("placer.train.connection.MOST_LEAVES", 3)
    connection, tasks = left_and_joined(monkeypatch)
    for _ in range(3):
        assert connection.go_away() is None and not tasks and not connection.fragile
        connection.join()
    why, generation = connection.go_away(), connection.generation
    assert why is not None and "left 3 times" in why
    assert connection.is_joined and connection.fragile and tasks
    assert connection.join() is connection.whole and connection.generation == generation


def test_devices_are_joined_anew_as_often_as_they_may_be_left(monkeypatch):
    monkeypatch.setattr("placer.train.connection.MOST_LEAVES", 3)
    connection, tasks = left_and_joined(monkeypatch)
    for generation in range(1, 4):
        assert connection.why_stay() is None
        connection.join_anew()
        assert connection.generation == generation and tasks and connection.is_joined and connection.missing == ()
    why = connection.why_stay()
    assert why is not None and "left 3 times" in why


def test_where_leaving_them_fails_devices_are_joined_all_the_same(monkeypatch):
    connection, tasks = left_and_joined(monkeypatch)

    def leave_living():
        tasks.clear()
        raise tf.errors.UnavailableError(None, None, "worker:0 is gone")

    monkeypatch.setattr("placer.train.connection.leave_living", leave_living)
    connection.join_anew()
    assert tasks and connection.generation == 1


def test_devices_that_are_left_while_one_is_lost_are_missed_no_more(monkeypatch):
    connection, _ = left_and_joined(monkeypatch)
    connection.devices, connection.missing = None, ("worker:0",)
    connection._reconnections = [Reconnecting()]
    assert connection.back() == ("worker:0",) and connection.go_away() is None
    for _ in range(2):
        assert connection.missing == () and not connection.back() and connection.devices is connection.whole
        connection.join()


@pytest.mark.parametrize("was_joined", [False, True])
@pytest.mark.parametrize("raised", [PlacerError("worker:0 does not answer."), KeyboardInterrupt()])
@pytest.mark.parametrize("connects", [False, True])
def test_a_join_that_fails_after_tensorflow_has_connected_leaves_the_workers(monkeypatch, connects, raised, was_joined):
    done, tasks, times = [], {}, [3]

    def join(*_, **__):
        if connects:
            times[0] += 1
            tasks[0] = "host:1"
        raise raised

    module = "placer.train.connection"
    monkeypatch.setattr(f"{module}.open_devices", join)
    monkeypatch.setattr(f"{module}.refusal", lambda done: None)
    monkeypatch.setattr(f"{module}.times_connected", lambda: times[0])
    monkeypatch.setattr("placer.tf_internals.devices.joined_tasks", lambda: tasks)
    monkeypatch.setattr("placer.devices.joining.connect", lambda cluster: done.append(cluster.as_dict()))
    monkeypatch.setattr(f"{module}.renew_all", lambda: done.append("renewed"))
    connection = Connection("host:1", False)
    if was_joined:
        connection._whole = SimpleNamespace(addresses={"worker:0": "host:1"}, join_all=join)
        connection.is_away = True
    with pytest.raises(type(raised)):
        connection.join()
    assert done == ([{}, "renewed"] if connects else [])
    assert not connection.is_joined and not connection.fragile and connection.devices is None


# One process for each, for workers can be joined only there.
JOINS_IN_VAIN = """
import faulthandler, os, signal, sys, time
faulthandler.dump_traceback_later(800, exit=True)
import tensorflow as tf
from placer.devices import joining
from placer.devices.workers.worker_info import WorkerInfo
from placer.devices.workers.workers import start_workers
from placer.errors import PlacerError
from placer.train.connection import Connection

joining.JOIN_TIMEOUT_S = 3.0
workers, asked = start_workers(1), joining._info

def other_version(task):
    return WorkerInfo("1.0.0", 1)

def dies(task):
    workers.processes[0].kill(), workers.processes[0].wait()
    return asked(task)

number = tf.Variable(0)
compiled = tf.function(lambda: number.assign_add(10))
compiled()
for joining._info in (other_version, dies):
    connection = Connection(workers.addresses[0], False)
    try:
        connection.join()
        raise SystemExit("joined")
    except PlacerError as error:
        print(error, file=sys.stderr)
    number.assign(1)
    compiled()
    assert number.numpy() == 11, number.numpy()
    connection.close()
print("kept")
"""


@pytest.mark.slow
@pytest.mark.workers
def test_variables_can_be_written_after_workers_were_joined_in_vain():
    ran = subprocess.run([sys.executable, "-c", JOINS_IN_VAIN], capture_output=True, text=True, timeout=900)
    assert ran.stdout.endswith("kept\n"), ran.stdout + ran.stderr[-5000:]


@pytest.mark.parametrize("raised", [PlacerError("worker:1 was lost."), KeyboardInterrupt()])
def test_joining_again_in_vain_voids_all_as_joining_does_and_brings_what_was_lost_back_once_more(monkeypatch, raised):
    def join_all():
        raise raised

    renewed, asked = [], []
    monkeypatch.setattr("placer.train.connection.renew_all", lambda: renewed.append(connection.generation))
    connection = Connection("host:1,host:2", False)
    connection._whole = SimpleNamespace(
        addresses={"worker:0": "host:1", "worker:1": "host:2"}, join_all=join_all, lost=lambda: (),
        without=lambda names: f"without {names}", reconnect=lambda names: asked.append(names) or SimpleNamespace(),
    )  # fmt: skip
    connection.missing, connection.generation = ("worker:1",), 7
    with pytest.raises(KeyboardInterrupt) if isinstance(raised, KeyboardInterrupt) else nullcontext():
        connection.rejoin()
    assert (connection.generation, renewed) == (8, [8]) and connection.devices == "without ('worker:1',)"
    assert connection.missing == ("worker:1",) and asked == [["worker:1"]] and len(connection._reconnections) == 1


def test_where_nothing_can_be_joined_though_all_answer_all_are_brought_back(monkeypatch):
    """As where a network flaps while a call that did not reach a worker is recovered from."""
    connection, _, reconnecting, _ = missing_two(monkeypatch)

    def without(missing):
        raise PlacerError("it flaps.")

    connection.whole.without, connection.whole.lost = without, lambda silent_s=0.0: ()
    connection.missing, connection._reconnections = (), []
    connection.go_on_without(())
    assert connection.devices is None and set(connection.missing) == set(connection.whole.addresses)
    assert set(reconnecting[-1].names) == set(connection.missing)


def test_workers_that_ended_before_they_were_joined_are_started_again_and_a_failed_join_leaves_none(monkeypatch):
    connection, done = Connection("workers:2", False), []
    connection.workers = SimpleNamespace(
        restart_ended=lambda: done.append("restarted"), close=lambda: done.append("closed"), processes=[]
    )

    def join(*_, **__):
        raise PlacerError("they do not answer.")

    monkeypatch.setattr("placer.train.connection.open_devices", join)
    monkeypatch.setattr("placer.train.connection.refusal", lambda done: None)
    with pytest.raises(PlacerError, match="do not answer"):
        connection.join()
    assert done == ["restarted", "closed"] and connection.workers is None
