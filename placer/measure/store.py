"""Measurements in SQLite, so that a mapping measured once for a graph and topology is not measured again."""

from __future__ import annotations

import hashlib
import json
import sqlite3
import time
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import asdict
from math import inf
from pathlib import Path
from types import TracebackType
from typing import Any

import msgspec

from placer.devices.host.machine import machine_name, speed_settings
from placer.errors import BadInputError, PlacerError, one_line
from placer.files import check_name
from placer.graph.mapping import Mapping
from placer.graph.schedules import RANK
from placer.graph.topology import Device, Topology
from placer.profile.operators.dataset import COLUMNS, INVALID, OperatorRow, from_record, to_record
from placer.result import Failed, Measured, Result
from placer.sqlite_file import SQLiteFile, code, is_other
from placer.tf_version import installed

SCHEMA_VERSION = 2  # 1 had no table of operators; it is added when such a file is opened
SCHEMA = """
CREATE TABLE IF NOT EXISTS measurements (
    graph TEXT NOT NULL, topology TEXT NOT NULL, mapping TEXT NOT NULL,
    kind TEXT NOT NULL, result TEXT NOT NULL, ratio REAL, searcher TEXT NOT NULL, at REAL NOT NULL,
    PRIMARY KEY (graph, topology, mapping)
) WITHOUT ROWID
"""
OPERATORS = f"""
CREATE TABLE IF NOT EXISTS operators (
    {", ".join(COLUMNS)}, at REAL NOT NULL,
    PRIMARY KEY (signature, machine, device_kind, batch, network, source)
)
"""
HELD = {
    "measurements": {"graph", "topology", "mapping", "kind", "result", "ratio", "searcher", "at"},
    "operators": {*COLUMNS, "at"},
}  # the columns of each table
BUSY_S = 30.0  # how long to wait while another process writes
ADVICE = {
    sqlite3.SQLITE_FULL: "free some space",
    sqlite3.SQLITE_IOERR: "look after the disk, or name another with --store",
    sqlite3.SQLITE_BUSY: "another program holds it: end that one, or name another with --store",
    sqlite3.SQLITE_READONLY: "make it writable, or name another with --store",
}
# A new measurement is averaged with the stored one, weighted by repeats; nothing is left of one that was taken back.
KEY = ("signature", "machine", "device_kind", "batch", "network", "source")
TIMES = ("median_s", "low_s", "spread_s")
MERGED = ", ".join(
    f"{name} = CASE WHEN repeats > 0 THEN ({name} * repeats + excluded.{name} * excluded.repeats) "
    f"/ (repeats + excluded.repeats) ELSE excluded.{name} END"
    for name in TIMES
)
ADD_OPERATOR = (
    f"INSERT INTO operators VALUES ({', '.join('?' * (len(COLUMNS) + 1))}) "
    f"ON CONFLICT ({', '.join(KEY)}) "
    f"DO UPDATE SET {MERGED}, repeats = repeats + excluded.repeats, device = excluded.device, at = excluded.at"
)
REST = ", ".join(
    f"{name} = CASE WHEN repeats > :repeats THEN max(0.0, ({name} * repeats - :{name} * :repeats) "
    "/ (repeats - :repeats)) ELSE 0.0 END"
    for name in TIMES
)
TAKE_BACK = (
    f"UPDATE operators SET {REST}, repeats = max(0, repeats - :repeats) "
    f"WHERE {' AND '.join(f'{name} = :{name}' for name in KEY)}"
)
DROP_EMPTY = "DELETE FROM operators WHERE repeats = 0"

# Version of how steps are placed and run; results of other versions are not comparable. 1: TensorFlow's own op order;
# 2: no batches through pinned memory.
EXECUTION_VERSION = 3
# Reasons of failures that need not occur in a later session: a worker was lost, another program held the memory.
OF_A_MOMENT = ("device", "error", "memory")


