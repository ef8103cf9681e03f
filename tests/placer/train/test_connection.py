"""A connection to this process's own devices is made once, and nothing of it can get lost."""

from __future__ import annotations

from contextlib import nullcontext
from types import SimpleNamespace

import pytest
import tensorflow as tf

from placer.errors import PlacerError
from placer.train.connection import AGAIN_S, BY_GRPC, MOST_AGAIN, UNREAD, Connection


def test_devices_of_this_process_are_joined_once_and_never_lost(two_cpus):
    connection = Connection(None, False)
    assert not connection.is_joined and not connection.joins_workers and connection.generation == 0
    with pytest.raises(PlacerError):
        _ = connection.whole
    connection.prepare()
    devices = connection.join()
    assert connection.join() is devices is connection.whole is connection.devices
    assert connection.generation == 1 and not connection.fragile and not connection.workers
    assert connection.lost() == () and not connection.is_back()
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
