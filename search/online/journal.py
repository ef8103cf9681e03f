"""The journal: every decision in one plain sentence with its numbers, for people, for files and for TensorBoard."""

from __future__ import annotations

import json
import logging
import math
import os
import threading
import time
from collections import deque
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, field
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Literal, Protocol

from placer.errors import one_line
from placer.event_files import PREFIX, header, records, scalars

FORMAT = "placer.journal/1"
FILE_NAME = "placer.jsonl"
MOST_ENTRIES = 1000  # in memory; the file has all
SCALAR_EVERY, SCALAR_EVERY_S = 10, 1.0  # least steps and seconds between two values of one scalar
MOST_BOARD_FAILURES = 3

LOGGER = logging.getLogger("placer")

Kind = Literal[
    "start", "plan", "measured", "moved", "stayed", "alarm", "lost", "back", "left", "joined", "error", "end", "alone",
    "asleep", "unkept", "scattered",
]  # fmt: skip
LOUD = frozenset({"alone", "lost", "asleep", "unkept", "scattered"})  # shown on stderr even if logging is not set up
Number = float | int | str | bool | None


@dataclass(frozen=True, slots=True)
class Entry:
    """What happened at a training step."""

    at_s: float  # by the journal's clock
    step: int
    kind: Kind
    sentence: str
    numbers: Mapping[str, Number] = field(default_factory=dict)
    dry_run: bool = False  # decided, but not done


class Board(Protocol):
    """Takes scalars, as TensorBoard does."""

    def scalar(self, step: int, name: str, value: float) -> None: ...


def tensorboard(log_dir: Path) -> Board | None:
    """TensorBoard's event files in `log_dir`; None if the package `tensorboard` is not installed."""
    return _TensorBoard(log_dir) if find_spec("tensorboard") else None


class Journal:
    """Keeps entries, logs them by the logger `placer`, and appends them to `log_dir/placer.jsonl`, if there is one.

    Nothing that goes wrong with files stops the training: the log says so once. May be used by several threads.
    """

    def __init__(
        self,
        log_dir: str | Path | None = None,
        dry_run: bool = False,
        clock: Callable[[], float] = time.time,
        board: Callable[[Path], Board | None] = tensorboard,
    ) -> None:
        self.log_dir = Path(log_dir) if log_dir is not None else None
        self.dry_run = dry_run
        self._clock, self.began_s = clock, clock()
        self._open_board = board
        self._entries: deque[Entry] = deque(maxlen=MOST_ENTRIES)
        self._lock = threading.RLock()
        self._warned: set[str] = set()
        self._torn = False  # whether the file ends in a part of a line
        self._board: Board | None = None
        self._board_failures = 0
        self._shown: dict[str, tuple[int, float]] = {}  # name of a scalar -> step and time of its last value

    @property
    def entries(self) -> tuple[Entry, ...]:
        """The last MOST_ENTRIES entries, the oldest first."""
        with self._lock:
            return tuple(self._entries)

    def entry(self, step: int, kind: Kind, sentence: str, **numbers: Any) -> Entry:
        """Note what happened at `step`. numbers: the figures of the sentence, for programs; names end in their unit."""
        with self._lock:
            plain = {name: _number(value) for name, value in numbers.items()}
            entry = Entry(self._clock(), int(step), kind, one_line(sentence), plain, self.dry_run)
            self._entries.append(entry)
            LOGGER.log(logging.WARNING if kind in LOUD else logging.INFO, "%s", _line(entry))
            self._write(entry)
        return entry

    def scalar(self, step: int, name: str, value: float) -> None:
        """Show `value` in TensorBoard, if that is installed and there is a `log_dir`. Values of one name are at least
        ten steps and a second apart; others are left out.
        """
        with self._lock:
            if self.log_dir is None or not math.isfinite(value) or not self._is_due(step, name):
                return
            self._shown[name] = step, self._clock()
            self._show(self.log_dir, int(step), name, float(value))

    def lines(self) -> str:
        """The entries for people, one per line."""
        return "\n".join(_line(entry) for entry in self.entries)

    def _write(self, entry: Entry) -> None:
        """Append one line with one write. Opens the file each time, because entries are rare, and a missing folder may
        come back.
        """
        if self.log_dir is None:
            return
        text = ("\n" if self._torn else "") + json.dumps({"format": FORMAT, **asdict(entry)}) + "\n"
        data = text.encode()
        try:
            self.log_dir.mkdir(parents=True, exist_ok=True)
            with (self.log_dir / FILE_NAME).open("ab", buffering=0) as file:
                written = file.write(data)
                self._torn = 0 < written < len(data) or (self._torn and not written)
                if written < len(data):
                    raise OSError("no space left")
        except OSError as error:
            self._warn(str(self.log_dir / FILE_NAME), error)

    def _is_due(self, step: int, name: str) -> bool:
        """Whether a scalar may be shown: its last value is long enough ago, or of another training, because its step is
        later. True if it has no last value.
        """
        last, last_s = self._shown.get(name, (step + 1, 0.0))
        if step < last:
            return True
        return step - last >= SCALAR_EVERY and not 0 <= self._clock() - last_s < SCALAR_EVERY_S

    def _show(self, log_dir: Path, step: int, name: str, value: float) -> None:
        if self._board_failures >= MOST_BOARD_FAILURES:
            return
        try:
            self._board = self._board or self._open_board(log_dir)
            if self._board is None:
                self._board_failures = MOST_BOARD_FAILURES  # not installed; it will not be later, either
            else:
                self._board.scalar(step, name, value)
        except Exception as error:  # TensorFlow may raise anything, and a scalar must not end a training
            self._board = None
            self._board_failures += 1
            self._warn("TensorBoard", error)

    def _warn(self, where: str, error: Exception) -> None:
        if where not in self._warned:
            self._warned.add(where)
            reason = one_line(f"{where}: {error}")
            LOGGER.warning("cannot write %s; training goes on, the journal stays in memory", reason)


class _TensorBoard:
    """An event file. It is not written by TensorFlow, whose writer would keep workers from being joined
    (placer/devices/process_resources.py).
    """

    def __init__(self, log_dir: Path) -> None:
        log_dir.mkdir(parents=True, exist_ok=True)
        wall_ns = time.time_ns()
        self._path = log_dir / f"{PREFIX}{wall_ns // 10**9:010d}.{os.getpid()}.{wall_ns % 10**9}.placer-journal"
        self._add(header(wall_ns / 1e9), "xb")

    def scalar(self, step: int, name: str, value: float) -> None:
        self._add(scalars(time.time(), step, {name: value}), "ab")

    def _add(self, event: Any, mode: str) -> None:
        with self._path.open(mode, buffering=0) as file:
            file.write(records([event]))


def _number(value: Any) -> Number:
    """`value` as JSON: NumPy's and TensorFlow's scalars as numbers, NaN and infinity as None, other objects as text."""
    if value is None or isinstance(value, bool | str | int):
        return value
    try:
        number = float(value)
    except (TypeError, ValueError):
        return str(value)
    if not math.isfinite(number):
        return None
    return int(number) if number.is_integer() and not isinstance(value, float) else number


def _line(entry: Entry) -> str:
    said = f"dry run: {entry.sentence}" if entry.dry_run else entry.sentence
    return f"step {entry.step:>6} {entry.kind:<8} {said}"
