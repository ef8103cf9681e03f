"""A campaign's measurements in one SQLite file: each is stored in one transaction with the searcher's state."""

from __future__ import annotations

import fcntl
import json
import os
import sqlite3
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from itertools import takewhile
from pathlib import Path
from types import MappingProxyType, TracebackType
from typing import Any, Self

import msgspec

from experiments.campaign.cells import MEASURED, Limits
from experiments.campaign.rows import (
    ERRORS,
    FailureRow,
    FinalRow,
    HeldRow,
    Number,
    OpenedRow,
    Seconds,
    StateRow,
    checked,
    placement_of,
    sealed,
    trial_of,
    trial_text,
    typed,
    unsealed,
)
from experiments.campaign.schema import MIGRATIONS
from placer.errors import BadInputError, PlacerError, one_line
from placer.files import check_name
from placer.result import Failed, Result
from placer.sqlite_file import SQLiteFile, code, is_other
from search.problem.problem import Placement

SQLITE = b"SQLite format 3\0"
PROFILE, SHAPE = "profile", "shape"  # names of contents


@dataclass(frozen=True)
class StoredTrial:
    """One question of a cell, the n-th, with its result. seconds: the time that asking and measuring took. refused:
    whether it was not measured, because it lacks memory as simulated.
    """

    n: int
    placement: Placement
    result: Result
    seconds: float
    refused: bool = False


@dataclass(frozen=True)
class WantedCell:
    """A cell of the spec, to be stored. terms: those of its case."""

    key: str
    case_key: str
    kind: str
    terms: dict[str, Any]
    searcher: str
    seed: int
    measurements: int
    minutes: float | None


@dataclass(frozen=True)
class Held:
    """A cell as it is stored. state: from which its search resumes; None before its first measurement."""

    key: str
    case_key: str
    kind: str
    searcher: str
    seed: int
    wanted: int | None  # measurements; None if the spec no longer has the cell
    minutes: float | None
    state: dict[str, Any] | None
    ended: str | None  # why nothing more is to be measured
    final: dict[str, Any] | None  # its best mapping and the best single device side by side
    trials: tuple[StoredTrial, ...]
    notes: tuple[str, ...] = ()  # its searcher's notes on the search

    @property
    def measured(self) -> tuple[StoredTrial, ...]:
        """Its measurements: the trials that were not refused."""
        return tuple(trial for trial in self.trials if not trial.refused)

    @property
    def lacking(self) -> list[Placement]:
        """The placements that were refused since its last measurement."""
        since = takewhile(lambda trial: trial.refused, reversed(self.trials))
        return [trial.placement for trial in since][::-1]

    @property
    def spent_s(self) -> float:
        """Seconds that its trials took."""
        return sum(trial.seconds for trial in self.trials)

    def is_searched(self, limits: Limits) -> bool:
        """Whether its search has ended or has used up `limits`."""
        return self.ended is not None or not limits.allow(len(self.measured), self.spent_s)

    @property
    def lacks_final(self) -> bool:
        """Whether its best mapping still has to be measured beside the baselines, or again after more trials."""
        return self.kind == MEASURED and (self.final or {}).get("n") != len(self.trials)


