"""What `placer scale` does: facts first, then tables and curves. TensorFlow is never loaded."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from experiments.report.gantt import printable
from experiments.report.scaling_plot import Curve, SgdCurve, check_plot, draw_curve, draw_sgd
from placer.errors import BadInputError, short
from placer.graph.graph_files import read_graph, read_topology
from surrogate.scaling.files import check_target, formula, read_scaling, write_scaling
from surrogate.scaling.fit import FitSettings
from surrogate.scaling.fit import fit as fitted
from surrogate.scaling.form import Form
from surrogate.scaling.model import LEVEL, ScalingModel, Value
from surrogate.scaling.reading import factors, intervals, sentences, stops_paying
from surrogate.scaling.runs import Runs, read_runs
from surrogate.scaling.sync_sgd import Iteration, SgdSettings, iteration

Facts = dict[str, Any]
MOST_VALUES = 64  # of a range of whole numbers, one by one
POINTS = 33  # of any other range
NOTHING = 1e-6  # of a constant
TEXT_COLUMNS = 72  # of an iteration drawn as text


def fit_command(
    data: Path, target: str, intrinsic: str, extrinsic: str, penalty: str, exponents: str, samples: int, pays: float,
    seed: int, out: Path | None, quiet: bool,
) -> Facts:  # fmt: skip
    """What `placer scale fit --json` prints. Raises BadInputError for data or options that cannot be used."""
    begin_s = time.perf_counter()
    bounds = _bounds(exponents)
    _check_pays(pays)
    check_target(out)
    form = Form.parse(intrinsic, extrinsic)
    runs = read_runs(data, [target, *form.columns])
    settings = FitSettings(bounds, bounds, penalty, samples=samples, seed=seed)
    with _status(quiet) as advance:
        model = fitted(runs, form, target, settings, advance)
    if out is not None:
        write_scaling(out, model)
        print(f"wrote {out}", file=sys.stderr)
    return {**fit_facts(model, runs, pays), "seconds": time.perf_counter() - begin_s}


def fit_facts(model: ScalingModel, runs: Runs, pays: float) -> Facts:
    """The formula, its errors and its reading."""
    constants = intervals(model)
    return {
        "target": model.target,
        "form": str(model.coding.form),
        "formula": formula(model),
        "rows": model.rows,
        "mape": model.mape,
        "mape_cv": model.mape_cv,
        "penalty": model.penalty,
        "weight": model.weight,
        "seed": model.seed,
        "scale": model.scale,
        "typical": dict(model.coding.typical),
        "constants": {name: {"value": v, "low": a, "high": b} for name, (v, a, b) in constants.items()},
        "factors": [
            {"name": f.name, "matters": f.matters, "ratio": f.ratio, "power": f.power, "low": f.low, "high": f.high}
            for f in factors(model, runs.columns)
        ],
        "shares": model.shares(runs.columns),
        "reading": sentences(model, runs.columns, pays),
    }


def show_fit(facts: Facts) -> None:
    """The formula, what each column does, the constants, and the reading."""
    console = Console()
    console.print(facts["formula"], highlight=False, soft_wrap=True, markup=False)
    console.print(
        f"{facts['rows']} runs; off by {facts['mape']:.1%} on average, on runs left out by {facts['mape_cv']:.1%} "
        f"(penalty {facts['penalty']}, weight {facts['weight']:g})",
        highlight=False,
    )
    table = Table("column", title="what the columns do", title_justify="left")
    for column in ("matters", "highest / lowest", "power", f"in {LEVEL:.0%} of samples"):
        table.add_column(column, justify="right")
    for row in facts["factors"]:
        power = ("", "") if row["power"] is None else (f"{row['power']:.2f}", f"{row['low']:.2f} to {row['high']:.2f}")
        table.add_row(_name(row["name"]), f"{row['matters']:.0%}", f"{row['ratio']:.3g}x", *power)
    console.print(table)
    table = Table("constant", title="constants, of columns over their typical values", title_justify="left")
    for column in ("value", f"in {LEVEL:.0%} of samples"):
        table.add_column(column, justify="right")
    for name, row in facts["constants"].items():
        value, low, high = (f"{row[key]:.3g}" if abs(row[key]) > NOTHING else "0" for key in ("value", "low", "high"))
        table.add_row(_name(name), value, f"{low} to {high}")
    console.print(table)
    for line in facts["reading"]:
        console.print(line, highlight=False, soft_wrap=True, markup=False)


def predict_command(path: Path, given: Sequence[str], vary: str | None, plot: Path | None, pays: float) -> Facts:
    """What `placer scale predict --json` prints; with `plot` the curve along `vary` is drawn there.

    Raises BadInputError for a model, a column or a value that is none.
    """
    check_plot(plot)
    _check_pays(pays)
    if plot is not None and vary is None:
        raise BadInputError("--plot draws a curve along one column; name it with --vary NAME=FROM..TO.")
    model = read_scaling(path)
    row = model.row(dict(_assigned(model, text) for text in given))
    name, values = _varied(model, vary) if vary else (None, [])
    if name is not None and any(text.split("=")[0].strip() == name for text in given):
        raise BadInputError(f"{short(name)} is both given and varied; leave one out.")
    for value in values:
        model.row({**row, str(name): value})
    found = model.predict(model.table(row, name, values))
    cells = values if name is not None else [None]
    rows = [
        {
            "value": cell,
            model.target: float(t),
            "low": float(low),
            "high": float(high),
            "ratio": float(t / found.value[0]),
        }
        for cell, t, low, high in zip(cells, *found, strict=True)
    ]
    facts = {
        "target": model.target,
        "run": {key: value for key, value in row.items() if key != name},
        "assumed": [key for key in row if key != name and all(text.split("=")[0].strip() != key for text in given)],
        "vary": name,
        "rows": rows,
        "level": LEVEL,
        "outside": _outside(model, row, name, values),
        "stops_paying": _stops(model, row, name, pays),
    }
    if plot is not None and name is not None:
        draw_curve(_curve(model, facts), plot)
    return facts


def show_prediction(facts: Facts) -> None:
    """One line, or a table along the column that varies."""
    console = Console()
    run = ", ".join(f"{key} {_plain(value)}" for key, value in facts["run"].items())
    console.print(f"{facts['target']} of a run with {run}", highlight=False, soft_wrap=True, markup=False)
    if facts["assumed"]:
        console.print(f"(usual values: {', '.join(facts['assumed'])})", highlight=False, soft_wrap=True, markup=False)
    table = Table(_name(facts["vary"] or ""))
    for column in (facts["target"], f"{facts['level']:.0%} of runs", "x the first"):
        table.add_column(_name(column), justify="right")
    for row in facts["rows"]:
        interval = f"{row['low']:.4g} to {row['high']:.4g}"
        value = "" if row["value"] is None else _plain(row["value"])
        table.add_row(_name(value), f"{row[facts['target']]:.4g}", interval, f"{row['ratio']:.3g}")
    console.print(table)
    for phrase in facts["outside"]:
        console.print(f"Outside what was measured: {phrase}.", highlight=False, soft_wrap=True, markup=False)
    if facts["stops_paying"]:
        console.print(facts["stops_paying"], highlight=False, soft_wrap=True, markup=False)


def sgd_command(
    graph_path: Path, topology_path: Path, devices: str, settings: SgdSettings, plot: Path | None, pays: float
) -> tuple[Facts, str]:
    """What `placer scale sgd --json` prints, and the largest iteration drawn as text.

    Raises BadInputError for files, options or graphs that cannot be used.
    """
    check_plot(plot)
    _check_pays(pays)
    counts = _counts(devices)
    graph, topology = read_graph(graph_path), read_topology(topology_path)
    found = [iteration(graph, topology, count, settings) for count in counts]
    one = iteration(graph, topology, 1, settings)
    rows = [_sgd_row(row, one) for row in found]
    following = {n: iteration(graph, topology, n + 1, settings).batches_per_s for n in counts}
    gains = {row.devices: following[row.devices] / row.batches_per_s - 1 for row in found}
    facts = {
        "graph": graph.name,
        "form": settings.form,
        "overlap": settings.overlap,
        "batch": settings.batch,
        "assumed_alike": max(max(counts) - len(topology), 0),
        "rows": rows,
        "stops_paying": next((count for count in counts if gains[count] < pays), None),
        "pays": pays,
    }
    if plot is not None:
        title = f"{printable(graph.name, 60)}: synchronous SGD, {settings.form}"
        draw_sgd(SgdCurve(title, tuple(rows)), plot)
    return facts, drawn(found[-1])


def _sgd_row(found: Iteration, one: Iteration) -> Facts:
    speedup = found.batches_per_s / one.batches_per_s
    return {
        "devices": found.devices,
        "iteration_s": found.iteration_s,
        "speedup": speedup,
        "efficiency": speedup / found.devices,
        "compute_s": found.busy_s("compute"),
        "network_s": found.busy_s("network"),
        "exposed_s": found.exposed_s,
        "io_s": found.busy_s("io"),
        "copy_s": found.busy_s("copy"),
    }


def drawn(found: Iteration) -> str:
    """The iteration as text, its layers numbered in the order of the forward pass: 3, 2, 1 on the way back."""
    names = list(dict.fromkeys(p.name for p in found.pieces if p.name not in ("io", "copy", "forward", "update")))
    letter = {name: str((len(names) - i) % 10) for i, name in enumerate(names)}
    pieces = [piece._replace(name=letter.get(piece.name, piece.name[0])) for piece in found.pieces]
    return replace(found, pieces=tuple(pieces)).as_text(found.iteration_s / TEXT_COLUMNS)


def show_sgd(facts: Facts, text: str) -> None:
    """A row per number of devices, and the last iteration as text."""
    console = Console()
    title = f"{facts['graph']}: synchronous SGD, {facts['form']}, batch {facts['batch']}"
    table = Table("devices", title=_name(title), title_justify="left")
    for column in ("iteration", "speed-up", "efficiency", "compute", "network", "waits"):
        table.add_column(column, justify="right")
    for row in facts["rows"]:
        times = [f"{row[key] * 1e3:.1f} ms" for key in ("compute_s", "network_s", "exposed_s")]
        iteration_s = f"{row['iteration_s'] * 1e3:.1f} ms"
        table.add_row(str(row["devices"]), iteration_s, f"{row['speedup']:.2f}x", f"{row['efficiency']:.0%}", *times)
    console.print(table)
    console.print(f"On {facts['rows'][-1]['devices']} devices:", highlight=False)
    console.print(text, highlight=False, markup=False, soft_wrap=True)
    if facts["assumed_alike"]:
        console.print(f"{facts['assumed_alike']} devices more than the topology has are taken to be like these.")
    if facts["stops_paying"] is not None:
        line = f"From {facts['stops_paying']} devices on, one more brings less than {facts['pays']:.0%}."
        console.print(line, highlight=False)


def _bounds(text: str) -> tuple[float, float]:
    low, _, high = text.partition("..")
    try:
        return float(low), float(high)
    except ValueError:
        raise BadInputError(f"--exponents is {short(text)}; write it as -3..3.") from None


def _check_pays(pays: float) -> None:
    if not 0 < pays < 1:
        raise BadInputError(f"--pays is {pays}; give a share between 0 and 1.")


def _assigned(model: ScalingModel, text: str) -> tuple[str, Value]:
    name, equals, value = (part.strip() for part in text.partition("="))
    if not equals:
        raise BadInputError(f"{short(text)} sets nothing; write name=value.")
    return name, _value(model, name, value)


def _value(model: ScalingModel, name: str, text: str) -> Value:
    if name in model.coding.levels:
        return text
    try:
        return float(text)
    except ValueError:
        return text


def _varied(model: ScalingModel, text: str) -> tuple[str, list[Value]]:
    name, equals, values = (part.strip() for part in text.partition("="))
    if not equals or not values:
        raise BadInputError(f"--vary is {short(text)}; write it as NAME=FROM..TO or NAME=a,b,c.")
    if name not in model.usual:
        model.row({name: values})
    if ".." in values and name not in model.coding.levels:
        return name, list(_range(values, f"--vary {name}"))
    return name, [_value(model, name, part.strip()) for part in values.split(",")]


def _range(text: str, where: str) -> list[float]:
    """1..16: each whole number, or POINTS of them where there are many; 0.1..0.9: POINTS numbers."""
    low_text, _, high_text = text.partition("..")
    try:
        low, high = float(low_text), float(high_text)
    except ValueError:
        raise BadInputError(f"{where}: {short(text)} is no range; write it as 1..16.") from None
    if not 0 <= low < high < np.inf:
        raise BadInputError(f"{where}: {short(text)} is no range; the first number is the smaller one, and 0 or more.")
    whole = low.is_integer() and high.is_integer()
    if whole and high - low < MOST_VALUES:
        return [float(value) for value in range(int(low), int(high) + 1)]
    values = np.geomspace(low, high, POINTS) if low > 0 else np.linspace(low, high, POINTS)
    return sorted({round(value) if whole else float(value) for value in values.tolist()})


def _counts(text: str) -> list[int]:
    values = _range(text, "--devices") if ".." in text else [_count(part) for part in text.split(",")]
    return sorted({_count(str(int(value))) for value in values})


def _count(text: str) -> int:
    if not text.strip().isdigit() or not 1 <= int(text) <= 4096:
        raise BadInputError(f"--devices: {short(text)} is no number of devices from 1 to 4096; write 1..16 or 1,2,4.")
    return int(text)


def _outside(model: ScalingModel, row: Mapping[str, Value], name: str | None, values: Sequence[Value]) -> list[str]:
    """Phrases, of the fixed columns and of the furthest values that vary."""
    found = model.outside({**row, name: model.usual[name]} if name is not None else row)
    ends = [value for value in values if not isinstance(value, str)]
    for end in {min(ends), max(ends)} if ends and name is not None else ():
        found += [phrase for phrase in model.outside({**model.usual, str(name): end}) if phrase not in found]
    return found


def _stops(model: ScalingModel, row: Mapping[str, Value], name: str | None, pays: float) -> str | None:
    """Where one more no longer pays, for a column along which runs get shorter."""
    if name is None or name in model.coding.levels:
        return None
    pair = model.values(model.table(row, name, [1.0, 2.0]))
    if pair[1] >= pair[0]:
        return None
    where = stops_paying(model, row, name, pays)
    return None if where is None else f"From {name} {where} on, one more brings less than {pays:.0%}."


def _curve(model: ScalingModel, facts: Facts) -> Curve:
    name, rows = facts["vary"], facts["rows"]
    run = ", ".join(f"{key} {_plain(value)}" for key, value in facts["run"].items())
    at = tuple(row["value"] if isinstance(row["value"], str) else float(row["value"]) for row in rows)
    return Curve(
        title=printable(run, 110),
        x_name=printable(name, 40),
        y_name=printable(model.target, 40),
        at=at,
        value=tuple(row[model.target] for row in rows),
        low=tuple(row["low"] for row in rows),
        high=tuple(row["high"] for row in rows),
        measured=model.ranges.get(name),
    )


def _name(text: str) -> str:
    return escape(printable(str(text), 60))


def _plain(value: Value) -> str:
    return value if isinstance(value, str) else f"{value:g}"


@contextmanager
def _status(quiet: bool) -> Iterator[Callable[[str], None]]:
    """Yields what shows each part of the work, on stderr."""
    with Console(stderr=True, quiet=quiet).status("reading") as status:
        yield status.update
