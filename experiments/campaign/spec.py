"""The file that says what a campaign searches: placer.campaign/1, in TOML."""

from __future__ import annotations

import os
import re
import tomllib
from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import product
from pathlib import Path
from typing import Annotated, Any, Literal

import msgspec

from experiments import zoo
from experiments.campaign.cells import Case, Cell, Limits, beside, graph_case, located, model_case
from placer.devices.specs import check_spec
from placer.errors import BadInputError, first_twice, listed, short
from placer.files import Document, Name, complaint, read_input
from placer.graph.defaults import GROUPS
from placer.graph.pins import parse_pin
from search.session.registry import SEARCHERS

FORMAT = "placer.campaign/1"
Count = Annotated[int, msgspec.Meta(ge=1, le=1_000_000)]
Names = Annotated[list[Name], msgspec.Meta(min_length=1)]
Seed = Annotated[int, msgspec.Meta(ge=0, lt=2**32)]


class PredictedTable(Document):
    """A [[predicted]] table: every graph file on every topology file, judged by the simulator alone."""

    graphs: Names
    topologies: Names
    objective: Literal["makespan", "max-load"] = "makespan"
    schedule: Literal["rank", "donf", "fifo"] = "rank"
    pins: list[Name] = msgspec.field(default_factory=list)


class MeasuredTable(Document):
    """A [[measured]] table: every model on all devices of every entry, measured by the clock."""

    models: Names
    devices: Names
    batch: Count | None = None
    groups: Annotated[int, msgspec.Meta(ge=2)] = GROUPS
    pins: list[Name] = msgspec.field(default_factory=list)
    include_local: bool = False
    seed: Seed = 0


class SpecFile(Document):
    """The whole file."""

    format: str
    searchers: Names
    measurements: Count | Annotated[list[Count], msgspec.Meta(min_length=1)]
    seeds: Annotated[list[Seed], msgspec.Meta(min_length=1)] = msgspec.field(default_factory=lambda: [0])
    minutes: Annotated[float, msgspec.Meta(gt=0, le=1e12)] | None = None
    retries: Annotated[int, msgspec.Meta(ge=0, le=100)] = 1
    stop_after: Count = 5
    patience: Annotated[float, msgspec.Meta(ge=0, le=1e12)] = 60.0
    store: Name | None = None
    warm_start: list[Name] = msgspec.field(default_factory=list)
    predicted: list[PredictedTable] = msgspec.field(default_factory=list)
    measured: list[MeasuredTable] = msgspec.field(default_factory=list)


TABLES: dict[str, type[Document]] = {"predicted": PredictedTable, "measured": MeasuredTable}


@dataclass(frozen=True, kw_only=True)
class Spec:
    """A campaign: its cells in the order in which they are searched, and the limits of each search."""

    path: Path
    store: Path
    cells: tuple[Cell, ...]
    budgets: tuple[int, ...]  # measurements, ascending: a search takes the last number, and a report compares at each
    minutes: float | None  # of each cell
    retries: int  # of a measurement that failed
    stop_after: int  # failures in a row end the campaign
    patience: float  # minutes to wait for devices that went away
    warm_start: tuple[tuple[str, Path], ...] = ()  # other campaigns' stores, each with its name in the cases' terms

    @property
    def measurements(self) -> int:
        """The number of measurements that each cell may take."""
        return self.budgets[-1]

    @property
    def limits(self) -> Limits:
        """The limits of each cell's search."""
        return Limits(self.measurements, self.minutes)


def read_spec(path: Path, warm_start: Sequence[Path] = (), *, lenient: bool = False) -> Spec:
    """Read a campaign's file, and digest the graphs and topologies that it names. Raises BadInputError.

    warm_start: stores in addition to those in the file. lenient: files that the spec names may be missing, because
    nothing is to be run.
    """
    file = _parsed(path)
    _check_words(path, file)
    warm = _warm_start(path, file, warm_start)
    cases = [
        *(_predicted(path, table, i, lenient) for i, table in enumerate(file.predicted)),
        *(_measured(path, table, i, lenient) for i, table in enumerate(file.measured)),
    ]
    if not any(cases):
        raise BadInputError(f"{path}: there is nothing to search; add a table [[predicted]] or [[measured]].")
    cells = [
        Cell(_with_warm_start(case, warm), searcher, seed)
        for case in _unlike(path, [case for found in cases for case in found])
        for searcher, seed in product(_once(path, "searchers", file.searchers), _once(path, "seeds", file.seeds))
    ]
    counts = file.measurements if isinstance(file.measurements, list) else [file.measurements]
    store = beside(path.parent, file.store) if file.store else path.with_suffix(".sqlite")
    budgets = tuple(sorted(set(counts)))
    return Spec(
        path=path, store=store, cells=tuple(cells), budgets=budgets, minutes=file.minutes, retries=file.retries,
        stop_after=file.stop_after, patience=file.patience, warm_start=warm,
    )  # fmt: skip


