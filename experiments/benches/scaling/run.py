"""The generic performance model on measured runs: held out, on larger networks, over seeds, against black boxes."""

from __future__ import annotations

import sys
import time
from collections.abc import Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import asdict
from functools import partial
from multiprocessing import get_context
from pathlib import Path

import numpy as np

from experiments.benches.bench import FOLDER, BenchOptions, Facts, csv_bytes, data_facts
from experiments.benches.kept_runs import kept
from experiments.benches.process import SILENT, environment, facts_alone, some_failed
from experiments.benches.scaling.design import CHUNKS, DEVICES, FORMS, SPACES, Config, check_kind, design
from experiments.benches.scaling.judge import GENERIC, SEEDS, TARGET, pooled, study
from experiments.benches.scaling.runs import LEAST, MOST, measure
from experiments.benches.scaling.sgd_clock import DESIGN_SEED, judged_sgd, measure_sgd, sgd_configs
from experiments.benches.scaling.shared_cores import own_cores
from experiments.benches.taken_options import Takes
from placer.errors import BadInputError, PlacerError
from placer.files import write_whole
from surrogate.scaling.runs import Runs

CONFIGS = 240  # of all kinds together
SGD_CONFIGS = 2  # of each kind, whose iterations are predicted by the formula of synchronous SGD
FEWEST = 36  # of one kind: the plain form has up to 17 constants, and is chosen on half of the runs
CHUNK = 36  # networks measured in one process
CHUNK_S = 3600.0  # limit for one process, which takes minutes
AGAIN = 12  # networks measured twice, to know the error of the measurement itself
TAKES = Takes(models=check_kind, measurements=FEWEST, runs=True)


def bench_facts(options: BenchOptions) -> Facts:
    """Measure the networks, some tens in each process, and judge the models. Networks kept by --runs are not measured
    again.

    --model: kinds of networks. --measurements: number of networks of all kinds together.
    """
    begin_s = time.perf_counter()
    kinds = options.models or tuple(SPACES)
    configs = _designed(kinds, options.measurements or CONFIGS)
    sgd = _sgd(options, kinds)
    rows = _measured(options, configs)
    good, noise = _leveled(configs, rows)
    facts = judged(good) | {
        "sgd_mape": sgd.get("sgd_mape"),
        "sgd_mape_oversubscribed": sgd.get("sgd_mape_oversubscribed"),
        "sgd": sgd,
        "n_failed": len(configs) - len(good),
        "missing": _missing(rows, sgd),
        "noise": noise,
        "measured_s": sum(row["took_s"] for row in rows if "failed" not in row),
        "seconds": time.perf_counter() - begin_s,
        "seeds": [*range(len(kinds)), *(DESIGN_SEED + i for i in range(len(SPACES)))],  # of both designs
        "repeats": {"steps at least": LEAST, "steps at most": MOST, "fits by seed": SEEDS},
    }
    if options.record:
        facts |= data_facts(lambda: [str(_keep_data(kind, good)) for kind in kinds])
    return facts


def _missing(rows: Sequence[Facts], sgd: Facts) -> Facts:
    """What failed and why, because a record with failures is made again."""
    missing = {"networks": found} if (found := some_failed(rows)) else {}
    return missing | ({"synchronous SGD": {"failed": "; ".join(sgd["lost"])}} if sgd.get("lost") else {})


