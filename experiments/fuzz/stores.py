"""Stores whose rows were altered: the campaigns' and the measurements', with what reads them and goes on from them."""

from __future__ import annotations

import json
import random
import sqlite3
from collections.abc import Callable, Sequence
from contextlib import closing, suppress
from functools import partial
from pathlib import Path
from typing import Any

from experiments.campaign.export import export
from experiments.campaign.run import Campaign
from experiments.campaign.spec import Spec, read_spec
from experiments.campaign.standing import after, standing
from experiments.campaign.store import Store as CampaignStore
from experiments.fuzz.files import GRAPH, ROW, TOPOLOGY, write_valid
from experiments.fuzz.judge import Draw, Input, Target
from experiments.fuzz.mutations import NASTY, exchanged, garbled
from experiments.report.campaign.report import budgets, report_content
from placer.errors import PlacerError
from placer.graph.mapping import Mapping
from placer.measure.store import Store
from placer.result import Failed, Measured

MOST = 3  # changes of one store
GARBLED = 0.1  # share whose bytes are changed, not their rows
LARGEST_INT = 2**63 - 1  # that SQLite holds
SPLIT = Mapping.of(GRAPH, TOPOLOGY, {"a": "gpu:0", "b": "gpu:1", "c": "cpu:0"})
ALONE = Mapping.of(GRAPH, TOPOLOGY, {"a": "cpu:0", "b": "cpu:0", "c": "cpu:0"})

Change = Callable[[Path, random.Random], object]
Use = Callable[[Path], object]


def altered(path: Path, rng: random.Random) -> list[str]:
    """Change up to MOST values in the rows of a store, or drop a row; returns what was done."""
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
    with suppress(sqlite3.IntegrityError):  # of a column that must be there, or is a key
        connection.execute(f"UPDATE {table} SET {columns[i]} = ? WHERE {where}", (value, *row))
    return f"{table}.{columns[i]} = {value!r:.200}"


def _hostile(value: Any, rng: random.Random) -> Any:
    """Something else in the place of a value: another one in its JSON, other bytes, or anything."""
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
        return found.encode("utf-8", "replace").decode()  # SQLite takes no half characters
    return found if found is None or isinstance(found, int | float) else json.dumps(found)


def _draw(valid: bytes, path: Path, uses: Sequence[Use], rng: random.Random) -> Input:
    """A store made hostile at `path`, and one of the uses of it."""
    for old in path.parent.glob(f"{path.name}*"):  # a new file, of which SQLite remembers nothing
        old.unlink()
    if rng.random() < GARBLED:
        path.write_bytes(garbled(valid, rng))
        done = ["bytes"]
    else:
        path.write_bytes(valid)
        done = altered(path, rng)
    use = rng.choice(uses)
    name = getattr(getattr(use, "func", use), "__name__", "")
    return Input(f"{name}, {'; '.join(done)}", partial(use, path))


def _campaign(folder: Path) -> Draw:
    """A campaign over files that has ended, and what its commands do with its store."""
    write_valid(folder)
    spec = read_spec(folder / "campaign.toml")
    with CampaignStore(spec.store) as store:
        Campaign(spec, store).run()
        store.connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")
    valid = spec.store.read_bytes()
    more = folder / "more.toml"  # wants more measurements in the same store
    wanted = f'measurements = [2, 6]\nstore = "{spec.store.name}"'
    more.write_text(spec.path.read_text().replace("measurements = [2, 5]", wanted))
    uses = [partial(use, spec) for use in (_stands, _reports, _exports)]
    return partial(_draw, valid, spec.store, [*uses, partial(_goes_on, read_spec(more))])


def _stands(spec: Spec, path: Path) -> None:
    with CampaignStore(path, reads=True) as store:
        json.dumps([standing(store), after(store, spec.budgets)])


def _reports(spec: Spec, path: Path) -> None:
    with CampaignStore(path, reads=True) as store:
        for kind in ("md", "html"):
            report_content(store, spec, kind)
        budgets(store, None)


def _exports(_: Spec, path: Path) -> None:
    with CampaignStore(path, reads=True) as store:
        export(store, path.with_name("trials.csv"))


def _goes_on(spec: Spec, path: Path) -> None:
    with CampaignStore(path) as store:
        Campaign(spec, store).run()


def _measurements(folder: Path) -> Draw:
    """A store of measured mappings and operators, and what searches and profiles do with it."""
    path = folder / "store.sqlite"
    with Store(path) as store:
        store.add(SPLIT, Measured(0.5, 0.1, 12, 0.3), 1.0, "heft")
        store.add(ALONE, Failed("memory", "gpu:0 ran out"), 1.0, "random")
        store.add_operators([ROW])
        store.connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")
    return partial(_draw, path.read_bytes(), path, (_finds, _adds))


def _finds(path: Path) -> None:
    with Store(path) as store:
        for mapping in (SPLIT, ALONE):
            found = store.find(mapping, 2.0)
            if isinstance(found, Measured) and not 0 < found.step_s < float("inf"):
                raise ValueError(f"a step of {found.step_s} s")
        store.operators()


def _adds(path: Path) -> None:
    with Store(path) as store:
        store.add(SPLIT, Measured(0.5), 1.0, "heft")
        store.add_operators([ROW])
        len(store)


STORES = {
    "campaign store": Target(_campaign, PlacerError, 0.02),
    "measurement store": Target(_measurements, PlacerError, 0.02),
}