def _parsed(path: Path) -> SpecFile:
    try:
        content = tomllib.loads(read_input(path, FORMAT).decode())
    except (ValueError, RecursionError) as error:  # not TOML, not UTF-8, or a number with too many digits
        raise BadInputError(f"{path}: not TOML: {error}; correct it there.") from None
    if content.get("format") != FORMAT:
        found = short(str(content["format"])) if "format" in content else "missing"
        raise BadInputError(f"{path}: the key format is {found}; this needs format = '{FORMAT}'.")
    try:
        return msgspec.convert(content, SpecFile)
    except msgspec.ValidationError as error:
        raise BadInputError(f"{path}: {_said(error)}.") from None


def _check_words(path: Path, file: SpecFile) -> None:
    for i, name in enumerate(file.searchers):
        if name not in SEARCHERS:
            known = ", ".join(sorted(SEARCHERS))
            raise BadInputError(f"{path}: searchers[{i}] is {short(name)}; choose one of {known}.")


def _warm_start(path: Path, file: SpecFile, more: Sequence[Path]) -> tuple[tuple[str, Path], ...]:
    """The stores that cases start from, each with its path relative to the folder of the spec as a name."""
    stores = [*(beside(path.parent, name) for name in _once(path, "warm_start", file.warm_start)), *more]
    folder = path.parent.resolve()
    return tuple({os.path.relpath(store.resolve(), folder): store for store in stores}.items())


def _with_warm_start(case: Case, warm: tuple[tuple[str, Path], ...]) -> Case:
    """The case with its warm start as a term, because a search that starts from other campaigns is another search."""
    return replace(case, terms={**case.terms, "warm_start": [name for name, _ in warm]}) if warm else case


def _predicted(path: Path, table: PredictedTable, i: int, lenient: bool) -> list[Case]:
    """The cases of a [[predicted]] table."""
    here = f"{path}: predicted[{i}]"
    try:
        for pin in table.pins:
            parse_pin(pin)
        return [
            graph_case(
                path.parent, graph, topology, table.objective, table.schedule, tuple(table.pins), lenient=lenient
            )
            for graph, topology in product(
                _once(path, f"predicted[{i}].graphs", table.graphs),
                _once(path, f"predicted[{i}].topologies", table.topologies),
            )
        ]
    except BadInputError as error:
        raise BadInputError(str(error) if str(error).startswith(str(path)) else f"{here}: {error}") from None


def _measured(path: Path, table: MeasuredTable, i: int, lenient: bool) -> list[Case]:
    """The cases of a [[measured]] table."""
    key = f"measured[{i}]"
    try:
        for pin in table.pins:
            parse_pin(pin)
        for model in [] if lenient else table.models:
            zoo.find(located(path.parent, model))
        for devices in [] if lenient else table.devices:
            check_spec(located(path.parent, devices))
    except BadInputError as error:
        raise BadInputError(f"{path}: {key}: {error}") from None
    return [
        model_case(
            path.parent, model, devices, batch=table.batch, groups=table.groups, pins=tuple(table.pins),
            include_local=table.include_local, seed=table.seed,
        )
        for model, devices in product(
            _once(path, f"{key}.models", table.models), _once(path, f"{key}.devices", table.devices)
        )
    ]  # fmt: skip


def _once(path: Path, key: str, values: list[Any]) -> list[Any]:
    """Return the values of a key. Raises BadInputError if one occurs twice."""
    twice = first_twice(values)
    if twice is not None:
        raise BadInputError(f"{path}: {key} has {short(str(twice))} twice; leave one of them out.")
    return values


def _unlike(path: Path, cases: list[Case]) -> list[Case]:
    """Return the cases. Raises BadInputError if two would be stored under one name."""
    known: dict[str, Case] = {}
    for case in cases:
        if case.key in known:
            differs = case.differences(known[case.key].terms)
            how = f"with another {differs[0][0]}" if differs else "once would do"
            raise BadInputError(f"{path}: {case.key} stands there twice, {how}; leave one of them out.")
        known[case.key] = case
    return cases


def _said(error: msgspec.ValidationError) -> str:
    """The error in the file's own words: which key is wrong, and what is allowed."""
    wrong, what, where = complaint(error)
    key = where.removeprefix("$").lstrip(".").removesuffix("[...]")
    table = re.match(r"\w*", key)
    kind = TABLES.get(table[0] if table else "", SpecFile)
    within = f" in {key}" if key else ""
    if wrong == "unknown field":
        return f"the key {short(what)}{within} is unknown; allowed are {', '.join(kind.__struct_fields__)}"
    if wrong == "missing field":
        return f"the key {what}{within} is missing; add it"
    if wrong == "invalid choice":
        return f"{key} is {short(what)}, which is none of the values it may have{_choices(kind, key)}"
    return f"{key}: {what}"


def _choices(kind: type[Document], key: str) -> str:
    """The allowed words of a key that takes one of a few, after a colon; "" for other keys."""
    hint = kind.__annotations__.get(key.rpartition(".")[2], "")
    words = re.findall(r'"([^"]+)"', str(hint)) or re.findall(r"'([^']+)'", str(hint))
    return f": {listed(words)}" if words else ""