def _designed(kinds: Sequence[str], count: int) -> list[Config]:
    if count < FEWEST * len(kinds):
        raise BadInputError(
            f"--measurements is {count}; give at least {FEWEST * len(kinds)}, or there is nothing to be judged by."
        )
    by_kind = [design(kind, -(-count // len(kinds)), len(own_cores()), seed=i) for i, kind in enumerate(kinds)]
    in_turn = [config for together in zip(*by_kind, strict=True) for config in together]
    return in_turn[:count]


def _sgd(options: BenchOptions, kinds: Sequence[str]) -> Facts:
    """The formula of synchronous SGD against the clock, or {"failed": line}."""
    records = [asdict(config) for config in sgd_configs(kinds, SGD_CONFIGS)]
    print(f"synchronous SGD of {len(records)} networks, by formula and by the clock", file=sys.stderr)
    settings = {"part": "scaling-sgd", "configs": records}
    with environment(SILENT):
        found = kept(options, "scaling-sgd", settings, partial(facts_alone, measure_sgd, records, seconds=CHUNK_S))
    return judged_sgd(found) if found.get("rows") else {"failed": found.get("failed", "no network was measured")}


def _measured(options: BenchOptions, configs: Sequence[Config]) -> list[Facts]:
    """A row per config, and one more for each of the first AGAIN, measured last."""
    asked = [*configs, *configs[:AGAIN]]
    rows: list[Facts] = []
    for first in range(0, len(asked), CHUNK):
        records = [asdict(config) for config in asked[first : first + CHUNK]]
        settings = {"part": "scaling", "configs": records}
        begin_s = time.perf_counter()
        measuring = partial(facts_alone, measure, records, seconds=CHUNK_S)
        found = kept(options, f"scaling-{first // CHUNK:02d}", settings, measuring)
        rows += found.get("rows", [found] * len(records))
        took_s = time.perf_counter() - begin_s
        left_s = took_s / len(records) * (len(asked) - len(rows))
        outcome = found.get("failed", f"measured in {took_s:.0f} s")
        print(f"{len(rows)} of {len(asked)} networks: {outcome}; about {left_s / 60:.0f} min left", file=sys.stderr)
    return rows


def _leveled(configs: Sequence[Config], rows: Sequence[Facts]) -> tuple[list[tuple[Config, float]], float]:
    """(config, seconds) of the networks that ran, as if each had run beside a typical reference; and the noise: how far
    apart two measurements of the same network are.

    Raises PlacerError if no network ran.
    """
    ran = [(config, row) for config, row in zip(configs, rows, strict=False) if "failed" not in row]
    if not ran:
        raise PlacerError(f"no network could be measured: {rows[0]['failed']}")
    typical_s = {
        devices: float(np.median([row["reference_s"] for config, row in ran if config.devices == devices]))
        for devices in {config.devices for config, _ in ran}
    }
    good = [(config, row["ratio"] * typical_s[config.devices]) for config, row in ran]
    pairs = zip(rows[:AGAIN], rows[len(configs) :], strict=False)
    apart = [abs(b["ratio"] / a["ratio"] - 1) for a, b in pairs if "failed" not in a and "failed" not in b]
    return good, float(np.mean(apart)) if apart else 0.0


def judged(good: Sequence[tuple[Config, float]]) -> Facts:
    """The results of the study for each kind, and for all runs together. Two kinds are judged at a time."""
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
        "forms": {kind: {name: list(form) for name, form in FORMS[kind].items()} for kind in kinds},
        "devices": list(DEVICES),
        "chunks": list(CHUNKS),
        "cores": len(own_cores()),
    }


def runs_of(good: Sequence[tuple[Config, float]], source: str = "the measured runs") -> Runs:
    """Runs of one kind as a table; columns that never change are left out."""
    cells = {name: [config.columns[name] for config, _ in good] for name in good[0][0].columns}
    cells = {name: column for name, column in cells.items() if len(set(column)) > 1}
    return Runs.of({**cells, TARGET: [step_s for _, step_s in good]}, source)


def _keep_data(kind: str, good: Sequence[tuple[Config, float]]) -> Path:
    """The runs of one kind as CSV, ready for `placer scale fit`."""
    path = FOLDER / f"scaling-{kind}.csv"
    rows = [
        {**config.columns, "operations": f"{config.operations:.6g}", TARGET: f"{step_s:.6g}"}
        for config, step_s in good
        if config.kind == kind
    ]
    write_whole(path, csv_bytes(rows))
    return path
