"""The main job on every zoo network: the delivered mapping against the best single device, and against TensorFlow alone
on all cores.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path
from statistics import geometric_mean, median
from tempfile import TemporaryDirectory

from experiments import zoo
from experiments.benches.bench import BenchOptions, Facts, machine, record_of
from experiments.benches.intervals import of_geomean
from experiments.benches.kept_runs import kept
from experiments.benches.paired_trainings import Side, blocks_in_turn, compared, is_settled
from experiments.benches.process import command_facts, tried
from experiments.benches.seeds import SEEDS, seeds_of
from experiments.benches.taken_options import Takes
from placer.errors import PlacerError

MEASUREMENTS = 24
LIMIT_S = 3600.0  # for one search, which takes minutes
NEAR = 1.05  # a mapping is nearly the best if it takes at most this times as long, each in its race
KEPT = ("tf_default_s", "in_process_s", "lower_bound_s", "switch_s", "ops", "groups")
KEPT_OF_BEST = ("ratio_to_best_single", "step_s", "spread_s", "repeats", "stopped_early", "searcher")
TAKES = Takes(workers=True, runs=True)
PROGRAM = "experiments.benches.main_job.training"
PLACING = 20  # steps at most until a training is placed


def bench_facts(options: BenchOptions) -> Facts:
    """Search each network in its own process, as a user would, so that no search inherits another's state.

    With --runs, no network is searched twice.
    """
    per_model: dict[str, Facts] = {}
    measurements = options.measurements or MEASUREMENTS
    for name in options.models or zoo.names():
        per_model[name] = row = _network(options, name, measurements)
        print(f"{name}: {row.get('failed') or '{:.2f}x'.format(row['ratio_to_best_single'])}", file=sys.stderr)
    switches = [row["switch_s"] for row in per_model.values() if row.get("switch_s")]
    singles, untouched = single_ratios(per_model), [row["ratio_to_untouched"] for row in searched(per_model)]
    return {
        "models": per_model,
        "geomean_ratio": geometric_mean(singles) if singles else None,
        "geomean_interval": of_geomean(singles),
        "geomean_to_untouched": geometric_mean(untouched) if untouched else None,
        "geomean_to_untouched_interval": of_geomean(untouched),
        "switch_s": per_model.get("inception_v3", {}).get("switch_s") or (median(switches) if switches else None),
        "workers": options.workers,
        "measurements": measurements,
        "seeds": list(SEEDS),
        "elsewhere": elsewhere(record_of("main-job"), machine()["machine"]),
    }


def elsewhere(before: Facts, here: Facts) -> list[Facts]:
    """The latest record of each other machine, in brief: the previous record, if it is of another machine, and the
    records that it names. before: the previous record, which may be empty. here: this machine.
    """
    named = [row for row in before.get("elsewhere", []) if row["machine"] != here]
    if not before or before["machine"] == here:
        return named
    brief = {key: before[key] for key in ("machine", "commit", "date", "geomean_ratio", "geomean_to_untouched")}
    brief["in_turn"] = all("in_turn" in row for row in searched(before["models"]))
    return [brief, *(row for row in named if row["machine"] != before["machine"])]


def single_ratios(per_model: Mapping[str, Facts]) -> list[float]:
    """How many times as fast as the best single device each network is: the geometric mean over its seeds."""
    of_seeds = [row.get("by_seed", {"0": row["ratio_to_best_single"]}) for row in searched(per_model)]
    return [geometric_mean(filter(None, by_seed.values())) for by_seed in of_seeds]


def searched(per_model: Mapping[str, Facts]) -> list[Facts]:
    """The rows of the networks that did not fail."""
    return [row for row in per_model.values() if "failed" not in row]


def _network(options: BenchOptions, name: str, measurements: int) -> Facts:
    """The facts of a network: all of its first search, and the ratios of the other seeds; or {"failed": line}."""
    rows = {}
    for seed in seeds_of(name):
        settings = {"model": name, "workers": options.workers, "measurements": measurements, "seed": seed}
        run = partial(_searched, name, options.workers, measurements, seed)
        rows[seed] = kept(options, f"main-job/{name}" + (f"-{seed}" if seed else ""), settings, run)
    failed = next((row for row in rows.values() if "failed" in row), None)
    by_seed = {str(seed): row.get("ratio_to_best_single") for seed, row in rows.items()}
    return failed or {**rows[SEEDS[0]], **({"by_seed": by_seed} if len(rows) > 1 else {})}


def _searched(name: str, workers: int, measurements: int, seed: int) -> Facts:
    """Run one search and, with the first seed, a training under the delivered mapping."""
    with TemporaryDirectory(prefix="placer-main-job-") as out:
        numbers = {"--workers": workers, "--measurements": measurements, "--seed": seed}
        options = [word for option, number in numbers.items() for word in (option, str(number))]
        found = command_facts("search", name, *options, "--out", out, seconds=LIMIT_S)
        if "failed" in found:
            return found
        if found["best_single"] is None:
            return {"failed": "no single device ran it, so that there is no ratio"}
        if seed != SEEDS[0]:
            return _row(found)
        trained = tried(partial(against_untouched, name, Path(out) / "mapping.json", workers))
    if "failed" in trained:
        return {"failed": f"its training beside TensorFlow alone: {trained['failed']}"}
    return {**_row(found), "ratio_to_untouched": trained["ratio"], "in_turn": trained}


def _row(found: Facts) -> Facts:
    return {
        **{key: found["best"][key] for key in KEPT_OF_BEST},
        "predicted_s": found["best"]["replayed_s"],
        "best_single_s": found["best_single"]["step_s"],
        "best_single_spread_s": found["best_single"]["spread_s"],
        **{key: found[key] for key in KEPT},
        "answer_s": found["seconds"],
        "near_s": _near_s(found["measured"]),
        "measured": len(found["measured"]),
    }


def _near_s(rows: Sequence[Facts]) -> float:
    """Seconds until the search had measured a mapping nearly as fast as the fastest, each in its race."""
    ran = [row for row in rows if row["step_s"] is not None]
    best_s: float = min(row["step_s"] for row in ran)
    near_s: float = min(row["at_s"] for row in ran if row["step_s"] <= NEAR * best_s)
    return near_s


def against_untouched(model: str, mapping: Path, workers: int) -> Facts:
    """Compare a training under the mapping with the same training as TensorFlow runs it on all cores. Each has its own
    process; they take blocks of steps in turn. ratio: how many times as fast the placed training is, the median over
    pairs of blocks.

    Raises PlacerError if the mapping cannot be used.
    """
    with Side(PROGRAM, model, None, workers) as untouched, Side(PROGRAM, model, str(mapping), workers) as placed:
        for side in (untouched, placed):
            side.wait()
        for _ in range(PLACING):
            placed.block(1)
            if is_settled(placed.state):
                break
        if not placed.state[0].endswith(": placed"):
            raise PlacerError(f"the training was not placed: {placed.state[0]}")
        pairs, steps = blocks_in_turn(untouched, placed)
        return {**compared(pairs, "untouched_s", "placed_s"), "steps": steps}