class Store:
    """One SQLite file, one writer at a time. Each result is one row, written atomically.

    A step time is kept with its ratio to the anchor (the first mapping measured in the same session), because seconds
    on a busy machine are not comparable from one day to another.
    """

    def __init__(self, path: str | Path, *, reads: bool = False) -> None:
        """Open the file, or make it. reads: only open it for reading. Raises BadInputError if the file is no store,
        PlacerError if it cannot be used.
        """
        self.path = Path(path)
        check_name(path)
        try:
            if not reads:
                self.path.parent.mkdir(parents=True, exist_ok=True)
            if is_other(self.path):
                raise BadInputError(f"the store {self.path} is no file; name another with --store.")
            # One thread at a time uses it, but another thread may close it after an interrupted training.
            self._file = SQLiteFile(self.path, reads=reads, busy_s=BUSY_S, any_thread=True)
        except (sqlite3.Error, OSError) as error:
            raise self._failed("used", error) from error
        self.connection = self._file.connection
        try:
            self._check() if reads else self._make()
        except PlacerError:
            self.connection.close()
            raise

    def _check(self) -> None:
        """Raise PlacerError if the file is no store, or cannot be read."""
        try:
            self._check_ours()
        except sqlite3.Error as error:
            raise self._failed("used", error) from error

    def _make(self) -> None:
        """Check the file, and add the tables that it lacks, all or none. Raises PlacerError if that fails."""
        with self._transaction("used"):
            self._check_ours()
            self.connection.execute(SCHEMA)
            self.connection.execute(OPERATORS)
            self.connection.execute(f"PRAGMA user_version={SCHEMA_VERSION}")
        try:
            self._file.write_ahead()
        except sqlite3.Error as error:
            raise self._failed("used", error) from error

    def _check_ours(self) -> None:
        """Raise BadInputError if the file is of another version or another program."""
        version = int(self.connection.execute("PRAGMA user_version").fetchone()[0])
        if not 0 <= version <= SCHEMA_VERSION:
            raise BadInputError(
                f"the store {self.path} has schema {version}, this Placer writes {SCHEMA_VERSION}; "
                "name another file with --store."
            )
        query = (
            "SELECT tables.name, columns.name FROM sqlite_master AS tables, pragma_table_info(tables.name) AS columns"
        )
        found: dict[str, set[str]] = {}
        for table, column in self.connection.execute(f"{query} WHERE tables.type = 'table'"):
            found.setdefault(table, set()).add(column)
        known = {name: found[name] for name in HELD if name in found}
        if (found and not known) or any(columns != HELD[name] for name, columns in known.items()):
            raise BadInputError(f"{self.path} is an SQLite file of another program; name another with --store.")

    @contextmanager
    def _transaction(self, done: str) -> Iterator[None]:
        """Execute all statements of the block, or none, while other processes are kept out. Raises PlacerError if that
        fails. done: what the block does, as a participle for the message.
        """
        try:
            with self._file.transaction():
                yield
        except sqlite3.Error as error:
            raise self._failed(done, error) from error
        self._file.settle()

    def _failed(self, done: str, error: sqlite3.Error | OSError) -> PlacerError:
        """The error of a store that cannot be `done`, with what to do about it."""
        advice = ADVICE.get(code(error), "name another with --store")
        is_no_store = isinstance(error, OSError) or code(error) in (sqlite3.SQLITE_NOTADB, sqlite3.SQLITE_CANTOPEN)
        kind = BadInputError if is_no_store else PlacerError
        return kind(f"the store {self.path} cannot be {done}: {one_line(str(error))}; {advice}.")

    def _rows(self, query: str, *values: object) -> list[Any]:
        """The rows that a query finds. Raises PlacerError if the store is damaged."""
        try:
            return self.connection.execute(query, values).fetchall()
        except sqlite3.Error as error:
            raise self._failed("read", error) from error

    def __enter__(self) -> Store:
        return self

    def __exit__(self, *_: type[BaseException] | BaseException | TracebackType | None) -> None:
        self.close()

    def close(self) -> None:
        """Close the file; harmless when called twice."""
        self._file.close()

    def find(self, op_mapping: Mapping, anchor_s: float, schedule: str = RANK, anchor: str = "") -> Result | None:
        """The result of an earlier session, scaled to the current anchor's time; None if there is none, if it was
        compared with another anchor, or if the row is damaged. schedule: the schedule of the ops. anchor: an
        `anchor_key`.
        """
        found = self._rows(
            "SELECT kind, result, ratio FROM measurements WHERE graph=? AND topology=? AND mapping=?",
            *_key(op_mapping, schedule),
        )
        if not found:
            return None
        kind, text, ratio = found[0]
        try:
            return _scaled(kind, text, ratio, anchor_s, anchor)
        except (ValueError, TypeError, ArithmeticError, RecursionError):
            return None  # no Placer wrote that: the mapping is measured again, and the row replaced

    def add(
        self, op_mapping: Mapping, result: Result, anchor_s: float, searcher: str, schedule: str = RANK,
        anchor: str = "",
    ) -> None:  # fmt: skip
        """Store a result, replacing an older one. A failure is stored only if it is the mapping's own. schedule,
        anchor: as in `find`. Raises PlacerError if writing fails.
        """
        if isinstance(result, Failed) and result.reason in OF_A_MOMENT:
            return
        kind = "measured" if isinstance(result, Measured) else "failed"
        ratio = result.step_s / anchor_s if isinstance(result, Measured) else None
        row = (*_key(op_mapping, schedule), kind, json.dumps({**asdict(result), "anchor": anchor}), ratio, searcher)
        with self._transaction("written"):
            self.connection.execute("INSERT OR REPLACE INTO measurements VALUES (?,?,?,?,?,?,?,?)", (*row, time.time()))

    @staticmethod
    def anchor_key(op_mapping: Mapping | None) -> str:
        """A name for what other steps are compared with in a session: a mapping, or the untouched step (None)."""
        return "untouched" if op_mapping is None else hashlib.sha256(str(op_mapping.devices).encode()).hexdigest()[:16]

    def add_operators(self, rows: Iterable[OperatorRow], instead_of: Iterable[OperatorRow] = ()) -> None:
        """Store rows of the operator dataset, all or none. A signature measured before on the same machine, kind of
        device, batch and network is averaged, weighted by repeats. Raises PlacerError if writing fails.

        instead_of: rows that were added before; their part in the averages is taken back, whoever added to these since.
        """
        records, former = ([to_record(row) | {"batch": row.batch or 0} for row in some] for some in (rows, instead_of))
        values = [(*(record[name] for name in COLUMNS), time.time()) for record in records]
        with self._transaction("written"):
            self.connection.executemany(TAKE_BACK, former)
            self.connection.executemany(ADD_OPERATOR, values)
            if former:
                self.connection.execute(DROP_EMPTY)

    def operators(self, machine: str | None = None) -> list[OperatorRow]:
        """The operator dataset of one machine (a `timed_on` key), or of all. Raises BadInputError for a damaged row."""
        query = f"SELECT {', '.join(COLUMNS)} FROM operators WHERE machine = coalesce(?, machine) ORDER BY rowid"
        if not self._rows("SELECT 1 FROM sqlite_master WHERE type = 'table' AND name = 'operators'"):
            return []  # an older Placer made the file, and it is open for reading only
        found = self._rows(query, machine)
        try:
            return [from_record(dict(zip(COLUMNS, values, strict=True))) for values in found]
        except INVALID as error:
            raise BadInputError(
                f"the store {self.path} has a row of operators that no Placer wrote ({one_line(str(error))[:200]}); "
                "name another with --store."
            ) from error

    def __len__(self) -> int:
        return int(self._rows("SELECT COUNT(*) FROM measurements")[0][0])


