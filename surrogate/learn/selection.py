"""The choice of a regressor: repeated k-fold cross-validation, and a rule that names the winner."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, fields

import numpy as np
from numpy.typing import NDArray

from placer.errors import BadInputError
from surrogate.learn.regressors import REGRESSORS, Regressor

Floats = NDArray[np.float64]
Rows = NDArray[np.intp]

FOLDS, REPEATS = 5, 3
PIECES = 3  # pieces of the later half of the rows, each judged after learning from all rows before it
TOP = 1  # with more, measuring the predicted best of a fold of about ten mappings would find the best one by luck


@dataclass(frozen=True)
class Fold:
    """Mappings to learn from, and unseen ones to judge by. x, unseen_x: [mappings, features]."""

    x: Floats
    step_s: Floats
    unseen_x: Floats
    unseen_s: Floats


@dataclass(frozen=True)
class Scores:
    """The scores of one regressor, fold by fold: arrays [folds].

    mape: mean |predicted / measured - 1|. spearman, kendall: rank correlations; 0 if all predictions, or all measured
    times, are equal. regret: see `top_regret`. fit_s, predict_s: seconds to fit, and to predict the fold's unseen
    mappings.
    """

    mape: Floats
    spearman: Floats
    kendall: Floats
    regret: Floats
    fit_s: Floats
    predict_s: Floats

    @classmethod
    def joined(cls, several: Sequence[Scores]) -> Scores:
        """Join the scores of several networks, one after the other."""
        return cls(*(np.concatenate([getattr(scores, f.name) for scores in several]) for f in fields(cls)))

    @classmethod
    def of_networks(cls, several: Sequence[Scores]) -> Scores:
        """Return the mean scores of each network, [networks]: what is judged if there are several, because the folds of
        one network tell nothing of how regressors differ on others.
        """
        return cls(*(np.array([getattr(scores, f.name).mean() for scores in several]) for f in fields(cls)))


def splits(count: int, folds: int = FOLDS, repeats: int = REPEATS, seed: int = 0) -> Iterator[tuple[Rows, Rows]]:
    """Yield (rows to learn from, rows to judge by) of `count` rows. In each repeat every row is judged once.

    The sizes of folds differ by at most one row. Raises BadInputError for fewer than two folds, or two rows per fold,
    because one row cannot be ranked.
    """
    if folds < 2 or count < 2 * folds:
        raise BadInputError(f"{count} mappings cannot be judged in {folds} folds; measure at least {2 * folds}.")
    chance = np.random.default_rng(seed)
    for _ in range(repeats):
        shuffled = chance.permutation(count)
        for fold in range(folds):
            unseen = np.sort(shuffled[fold::folds])
            yield np.setdiff1d(shuffled, unseen), unseen


def folds_of(x: Floats, step_s: Floats, folds: int = FOLDS, repeats: int = REPEATS, seed: int = 0) -> list[Fold]:
    """Return the folds of one table of features, [mappings, features], which must not depend on measured times."""
    pairs = splits(len(step_s), folds, repeats, seed)
    return [Fold(x[known], step_s[known], x[unseen], step_s[unseen]) for known, unseen in pairs]


def scored(
    make: Callable[[int], Regressor],
    folds: Iterable[Fold],
    seed: int = 0,
    clock: Callable[[], float] = time.perf_counter,
) -> Scores:
    """Score a new regressor on each fold."""
    rows = []
    for fold in folds:
        begin_s = clock()
        regressor = make(seed).fit(fold.x, fold.step_s)
        fitted_s = clock()
        predicted_s = regressor.predict(fold.unseen_x)
        rows.append((*judged(predicted_s, fold.unseen_s), fitted_s - begin_s, clock() - fitted_s))
    return Scores(*np.array(rows, dtype=np.float64).reshape(-1, len(fields(Scores))).T)


def judged(predicted_s: Floats, measured_s: Floats) -> tuple[float, float, float, float]:
    """Return MAPE, Spearman's rho, Kendall's tau, and top-k regret of predictions."""
    from scipy.stats import kendalltau, spearmanr  # slow to import

    mape = float(np.mean(np.abs(predicted_s / measured_s - 1)))
    if len(set(predicted_s.tolist())) == 1 or len(set(measured_s.tolist())) == 1:
        return mape, 0.0, 0.0, top_regret(predicted_s, measured_s)
    rho, tau = (float(ranks(predicted_s, measured_s).statistic) for ranks in (spearmanr, kendalltau))
    return mape, rho, tau, top_regret(predicted_s, measured_s)


def top_regret(predicted_s: Floats, measured_s: Floats, top: int = TOP) -> float:
    """The loss of measuring only the `top` predicted best: the best of them divided by the best of all, minus 1."""
    asked = np.argsort(predicted_s, kind="stable")[:top]
    return float(measured_s[asked].min() / measured_s.min() - 1)


def in_order(count: int, pieces: int = PIECES) -> Iterator[tuple[Rows, Rows]]:
    """Yield (rows to learn from, next rows to judge by) of `count` rows in the order in which a search measured them.

    The later half is judged in `pieces`, each after learning from all rows before it. A search predicts in this way,
    while random folds also learn from mappings that were measured later. Raises BadInputError for fewer than four rows.
    """
    if count < 4:
        raise BadInputError(f"{count} mappings cannot be judged in order; measure at least 4.")
    rows = np.arange(count)
    for unseen in np.array_split(rows[count // 2 :], min(pieces, count - count // 2)):
        yield rows[: unseen[0]], unseen


def compared_in_order(names: Sequence[str], x: Floats, step_s: Floats, seed: int = 0) -> dict[str, float]:
    """Return the mean |predicted / measured - 1| of each regressor, the winner first, the others by error.

    x, step_s: [mappings, features] and [mappings] seconds, in the order of search. Rows that are not finite do not
    count. If fewer than four rows are left, the first name wins, with an unknown error: NaN.
    """
    finite = np.isfinite(x).all(axis=1) & np.isfinite(step_s)
    x, step_s = x[finite], step_s[finite]
    if len(step_s) < 4:
        return dict.fromkeys(names[:1], math.nan)
    folds = [Fold(x[known], step_s[known], x[unseen], step_s[unseen]) for known, unseen in in_order(len(step_s))]
    scores = {name: scored(REGRESSORS[name], folds, seed) for name in names}
    errors = {name: float(found.mape.mean()) for name, found in scores.items()}
    first = winner(scores, repeats=1)
    return {name: errors[name] for name in sorted(names, key=lambda name: (name != first, errors[name]))}


def eligible(scores: Mapping[str, Scores], repeats: int = REPEATS) -> list[str]:
    """Return the regressors whose MAPE is above the lowest by at most one standard error of the difference.

    Differences are taken fold by fold, because a fold that is hard for one regressor is hard for all. All repeats count
    as one, because they judge the same mappings. Give the scores of several networks as `Scores.of_networks`, with
    repeats=1.
    """
    best = min(scores, key=lambda name: float(scores[name].mape.mean()))
    apart = {name: found.mape - scores[best].mape for name, found in scores.items()}
    return [name for name, away in apart.items() if away.mean() <= _standard_error(away, repeats)]


def winner(scores: Mapping[str, Scores], repeats: int = REPEATS) -> str:
    """Return the `eligible` regressor with the lowest mean top-k regret; in a tie the one with the lowest MAPE.

    The MAPE excludes regressors that rank small folds well by luck. The regret is the loss of a search that trusts the
    regressor.
    """
    return min(
        eligible(scores, repeats), key=lambda name: (float(scores[name].regret.mean()), float(scores[name].mape.mean()))
    )


def _standard_error(differences: Floats, repeats: int) -> float:
    count = len(differences)
    return 0.0 if count < 2 else float(differences.std(ddof=1) / np.sqrt(max(count / repeats, 1.0)))
