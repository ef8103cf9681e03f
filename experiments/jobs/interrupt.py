"""Ctrl-C, SIGTERM and SIGHUP: the work under way ends, and its results so far are handed back.

A signal raises KeyboardInterrupt, which cuts the work short. If the work checks `pressed` and soon ends by itself, or
must not be cut short, the first signal is only noted. A second Ctrl-C always ends everything at once. A second SIGTERM
does nothing, because `timeout` and service managers send it twice.
"""

from __future__ import annotations

import errno
import os
import signal
import sys
import termios
import threading
from collections.abc import Callable, Collection, Iterator
from contextlib import contextmanager, suppress
from types import FrameType

from placer.errors import PlacerError

CTRL_C = signal.SIGINT
WORDS = {
    int(CTRL_C): "interrupted",
    int(signal.SIGTERM): "ended by SIGTERM",
    int(signal.SIGHUP): "ended by SIGHUP",
}
SIGNALS = tuple(WORDS)
AGAIN_S = 0.02  # after which KeyboardInterrupt is raised again
DOING = "finishing what is under way, then the report"  # said of a noted signal
EXIT = 128  # the exit code is this plus the signal's number, as in shells


class EndedError(PlacerError):
    """A signal came before there was anything to hand back."""

    exit_code = EXIT + CTRL_C


class Signals:
    """The signals that came since `heard` began; when called, it is their handler."""

    def __init__(self) -> None:
        self.numbers: list[int] = []  # in the order in which they came
        self.noted: frozenset[int] = frozenset()  # signals that do not raise if they come first
        self.doing = DOING  # said when a signal is noted
        self.was_said = False  # whether a noted signal was acknowledged on stderr
        self._again: threading.Timer | None = None  # raises KeyboardInterrupt again
        self._is_closed = False

    def __call__(self, number: int, _: FrameType | None) -> None:
        if self._again is not None:
            self._again.cancel()  # in case the user pressed before the timer was up
            self._again = None
            if not self._is_closed and number not in self.noted:
                raise KeyboardInterrupt
            return
        if number == signal.SIGHUP:
            _leave_terminal()
        is_late = bool(self.numbers) if number == CTRL_C else any(n != CTRL_C for n in self.numbers)
        self.numbers.append(number)
        if is_late:
            if number == CTRL_C:
                raise KeyboardInterrupt
        elif number in self.noted:
            self._say(number)
        else:
            raise KeyboardInterrupt

    @property
    def asks(self) -> bool:
        """Whether Ctrl-C, pressed now, would only be noted (placer.devices.workers.deadline reads this)."""
        return CTRL_C in self.noted and not self.numbers

    @property
    def insists(self) -> bool:
        """Whether Ctrl-C was pressed after another signal or another Ctrl-C, so that everything must end at once."""
        return CTRL_C in self.numbers[1:]

    @property
    def in_words(self) -> str:
        """The effect of the first signal in words, such as "interrupted"."""
        return WORDS[self.numbers[0] if self.numbers else int(CTRL_C)]

    @property
    def raised(self) -> bool:
        """Whether a signal came and was not only noted, so that a library may have turned it into an error."""
        return self.pressed() and not self.was_said

    def pressed(self) -> bool:
        """Whether a signal came."""
        return bool(self.numbers)

    def note(self, numbers: Collection[int] = ()) -> None:
        """From now on, only note the first signal if it is one of `numbers`."""
        self.noted = frozenset(numbers)

    @contextmanager
    def noting(self, numbers: Collection[int], doing: str = DOING) -> Iterator[None]:
        """Apply `note` within the block. doing: what the block does, said when a signal is noted."""
        before = self.noted, self.doing
        self.note(numbers)
        self.doing = doing
        try:
            yield
        finally:
            self.note(before[0])
            self.doing = before[1]

    def raise_again(self) -> None:
        """Raise KeyboardInterrupt a moment later, because Python drops exceptions at the place where it came."""
        self._again = threading.Timer(AGAIN_S, signal.pthread_kill, (threading.get_ident(), self.numbers[-1]))
        self._again.daemon = True
        self._again.start()

    def close(self) -> None:
        """Cancel what `raise_again` began."""
        self._is_closed = True
        again = self._again
        if again is not None:
            again.cancel()
            again.join()

    def _say(self, number: int) -> None:
        self.was_said = True
        again = "press again" if number == CTRL_C else "press Ctrl-C"
        said = f"\n{WORDS[number]}: {self.doing}; {again} to stop at once\n"
        with suppress(OSError):  # the terminal may be closed; not `print`, which may be amid a line
            os.write(sys.__stderr__.fileno() if sys.__stderr__ else 2, said.encode())


def _leave_terminal() -> None:
    """If the terminal is closed, discard what is printed, because every line would raise an OSError."""
    nowhere = os.open(os.devnull, os.O_WRONLY)
    for terminal in (1, 2):
        try:
            termios.tcgetattr(terminal)
        except termios.error as error:
            if error.args[0] == errno.EIO:
                os.dup2(nowhere, terminal)
    os.close(nowhere)


_heard: Signals | None = None  # while signals are heard


@contextmanager
def heard() -> Iterator[Signals]:
    """Yield the signals that come in the block; each raises KeyboardInterrupt unless it is noted.

    A nested block gets the same `Signals`, with `noted` unchanged. A signal that is ignored (nohup, a script's
    background job) or that the program handles itself is left alone. Outside the main thread, all signals are.
    """
    global _heard
    if _heard is not None or threading.current_thread() is not threading.main_thread():
        yield _heard or Signals()
        return
    signals = Signals()
    taken = [n for n in SIGNALS if signal.getsignal(n) in (signal.SIG_DFL, signal.default_int_handler)]
    before = {number: signal.signal(number, signals) for number in taken}
    report = sys.unraisablehook

    def unraisable(dropped: sys.UnraisableHookArgs) -> None:
        # The handler ran in a destructor or a weak reference's callback, of which TensorFlow has many.
        if signals.numbers and issubclass(dropped.exc_type, KeyboardInterrupt):
            signals.raise_again()
        else:
            report(dropped)

    sys.unraisablehook = unraisable
    _heard = signals
    try:
        yield signals
    finally:
        _heard = None
        sys.unraisablehook = report
        try:
            signals.close()
        finally:  # also if what `raise_again` began comes just now
            for number, handler in before.items():
                signal.signal(number, handler)


@contextmanager
def interruptible(*, quick: bool = False) -> Iterator[Callable[[], bool]]:
    """Yield a function that returns whether a signal came. In the block, the first Ctrl-C is only noted.

    quick: the other signals are only noted, too, because the work under way ends within a second or two.
    """
    with heard() as signals, signals.noting(SIGNALS if quick else (CTRL_C,)):
        yield signals.pressed
