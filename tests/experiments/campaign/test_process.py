"""The process in which a case is measured, from the other end of its pipe."""

from multiprocessing import Pipe
from types import SimpleNamespace

import pytest

from experiments.campaign.measured.process import DONE, LOST, CaseProcess, ProcessError


@pytest.fixture
def process():
    """(a case's process, the end of the pipe that it would read, what was done to it)"""
    mine, theirs = Pipe()
    done = []
    acts = {name: lambda *_, name=name: done.append(name) for name in ("join", "kill")}
    found = CaseProcess.__new__(CaseProcess)
    found._connection, found._process = mine, SimpleNamespace(exitcode=0, **acts)
    return found, theirs, done


def test_an_answer_within_the_limit_is_given(process):
    found, theirs, done = process
    theirs.send((DONE, 3))
    assert found.ask("measure", (0, 1), limit_s=60.0) == 3
    assert theirs.recv() == ("measure", ((0, 1),)) and done == []


def test_a_process_that_does_not_answer_is_killed_and_lost(process):
    found, _, done = process
    with pytest.raises(ProcessError, match="no answer within 0 s") as lost:
        found.ask("measure", (0, 1), limit_s=0.0)
    assert lost.value.reason == LOST and done == ["kill", "join"]
