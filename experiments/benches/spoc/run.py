"""Does SPOC explain how long networks take? Hundreds are measured, and families predicted that no fit has seen."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from functools import partial
from math import inf
from statistics import median_high

from experiments.benches.bench import EVERY, FOLDER, BenchOptions, Facts, csv_bytes, data_facts
from experiments.benches.process import GIB, Caps, Measurer
from experiments.benches.spoc import advice
from experiments.benches.spoc.analysis import (
    DEFAULT,
    FEWEST_FAMILIES,
    KINDS,
    METRICS,
    SETS,
    SPOC,
    TARGETS,
    analysed,
    errors,
    flops_at_best,
    launch_operations,
    left_out,
    timed_of,
)
from experiments.benches.spoc.asking import Asking, study
from experiments.benches.spoc.device_kinds import ALL_CORES, CORE_PER_OP, DEVICE_KINDS
from experiments.benches.spoc.networks import Network, check_family, families, networks, stratified
from experiments.benches.spoc.published import PUBLISHED, WITHIN
from experiments.benches.spoc.transfer import by_device, transfers
from experiments.benches.taken_options import Takes
from experiments.report.progress import progress_bar
from placer.errors import BadInputError, PlacerError
from placer.files import write_whole

NETWORKS = 60  # measured by default
FEWEST = 6
CAPS = Caps(seconds=600.0, memory_bytes=7 * GIB)  # the largest networks take minutes to trace and to compile
DATA = FOLDER / "spoc.csv"
TAKES = Takes(models=check_family, measurements=FEWEST, runs=True, minutes=True)
Rows = dict[str, dict[str, Facts]]  # kind of device -> network -> what was measured, or why it was skipped


def bench_facts(options: BenchOptions) -> Facts:
    """Measure the networks, each once for every folder of kept runs; count the published ones; then analyse.

    --minutes: no network is begun after this long; networks that were not reached are listed.
    """
    begin_s = time.perf_counter()
    until_s = inf if options.minutes is None else begin_s + 60 * options.minutes
    chosen = choose(options)
    with ExitStack() as stack:
        measurers = {
            kind: stack.enter_context(Measurer(partial(study, kind), CAPS)) for kind in (*DEVICE_KINDS, CORE_PER_OP)
        }
        asking = Asking(options, measurers, until_s)
        every = all_rows(asking, chosen)
        with progress_bar(len(PUBLISHED), quiet=False) as advance:
            published = {kind: asking.counted(kind, advance) for kind in PUBLISHED}
        rows = {kind: {name: row for name, row in some.items() if "skipped" not in row} for kind, some in every.items()}
        usual = list(rows[ALL_CORES.name].values())
        facts = analysed_rows(usual) | device_facts(rows) | {"advice": advice_facts(asking, rows, chosen)}
    facts |= {
        "part": part_facts(usual),
        "networks": [network.name for network in chosen],
        "skipped": skipped(every),
        "published": published,
        "published_within": WITHIN,
        "cap_s": CAPS.seconds,
        "cap_bytes": CAPS.memory_bytes,
        "measured_s": sum(row["seconds"] for some in rows.values() for row in some.values()),
        "seconds": time.perf_counter() - begin_s,
    }
    if options.record:
        data = [{"device": kind, **data_row(row)} for kind, some in rows.items() for row in some.values()]
        facts |= data_facts(partial(_keep_data, data))
    return facts


def _keep_data(rows: Sequence[Facts]) -> str:
    write_whole(DATA, csv_bytes(rows))
    return str(DATA)


def all_rows(asking: Asking, chosen: Sequence[Network]) -> Rows:
    """Measure every network on each kind of device, one kind right after the other; after a skip, no further kind."""
    rows: Rows = {kind.name: {} for kind in DEVICE_KINDS}
    with progress_bar(len(chosen), quiet=False) as advance:
        for network in chosen:
            advance(network.name)
            for kind in DEVICE_KINDS:
                row = asking.measured(network, kind)
                rows[kind.name][network.name] = {"name": network.name, "family": network.family, **row}
                if "skipped" in row:
                    break
    return rows


def skipped(every: Rows) -> list[Facts]:
    """Which networks were skipped, why, and on which kind of device."""
    return [
        {"name": name, "device": kind, **{key: row[key] for key in advice.SKIPPED if key in row}}
        for kind, some in every.items()
        for name, row in some.items()
        if "skipped" in row
    ]


def device_facts(rows: Mapping[str, Mapping[str, Facts]]) -> Facts:
    """Errors by kind of device and between kinds, over the networks that were measured on all kinds. Raises PlacerError
    if these are too few.
    """
    shared = set.intersection(*(set(some) for some in rows.values()))
    common = {kind: [row for name, row in some.items() if name in shared] for kind, some in rows.items()}
    if len(shared) < FEWEST:
        raise PlacerError(f"{len(shared)} networks could be measured on {' and '.join(rows)}, too few to fit anything.")
    return {"n_shared": len(shared), "devices": by_device(common), "transfers": transfers(common)}


def advice_facts(asking: Asking, rows: Mapping[str, Mapping[str, Facts]], chosen: Sequence[Network]) -> Facts:
    """Whether the sentences of `placer spoc` are true, tried on a few networks for each."""
    usual = rows[ALL_CORES.name]
    both = [row for name, row in usual.items() if all(name in some for some in rows.values())]
    tries = advice.sample(both, chosen)
    found = []
    with progress_bar(len(tries), quiet=False) as advance:
        for network, limit in tries:
            advance(f"advice for {network.name}")
            found.append(advice.tried(network, limit, rows, asking.measured))
    return {**advice.judged(found), "pairs": advice.batch_pairs(list(usual.values()))}


def choose(options: BenchOptions) -> tuple[Network, ...]:
    """The networks to measure: a part of all families, the named families, or everything. Raises BadInputError."""
    count, every = options.measurements or NETWORKS, networks()
    if options.models is None:
        return stratified(every, count)
    some = every if EVERY in options.models else tuple(n for n in every if n.family in options.models)
    if len(families(some)) < FEWEST_FAMILIES:
        raise BadInputError(
            f"--model {options.models[0]}: a single family, so none can be left out; name another, too."
        )
    return some if options.measurements is None else stratified(some, count)


def analysed_rows(rows: Sequence[Facts]) -> Facts:
    """The facts of networks that were measured. Raises PlacerError if these are too few."""
    if len(rows) < FEWEST:
        raise PlacerError(f"{len(rows)} networks could be measured, too few to fit anything; see what was skipped.")
    by_target = {target: analysed(timed_of(rows, target)) for target in TARGETS}
    step = by_target["step"]
    best, flops = flops_at_best(step["errors"])
    return {
        "n_networks": len(rows),
        "n_families": len({row["family"] for row in rows}),
        "spoc_error": step["spoc_error"],
        "flops_error": step["flops_error"],  # by the same regressor as SPOC
        "flops_error_at_best": flops["mean"],  # by the regressor that suits FLOPs best
        "flops_regressor_at_best": best,
        "cdl_spearman": step["correlations"]["span"]["spearman"],
        "regressor": DEFAULT,
        "seeds": [0],  # of the regressors
        "repeats": {"at least": min(row["repeats"] for row in rows), "at most": max(row["repeats"] for row in rows)},
        "sets": {name: list(metrics) for name, metrics in SETS.items()},
        "launch_operations": launch_operations(step["seconds_each"]),
        "exact_parameters": sum(row["step"]["parameters"] == row["count_params"] for row in rows),
        "spread": median_high(row["step_spread_s"] / row["step_s"] for row in rows),
        "by_family_of": dict(Counter(row["family"] for row in rows)),
        "targets": by_target,
    }


def part_facts(rows: Sequence[Facts]) -> Facts | None:
    """The error on only the networks measured by default; None unless all of these and others were measured."""
    default = {network.name for network in stratified(networks(), NETWORKS)}
    part = [row for row in rows if row["name"] in default]
    if not len(part) == NETWORKS < len(rows):
        return None
    timed = timed_of(part, "step")
    found = errors(left_out(timed, SETS[SPOC], KINDS[DEFAULT]), timed.seconds)
    return {"n_networks": len(part), "spoc_error": float(found["mean"])}


def data_row(row: Facts) -> Facts:
    """SPOC and times of a network, for the CSV file."""
    return {
        **{key: row[key] for key in ("name", "family", "repeats")},
        **{f"{name}_s": f"{row[f'{name}_s']:.6g}" for of in ("reference", *TARGETS) for name in (of, f"{of}_spread")},
        **{f"{target}_{name}": f"{row[target][name]:.10g}" for target in TARGETS for name in METRICS},
    }
