"""Processes of benches: what they return, raise, print and leave behind."""

from __future__ import annotations

import gc
import os
import subprocess
import sys
import time
from functools import partial
from types import SimpleNamespace

import psutil
import pytest

from experiments import zoo
from experiments.benches.process import Caps, Measurer, alone, command_facts, facts_alone
from placer.errors import BadInputError, PlacerError
from tests.processes import still_running, words

pytestmark = pytest.mark.slow


def test_a_call_returns_or_raises_from_a_process_and_session_of_its_own():
    assert alone(os.getsid, 0) != os.getsid(0)
    with pytest.raises(BadInputError, match="no_such_net"):
        alone(zoo.load, "no_such_net")
    with pytest.raises(PlacerError, match="ended with code 3"):
        alone(os._exit, 3)


@pytest.mark.parametrize(
    ("call", "argument", "seconds", "expected"),
    [
        (time.sleep, 600, 0.5, {"failed": "it did not end within 0 s"}),
        (os._exit, 3, None, {"failed": "its process ended with code 3 and without a result"}),
        (int, "x", None, {"failed": "ValueError: invalid literal for int() with base 10: 'x'"}),
        (dict, [("figure", 1)], 300.0, {"figure": 1}),
    ],
)
def test_a_failure_is_a_fact(call, argument, seconds, expected):
    assert facts_alone(call, argument, seconds=seconds) == expected


def test_a_command_that_takes_too_long_is_a_fact():
    assert command_facts("search", "towers", seconds=0.1) == {"failed": "it did not end within 0 s"}


def test_a_command_ends_with_the_process_that_asked_even_where_that_is_killed():
    asking = "from experiments.benches.process import command_facts as ask; ask('compare', 'towers', seconds=600.0)"
    with subprocess.Popen([sys.executable, "-c", asking]) as process:
        ours, children = psutil.Process(process.pid), []
        while not children:
            children = [child for child in ours.children() if "compare" in words(child)]  # not what an import runs
            assert process.poll() is None
            time.sleep(0.05)
        process.kill()
    assert not still_running(children)


def test_what_a_call_prints_is_not_taken_for_the_benchmarks_facts(capfd):
    alone(print, "noise")
    said = capfd.readouterr()
    assert said.out == "" and "noise" in said.err


DOER = partial(SimpleNamespace, forget=gc.collect, facts=dict, sleep=time.sleep, die=os._exit, fail=int, eval=eval)


def test_a_process_answers_and_what_fails_or_dies_is_a_value_after_which_the_next_is_asked():
    with Measurer(DOER, Caps(batch=100)) as measurer:
        assert measurer.ask("facts", [("a", 1)]) == {"a": 1}
        failed = measurer.ask("fail", "x")
        assert failed["skipped"] == "failed" and failed["detail"].startswith("ValueError: invalid literal")
        died = measurer.ask("die", 3)
        assert died == {"skipped": "died", "detail": "the process ended with code 3"}
        assert measurer.ask("facts", [("b", 2)]) == {"b": 2}
        process = measurer.process
    assert not process.is_alive()


def test_what_a_measurer_prints_is_not_taken_for_the_benchmarks_facts(capfd):
    with Measurer(DOER, Caps()) as measurer:
        assert measurer.ask("eval", "print('noise', flush=True) or {}") == {}
    said = capfd.readouterr()
    assert said.out == "" and "noise" in said.err


def test_too_long_and_too_large_are_values_too():
    with Measurer(DOER, Caps(seconds=0.0)) as measurer:
        assert measurer.ask("sleep", 60)["skipped"] == "time"
    with Measurer(DOER, Caps()) as measurer:
        assert measurer.ask("sleep", 60, 0.5) == {"skipped": "time", "detail": "more than 0 s"}
    with Measurer(DOER, Caps(memory_bytes=1)) as measurer:
        assert measurer.ask("sleep", 60)["skipped"] == "memory"


def test_a_process_is_renewed_after_a_batch_and_leaves_the_environment_as_it_was():
    before = dict(os.environ)
    with Measurer(DOER, Caps(batch=2)) as measurer:
        measurer.ask("facts", [])
        first = measurer.process
        measurer.ask("facts", [])
        assert measurer.process is None and not first.is_alive()
        assert measurer.ask("facts", [("a", 1)]) == {"a": 1}
    assert dict(os.environ) == before
