"""Signals: which of them cuts short what is under way, which is only noted, and which is passed over."""

from __future__ import annotations

import signal
import threading
from signal import SIGHUP, SIGINT, SIGTERM

import pytest

from experiments.jobs import interrupt
from experiments.jobs.interrupt import SIGNALS, heard, interruptible
from placer.devices.workers import deadline

pytestmark = pytest.mark.usefixtures("ctrl_c_interrupts")


def come(*numbers):
    """Send this process signals: whether each raised KeyboardInterrupt."""
    raised = []
    for number in numbers:
        try:
            signal.raise_signal(number)
            raised.append(False)
        except KeyboardInterrupt:
            raised.append(True)
    return raised


@pytest.mark.parametrize(
    ("noted", "numbers", "raised", "insists"),
    [
        ((), (SIGINT,), [True], False),
        ((), (SIGTERM,), [True], False),
        ((), (SIGHUP,), [True], False),
        ((), (SIGINT, SIGINT), [True, True], True),
        ((), (SIGTERM, SIGTERM, SIGHUP), [True, False, False], False),  # as `timeout` and service managers send them
        ((), (SIGTERM, SIGINT), [True, True], True),
        ((), (SIGINT, SIGTERM), [True, True], False),
        ((SIGINT,), (SIGINT, SIGINT), [False, True], True),
        ((SIGINT,), (SIGINT, SIGTERM, SIGTERM), [False, True, False], False),
        (SIGNALS, (SIGTERM, SIGHUP), [False, False], False),
        (SIGNALS, (SIGINT, SIGTERM, SIGINT), [False, False, True], True),
    ],
)
def test_what_signals_do(noted, numbers, raised, insists):
    with heard() as signals:
        signals.note(noted)
        assert come(*numbers) == raised
        assert signals.insists == insists
        assert signals.pressed()
        assert signals.numbers == list(numbers)


class Dying:
    """Its destructor is where the signal comes. Python drops what a destructor raises."""

    def __init__(self, number):
        self.number = number

    def __del__(self):
        signal.raise_signal(self.number)


@pytest.mark.parametrize("number", SIGNALS)
def test_a_signal_in_a_destructor_is_raised_after_it(capfd, number):
    with heard() as signals:
        with pytest.raises(KeyboardInterrupt):
            dying = Dying(number)
            del dying
            threading.Event().wait(60)
        assert signals.numbers == [number] and not signals.insists
    assert not any(capfd.readouterr())


@pytest.fixture
def later(monkeypatch):
    """The moment until a signal is raised again is longer than any test, so that a busy machine cannot use it up."""
    monkeypatch.setattr(interrupt, "AGAIN_S", 3600.0)


def test_a_signal_that_is_noted_by_the_time_that_it_is_raised_again_is_not_raised(later):
    with heard() as signals:
        dying = Dying(SIGINT)
        del dying
        signals.note(SIGNALS)
        signals._again.function(*signals._again.args)  # the moment is over
        assert signals._again is None
        assert signals.pressed() and signals.numbers == [SIGINT]


def test_a_destructors_own_error_is_reported_as_before(monkeypatch):
    reported = []
    monkeypatch.setattr("sys.unraisablehook", reported.append)
    with heard():
        dying = Dying(None)
        del dying
    assert [dropped.exc_type for dropped in reported] == [TypeError]


def test_a_signal_in_a_destructor_at_the_very_end_is_not_sent_to_whoever_comes_later(later):
    with heard() as signals:
        dying = Dying(SIGTERM)
        del dying
        again = signals._again
    assert signals.numbers == [SIGTERM]
    assert again.finished.is_set() and not again.is_alive()


def test_within_a_block_signals_are_heard_once_and_handlers_come_back():
    before = [signal.getsignal(number) for number in SIGNALS]
    with heard() as outer:
        with interruptible() as pressed:
            assert come(SIGINT) == [False]
            assert pressed() and outer.pressed()
        with heard() as inner:
            assert inner is outer and inner.noted == frozenset()
    assert [signal.getsignal(number) for number in SIGNALS] == before


def test_what_is_noted_is_said(capfd):
    with interruptible():
        come(SIGINT)
    with interruptible(quick=True):
        come(SIGTERM)
    said = capfd.readouterr().err.split("\n")
    assert [line for line in said if line] == [
        "interrupted: finishing what is under way, then the report; press again to stop at once",
        "ended by SIGTERM: finishing what is under way, then the report; press Ctrl-C to stop at once",
    ]


def test_what_is_ignored_or_handled_already_stays_so():
    """nohup ignores SIGHUP, and a script's background job Ctrl-C."""
    handlers = {SIGHUP: signal.SIG_IGN, SIGINT: signal.SIG_IGN, SIGTERM: lambda *_: None}
    before = {number: signal.signal(number, handler) for number, handler in handlers.items()}
    try:
        with heard() as signals:
            assert come(*handlers) == [False, False, False]
        assert not signals.pressed()
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def test_in_another_thread_nothing_is_heard():
    found = []

    def hear():
        with interruptible() as pressed:
            found.append((pressed(), signal.getsignal(SIGINT)))

    thread = threading.Thread(target=hear)
    thread.start()
    thread.join()
    assert found == [(False, signal.default_int_handler)]


def test_a_call_is_given_time_only_while_ctrl_c_is_a_request():
    assert not deadline._is_patient()
    with heard():
        assert not deadline._is_patient()
        with interruptible():
            assert deadline._is_patient()
            come(SIGINT)
            assert not deadline._is_patient()
