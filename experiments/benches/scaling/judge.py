"""Scaling formulas compared with black boxes on the same measured runs: held out, on larger ones, and over seeds."""

from __future__ import annotations

import warnings
from collections.abc import Mapping, Sequence
from dataclasses import replace
from itertools import product

import numpy as np
from numpy.typing import NDArray

from experiments.benches.bench import Facts
from experiments.benches.scaling.design import FORMS
from placer.errors import BadInputError
from surrogate.learn.regressors import LEARNERS
from surrogate.scaling.fit import ConstantsFit, FitSettings, checked, fit
from surrogate.scaling.form import Form
from surrogate.scaling.model import ScalingModel
from surrogate.scaling.runs import Floats, Runs

Rows = NDArray[np.intp]
TARGET = "step_s"
FOLDS = 5
LARGEST = 0.3  # share of the runs, the largest by operations, that a fit on the others must predict
SEEDS = 8
GENERIC = "generic"  # the form that was chosen on the known rows
BLACKBOXES = ("linear", "forest", "boosting", "gaussian-process", "svr")
VIEWS = ("seconds", "logs")
DIRECTION = {"devices": -1}  # the power of a column in a product, if it is not 1
QUICK = FitSettings(intrinsic=(-1.0, 2.5), extrinsic=(-1.0, 2.5), samples=0)
"""No time falls faster than in proportion to devices, and no work here grows faster than the square of a column."""


def study(kind: str, runs: Runs, operations: Floats, settings: FitSettings = QUICK) -> Facts:
    """All facts of one kind of network. runs: with TARGET. operations: [runs], by which networks are small or large."""
    seconds = runs.numbers(TARGET)
    fold_of = np.random.default_rng(settings.seed).permutation(len(runs)) % FOLDS
    folds = [(np.flatnonzero(fold_of != f), np.flatnonzero(fold_of == f)) for f in range(FOLDS)]
    smaller, larger = _by_operations(operations)
    held_out, chosen = _judged(kind, runs, folds, settings)
    beyond, chosen_small = _judged(kind, runs, [(smaller, larger)], settings, operations)
    rows = np.concatenate([unseen for _, unseen in folds])
    return {
        "n_runs": len(runs),
        "fastest_s": float(seconds.min()),
        "slowest_s": float(seconds.max()),
        "held_out": _errors(held_out, seconds[rows]),
        "extrapolation": _errors(beyond, seconds[larger]),
        "chosen": {"held_out": chosen, "extrapolation": chosen_small},
        "n_larger": len(larger),
        "times_larger": float(np.median(operations[larger]) / np.median(operations[smaller])),
        "stability": stability(runs, form_of(kind, chosen_small[0], runs), (smaller, larger), settings),
        "points": {"measured_s": seconds[rows].tolist(), "predicted_s": held_out[GENERIC].tolist()},
        "beyond": {
            "operations": operations[larger].tolist(),
            "ratio": {name: (predicted_s / seconds[larger]).tolist() for name, predicted_s in beyond.items()},
        },
    }


def _by_operations(operations: Floats) -> tuple[Rows, Rows]:
    order = np.argsort(operations, kind="stable")
    cut = len(order) - round(LARGEST * len(order))
    return np.sort(order[:cut]), np.sort(order[cut:])


def _judged(
    kind: str,
    runs: Runs,
    splits: Sequence[tuple[Rows, Rows]],
    settings: FitSettings,
    operations: Floats | None = None,
) -> tuple[dict[str, Floats], list[str]]:
    """The seconds that each method predicts for the unseen rows of all splits, in turn; and the chosen forms.

    A form is chosen on the known rows by the kind of test that follows: by cross-validation or, if `operations` are
    given, by the error on the largest of these rows when fitted to the others.
    """
    found: dict[str, list[Floats]] = {}
    chosen = []
    for known, unseen in splits:
        shown = runs.take(known)
        models = fitted_forms(kind, shown, settings)
        merit = {name: model.mape_cv for name, model in models.items()}
        if operations is not None:
            merit = _on_the_largest(kind, shown, operations[known], settings)
        chosen.append(min(merit.keys() & models.keys(), key=merit.__getitem__))
        columns = runs.take(unseen).columns
        predicted = {f"{GENERIC}: {name}": model.values(columns) for name, model in models.items()}
        predicted[GENERIC] = predicted[f"{GENERIC}: {chosen[-1]}"]
        predicted |= blackboxes(kind, runs, known, unseen, settings.seed)
        for name, seconds in predicted.items():
            found.setdefault(name, []).append(seconds)
    whole = {name: parts for name, parts in found.items() if len(parts) == len(splits)}
    return {name: np.concatenate(parts) for name, parts in whole.items()}, chosen


