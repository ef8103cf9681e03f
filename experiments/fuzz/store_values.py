"""Exchanges values in the rows of a store: at random, or a single one that is chosen."""

from __future__ import annotations

import json
import random
import sqlite3
from collections.abc import Sequence
from contextlib import closing, suppress
from pathlib import Path
from typing import Any

from experiments.fuzz.mutations import NASTY, exchanged, garbled

MOST = 3  # changes of one store
LARGEST_INT = 2**63 - 1  # that SQLite holds


def altered(path: Path, rng: random.Random) -> list[str]:
    """Make up to MOST changes in a store: exchange a value in a row, or drop a row. Return what was done."""
    done = []
    with closing(sqlite3.connect(path, isolation_level=None)) as connection:
        held = [
            (table, rows, [column for _, column, *_ in connection.execute(f"PRAGMA table_info({table})")])
            for (table,) in connection.execute("SELECT name FROM sqlite_master WHERE type = 'table'").fetchall()
            if (rows := connection.execute(f"SELECT COUNT(*) FROM {table}").fetchone()[0])
        ]
        for _ in range(rng.randint(1, MOST)):
            table, rows, columns = rng.choice(held)
            done.append(_altered(connection, table, columns, rng.randrange(rows), rng))
    return done


def _altered(connection: sqlite3.Connection, table: str, columns: Sequence[str], at: int, rng: random.Random) -> str:
    """Change one value in row number `at`, or drop that row."""
    row = connection.execute(f"SELECT * FROM {table} LIMIT 1 OFFSET ?", (at,)).fetchone()
    if row is None:
        return "nothing"
    where = " AND ".join(f"{column} IS ?" for column in columns)
    if rng.random() < 0.05:
        connection.execute(f"DELETE FROM {table} WHERE {where}", row)
        return f"{table}: a row dropped"
    i = rng.randrange(len(columns))
    value = _hostile(row[i], rng)
    with suppress(sqlite3.IntegrityError):  # the column needs a value, or is a key
        connection.execute(f"UPDATE {table} SET {columns[i]} = ? WHERE {where}", (value, *row))
    return f"{table}.{columns[i]} = {value!r:.200}"


def _hostile(value: Any, rng: random.Random) -> Any:
    """A replacement for a value: its JSON with a change, its bytes with a change, or anything."""
    kind = rng.random()
    if kind < 0.6 and isinstance(value, str):
        with suppress(ValueError):
            return json.dumps(exchanged(json.loads(value), rng))
    if kind < 0.8 and isinstance(value, bytes):
        return garbled(value, rng)
    found = rng.choice(NASTY)
    if isinstance(found, int) and not -LARGEST_INT <= found <= LARGEST_INT:
        return float(min(max(found, -(10**300)), 10**300))
    if isinstance(found, str):
        return found.encode("utf-8", "replace").decode()  # SQLite takes no lone surrogates
    return found if found is None or isinstance(found, int | float) else json.dumps(found)


def cells_of(connection: sqlite3.Connection) -> list[tuple[str, str, dict[str, Any]]]:
    """(table, column, whole row) for every value in the first two rows of each table."""
    found = []
    for (table,) in connection.execute("SELECT name FROM sqlite_master WHERE type = 'table' ORDER BY name").fetchall():
        columns = [column for _, column, *_ in connection.execute(f"PRAGMA table_info({table})")]
        for row in connection.execute(f"SELECT * FROM {table} LIMIT 2").fetchall():
            found += [(table, column, dict(zip(columns, row, strict=True))) for column in columns]
    return found


def written(value: Any) -> bytes:
    """The bytes from which `like` reads the value."""
    return value if isinstance(value, bytes) else b"" if value is None else str(value).encode()


def like(held: Any, data: bytes) -> Any:
    """`data` as a value of the type of `held`, if it can be one."""
    if isinstance(held, bytes) or (held is None and not data):
        return data if isinstance(held, bytes) else None
    text = data.decode("utf-8", "replace")
    if not isinstance(held, str):
        with suppress(ValueError):
            return min(max(int(text), -LARGEST_INT), LARGEST_INT)
        with suppress(ValueError):
            return float(text)
    return text