def _scaled(kind: object, text: str, ratio: float, anchor_s: float, anchor: str) -> Result | None:
    """The result in a row, scaled to the anchor's time; None if it was compared with another anchor, or if it is a
    failure that need not occur again. Raises ValueError, TypeError or ArithmeticError if the row holds no result.
    """
    if kind == "failed":
        failed = msgspec.json.decode(text, type=Failed)
        return None if failed.reason in OF_A_MOMENT else failed
    row = msgspec.json.decode(text, type=dict[str, Any])
    if row.get("anchor", "") != anchor:
        return None
    stored = msgspec.convert(row, Measured)
    found = stored.scaled(ratio * anchor_s / stored.step_s)
    is_time = stored.step_s > 0 and 0 < found.step_s < inf and 0 <= found.spread_s < inf
    if kind != "measured" or not is_time or stored.repeats < 1:
        raise ValueError("no step takes so long")
    return found


def topology_key(topology: Topology) -> str:
    """A key for comparable results: the machine, its devices and their hardware, settings that change how fast ops run,
    TensorFlow's release and EXECUTION_VERSION; link measurements are left out.
    """
    devices = " ".join(f"{d.name}:{d.kind}{_gpu_share(d)}{_host(d)} {d.hardware}".strip() for d in topology.devices)
    parts = (machine_name(), devices, EXECUTION_VERSION, installed(), speed_settings())
    return hashlib.sha256(" ".join(map(str, parts)).encode()).hexdigest()[:16]


def _host(device: Device) -> str:
    """The machine of a worker that Placer did not start, without its port, which says nothing about its speed."""
    return "" if device.address is None else f"@{device.address.rpartition(':')[0]}"


def _gpu_share(device: Device) -> str:
    """A GPU's memory, because what does not fit a small logical GPU may fit a larger one. It is rounded to GiB, because
    the free memory of a whole GPU varies a little.
    """
    is_part = device.kind == "gpu" and device.memory_bytes is not None
    return f":{round((device.memory_bytes or 0) / 2**30)}" if is_part else ""


def _key(op_mapping: Mapping, schedule: str) -> tuple[str, str, str]:
    """The key of a mapping's row. It names a schedule only if that is not RANK, so that rows from before there were
    other schedules stay valid.
    """
    text = str(op_mapping.devices) if schedule == RANK else f"{op_mapping.devices} {schedule}"
    places = hashlib.sha256(text.encode()).hexdigest()[:32]
    graph = op_mapping.graph  # that of a captured step is also identified by what its ops compute
    name = graph.fingerprint if graph.content is None else f"{graph.fingerprint} {graph.content}"
    return name, topology_key(op_mapping.topology), places
