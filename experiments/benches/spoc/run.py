"""Does SPOC explain how long networks take? Hundreds of them, measured, and families predicted that no fit has seen."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Sequence
from functools import partial
from math import inf
from statistics import median_high

from experiments.benches.bench import FOLDER, BenchOptions, Facts, csv_bytes
from experiments.benches.kept_runs import kept
from experiments.benches.process import Caps, Doer, Measurer
from experiments.benches.spoc.analysis import (
    DEFAULT,
    FEWEST_FAMILIES,
    FLOPS,
    KINDS,
    METRICS,
    SETS,
    SPOC,
    TARGETS,
    analysed,
    errors,
    left_out,
    timed_of,
)
from experiments.benches.spoc.networks import ALL, Network, check_family, families, networks, stratified
from experiments.benches.spoc.published import PUBLISHED, WITHIN, judged, native
from experiments.benches.takes import Takes
from experiments.jobs.profile import Advance
from experiments.report.progress import progress_bar
from placer.errors import BadInputError, PlacerError
from placer.files import write_whole

NETWORKS = 60  # measured by default
FEWEST = 6
NOT_REACHED = "not reached"
HOW = 1  # version of the measuring; what another version measured is measured again
DATA = FOLDER / "spoc.csv"
TAKES = Takes(models=check_family, measurements=FEWEST, runs=True, minutes=True)


def bench_facts(options: BenchOptions) -> Facts:
    """Measure the networks, each once for every folder of runs; count the published ones; then analyse.

    --minutes: no network is begun after this long; those that were not reached are listed.
    """
    begin_s = time.perf_counter()
    until_s = inf if options.minutes is None else begin_s + 60 * options.minutes
    chosen = choose(options)
    caps = Caps()
    with Measurer(study, caps) as measurer, progress_bar(len(chosen) + len(PUBLISHED), quiet=False) as advance:
        rows = [measured(network, measurer, options, advance, until_s) for network in chosen]
        published = {kind: counted(kind, measurer, options, advance) for kind in PUBLISHED}
    good = [row for row in rows if "skipped" not in row]
    facts = analysed_rows(good) | {
        "part": part_facts(good),
        "networks": [network.name for network in chosen],
        "skipped": [{key: row[key] for key in ("name", "skipped", "detail")} for row in rows if "skipped" in row],
        "published": published,
        "published_within": WITHIN,
        "cap_s": caps.seconds,
        "cap_bytes": caps.memory_bytes,
        "measured_s": sum(row["seconds"] for row in good),
        "seconds": time.perf_counter() - begin_s,
    }
    if options.record:
        write_whole(DATA, csv_bytes([data_row(row) for row in good]))
        facts["data"] = str(DATA)
    return facts


def choose(options: BenchOptions) -> tuple[Network, ...]:
    """What to measure: a part of all families, those that are named, or everything. Raises BadInputError."""
    count, every = options.measurements or NETWORKS, networks()
    if options.models is None:
        return stratified(every, count)
    some = every if ALL in options.models else tuple(n for n in every if n.family in options.models)
    if len(families(some)) < FEWEST_FAMILIES:
        raise BadInputError(
            f"--model {options.models[0]}: a single family, so none can be left out; name another, too."
        )
    return some if options.measurements is None else stratified(some, count)


def study() -> Doer:
    """Made in the process that measures."""
    from experiments.benches.spoc.measure import Repeats, SpocStudy

    return SpocStudy(Repeats())


def measured(
    network: Network, measurer: Measurer, options: BenchOptions, advance: Advance, until_s: float = inf
) -> Facts:
    """One network's row, or why it was skipped; a row that was kept is not measured again."""

    def ask() -> Facts:
        if time.perf_counter() > until_s:  # "failed" is tried again
            return {"failed": NOT_REACHED, "skipped": NOT_REACHED, "detail": "--minutes were over"}
        return measurer.ask("measured", network)

    advance(network.name)
    found = kept(options, f"spoc/{network.name}", {"network": network.name, "how": HOW}, ask)
    return {"name": network.name, "family": network.family, **found}


def counted(kind: str, measurer: Measurer, options: BenchOptions, advance: Advance) -> Facts:
    """Parameters and multiply-adds of a published network, traced only."""
    advance(f"counting {kind}")
    ask = partial(measurer.ask, "counted", native(kind))
    return judged(kind, kept(options, f"spoc/published-{kind}", {"network": kind, "how": HOW}, ask))


def analysed_rows(rows: Sequence[Facts]) -> Facts:
    """The facts of networks that were measured. Raises PlacerError where these are too few."""
    if len(rows) < FEWEST:
        raise PlacerError(f"{len(rows)} networks could be measured, too few to fit anything; see what was skipped.")
    by_target = {target: analysed(timed_of(rows, target)) for target in TARGETS}
    step = by_target["step"]
    return {
        "n_networks": len(rows),
        "n_families": len({row["family"] for row in rows}),
        "spoc_error": step["spoc_error"],
        "flops_error": step["flops_error"],
        "cdl_spearman": step["correlations"]["span"]["spearman"],
        "regressor": DEFAULT,
        "exact_parameters": sum(row["step"]["parameters"] == row["count_params"] for row in rows),
        "spread": median_high(row["step_spread_s"] / row["step_s"] for row in rows),
        "by_family_of": dict(Counter(row["family"] for row in rows)),
        "targets": by_target,
    }


def part_facts(rows: Sequence[Facts]) -> Facts | None:
    """The errors on the networks measured by default alone; None unless all of these and others were measured."""
    default = {network.name for network in stratified(networks(), NETWORKS)}
    part = [row for row in rows if row["name"] in default]
    if not len(part) == NETWORKS < len(rows):
        return None
    timed = timed_of(part, "step")
    spoc_error, flops_error = (
        float(errors(left_out(timed, SETS[name], KINDS[DEFAULT]), timed.seconds)["mean"]) for name in (SPOC, FLOPS)
    )
    return {"n_networks": len(part), "spoc_error": spoc_error, "flops_error": flops_error}


def data_row(row: Facts) -> Facts:
    """SPOC and times of a network, for the CSV file."""
    return {
        **{key: row[key] for key in ("name", "family", "repeats")},
        **{f"{name}_s": f"{row[f'{name}_s']:.6g}" for of in ("reference", *TARGETS) for name in (of, f"{of}_spread")},
        **{f"{target}_{name}": f"{row[target][name]:.10g}" for target in TARGETS for name in METRICS},
    }