class CampaignStore:
    """A campaign's file: one writer, readers at any time. Every method that writes is one durable transaction."""

    def __init__(self, path: Path, *, reads: bool = False, migrations: Sequence[str] = MIGRATIONS) -> None:
        """Opens the file, or makes it if it is missing. reads: only read an existing file.

        Raises BadInputError if the file cannot be used, if another campaign writes to it, or if a newer Placer wrote
        it, and PlacerError if it has to be written and cannot be.
        """
        self.path, self.migrations = path, migrations
        self._lock_fd: int | None = None
        check_name(path)
        try:
            if is_other(path):
                raise BadInputError(f"the store {path} is no file; name another.")
            if not reads:
                self._lock()
            elif not path.is_file():
                raise BadInputError(f"there is no store {path}; begin the campaign with placer campaign run.")
            self._file = SQLiteFile(path, reads=reads)
            self.connection = self._file.connection
            try:
                self._prepare(reads)
            except BaseException:
                self._file.close()
                raise
        except (sqlite3.Error, OSError) as error:
            self._unlock()
            raise BadInputError(
                f"the store {path} cannot be used: {one_line(str(error))}; correct that, or name another."
            ) from None
        except PlacerError:
            self._unlock()
            raise

    def _prepare(self, reads: bool) -> None:
        """Check what is in the file, and make what is missing unless `reads`. Raises the errors of `__init__`."""
        self._check_ours()
        version = self._version(reads)
        if not reads:
            self._file.write_ahead()
            self._migrate(version)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: type[BaseException] | BaseException | TracebackType | None) -> None:
        self.close()

    def close(self) -> None:
        """Close the file and let other campaigns in; harmless when called twice."""
        self._file.close()
        self._unlock()

    def _lock(self) -> None:
        """Lock a file beside the store, because SQLite locks the store itself. The kernel releases the lock if this
        process dies. Raises BadInputError if another campaign holds it.
        """
        self.path.parent.mkdir(parents=True, exist_ok=True)
        path = self.path.resolve()  # the same lock, whichever link leads to the store
        name = path.with_name(path.name + ".lock")
        self._lock_fd = os.open(name, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
        try:
            fcntl.flock(self._lock_fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise BadInputError(
                f"another campaign writes to {self.path}; wait for it, look at it with placer campaign status, or name "
                "another store."
            ) from None

    def _unlock(self) -> None:
        if self._lock_fd is not None:
            os.close(self._lock_fd)
            self._lock_fd = None

    def _check_ours(self) -> None:
        """Raises BadInputError if the file holds something other than a campaign."""
        tables = {name for (name,) in self.connection.execute("SELECT name FROM sqlite_master WHERE type = 'table'")}
        version = int(self.connection.execute("PRAGMA user_version").fetchone()[0])  # set with the first tables
        if tables and not (version and {"cases", "cells", "trials"} <= tables):
            raise BadInputError(f"{self.path} is an SQLite file, but no store of a campaign; name another.")

    def _version(self, reads: bool) -> int:
        """The version of the schema. Raises BadInputError if it is unknown, or if `reads` and tables changed since."""
        version = int(self.connection.execute("PRAGMA user_version").fetchone()[0])
        newest = len(self.migrations)
        if not 0 <= version <= newest:
            raise BadInputError(
                f"the store {self.path} has schema {version}, this Placer knows {newest}; use a newer Placer, or name "
                "another store."
            )
        if reads and version == 0:
            raise BadInputError(f"the store {self.path} is just being made; try again in a moment.")
        if reads and any(script.strip() for script in self.migrations[version:]):
            raise BadInputError(f"the store {self.path} has the older schema {version}; placer campaign run renews it.")
        return version

    def _migrate(self, version: int) -> None:
        for k in range(version, len(self.migrations)):
            with self._transaction():
                for statement in filter(str.strip, self.migrations[k].split(";")):
                    self.connection.execute(statement)
                self.connection.execute(f"PRAGMA user_version={k + 1}")

    @contextmanager
    def _transaction(self) -> Iterator[None]:
        """Execute everything in the block or nothing. Raises PlacerError if the store cannot be written."""
        try:
            with self._file.transaction():
                yield
        except sqlite3.Error as error:
            advice = "Make room" if code(error) in (sqlite3.SQLITE_FULL, sqlite3.SQLITE_IOERR) else "Correct that"
            raise PlacerError(
                f"the store {self.path} cannot be written: {error}; what was stored before is kept. {advice}, then "
                "run the same command again."
            ) from None
        self._file.settle()

    def _rows(self, query: str, *values: Any) -> list[Any]:
        """The rows that a query finds. Raises BadInputError if the store is damaged."""
        try:
            return self.connection.execute(query, values).fetchall()
        except sqlite3.Error as error:
            raise BadInputError(
                f"the store {self.path} cannot be read: {one_line(str(error))}; name another, or a copy."
            ) from None

    @contextmanager
    def _reading(self, table: str) -> Iterator[None]:
        """A block that reads the values of rows. Raises BadInputError if a value is not what a campaign writes."""
        try:
            yield
        except ERRORS as error:
            raise BadInputError(
                f"the store {self.path} has a row of {table} that no campaign wrote ({one_line(str(error))[:200]}); "
                "name another, or a copy."
            ) from None

    def terms(self) -> dict[str, dict[str, Any]]:
        """The terms of each stored case."""
        rows = self._rows("SELECT key, terms FROM cases")
        with self._reading("cases"):
            return {key: dict(json.loads(text)) for key, text in rows}

    def want(self, cells: Iterable[WantedCell]) -> None:
        """Take over the cells of a spec; other stored cells are kept."""
        with self._transaction():
            self.connection.execute("UPDATE cells SET wanted = 0")
            for place, cell in enumerate(cells):
                self.connection.execute(
                    "INSERT OR IGNORE INTO cases VALUES (?, ?, ?, NULL)",
                    (cell.case_key, cell.kind, json.dumps(cell.terms)),
                )
                self.connection.execute(
                    "INSERT INTO cells VALUES (?, ?, ?, ?, ?, ?, ?, NULL, NULL, NULL) ON CONFLICT (key) DO UPDATE "
                    "SET place = excluded.place, case_key = excluded.case_key, searcher = excluded.searcher, "
                    "seed = excluded.seed, wanted = excluded.wanted, minutes = excluded.minutes, "
                    # A search that found nothing within its minutes may find something within other minutes.
                    "ended = CASE WHEN minutes IS excluded.minutes THEN ended END",
                    (cell.key, place, cell.case_key, cell.searcher, cell.seed, cell.measurements, cell.minutes),
                )

    def opened(self, case_key: str) -> dict[str, Any] | None:
        """The facts found out about a case before its search began; None if they are not stored."""
        found = self._rows("SELECT opened FROM cases WHERE key = ? AND opened IS NOT NULL", case_key)
        with self._reading("cases"):
            return checked(found[0][0], OpenedRow) if found else None

    def content(self, case_key: str, name: str) -> bytes | None:
        """Further data about a case, PROFILE or SHAPE, which few callers need; None if it is not stored."""
        found = self._rows("SELECT content FROM contents WHERE case_key = ? AND name = ?", case_key, name)
        with self._reading("contents"):
            return bytes(memoryview(found[0][0])) if found else None  # TypeError if not bytes

    def keep_opened(
        self, case_key: str, opened: dict[str, Any], contents: Mapping[str, bytes] = MappingProxyType({})
    ) -> None:
        """Store what was found out about a case. contents: by name, the data that `content` returns."""
        with self._transaction():
            self.connection.execute("UPDATE cases SET opened = ? WHERE key = ?", (json.dumps(opened), case_key))
            rows = [(case_key, name, content) for name, content in contents.items()]
            self.connection.executemany("INSERT OR REPLACE INTO contents VALUES (?, ?, ?)", rows)

    def keep(self, cell: str, trial: StoredTrial, state: dict[str, Any]) -> None:
        """Store a measurement, and the state from which its search resumes."""
        self.keep_all(cell, [trial], state)

    def keep_all(self, cell: str, trials: Iterable[StoredTrial], state: dict[str, Any]) -> None:
        """Store measurements together, and the state from which their search resumes."""
        at = time.time()
        rows = [
            (cell, trial.n, json.dumps(trial.placement), trial_text(trial.result, trial.refused), trial.seconds, at)
            for trial in trials
        ]
        with self._transaction():
            self.connection.executemany("INSERT INTO trials VALUES (?, ?, ?, ?, ?, ?)", rows)
            self.connection.execute("UPDATE cells SET state = ? WHERE key = ?", (sealed(state), cell))

    def keep_end(self, cell: str, why: str) -> None:
        """Store that a cell has ended, and why."""
        with self._transaction():
            self.connection.execute("UPDATE cells SET ended = ? WHERE key = ?", (why, cell))

    def keep_final(self, cell: str, final: dict[str, Any]) -> None:
        """Store the result of a cell's best mapping beside the best single device."""
        with self._transaction():
            self.connection.execute("UPDATE cells SET final = ? WHERE key = ?", (json.dumps(final), cell))

    def keep_failure(self, case_key: str, cell: str | None, n: int | None, failed: Failed) -> None:
        """Store the failure of a measurement or of a whole case."""
        row = (case_key, cell, n, failed.reason, failed.detail, time.time())
        with self._transaction():
            self.connection.execute(
                "INSERT INTO failures (case_key, cell, n, reason, detail, at) VALUES (?, ?, ?, ?, ?, ?)", row
            )

    def failures(self) -> list[dict[str, Any]]:
        """All failures in their order, each with `case`, `cell`, `n`, `reason`, `detail` and `at`."""
        rows = self._rows("SELECT case_key, cell, n, reason, detail, at FROM failures ORDER BY id")
        with self._reading("failures"):
            return [msgspec.structs.asdict(typed(row, FailureRow)) for row in rows]

    def times(self) -> dict[tuple[str, int], float]:
        """The time at which each measurement was stored, by cell and number, in seconds since the epoch."""
        rows = self._rows("SELECT cell, n, at FROM trials")
        with self._reading("trials"):
            return {(cell, n): at for cell, n, at in typed(rows, list[tuple[str, int, Seconds]])}

    def held(self) -> list[Held]:
        """All cells in the order of the spec, followed by cells that it no longer has. A view of one moment."""
        with suppress(sqlite3.Error):
            self.connection.execute("BEGIN")
        try:
            measured = self._rows("SELECT cell, n, placement, result, seconds FROM trials ORDER BY cell, n")
            rows = self._rows(
                "SELECT cells.key, case_key, kind, searcher, seed, wanted, minutes, state, ended, final FROM cells "
                "JOIN cases ON cases.key = case_key ORDER BY wanted = 0, place, cells.key"
            )
        finally:
            if self.connection.in_transaction:
                self.connection.execute("ROLLBACK")
        trials: dict[str, list[StoredTrial]] = {}
        with self._reading("trials"):
            for cell, n, placement, result, seconds in measured:
                came_to, refused = trial_of(result)
                number, took_s = typed(n, Number), typed(seconds, Seconds)
                trials.setdefault(cell, []).append(
                    StoredTrial(number, placement_of(placement), came_to, took_s, refused)
                )
        with self._reading("cells"):
            return [_held(row, tuple(trials.get(row[0], ()))) for row in rows]


def _held(found: Sequence[Any], trials: tuple[StoredTrial, ...]) -> Held:
    """A stored cell from its row. Raises ERRORS."""
    row = typed(found, HeldRow)
    final = None if row.final is None else checked(row.final, FinalRow)
    state = unsealed(row.state)
    return Held(
        row.key, row.case_key, row.kind, row.searcher, row.seed, row.wanted or None, row.minutes, state, row.ended,
        final, trials, () if state is None else tuple(typed(state, StateRow).session.notes),
    )  # fmt: skip


def is_store(path: Path) -> bool:
    """Whether the file is a store, not a spec."""
    try:
        if not path.is_file():  # a pipe may never have a writer
            return False
        with path.open("rb") as file:
            return file.read(len(SQLITE)) == SQLITE
    except OSError:
        return False
