"""`placer scale`: a fitted formula, its predictions, and a captured step scaled. TensorFlow is not needed."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict
from functools import partial
from pathlib import Path
from typing import Any

from placer.errors import BadInputError, short
from placer.graph.graph_files import read_graph, read_topology
from placer.graph.topology import Topology
from surrogate.scaling.files import formula
from surrogate.scaling.fit import FitSettings
from surrogate.scaling.fit import fit as fitted
from surrogate.scaling.form import Form
from surrogate.scaling.model import LEVEL, ScalingModel, Value
from surrogate.scaling.reading import factors, intervals, sentences, stops_paying
from surrogate.scaling.runs import Runs, read_runs
from surrogate.scaling.sync_sgd import Iteration, SgdSettings, iterations

Facts = dict[str, Any]
MODEL_FACTS = ("target", "rows", "mape", "mape_cv", "penalty", "weight", "seed", "scale")
LANES = ("compute", "network", "io", "copy")


def fit_command(
    data: Path,
    target: str,
    form: Form,
    settings: FitSettings,
    pays: float,
    advance: Callable[[str], None],
) -> tuple[Facts, ScalingModel]:
    """Fit a model to runs. Return the facts that `placer scale fit --json` prints, and the model.

    From a large table, rows are drawn at random (`read_runs`), and `drawn_from` is the number of its rows. Raises
    BadInputError for data or options that cannot be used.
    """
    begin_s = time.perf_counter()
    runs = read_runs(data, [target, *form.columns], seed=settings.seed)
    model = fitted(runs, form, target, settings, advance)
    return {**fit_facts(model, runs, pays), "seconds": time.perf_counter() - begin_s}, model


def fit_facts(model: ScalingModel, runs: Runs, pays: float) -> Facts:
    """The formula, its errors and its reading."""
    constants = intervals(model)
    return {
        **{name: getattr(model, name) for name in MODEL_FACTS},
        "drawn_from": runs.drawn_from,
        "form": str(model.coding.form),
        "formula": formula(model),
        "typical": dict(model.coding.typical),
        "constants": {name: {"value": v, "low": a, "high": b} for name, (v, a, b) in constants.items()},
        "factors": [asdict(factor) for factor in factors(model, runs.columns)],
        "shares": model.shares(runs.columns),
        "reading": sentences(model, runs.columns, pays),
    }


def prediction_facts(
    model: ScalingModel, given: Mapping[str, Value], name: str | None, values: Sequence[Value], pays: float
) -> Facts:
    """The facts that `placer scale predict --json` prints: a run with `given`, or one for each of the `values` of the
    column `name`.

    Raises BadInputError for an unknown column or a value that cannot be used.
    """
    row = model.row(given)
    if name in given:
        raise BadInputError(f"{short(str(name))} is both given and varied; leave one out.")
    for value in values:
        model.row({**row, str(name): value})
    found = model.predict(model.table(row, name, values))
    cells = values if name is not None else [None]
    names = ("value", model.target, "low", "high", "ratio")
    rows = [
        dict(zip(names, (cell, float(t), float(low), float(high), float(t / found.value[0])), strict=True))
        for cell, t, low, high in zip(cells, *found, strict=True)
    ]
    return {
        "target": model.target,
        "run": {key: value for key, value in row.items() if key != name},
        "assumed": [key for key in row if key != name and key not in given],
        "vary": name,
        "rows": rows,
        "level": LEVEL,
        "outside": _outside(model, row, name, values),
        "stops_paying": _stops(model, row, name, pays),
    }


def sgd_command(
    graph_path: Path, topology_path: Path, counts: Sequence[int], settings: SgdSettings, pays: float
) -> tuple[Facts, Iteration]:
    """The facts that `placer scale sgd --json` prints for `counts` of devices, and the iteration with the last count.

    Raises BadInputError for files, options or graphs that cannot be used.
    """
    graph, topology = read_graph(graph_path), read_topology(topology_path)
    on = iterations(graph, topology, settings)
    found, one = [on(count) for count in counts], on(1)
    rows = [_sgd_row(row, one) for row in found]
    gains = {row.devices: _gain(row, partial(on, row.devices + 1)) for row in found}
    facts = {
        "graph": graph.name,
        **{name: getattr(settings, name) for name in ("form", "overlap", "batch")},
        "assumed_alike": max(max(counts) - len(topology), 0),
        "rows": rows,
        "stops_paying": next((count for count in counts if (gain := gains[count]) is not None and gain < pays), None),
        "pays": pays,
        "note": _of_port(topology, settings, max(counts)),
    }
    return facts, found[-1]


def _of_port(topology: Topology, settings: SgdSettings, devices: int) -> str | None:
    """A sentence if several devices use the server's port as if each had it alone, as the topology says; else None."""
    if settings.form != "server" or topology.contention == "port" or devices < 3:
        return None
    return (
        f"By contention {topology.contention}, transfers between the server and different devices never wait for each "
        "other, however many there are, so its network never fills up; if they share a port, write "
        '"contention": "port" into the topology.'
    )


def _gain(found: Iteration, with_another: Callable[[], Iteration]) -> float | None:
    """The share by which training is faster with one more device; None if that device cannot take part."""
    try:
        return with_another().batches_per_s / found.batches_per_s - 1
    except BadInputError:
        return None


def _sgd_row(found: Iteration, one: Iteration) -> Facts:
    speedup = found.batches_per_s / one.batches_per_s
    return {
        "devices": found.devices,
        "iteration_s": found.iteration_s,
        "speedup": speedup,
        "efficiency": speedup / found.devices,
        "exposed_s": found.exposed_s,
        **{f"{lane}_s": found.busy_s(lane) for lane in LANES},
    }


def _outside(model: ScalingModel, row: Mapping[str, Value], name: str | None, values: Sequence[Value]) -> list[str]:
    """A phrase for each column whose value is outside what was measured; for the varied column, its lowest and highest
    values are checked.
    """
    found = model.outside({**row, name: model.usual[name]} if name is not None else row)
    ends = [value for value in values if not isinstance(value, str)]
    for end in {min(ends), max(ends)} if ends and name is not None else ():
        found += [phrase for phrase in model.outside({**model.usual, str(name): end}) if phrase not in found]
    return found


def _stops(model: ScalingModel, row: Mapping[str, Value], name: str | None, pays: float) -> str | None:
    """A sentence that says from which value on one more no longer pays, if runs get shorter along the varied column."""
    if name is None or name in model.coding.levels:
        return None
    pair = model.values(model.table(row, name, [1.0, 2.0]))
    if pair[1] >= pair[0]:
        return None
    where = stops_paying(model, row, name, pays)
    return None if where is None else f"From {name} {where} on, one more brings less than {pays:.0%}."
