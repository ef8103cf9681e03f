"""Cells of a campaign: a case, which is a graph on a topology, searched by one searcher from one seed."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from placer.errors import BadInputError, short
from placer.files import read_whole
from search.problem.searcher import Stop, never

PREDICTED, MEASURED = "predicted", "measured"
MINUTES_UP = "its minutes are up."
DIGEST = 16  # characters


@dataclass(frozen=True)
class Case:
    """A graph or model and its devices. terms: by the keys of the spec, all that decides what a measurement means."""

    kind: str  # PREDICTED or MEASURED
    key: str  # its name in reports and in the store
    what: str  # the graph file or the model, as the spec writes it
    where: str  # the topology file or the devices
    folder: Path  # of the spec; file names are relative to it
    terms: Mapping[str, Any]

    @property
    def files(self) -> list[Path]:
        """The files that it is read from, such as a model's program and a topology. Raises BadInputError."""
        if self.kind == PREDICTED:
            return [beside(self.folder, self.what), beside(self.folder, self.where)]
        named = (self.what.rpartition(":")[0], self.where)
        return [beside(self.folder, name) for name in named if name.endswith((".py", ".json"))]

    def differences(self, stored: Mapping[str, Any]) -> list[tuple[str, Any, Any]]:
        """(key, value here, stored value) of each term that differs from `stored`."""
        names = dict.fromkeys((*self.terms, *stored))
        both = ((name, self.terms.get(name), stored.get(name)) for name in names)
        return [(name, here, there) for name, here, there in both if here != there]


@dataclass(frozen=True)
class Limits:
    """The limits of a search: measurements, and minutes over all its runs."""

    measurements: int
    minutes: float | None = None

    def allow(self, n: int, spent_s: float) -> bool:
        """Whether another measurement may begin after `n` of them, which took `spent_s` seconds."""
        return n < self.measurements and (self.minutes is None or spent_s < 60 * self.minutes)

    def up(self, begin_s: float, clock: Callable[[], float]) -> Stop:
        """Return a check whether the minutes are up. begin_s: the start of the search by `clock`, as if all its runs
        had been one.
        """
        minutes = self.minutes
        return never if minutes is None else lambda: clock() >= begin_s + 60 * minutes


@dataclass(frozen=True)
class Cell:
    """One search of a campaign."""

    case: Case
    searcher: str
    seed: int

    @property
    def key(self) -> str:
        """The cell's name in reports and in the store."""
        return f"{self.case.key}: {self.searcher}, seed {self.seed}"


def graph_case(
    folder: Path,
    graph: str,
    topology: str,
    objective: str,
    schedule: str,
    pins: tuple[str, ...],
    *,
    lenient: bool = False,
) -> Case:
    """The case of a graph file on a topology file. Raises BadInputError if one cannot be read, unless `lenient`."""
    terms = {
        "graphs": _digest(beside(folder, graph), lenient),
        "topologies": _digest(beside(folder, topology), lenient),
        "objective": objective,
        "schedule": schedule,
        "pins": list(pins),
    }
    name = f"{graph} on {topology}" + ("" if objective == "makespan" else f" ({objective})")
    return Case(PREDICTED, name, graph, topology, folder, terms)


def model_case(
    folder: Path,
    model: str,
    devices: str,
    *,
    batch: int | None,
    groups: int,
    pins: tuple[str, ...],
    include_local: bool,
    seed: int,
) -> Case:
    """The case of a model on devices, to be measured. Tracing checks later whether the model is still the same."""
    terms = {
        "models": model,
        "devices": devices,
        "batch": batch,
        "groups": groups,
        "pins": list(pins),
        "include_local": include_local,
        "seed": seed,
    }
    name = f"{model}{'' if batch is None else f' (batch {batch})'} on {devices}"
    return Case(MEASURED, name, model, devices, folder, terms)


def located(folder: Path, name: str) -> str:
    """The name of a model or of devices, with `folder` in front of the name of a file."""
    path, colon, function = name.rpartition(":")
    if path.endswith(".py"):
        return f"{beside(folder, path)}{colon}{function}"
    return str(beside(folder, name)) if name.endswith(".json") else name


def beside(folder: Path, name: str) -> Path:
    """A file as a spec in this folder names it; ~/ is the user's home. Raises BadInputError if there is none."""
    if not name.startswith("~/"):
        return folder / name
    try:
        return Path(name).expanduser()
    except RuntimeError:
        raise BadInputError(f"{short(name)}: this user has no home folder; write the whole path.") from None


def _digest(path: Path, lenient: bool) -> str | None:
    """A digest of the file's content. A file that cannot be read gives None if `lenient`, else a BadInputError."""
    try:
        return hashlib.sha256(read_whole(path, "placer.graph/1 or placer.topology/1")).hexdigest()[:DIGEST]
    except BadInputError:
        if lenient:
            return None
        raise