def _on_the_largest(kind: str, runs: Runs, operations: Floats, settings: FitSettings) -> dict[str, float]:
    """The error of each form on the largest of `runs`, fitted on the others."""
    smaller, largest = (runs.take(rows) for rows in _by_operations(operations))
    seconds = largest.numbers(TARGET)
    models = fitted_forms(kind, smaller, settings)
    return {n: float(np.abs(m.values(largest.columns) / seconds - 1).mean()) for n, m in models.items()}


def fitted_forms(kind: str, runs: Runs, settings: FitSettings) -> dict[str, ScalingModel]:
    """Fit each candidate form for which these runs are enough. Raises BadInputError if they are enough for no form."""
    found, why = {}, None
    for name in FORMS[kind]:
        try:
            found[name] = fit(runs, form_of(kind, name, runs), TARGET, settings)
        except BadInputError as error:
            why = error
    if not found and why is not None:
        raise why
    return found


def form_of(kind: str, name: str, runs: Runs) -> Form:
    """The candidate form of this name, without columns that these runs lack because they never change."""
    intrinsic, extrinsic = FORMS[kind][name]
    form = Form.parse(intrinsic, extrinsic)
    terms = [tuple(column for column in term if column in runs.columns) for term in form.terms]
    return Form(tuple(term for term in terms if term), tuple(c for c in form.extrinsic if c in runs.columns))


def blackboxes(kind: str, runs: Runs, known: Rows, unseen: Rows, seed: int) -> dict[str, Floats]:
    """Seconds of the unseen rows, predicted by each regressor of surrogate/learn/regressors.py: fitted from columns to
    seconds, and from their logarithms to logarithms of seconds. Predictions far outside the known rows are not clipped.
    """
    from sklearn.preprocessing import StandardScaler
    from threadpoolctl import threadpool_limits

    seconds, found = runs.numbers(TARGET), {}
    for name, view in product(BLACKBOXES, VIEWS):
        logs = view == "logs"
        x, y = features(kind, runs, logs=logs), (np.log(seconds) if logs else seconds)[:, None]
        columns, target = StandardScaler().fit(x[known]), StandardScaler().fit(y[known])
        with warnings.catch_warnings(), threadpool_limits(1):
            warnings.simplefilter("ignore")  # a fit that stops before it has converged is judged by its error
            model = LEARNERS[name](columns.transform(x[known]), target.transform(y[known])[:, 0], seed)
            answers = target.inverse_transform(model.predict(columns.transform(x[unseen]))[:, None])[:, 0]
        found[f"{name} ({view})"] = np.exp(answers) if logs else answers
    return found


def features(kind: str, runs: Runs, *, logs: bool) -> Floats:
    """[runs, features]: numbers, or their logarithms; a 0 or 1 for each level of a text; and the products of all terms
    that the generic forms join. A product is of the term's numbers. If the term has a text, there is a column for each
    level, which is 0 at other levels. In products devices divide, because they share the work.
    """
    numbers = {n: np.log(c) if logs else c for n, c in runs.columns.items() if not isinstance(c, tuple) and n != TARGET}
    levels = {n: _levels(c) for n, c in runs.columns.items() if isinstance(c, tuple)}
    columns = [*numbers.values(), *(level for found in levels.values() for level in found)]
    for term in joined_terms(kind, runs):
        logarithms = [np.log(runs.numbers(name)) * DIRECTION.get(name, 1) for name in term if name in numbers]
        joined = np.sum(logarithms, axis=0) if logs else np.exp(np.sum(logarithms, axis=0))
        texts = [name for name in term if name in levels]
        columns += [joined * level for level in levels[texts[0]]] if texts else [joined]
    return np.column_stack(columns)


