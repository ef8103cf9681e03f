"""The error of operator models on shapes, and on whole networks, that were held out of every fit."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Sequence
from statistics import fmean, mean, median
from typing import NamedTuple

from experiments.benches.bench import Facts
from experiments.report.profile import family_facts
from placer.profile.operators.dataset import YARDSTICKS, OperatorRow
from surrogate.operators.base_ops import bases_of
from surrogate.operators.models import SMALL_S, OperatorModels, fit_models

HELD_OUT_SHARE = 5  # every fifth base op
NOTHING_S = 1e-9


def evaluated(rows: Sequence[OperatorRow], networks: Sequence[str]) -> Facts:
    """Hold out `networks` and every HELD_OUT_SHARE-th base op, with all that comes from it; fit the rest. Returns
    errors on the rows held out.
    """
    marks = [row for row in rows if row.network == YARDSTICKS]
    timed = [row for row in rows if row.median_s > NOTHING_S and row.network != YARDSTICKS]
    others = [row for row in timed if row.network not in networks]
    is_held_out = [int(base, 16) % HELD_OUT_SHARE == 0 for base in bases_of(others)]
    train = [row for row, out in zip(others, is_held_out, strict=True) if not out]
    seen = {row.operator.signature for row in train}
    shapes = [row for row, out in zip(others, is_held_out, strict=True) if out]
    whole = [row for row in timed if row.network in networks and row.operator.signature not in seen]
    models = fit_models([*train, *marks])
    on_shapes = _predicted(models, shapes)
    big, big_networks = (
        [error for error in errors if error.row.median_s >= SMALL_S]
        for errors in (on_shapes, _predicted(models, whole))
    )
    return {
        "mape": _average(big),
        "median_error": _average(big, median),
        "mape_by_type": _mean_by(big, lambda row: row.operator.type),
        "mape_step": _average([error for error in big if error.row.source == "step"]),
        "mape_single": _average([error for error in big if error.row.source == "single"]),
        "mape_all_ops": _average(on_shapes),
        "median_error_all_ops": _average(on_shapes, median),
        "mape_time_weighted": _weighted_by_time(big),
        "within_spread": mean(error.error <= error.spread for error in big) if big else None,
        "mape_unseen_networks": _average(big_networks),
        "median_error_unseen_networks": _average(big_networks, median),
        "mape_unseen_networks_weighted": _weighted_by_time(big_networks),
        "mape_by_unseen_network": _mean_by(big_networks, lambda row: row.network),
        "n_train": len(train),
        "n_test": len(big),
        "n_test_all_ops": len(shapes),
        "n_test_unseen_networks": len(big_networks),
        "counted_from_s": SMALL_S,
        "held_out_networks": list(networks),
        "held_out_whole_ops": True,
        "families": family_facts(models),
        "by_regressor": by_regressor(models),
    }


class Predicted(NamedTuple):
    """One row, the relative error of its prediction, |predicted / measured - 1|, and the spread predicted for it."""

    row: OperatorRow
    error: float
    spread: float


def _predicted(models: OperatorModels, rows: Sequence[OperatorRow]) -> list[Predicted]:
    found = []
    for single in (False, True):
        some = [row for row in rows if (row.source == "single") == single]
        times = models.predict([row.operator for row in some], single=single)
        found += [
            Predicted(row, abs(op_time.seconds / row.median_s - 1), op_time.relative_spread)
            for row, op_time in zip(some, times, strict=True)
        ]
    return found


def _average(errors: Sequence[Predicted], of: Callable[[Iterable[float]], float] = mean) -> float | None:
    return of([error.error for error in errors]) if errors else None


def _weighted_by_time(errors: Sequence[Predicted]) -> float | None:
    return _weighted([(error.row.median_s, error.error) for error in errors]) if errors else None


def _mean_by(errors: Sequence[Predicted], key: Callable[[OperatorRow], str]) -> dict[str, float]:
    """Mean error per key, the largest groups first."""
    counts = Counter(key(error.row) for error in errors)
    return {name: mean(e.error for e in errors if key(e.row) == name) for name, _ in counts.most_common()}


def disagreement(one: Sequence[OperatorRow], other: Sequence[OperatorRow]) -> Facts:
    """How far apart two halves of an op's repeats are: |a - b| divided by their mean; for ops of SMALL_S or more.

    Half of this is about the error of the median of all repeats; no model can be expected to err less.
    """
    apart: dict[str, list[float]] = defaultdict(list)
    for a, b in zip(one, other, strict=True):
        middle_s = (a.median_s + b.median_s) / 2
        if middle_s >= SMALL_S:
            apart["all"].append(abs(a.median_s - b.median_s) / middle_s)
            apart[a.source].append(apart["all"][-1])
    means = {name: mean(found) for name, found in apart.items()}
    return {"all": 0.0, **means, "median": median(apart["all"]) if apart["all"] else 0.0}


def by_regressor(models: OperatorModels) -> dict[str, dict[str, float]]:
    """The cross-validated errors of each regressor alone, and of the chosen ones; families weighted by their rows."""
    scores: dict[str, list[tuple[int, float, float | None]]] = defaultdict(list)
    for model in models.by_family.values():
        if len(model.scores) > 1:
            alone = {name: score for name, score in model.scores.items() if " + " not in name}
            for name, score in {**alone, "chosen": model.scores[model.choice]}.items():
                scores[name].append((model.rows, score.shapes, score.networks))
    found: dict[str, dict[str, float]] = {}
    for name, rows in scores.items():
        found[name] = {"unseen_shapes": _weighted([(n, shapes) for n, shapes, _ in rows])}
        on_networks = [(n, networks) for n, _, networks in rows if networks is not None]
        if on_networks:
            found[name]["unseen_networks"] = _weighted(on_networks)
    return found


def _weighted(pairs: Sequence[tuple[float, float]]) -> float:
    """The weighted mean of (weight, value) pairs."""
    weights, values = zip(*pairs, strict=True)
    return fmean(values, weights)
