"""An error amid a search: what was measured is handed back with the reason, and bugs are not hidden."""

from __future__ import annotations

import signal
from dataclasses import fields
from types import SimpleNamespace

import pytest
import tensorflow as tf

from experiments.cli.app import _what_ended
from experiments.jobs.interrupt import Signals
from experiments.jobs.search import compare, main_job
from experiments.jobs.search.compare import _Comparing
from experiments.jobs.search.comparison import Comparison
from experiments.jobs.search.finding import Finding, Progress, Trial
from experiments.jobs.search.job import Job
from experiments.jobs.search.main_job import _Search
from placer.devices.workers.deadline import DeviceLostError
from placer.errors import BadInputError, PlacerError
from placer.result import Failed, Measured

RAN = Trial("hybrid", SimpleNamespace(is_single=False), Measured(1.0))
SINGLE = Trial("single", SimpleNamespace(is_single=True), Measured(1.0))
FAILED = Trial("single", SimpleNamespace(is_single=True), Failed("memory"))
GONE = PlacerError("no finalist of towers runs any more; run the search again.")


def made_up(kind, **known):
    return kind(**{**dict.fromkeys((field.name for field in fields(kind)), None), **known})


def fails(error):
    def measure(*_):
        raise error

    return measure


@pytest.fixture(params=["search", "compare"])
def found(request, monkeypatch):
    """Returns what a search, or a comparison, hands back where an error comes after these trials."""

    def search(error, trials=(SINGLE, RAN)):
        monkeypatch.setattr(_Search, "_measure", fails(error))
        monkeypatch.setattr(main_job, "cut_short", lambda jobs, lost: made_up(Finding, lost=lost))
        return _Search(Signals(), None, False, None, [SimpleNamespace(trials=trials)]).found()

    def compare(error, trials=(SINGLE, RAN)):
        monkeypatch.setattr(_Comparing, "_measured", fails(error))
        comparing = _Comparing(None, Signals(), None, SimpleNamespace(trials=trials))
        comparing.contest = SimpleNamespace(cut_short=lambda lost: made_up(Comparison, lost=lost))
        return comparing.found()

    return {"search": search, "compare": compare}[request.param]


@pytest.mark.parametrize(
    ("error", "said", "raised"),
    [
        (GONE, str(GONE), PlacerError),
        (DeviceLostError("worker:1 was lost"), "worker:1 was lost", PlacerError),
        (tf.errors.UnavailableError(None, None, "Socket closed\nand more"), "TensorFlow failed: Socket closed",
         PlacerError),
        (KeyError("conv1"), "Placer failed (KeyError: 'conv1').", KeyError),
        (MemoryError(), "Placer failed (MemoryError).", MemoryError),
    ],
)  # fmt: skip
def test_whatever_ends_it_what_was_measured_is_handed_back(found, error, said, raised):
    result = found(error)
    assert result.lost == said
    (told,) = _what_ended(result)
    assert type(told) is raised and (raised is PlacerError or told is error)


@pytest.mark.parametrize("noted", [True, False])
def test_an_error_that_a_signal_may_have_become_shows_no_traceback(found, monkeypatch, noted):
    signals = Signals()
    signals.numbers, signals.was_said = [signal.SIGTERM], noted
    monkeypatch.setitem(globals(), "Signals", lambda: signals)
    (told,) = _what_ended(found(RuntimeError("KeyboardInterrupt in C++")))
    assert type(told) is (RuntimeError if noted else PlacerError)


def test_before_a_searcher_is_asked_a_comparison_hands_back_the_single_devices(monkeypatch):
    def contest(job, settings, pressed):
        return SimpleNamespace(cut_short=lambda lost: made_up(Comparison, lost=lost, measured=job.trials))

    monkeypatch.setattr(compare, "Contest", contest)
    monkeypatch.setattr(_Comparing, "_measured", fails(DeviceLostError("worker:1 was lost")))
    found = _Comparing(None, Signals(), None, SimpleNamespace(trials=[SINGLE, FAILED])).found()
    assert (found.lost, found.measured) == ("worker:1 was lost", [SINGLE, FAILED])


@pytest.mark.parametrize("trials", [(), (FAILED,)])
def test_if_nothing_ran_the_error_is_all_there_is(found, trials):
    with pytest.raises(KeyError):
        found(KeyError("conv1"), trials)


def test_a_refusal_right_after_the_single_devices_is_one_line_and_a_later_one_keeps_its_exit_code(monkeypatch):
    """As of a plan of splits that cannot be carried out."""
    monkeypatch.setattr(_Search, "_measure", fails(BadInputError("no axis")))
    monkeypatch.setattr(main_job, "cut_short", lambda jobs, lost: made_up(Finding, lost=lost))
    with pytest.raises(BadInputError):
        _Search(Signals(), None, False, None, [SimpleNamespace(trials=[SINGLE, SINGLE])]).found()
    result = _Search(Signals(), None, False, None, [SimpleNamespace(trials=[SINGLE, RAN])]).found()
    assert [error.exit_code for error in _what_ended(result)] == [2]


def test_what_did_not_get_into_the_store_is_told_too():
    lines = [
        str(error) for error in _what_ended(made_up(Finding, unkept="the disk is full.", lost="a worker is lost."))
    ]
    assert lines == ["the disk is full.", "a worker is lost."]
    assert _what_ended(made_up(Finding, unkept="", lost="")) == []


def test_a_store_that_cannot_be_read_ends_no_search():
    """Its folder went away with the network, say, in the middle."""
    job, said = object.__new__(Job), []
    store = SimpleNamespace(find=fails(PlacerError("the store runs.sqlite cannot be read: disk I/O error.")))
    job.store, job.anchor_s, job._anchor, job.unkept = store, 1.0, "", ""
    job.settings, job.progress = SimpleNamespace(schedule="rank"), Progress()
    job.progress.phase = said.append
    assert job._stored(None) is None and job.store is None
    assert said == [job.unkept] and job.unkept.startswith("the store runs.sqlite cannot be read")
    assert job._stored(None) is None and len(said) == 1
