"""The generic performance model on measured runs: held out, on larger networks, over seeds, against black boxes."""

from __future__ import annotations

import csv
import sys
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from functools import partial
from io import StringIO
from multiprocessing import get_context
from pathlib import Path

import numpy as np

from experiments.benches.bench import FOLDER, BenchOptions, Facts
from experiments.benches.comparisons import kept
from experiments.benches.process import alone
from experiments.benches.sampling import Share
from experiments.benches.scaling.design import DEVICES, FORMS, FREE, JOINED, SPACES, SUM, Config, design
from experiments.benches.scaling.judge import GENERIC, TARGET, pooled, study
from experiments.benches.scaling.plot import draw, picture_of
from experiments.benches.scaling.runs import measure
from placer.errors import BadInputError, PlacerError
from placer.files import write_whole
from surrogate.scaling.runs import Runs

CONFIGS = 312  # of all kinds together
FEWEST = 30  # of one kind
CHUNK = 26  # networks measured in one process
AGAIN = 12  # measured twice, to know what the clock itself is off by
PICTURE = Path("docs/scaling.png")


def run(options: BenchOptions) -> Facts:
    """Measure, some tens of networks in a process of their own; those kept by --runs are not measured again. Judge.

    --model: kinds of networks; --measurements: networks of all kinds together.
    """
    begin_s = time.perf_counter()
    kinds = options.models or tuple(SPACES)
    configs = _designed(kinds, options.measurements or CONFIGS)
    rows = _measured(options, configs)
    measured_s = sum(row["took_s"] for row in rows if "failed" not in row)
    good, twice = _told(configs, rows)
    facts = judged(good) | {"n_failed": len(configs) - len(good), "noise": twice, "measured_s": measured_s}
    facts["seconds"] = time.perf_counter() - begin_s
    if options.record:
        facts["data"] = [_keep_data(kind, good) for kind in kinds]
        PICTURE.parent.mkdir(exist_ok=True)
        draw(picture_of(facts), PICTURE)
    return facts


