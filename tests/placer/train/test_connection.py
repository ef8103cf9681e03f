"""A connection to this process's own devices is made once, and nothing of it can get lost."""

from __future__ import annotations

import pytest
import tensorflow as tf

from placer.errors import PlacerError
from placer.train.connection import Connection


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
