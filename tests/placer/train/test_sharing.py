"""Who shares a session, and when its devices are left."""

from __future__ import annotations

import pytest

from placer.errors import BadInputError
from placer.train.connection import Connection
from placer.train.device_session import DeviceSession


@pytest.fixture
def closed(monkeypatch):
    """Sessions of workers that are joined, as far as anybody asks; the specs of those that were closed."""
    found: list[str | None] = []
    monkeypatch.setattr(DeviceSession, "_open", {})
    monkeypatch.setattr(Connection, "leaves", property(lambda self: self.spec is not None))
    monkeypatch.setattr(Connection, "close", lambda self: found.append(self.spec))
    return found


class Step:
    """As much of a live step as a session asks of one that leaves; like one, it is in a cycle of references."""

    def __init__(self):
        self.uses, self.variables, self.itself = [], [], self


def joined_by(session):
    member = Step()
    return member, session.enter(member)


def dropped(session, entry):
    session.dropped(entry)
    session.end_if_unused()


def test_workers_are_left_by_the_programs_own_thread(closed):
    """Another one would give variables new storage while the program trains them."""
    session = DeviceSession.of("workers:2", False)
    _, entry = joined_by(session)
    dropped(session, entry)
    assert closed == []
    other = DeviceSession.of("workers:3", False)
    assert closed == ["workers:2"] and other.members == []
    member, _ = joined_by(other)
    other.leave(member)
    assert closed == ["workers:2", "workers:3"] and not DeviceSession._open


def test_devices_of_this_process_are_left_by_any_thread(closed):
    session = DeviceSession.of(None, False)
    _, entry = joined_by(session)
    dropped(session, entry)
    assert closed == [None] and not DeviceSession._open


def test_a_session_that_another_step_has_found_meanwhile_goes_on(closed):
    session = DeviceSession.of("workers:2", False)
    _, entry = joined_by(session)
    found = DeviceSession.of("workers:2", False)
    session.dropped(entry)
    other, _ = joined_by(found)
    session.end_if_unused()
    with pytest.raises(BadInputError, match="has joined 'workers:2'"):
        DeviceSession.of("workers:3", False)
    assert closed == [] and found.members == [other]
