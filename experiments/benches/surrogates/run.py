"""The regressors of step times, compared on equal terms on measured mappings; the winner serves genetic search."""

from __future__ import annotations

import csv
import sys
import time
from collections.abc import Mapping, Sequence
from io import StringIO
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from experiments.benches.bench import FOLDER, BenchOptions, Facts, ms
from experiments.benches.process import alone
from experiments.benches.sampling import AGAIN, REPEATS, MeasuredMappings, Share, measure
from experiments.benches.surrogates.plot import draw, picture_of
from placer.errors import BadInputError, PlacerError
from placer.files import write_whole
from surrogate.learn.regressors import BASELINE, DEFAULT, REGRESSORS, make_regressor
from surrogate.learn.selection import FOLDS, TOP, Fold, Scores, eligible, scored, splits, winner
from surrogate.learn.selection import REPEATS as CV_REPEATS

Floats = NDArray[np.float64]
MODELS = ("towers", "moe", "mobilenet_v3", "transformer")
MAPPINGS = 44  # measured per network, single devices included
FEWEST = 2 * FOLDS
DATA = FOLDER / "surrogates.csv"
LARGEST_BYTES = 300_000
PICTURE = Path("docs/surrogates.png")
COLUMNS = {"mape": "mape", "spearman": "spearman", "kendall": "kendall", "topk_regret": "regret"}


def run(options: BenchOptions) -> Facts:
    """Each network is measured in a process of its own; the regressors are then compared on what was kept."""
    begin_s = time.perf_counter()
    mappings = MAPPINGS if options.measurements is None else options.measurements
    if mappings < FEWEST:
        raise BadInputError(
            f"--measurements is {mappings}; give at least {FEWEST}, or there is nothing to be judged by."
        )
    samples = _measured(options.models or MODELS, options.workers, mappings)
    measured_s = time.perf_counter() - begin_s
    facts = compared(samples) | {"workers": options.workers, "measured_s": measured_s}
    facts["seconds"] = time.perf_counter() - begin_s
    if options.record:
        facts["data"] = keep_data(samples, DATA)
        PICTURE.parent.mkdir(exist_ok=True)
        draw(picture_of(facts), PICTURE)
    return facts


def _measured(models: Sequence[str], workers: int, mappings: int) -> list[MeasuredMappings]:
    samples = []
    for i, model in enumerate(models):
        sample = _in_process(model, workers, mappings, Share(i * mappings, len(models) * mappings))
        if sample is None:
            continue
        told = f"{len(sample)} mappings, {ms(sample.step_s.min())} to {ms(sample.step_s.max())}"
        print(f"{model}: {told}, in {sample.seconds:.0f} s", file=sys.stderr)
        if len(sample) >= FEWEST:
            samples.append(sample)
        else:
            print(f"{model}: too few to be judged by; it is left out.", file=sys.stderr)
    if not samples:
        raise PlacerError("no network could be measured; the lines above say why.")
    return samples


def _in_process(model: str, workers: int, mappings: int, share: Share) -> MeasuredMappings | None:
    try:
        return alone(measure, model, workers, mappings, share)
    except PlacerError as error:
        print(f"{model}: {error}", file=sys.stderr)
        return None


def compared(samples: Sequence[MeasuredMappings]) -> Facts:
    """Every regressor on every network, and on all of them."""
    by_model, all_scores, folds_by_model = {}, [], {}
    for sample in samples:
        folds_by_model[sample.model] = folds = folds_of(sample)
        scores = {name: scored(make, folds) for name, make in REGRESSORS.items()}
        all_scores.append(scores)
        by_model[sample.model] = _facts_of(sample, scores)
        print(f"{sample.model}: {by_model[sample.model]['winner']} predicts best", file=sys.stderr)
    total = {name: Scores.joined([scores[name] for scores in all_scores]) for name in REGRESSORS}
    won = winner(total)
    for model, folds in folds_by_model.items():
        by_model[model]["points"] = points(folds[:FOLDS], won)
    return {
        "table": table(total),
        "winner": won,
        "eligible": eligible(total),
        "default": DEFAULT,
        "baseline": BASELINE,
        "networks": [sample.model for sample in samples],
        "n_mappings": sum(len(sample) for sample in samples),
        "noise": float(np.mean([sample.disagreement for sample in samples])),
        "steps_per_mapping": REPEATS,
        "measured_twice": AGAIN,
        "folds": FOLDS,
        "fold_repeats": CV_REPEATS,
        "top": TOP,
        "by_model": by_model,
    }


def folds_of(sample: MeasuredMappings) -> list[Fold]:
    """Everything that is learned is learned from a fold's known mappings: the simulator is calibrated on these, too."""
    folds = []
    for known, unseen in splits(len(sample)):
        x = sample.features(known).of(sample.placements)
        folds.append(Fold(x[known], sample.step_s[known], x[unseen], sample.step_s[unseen]))
    return folds


def table(scores: Mapping[str, Scores]) -> list[Facts]:
    """A row per regressor, the smallest error first: means over folds, and their standard deviations as spreads.

    Seconds are medians, for the first fit of a kind also loads its library.
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
    """Features and step times of every mapping as CSV; None, and nothing written, where that would be too large.

    The features are by simulators calibrated on all of a network's mappings.
    """
    features = [sample.features(np.arange(len(sample))) for sample in samples]
    names = list(dict.fromkeys(name for of in features for name in of.names))
    text = StringIO()
    rows = csv.DictWriter(text, ["network", "step_s", "spread_s", *names], restval="", lineterminator="\n")
    rows.writeheader()
    for sample, of in zip(samples, features, strict=True):
        x = of.of(sample.placements)
        for i in range(len(sample)):
            times = {"step_s": f"{sample.step_s[i]:.6g}", "spread_s": f"{sample.spread_s[i]:.3g}"}
            cells = {name: f"{value:.6g}" for name, value in zip(of.names, x[i], strict=True)}
            rows.writerow({"network": sample.model, **times, **cells})
    content = text.getvalue().encode()
    if len(content) > largest_bytes:
        return None
    write_whole(path, content)
    return str(path)
