"""The regressors of step times, compared on equal terms on measured mappings; as HTF-MPR compares them in a search."""

from __future__ import annotations

import sys
import time
from collections.abc import Iterable, Mapping, Sequence
from functools import partial
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from experiments.benches.bench import FOLDER, BenchOptions, Facts, csv_bytes, data_facts
from experiments.benches.sampling import AGAIN, REPEATS, MeasuredMappings, measure, measured_networks
from experiments.benches.taken_options import Takes
from placer.files import write_whole
from surrogate.learn.regressors import BASELINE, REGRESSORS, make_regressor
from surrogate.learn.selection import FOLDS, TOP, Fold, Rows, Scores, eligible, in_order, scored, splits, winner
from surrogate.learn.selection import REPEATS as CV_REPEATS

Floats = NDArray[np.float64]
MODELS = ("towers", "moe", "mobilenet_v3", "transformer")
MAPPINGS = 44  # measured per network, single devices included
FEWEST = 2 * FOLDS
DATA = FOLDER / "surrogates.csv"
LARGEST_BYTES = 300_000
COLUMNS = {"mape": "mape", "spearman": "spearman", "kendall": "kendall", "topk_regret": "regret"}
TAKES = Takes(measurements=FEWEST, workers=True)


def bench_facts(options: BenchOptions) -> Facts:
    """Measure each network in its own process, then compare the regressors on what was kept."""
    begin_s = time.perf_counter()
    mappings = options.measurements or MAPPINGS
    measuring = partial(measure, workers=options.workers, mappings=mappings)
    samples: list[MeasuredMappings]
    samples, missing = measured_networks(options.models or MODELS, measuring, FEWEST)
    measured_s = time.perf_counter() - begin_s
    facts = compared(samples) | {
        "missing": missing,
        "workers": options.workers,
        "measured_s": measured_s,
        "seconds": time.perf_counter() - begin_s,
    }
    if options.record:
        facts |= data_facts(partial(keep_data, samples, DATA))
    return facts


def compared(samples: Sequence[MeasuredMappings]) -> Facts:
    """Compare all regressors on each network, and on all networks together."""
    by_model, all_scores, in_order_scores, folds_by_model = {}, [], [], {}
    for sample in samples:
        folds_by_model[sample.model] = folds = folds_of(sample, splits(len(sample)))
        scores = {name: scored(make, folds) for name, make in REGRESSORS.items()}
        all_scores.append(scores)
        later = folds_of(sample, in_order(len(sample)))
        in_order_scores.append({name: scored(make, later) for name, make in REGRESSORS.items()})
        by_model[sample.model] = _facts_of(sample, scores)
        print(f"{sample.model}: {by_model[sample.model]['winner']} predicts best", file=sys.stderr)
    total = {name: Scores.joined([scores[name] for scores in all_scores]) for name in REGRESSORS}
    several = len(samples) > 1
    judged = {n: Scores.of_networks([scores[n] for scores in all_scores]) for n in REGRESSORS} if several else total
    repeats = 1 if several else CV_REPEATS
    won = winner(judged, repeats)
    for model, folds in folds_by_model.items():
        by_model[model]["points"] = points(folds[:FOLDS], won)
    ordered = {name: Scores.joined([scores[name] for scores in in_order_scores]) for name in REGRESSORS}
    return {
        "table": table(total),
        "table_in_order": table(ordered),
        "winner": won,
        "eligible": eligible(judged, repeats),
        "baseline": BASELINE,
        "networks": [sample.model for sample in samples],
        "n_mappings": sum(len(sample) for sample in samples),
        "noise": float(np.mean([sample.disagreement for sample in samples])),
        "steps_per_mapping": REPEATS,
        "measured_twice": AGAIN,
        "folds": FOLDS,
        "fold_repeats": CV_REPEATS,
        "top": TOP,
        "seeds": [0],
        "repeats": {"steps of each mapping": REPEATS, "cross-validations": CV_REPEATS},
        "by_model": by_model,
    }


def folds_of(sample: MeasuredMappings, parts: Iterable[tuple[Rows, Rows]]) -> list[Fold]:
    """The folds of a network. A fold's simulator, too, is calibrated on the fold's known mappings only.

    parts: (known, unseen) mappings of each fold.
    """
    folds = []
    for known, unseen in parts:
        x = sample.features(known).of(sample.placements)
        folds.append(Fold(x[known], sample.step_s[known], x[unseen], sample.step_s[unseen]))
    return folds


def table(scores: Mapping[str, Scores]) -> list[Facts]:
    """A row per regressor, the smallest error first: means over folds, and their standard deviations as spreads.

    Seconds are medians, because the first fit of a kind also loads its library.
    """
    rows = []
    for name, found in sorted(scores.items(), key=lambda item: float(item[1].mape.mean())):
        row: Facts = {"model": name}
        for key, field in COLUMNS.items():
            values: Floats = getattr(found, field)
            row |= {key: float(values.mean()), f"{key}_spread": float(values.std())}
        rows.append(row | {"fit_s": float(np.median(found.fit_s)), "predict_s": float(np.median(found.predict_s))})
    return rows


def points(folds: Sequence[Fold], name: str) -> Facts:
    """Measured seconds of every mapping, and what the winner and the baseline predicted while it was unseen."""
    predicted = {
        key: np.concatenate([make_regressor(n).fit(f.x, f.step_s).predict(f.unseen_x) for f in folds]).tolist()
        for key, n in (("winner_s", name), ("baseline_s", BASELINE))
    }
    return {"measured_s": np.concatenate([fold.unseen_s for fold in folds]).tolist(), **predicted}


def _facts_of(sample: MeasuredMappings, scores: Mapping[str, Scores]) -> Facts:
    return {
        "n_mappings": len(sample),
        "groups": len(sample.prediction.groups.graph),
        "ops": len(sample.prediction.groups.fine),
        "devices": len(sample.prediction.topology),
        "features": len(sample.features(np.arange(len(sample))).names),
        "single_s": float(sample.step_s[: sample.singles].min()),
        "fastest_s": float(sample.step_s.min()),
        "slowest_s": float(sample.step_s.max()),
        "noise": sample.disagreement,
        "spread": float(np.median(sample.spread_s / sample.step_s)),
        "measured_s": sample.seconds,
        "winner": winner(scores),
        "table": table(scores),
    }


def keep_data(samples: Sequence[MeasuredMappings], path: Path, largest_bytes: int = LARGEST_BYTES) -> str | None:
    """Write features and step times of every mapping as CSV. Returns the path; None, and no file, if it is too large.

    The features are by simulators calibrated on all of a network's mappings.
    """
    rows = []
    for sample in samples:
        features = sample.features(np.arange(len(sample)))
        for values, step_s, spread_s in zip(
            features.of(sample.placements), sample.step_s, sample.spread_s, strict=True
        ):
            times = {"network": sample.model, "step_s": f"{step_s:.6g}", "spread_s": f"{spread_s:.3g}"}
            rows.append(times | {name: f"{value:.6g}" for name, value in zip(features.names, values, strict=True)})
    content = csv_bytes(rows)
    if len(content) > largest_bytes:
        path.unlink(missing_ok=True)  # an older file is of other mappings
        return None
    write_whole(path, content)
    return str(path)
