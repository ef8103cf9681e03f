"""Stores with altered rows, of campaigns and of measurements, and the code that reads them and continues from them."""

from __future__ import annotations

import json
import random
import sqlite3
from collections.abc import Callable, Sequence
from contextlib import closing, suppress
from functools import partial
from pathlib import Path
from typing import NamedTuple

from experiments.campaign.export import export
from experiments.campaign.run import Campaign
from experiments.campaign.spec import Spec, read_spec
from experiments.campaign.standing import after, standing
from experiments.campaign.store import CampaignStore
from experiments.fuzz.files import GRAPH, ROW, TOPOLOGY, write_valid
from experiments.fuzz.judge import Draw, Input, Target
from experiments.fuzz.mutations import garbled
from experiments.fuzz.store_values import altered, cells_of, like, written
from experiments.report.campaign.report import budgets, report_content
from placer.errors import PlacerError
from placer.graph.mapping import Mapping
from placer.measure.store import Store
from placer.result import Failed, Measured

GARBLED = 0.1  # share of the stores whose bytes are changed instead of their rows
SPLIT = Mapping.of(GRAPH, TOPOLOGY, {"a": "gpu:0", "b": "gpu:1", "c": "cpu:0"})
ALONE = Mapping.of(GRAPH, TOPOLOGY, {"a": "cpu:0", "b": "cpu:0", "c": "cpu:0"})

Change = Callable[[Path, random.Random], object]
Use = Callable[[Path], object]


def _new(path: Path, valid: bytes) -> None:
    """Write `valid` as a new file, without the files that SQLite keeps beside an old one."""
    for old in path.parent.glob(f"{path.name}*"):
        old.unlink()
    path.write_bytes(valid)


def _draw(valid: bytes, path: Path, uses: Sequence[Use], rng: random.Random) -> Input:
    """Make a hostile store at `path`; return it as an input with one of its uses."""
    _new(path, valid)
    if rng.random() < GARBLED:
        path.write_bytes(garbled(valid, rng))
        done = ["bytes"]
    else:
        done = altered(path, rng)
    return _used(path, rng.choice(uses), "; ".join(done))


def _used(path: Path, use: Use, done: str) -> Input:
    name = getattr(getattr(use, "func", use), "__name__", "")
    return Input(f"{name}, {done}", partial(use, path))


class HostileStore(NamedTuple):
    """The bytes of a valid store, the path at which hostile ones are written, and the functions that use them."""

    valid: bytes
    path: Path
    uses: Sequence[Use]

    def draw(self, rng: random.Random) -> Input:
        """A store whose rows or bytes were changed at random."""
        return _draw(self.valid, self.path, self.uses, rng)

    def given(self, data: bytes) -> Input:
        """A store in which a single value is exchanged. The first two bytes of `data` choose the use and the value, and
        the others are written there.
        """
        use, at, value = data[0] if data else 0, data[1] if data[1:] else 0, data[2:]
        _new(self.path, self.valid)
        with closing(sqlite3.connect(self.path, isolation_level=None)) as connection:
            table, column, row = (cells := cells_of(connection))[at % len(cells)]
            where = " AND ".join(f"{name} IS ?" for name in row)
            with suppress(sqlite3.IntegrityError):
                values = (like(row[column], value), *row.values())
                connection.execute(f"UPDATE {table} SET {column} = ? WHERE {where}", values)
        return _used(self.path, self.uses[use % len(self.uses)], f"{table}.{column} = {value!r}")

    def seeds(self) -> list[bytes]:
        """For every use and value, the data of which `given` makes the valid store."""
        _new(self.path, self.valid)
        with closing(sqlite3.connect(self.path)) as connection:
            cells = cells_of(connection)[:256]
        values = [written(row[column]) for _, column, row in cells]
        return [bytes((use, at)) + value for use in range(len(self.uses)) for at, value in enumerate(values)]


def _campaign(folder: Path) -> HostileStore:
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
    return HostileStore(valid, spec.store, [*uses, partial(_goes_on, read_spec(more))])


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


def _measurements(folder: Path) -> HostileStore:
    """A store of measured mappings and operators, and what searches and profiles do with it."""
    path = folder / "store.sqlite"
    with Store(path) as store:
        store.add(SPLIT, Measured(0.5, 0.1, 12, 0.3), 1.0, "heft")
        store.add(ALONE, Failed("loss", "another loss"), 1.0, "random")
        store.add_operators([ROW])
        store.connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")
    return HostileStore(path.read_bytes(), path, (_finds, _adds))


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


HOSTILE_STORES = {"campaign store": _campaign, "measurement store": _measurements}


def _begin(opened: Callable[[Path], HostileStore]) -> Callable[[Path], Draw]:
    return lambda folder: opened(folder).draw


STORES = {name: Target(_begin(opened), PlacerError, 0.02) for name, opened in HOSTILE_STORES.items()}