def joined_terms(kind: str, runs: Runs) -> list[tuple[str, ...]]:
    """The terms of all forms of this kind that have several columns, at least one of them a number."""
    terms = [term for name in FORMS[kind] for term in form_of(kind, name, runs).terms]
    numbers = {name for name in runs.columns if not runs.is_text(name)}
    return [term for term in dict.fromkeys(terms) if len(term) > 1 and numbers & set(term)]


def _levels(column: Sequence[str]) -> list[Floats]:
    """A 0 or 1 per run, for each level."""
    return [np.array([float(value == level) for value in column]) for level in sorted(set(column))]


def stability(runs: Runs, form: Form, split: tuple[Rows, Rows], settings: FitSettings) -> list[Facts]:
    """How far apart SEEDS fits on the smaller runs are, with and without the penalty: by the plain search of all
    constants, by the projected search, and by the projected search on rows drawn with replacement.

    exponents: standard deviation over seeds, the mean over exponents. predictions: relative standard deviation over
    seeds, the median over the larger runs. mape, mape_spread: of the error on the larger runs, mean and standard
    deviation over seeds.
    """
    shown = runs.take(split[0])
    weight = fit(shown, form, TARGET, settings).weight
    some = weight or sorted(w for w in settings.weights if w > 0)[0]
    table = []
    for search, polish, resampled in (("plain", False, False), ("projected", True, False), ("projected", True, True)):
        for penalty in (0.0, some):
            how = replace(settings, search=search, polish=polish)
            seeds = [_seeded(shown, form, replace(how, seed=s), penalty, resampled) for s in range(SEEDS)]
            facts = {"search": search, "resampled": resampled, "weight": penalty}
            table.append(facts | _spread(seeds, runs.take(split[1])))
    return table


def _seeded(
    runs: Runs, form: Form, settings: FitSettings, weight: float, resampled: bool
) -> tuple[ConstantsFit, Floats, float]:
    """Fit with the seed of `settings`. Returns the problem, its constants, and the typical seconds of the runs."""
    if resampled:
        runs = runs.take(np.random.default_rng(settings.seed).integers(len(runs), size=len(runs)))
    coding, seconds = checked(runs, form, TARGET, settings)
    scale = float(np.exp(np.log(seconds).mean()))
    problem = ConstantsFit(coding, coding.coded(runs.columns), seconds / scale, settings, weight)
    return problem, problem.solved(), scale


def _spread(seeds: Sequence[tuple[ConstantsFit, Floats, float]], larger: Runs) -> Facts:
    exponents = np.array([constants[problem.coding.exponents] for problem, constants, _ in seeds])
    predicted_s = np.array(
        [scale * problem.values(constants, problem.coding.coded(larger.columns)) for problem, constants, scale in seeds]
    )
    errors = np.abs(predicted_s / larger.numbers(TARGET) - 1).mean(axis=1)
    return {
        "exponents": float(exponents.std(axis=0).mean()) if exponents.size else 0.0,
        "predictions": float(np.median(predicted_s.std(axis=0) / predicted_s.mean(axis=0))),
        "mape": float(errors.mean()),
        "mape_spread": float(errors.std()),
    }


def _errors(predicted: Mapping[str, Floats], seconds: Floats) -> dict[str, list[float]]:
    """|predicted / measured - 1| of each method, run by run."""
    return {name: np.abs(predicted_s / seconds - 1).tolist() for name, predicted_s in predicted.items()}


def pooled(by_kind: Mapping[str, Facts], part: str) -> dict[str, float]:
    """The mean error over the runs of all kinds, of each method judged on all kinds, the smallest error first."""
    names = set.intersection(*(set(facts[part]) for facts in by_kind.values()))
    means = {name: float(np.mean([e for facts in by_kind.values() for e in facts[part][name]])) for name in names}
    return dict(sorted(means.items(), key=lambda item: item[1]))
