"""Uses hostile inputs one after another, and counts those that are mishandled."""

from __future__ import annotations

import random
import resource
import signal
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

from placer.errors import BadInputError, PlacerError

LATE_S = 300  # for an input of some hundred bytes; the first that needs a library may take long on a busy machine
LONGEST = 1_000  # characters of a line for a reader
MOST_BYTES = 512 * 2**20  # by which one input may raise the peak memory of this process
MOST_KEPT = 20  # mishandled inputs that are described


class Input(NamedTuple):
    """An input. shown: describes it if it is mishandled. use: uses it, and may only raise the target's `refusal`."""

    shown: object
    use: Callable[[], object]


Draw = Callable[[random.Random], Input]


@dataclass(frozen=True)
class Target:
    """One kind of input. begin: makes valid inputs in a separate folder, and returns what draws hostile ones.

    refusal: the error that refuses an input in one line. share: of all inputs. refused: the least share of its inputs
    that must be refused, because otherwise they are not hostile.
    """

    begin: Callable[[Path], Draw]
    refusal: type[PlacerError] = BadInputError
    share: float = 0.15
    refused: float = 0.1


@dataclass(frozen=True)
class Found:
    """The result of using a number of inputs."""

    inputs: int
    refused: int
    mishandled: int
    lines: tuple[str, ...]  # on the first mishandled inputs
    seconds: float


class LateError(BaseException):
    """An input took longer than LATE_S. It is no Exception, so that no code takes it for an error of its own."""


class Tally:
    """Uses inputs, and counts their outcomes."""

    def __init__(self, refusal: type[PlacerError]) -> None:
        """refusal: the error that refuses an input in one line."""
        self.refusal, self.begin_s = refusal, time.perf_counter()
        self.inputs = self.refused = self.mishandled = 0
        self.lines: list[str] = []

    def use(self, given: Input) -> None:
        """Use an input and count its outcome; errors are not raised. Call this within `on_time`."""
        was_refused, complaint = _outcome(given, self.refusal)
        self.inputs += 1
        self.refused += was_refused
        self.mishandled += bool(complaint)
        if complaint and len(self.lines) < MOST_KEPT:
            self.lines.append(f"{complaint}: {str(given.shown)[:LONGEST]}")

    def found(self) -> Found:
        """The result of all inputs until now."""
        seconds = time.perf_counter() - self.begin_s
        return Found(self.inputs, self.refused, self.mishandled, tuple(self.lines), seconds)


def judged(target: Target, inputs: int, seed: object, folder: Path) -> Found:
    """Use a number of hostile inputs. inputs: the number. seed: of the generator. folder: takes the files."""
    rng, tally = random.Random(str(seed)), Tally(target.refusal)
    draw = target.begin(folder)
    with on_time():
        for _ in range(inputs):
            tally.use(draw(rng))
    return tally.found()


def _outcome(given: Input, refusal: type[PlacerError]) -> tuple[bool, str]:
    """Whether an input was refused, and how it was mishandled ("" if it was not)."""
    before = _most_held_bytes()
    complaint, was_refused = "", False
    signal.alarm(LATE_S)
    try:
        given.use()
    except refusal as error:
        was_refused, line = True, str(error)
        if not line or len(line.splitlines()) != 1 or len(line) > LONGEST:
            complaint = f"not one line, but {line[:LONGEST]!r}"
    except LateError:
        complaint = f"not done after {LATE_S} s"
    except Exception as error:
        complaint = f"{type(error).__name__} ({str(error)[:200]})"
    finally:
        signal.alarm(0)
    grown = _most_held_bytes() - before
    return was_refused, complaint or (f"{grown >> 20} MiB of memory" if grown > MOST_BYTES else "")


@contextmanager
def on_time() -> Iterator[None]:
    """Let `signal.alarm` raise LateError in the block."""

    def late(*_: Any) -> None:
        raise LateError

    before = signal.signal(signal.SIGALRM, late)
    try:
        yield
    finally:
        signal.alarm(0)
        signal.signal(signal.SIGALRM, before)


def _most_held_bytes() -> int:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