def _designed(kinds: Sequence[str], count: int) -> list[Config]:
    for kind in kinds:
        if kind not in SPACES:
            raise BadInputError(f"--model {kind!r} is no kind of network; choose of {', '.join(SPACES)}.")
    if count < FEWEST * len(kinds):
        raise BadInputError(
            f"--measurements is {count}; give at least {FEWEST * len(kinds)}, or there is nothing to be judged by."
        )
    by_kind = [design(kind, -(-count // len(kinds)), seed=i) for i, kind in enumerate(kinds)]
    in_turn = [config for together in zip(*by_kind, strict=True) for config in together]
    return in_turn[:count]


def _measured(options: BenchOptions, configs: Sequence[Config]) -> list[Facts]:
    """A row per config, and one more for each of the first AGAIN, measured last."""
    asked = [*configs, *configs[:AGAIN]]
    rows: list[Facts] = []
    for i, chunk in enumerate(_chunks(asked)):
        records = [config.to_record() for config in chunk]
        share = Share(len(rows), len(asked))
        begin_s = time.perf_counter()
        measured = partial(_in_process, records, share)
        found = kept(options, f"scaling-{i:02d}", {"part": "scaling", "configs": records}, measured)
        rows += found.get("rows", [found] * len(chunk))
        took_s = time.perf_counter() - begin_s
        left_s = took_s / len(chunk) * (len(asked) - len(rows))
        outcome = found.get("failed", f"measured in {took_s:.0f} s")
        print(f"{len(rows)} of {len(asked)} networks: {outcome}; about {left_s / 60:.0f} min left", file=sys.stderr)
    return rows


def _chunks(configs: Sequence[Config]) -> Iterator[Sequence[Config]]:
    for i in range(0, len(configs), CHUNK):
        yield configs[i : i + CHUNK]


def _in_process(records: Sequence[Facts], share: Share) -> Facts:
    try:
        return alone(measure, records, share)
    except PlacerError as error:
        return {"failed": str(error)}


def _told(configs: Sequence[Config], rows: Sequence[Facts]) -> tuple[list[tuple[Config, float]], float]:
    """(config, seconds) of those that ran, in the time of a typical reference; how far apart two measurements are.

    Raises PlacerError where none ran.
    """
    ran = [(config, row) for config, row in zip(configs, rows, strict=False) if "failed" not in row]
    if not ran:
        raise PlacerError(f"no network could be measured: {rows[0]['failed']}")
    typical_s = {
        devices: float(np.median([row["reference_s"] for config, row in ran if config.devices == devices] or [0.0]))
        for devices in range(1, DEVICES + 1)
    }
    good = [(config, row["ratio"] * typical_s[config.devices]) for config, row in ran]
    pairs = zip(rows[:AGAIN], rows[len(configs) :], strict=False)
    apart = [abs(b["ratio"] / a["ratio"] - 1) for a, b in pairs if "failed" not in a and "failed" not in b]
    return good, float(np.mean(apart)) if apart else 0.0


def judged(good: Sequence[tuple[Config, float]]) -> Facts:
    """What the study says of all kinds, and of all runs together. Two kinds are judged at a time."""
    kinds = list(dict.fromkeys(config.kind for config, _ in good))
    with ProcessPoolExecutor(2, mp_context=get_context("spawn")) as pool:
        parts = []
        for kind in kinds:
            of_kind = [(config, step_s) for config, step_s in good if config.kind == kind]
            operations = np.array([config.operations for config, _ in of_kind])
            parts.append(pool.submit(study, kind, runs_of(of_kind), operations))
        by_kind = {kind: part.result() for kind, part in zip(kinds, parts, strict=True)}
    held_out, beyond = pooled(by_kind, "held_out"), pooled(by_kind, "extrapolation")
    boxes = {name: error for name, error in beyond.items() if not name.startswith(GENERIC)}
    best = min(boxes, key=boxes.__getitem__)
    for facts in by_kind.values():
        for part in ("held_out", "extrapolation"):
            facts[part] = {name: float(np.mean(errors)) for name, errors in facts[part].items()}
    return {
        "n_runs": len(good),
        "mape_heldout": held_out[GENERIC],
        "mape_extrapolation": beyond[GENERIC],
        "best_blackbox_extrapolation": boxes[best],
        "best_blackbox": best,
        "best_blackbox_heldout": min(e for name, e in held_out.items() if not name.startswith(GENERIC)),
        "table": [{"model": name, "held_out": e, "extrapolation": beyond.get(name)} for name, e in held_out.items()],
        "by_kind": by_kind,
        "forms": {kind: {name: list(FORMS[kind][name]) for name in (SUM, JOINED, FREE)} for kind in kinds},
        "devices": DEVICES,
    }


def runs_of(good: Sequence[tuple[Config, float]], source: str = "the measured runs") -> Runs:
    """Runs of one kind as a table; columns that never change are left out."""
    cells = {name: [config.columns[name] for config, _ in good] for name in good[0][0].columns}
    cells = {name: column for name, column in cells.items() if len(set(column)) > 1}
    return Runs.of({**cells, TARGET: [step_s for _, step_s in good]}, source)


def _keep_data(kind: str, good: Sequence[tuple[Config, float]]) -> str:
    """The runs of one kind as CSV, ready for `placer scale fit`."""
    path = FOLDER / f"scaling-{kind}.csv"
    text = StringIO()
    of_kind = [(config, step_s) for config, step_s in good if config.kind == kind]
    rows = csv.writer(text, lineterminator="\n")
    rows.writerow([*of_kind[0][0].columns, "operations", TARGET])
    for config, step_s in of_kind:
        rows.writerow([*config.columns.values(), f"{config.operations:.6g}", f"{step_s:.6g}"])
    write_whole(path, text.getvalue().encode())
    return str(path)
