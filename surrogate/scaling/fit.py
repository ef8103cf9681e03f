"""The fit of a scaling formula to runs: differential evolution, a polish, a cross-validated penalty, a bootstrap."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from placer.errors import BadInputError, listed, short
from surrogate.scaling.form import OF_PREDICTIONS, TINY, Coded, Coding, Form
from surrogate.scaling.model import ScalingModel
from surrogate.scaling.runs import Floats, Runs

PENALTIES = ("l2", "l1", "none")
SEARCHES = ("projected", "plain")
WEIGHTS = (0.0, 1e-7, 1e-6, 1e-5, 1e-4, 1e-3, 1e-2)
SHARPNESS = 1e-3  # below this size of a constant the L1 penalty is rounded off, so that it has a slope
LARGEST = 10.0  # the plain search's upper bound of coefficients, relative to the typical time
RIDGE = 1e-10  # added to the diagonal, so that nearly equal columns do not make the equations singular
POLISH_EVALUATIONS = 200
DRAWS = 100  # for a sample of the bootstrap; if 6 levels have a single run each, one draw in 15 has all of them
KEPT_ERRORS = 39  # quantiles of the errors on rows left out, each in the middle of its share
FARTHEST = 1e12  # the largest target divided by the smallest; above it squared relative errors are lost to rounding
Advance = Callable[[str], None]


@dataclass(frozen=True)
class FitSettings:
    """Settings of how constants are found.

    The search `projected` varies the exponents only, and takes for each set of exponents the best coefficients, found
    by least squares (variable projection, Golub & Pereyra 1973). The search `plain` varies all constants at once.
    """

    intrinsic: tuple[float, float] = (-3.0, 3.0)  # bounds of the exponents p
    extrinsic: tuple[float, float] = (-3.0, 3.0)  # bounds of the exponents q
    penalty: str = "l2"  # l2, l1 or none, on all constants except C
    weights: tuple[float, ...] = WEIGHTS  # the weights of the penalty to try
    folds: int = 5  # of the cross-validation that chooses among the weights
    samples: int = 100  # of the bootstrap
    population: int = 12  # members per exponent
    generations: int = 150
    search: str = "projected"  # or plain
    polish: bool = True  # end with a descent in all constants from the best ones found
    seed: int = 0

    def __post_init__(self) -> None:
        if self.penalty not in PENALTIES:
            raise BadInputError(f"there is no penalty {short(self.penalty)}; choose one of {', '.join(PENALTIES)}.")
        if self.search not in SEARCHES:
            raise BadInputError(f"there is no search {short(self.search)}; choose one of {', '.join(SEARCHES)}.")
        for low, high in (self.intrinsic, self.extrinsic):
            if not -10 <= low < high <= 10:
                raise BadInputError(f"exponents from {low:g} to {high:g} are no range within -10..10; correct it.")
        if self.folds < 2 or self.samples < 0:
            raise BadInputError("a fit needs at least 2 folds, and 0 bootstrap samples or more.")
        if self.seed < 0:
            raise BadInputError(f"the seed is {self.seed}; give a number of 0 or more.")


def fit(
    runs: Runs, form: Form, target: str, settings: FitSettings | None = None, advance: Advance = lambda text: None
) -> ScalingModel:
    """Fit the formula of `form` to the column `target`. advance: called with the name of each part of the work.

    Raises BadInputError for runs that the formula cannot be fitted to, see `checked`.
    """
    settings = settings or FitSettings()
    coding, seconds = checked(runs, form, target, settings)
    scale = float(np.exp(np.log(seconds).mean()))
    problem = ConstantsFit(coding, coding.coded(runs.columns), seconds / scale, settings)
    advance("cross-validation")
    weight, mape_cv, errors = cross_validated(problem)
    advance("differential evolution")
    problem = problem.weighing(weight)
    constants = problem.solved()
    advance("bootstrap")
    fitted = problem.values(constants)
    return ScalingModel(
        coding=coding,
        target=target,
        scale=scale,
        constants=constants,
        samples=problem.bootstrap(constants),
        errors=np.quantile(errors, (np.arange(KEPT_ERRORS) + 0.5) / KEPT_ERRORS, method="hazen"),
        bounds=settings.intrinsic,
        extrinsic_bounds=settings.extrinsic,
        ranges={n: (float(runs.numbers(n).min()), float(runs.numbers(n).max())) for n in coding.typical},
        usual={n: _usual(runs, n) for n in form.columns},
        rows=len(runs),
        penalty=settings.penalty,
        weight=weight,
        seed=settings.seed,
        mape=float(np.mean(np.abs(fitted / problem.target - 1))),
        mape_cv=mape_cv,
    )


def checked(runs: Runs, form: Form, target: str, settings: FitSettings) -> tuple[Coding, Floats]:
    """Return the coding, and the seconds to explain. Raises BadInputError, of one line, for a missing column, a target
    that is not positive, varies too much, explains itself or has a name of OF_PREDICTIONS, a constant or negative
    column, zeros under exponents that are all negative, and fewer rows than constants.
    """
    for name in (target, *form.columns):
        if name not in runs.columns:
            raise BadInputError(f"{runs.source}: has no column {short(name)}; it has {listed(list(runs.columns))}.")
    seconds = runs.numbers(target)
    if target in OF_PREDICTIONS:
        raise BadInputError(f"predictions hold a {target} beside the target; give the column {target} another name.")
    if target in form.columns:
        raise BadInputError(f"column {short(target)} is the target; it cannot explain itself.")
    if not (seconds > 0).all():
        row = int((seconds <= 0).argmax())
        raise BadInputError(
            f"{runs.source}: {short(target)} is {seconds[row]:g} in row {runs.row(row)}; it must be above 0."
        )
    if seconds.max() > FARTHEST * seconds.min():
        raise BadInputError(
            f"{runs.source}: {short(target)} goes from {seconds.min():g} to {seconds.max():g}, too far for one "
            "formula; check its unit, or fit a part of the runs."
        )
    for name in form.columns:
        _check_column(runs, name, settings.extrinsic if name in form.extrinsic else settings.intrinsic)
    coding = Coding.of(form, runs)
    if len(runs) < len(coding.names):
        raise BadInputError(
            f"{runs.source}: has {len(runs)} rows, and this form has {len(coding.names)} constants; "
            "measure more runs, or leave columns out."
        )
    return coding, seconds


def _check_column(runs: Runs, name: str, bounds: tuple[float, float]) -> None:
    where = f"{runs.source}: column {short(name)}"
    column = runs.columns[name]
    if len(set(column)) == 1:
        raise BadInputError(f"{where} is {column[0]} in every row, so its part cannot be told; leave it out.")
    if isinstance(column, tuple):
        return
    if (column < 0).any():
        row = int((column < 0).argmax())
        raise BadInputError(f"{where} is {column[row]:g} in row {runs.row(row)}; powers need numbers of 0 or more.")
    if (column == 0).any() and bounds[1] <= 0:
        row = int((column == 0).argmax())
        raise BadInputError(
            f"{where} is 0 in row {runs.row(row)}, which a negative exponent cannot take; "
            "allow exponents above 0 (--exponents -3..3), or drop these rows."
        )


@dataclass(frozen=True)
class ConstantsFit:
    """The problem of finding constants. target: [rows], divided by the typical time. weight: of the penalty."""

    coding: Coding
    coded: Coded
    target: Floats
    settings: FitSettings
    weight: float = 0.0

    def weighing(self, weight: float) -> ConstantsFit:
        return replace(self, weight=weight)

    def of_rows(self, rows: NDArray[np.intp]) -> ConstantsFit:
        """Return the same problem with only the rows `rows`."""
        return replace(self, coded=self.coded.of_rows(rows), target=self.target[rows])

    @property
    def levels(self) -> Floats:
        """Return which levels each row has, [rows, text levels] 0 or 1."""
        return self.coding.levels_of(self.coded)

    def values(self, constants: Floats, coded: Coded | None = None) -> Floats:
        """Return the formula's values, [rows], for one vector of constants."""
        found: Floats = self.coding.values(constants[None, :], coded or self.coded)[0]
        return found

    def cost(self, constants: Floats) -> Floats:
        """Return the mean squared relative error plus the penalty, [sets]. constants: [sets, constants]."""
        errors = self.coding.values(constants, self.coded) / self.target - 1
        found: Floats = (errors**2).mean(axis=1) + self._penalty(constants[:, :-1])
        return found

    def solved(self) -> Floats:
        """Return the best constants that a search of the whole space finds."""
        found = self._projected() if self.settings.search == "projected" else self._plain()
        return self.polished(found) if self.settings.polish else found

    def polished(self, start: Floats, most: int = POLISH_EVALUATIONS) -> Floats:
        """Return the local optimum next to `start`, by least squares within the bounds. most: of evaluations."""
        from scipy.optimize import least_squares

        low, high = self._bounds()
        inside = np.clip(start, low, np.minimum(high, 1e6))
        found = least_squares(
            self._residuals, inside, self._slopes, bounds=(low, high), method="trf", x_scale=1.0, max_nfev=most,
            ftol=1e-10, xtol=1e-10, gtol=1e-10,
        )  # fmt: skip
        return np.asarray(found.x, dtype=np.float64)

    def bootstrap(self, constants: Floats) -> Floats:
        """Return [samples, constants], each sample polished from `constants` on rows drawn with replacement.

        The whole space is not searched again, because that takes as long as the fit, so other optima are not found.
        """
        rng = np.random.default_rng(self.settings.seed)
        rows = [self.drawn(rng) for _ in range(self.settings.samples)]
        found = [self.of_rows(drawn).polished(constants, most=40) for drawn in rows]
        return np.array(found).reshape(len(found), len(constants))

    def drawn(self, rng: np.random.Generator) -> NDArray[np.intp]:
        """Return the numbers of as many rows as the table has, drawn with replacement.

        Each text level of the table is among them, because rows without a level say nothing about the level's constant.
        If DRAWS draws miss some level, as many rows of each combination of levels are drawn as the table has. Always
        drawn like that, a table with one run of each combination would give nothing but itself.
        """
        levels, count = self.levels, len(self.target)
        for _ in range(DRAWS):
            rows: NDArray[np.intp] = rng.integers(count, size=count)
            if levels[rows].any(axis=0).all():
                return rows
        of_row = np.unique(levels, axis=0, return_inverse=True)[1].reshape(-1)
        alike = [np.flatnonzero(of_row == group) for group in range(of_row.max() + 1)]
        return np.concatenate([some[rng.integers(len(some), size=len(some))] for some in alike])

    def _projected(self) -> Floats:
        """Find the exponents by differential evolution; the coefficients follow from them."""
        count = len(self.coding.powers) + len(self.coding.factors)
        if not count:
            best = np.zeros(0)
        else:
            best = self._evolved(self._exponent_bounds(), lambda sets: self._with_coefficients(sets)[1])
        found: Floats = self._with_coefficients(best[None, :])[0][0]
        return found

    def _plain(self) -> Floats:
        """Find all constants by differential evolution."""
        inside = [(0.0, LARGEST)] * len(self.coding.coefficients)
        return self._evolved([*inside, *self._exponent_bounds(), (0.0, float(self.target.max()))], self.cost)

    def _evolved(self, bounds: list[tuple[float, float]], cost: Callable[[Floats], Floats]) -> Floats:
        from scipy.optimize import differential_evolution

        found = differential_evolution(
            lambda columns: cost(columns.T), bounds, popsize=self.settings.population, tol=1e-6,
            maxiter=self.settings.generations, mutation=(0.4, 0.9), recombination=0.8, polish=False,
            updating="deferred", vectorized=True, rng=self.settings.seed,
        )  # fmt: skip
        return np.asarray(found.x, dtype=np.float64)

    def _with_coefficients(self, exponents: Floats) -> tuple[Floats, Floats]:
        """Return all constants, [sets, constants], with good coefficients for `exponents`, [sets, p and q], and their
        cost, [sets].
        """
        basis = self.coding.basis(exponents, self.coded) / self.target[:, None]
        gram = basis.transpose(0, 2, 1) @ basis / len(self.target)
        right = basis.mean(axis=1)
        penalised = np.append(np.ones(gram.shape[1] - 1), 0.0)
        if self.settings.penalty == "l2":
            held, pull = gram + self.weight * np.diag(penalised), right
        else:
            held, pull = gram, right - self.weight / 2 * penalised
        weights = nonnegative(held, pull)
        error = 1 - 2 * np.einsum("sk,sk->s", right, weights) + np.einsum("sk,skl,sl->s", weights, gram, weights)
        constants = np.concatenate([weights[:, :-1], exponents, weights[:, -1:]], axis=1)
        return constants, np.maximum(error, 0.0) + self._penalty(constants[:, :-1])

    def _penalty(self, constants: Floats) -> Floats:
        size = np.abs(constants) if self.settings.penalty == "l1" else constants**2
        found: Floats = self.weight * size.sum(axis=-1)
        return found

    def _residuals(self, constants: Floats) -> Floats:
        errors = (self.values(constants) / self.target - 1) / np.sqrt(len(self.target))
        return np.concatenate([errors, self._pulls(constants[:-1])[0]])

    def _slopes(self, constants: Floats) -> Floats:
        """Return the derivatives of the residuals, [residuals, constants]."""
        coding = self.coding
        basis = coding.basis(constants[None, coding.exponents], self.coded)[0]
        parts = basis[:, :-1] * constants[: len(coding.coefficients)]
        of_term = np.array([term for term, _ in coding.coefficients])
        p = [parts[:, of_term == i].sum(axis=1) * self.coded.logs[:, k] for k, (i, _) in enumerate(coding.powers)]
        q = parts.sum(axis=1)[:, None] * self.coded.factors
        slopes = np.column_stack([basis[:, :-1], *p, q, basis[:, -1]])
        slopes /= self.target[:, None] * np.sqrt(len(self.target))
        pulled = np.zeros((len(constants) - 1, len(constants)))
        np.fill_diagonal(pulled, self._pulls(constants[:-1])[1])
        return np.vstack([slopes, pulled])

    def _pulls(self, constants: Floats) -> tuple[Floats, Floats]:
        """Return the penalty as residuals, whose squares add up to it, and their derivatives."""
        root = np.sqrt(self.weight)
        if self.settings.penalty == "l1":
            rounded = constants**2 + SHARPNESS**2
            return root * rounded**0.25, root * constants / 2 * rounded**-0.75
        return root * constants, np.full(len(constants), root)

    def _exponent_bounds(self) -> list[tuple[float, float]]:
        """Return the bounds of p and q. Those of a column that is 0 in a run begin at 0 or above."""
        settings, zeros = self.settings, self.coding.zeros
        columns = [(name, settings.intrinsic) for _, name in self.coding.powers]
        columns += [(name, settings.extrinsic) for name, _ in self.coding.factors]
        return [(max(low, 0.0) if name in zeros else low, high) for name, (low, high) in columns]

    def _bounds(self) -> tuple[Floats, Floats]:
        count = len(self.coding.coefficients)
        inner = self._exponent_bounds()
        low = [0.0] * count + [low for low, _ in inner] + [0.0]
        high = [np.inf] * count + [high for _, high in inner] + [np.inf]
        return np.array(low), np.array(high)


def nonnegative(gram: Floats, right: Floats) -> Floats:
    """Return weights w >= 0, [sets, k], that nearly minimise w' gram w - 2 right' w.

    gram: [sets, k, k]. right: [sets, k].

    The weights are first solved for without the bound. Then the most negative weight is fixed at 0 and the rest solved
    for again, until no weight is negative. This is good enough to compare sets of exponents; the polish is exact.
    """
    count = right.shape[1]
    eye = np.eye(count)
    scale = np.sqrt(np.maximum(np.einsum("skk->sk", gram), TINY))
    gram = gram / (scale[:, :, None] * scale[:, None, :]) + RIDGE * eye
    right = right / scale
    free = np.ones(right.shape, dtype=bool)
    weights = np.linalg.solve(gram, right[..., None])[..., 0]
    for _ in range(count):
        left = np.flatnonzero(weights.min(axis=1) < 0)
        if not len(left):
            break
        free[left, weights[left].argmin(axis=1)] = False
        held = np.where(free[left, :, None] & free[left, None, :], gram[left], eye)
        weights[left] = np.linalg.solve(held, np.where(free[left], right[left], 0.0)[..., None])[..., 0]
    found: Floats = np.maximum(weights, 0.0) / scale
    return found


def cross_validated(problem: ConstantsFit) -> tuple[float, float, Floats]:
    """Return the weight whose formula has the smallest mean absolute relative error on rows left out, that error, and
    measured / predicted - 1 of the rows left out. Each fold searches the whole space once, and polishes the result for
    each weight. Rows that differ in the target only, such as repeated runs, are left out together, because the others
    would tell what the left-out one takes.

    A row with a text level that no other fold has does not count, because the other folds say nothing about the level's
    constant. If this leaves no row, all rows count.
    """
    settings, rows = problem.settings, len(problem.target)
    weights = (0.0,) if settings.penalty == "none" else settings.weights
    fold_of = _folds(problem)
    found, told = np.ones((len(weights), rows)), np.zeros(rows, dtype=bool)
    levels = problem.levels
    for fold in range(int(fold_of.max()) + 1):
        known, unseen = np.flatnonzero(fold_of != fold), np.flatnonzero(fold_of == fold)
        part = problem.of_rows(known)
        told[unseen] = (levels[unseen] <= levels[known].max(axis=0, initial=0.0)).all(axis=1)
        start = part.weighing(float(np.median(weights))).solved()
        for i, weight in enumerate(weights):
            constants = part.weighing(weight).polished(start)
            found[i, unseen] = problem.of_rows(unseen).values(constants)
    counted = np.flatnonzero(told) if told.any() else np.arange(rows)
    found, target = found[:, counted], problem.target[counted]
    errors = np.abs(found / target - 1).mean(axis=1)
    best = int(errors.argmin())
    return weights[best], float(errors[best]), target / np.maximum(found[best], 1e-12) - 1


def _folds(problem: ConstantsFit) -> NDArray[np.intp]:
    """Return each row's fold number. Alike rows are in one fold; if all are alike, each row is dealt for itself."""
    _, first, of_row = np.unique(np.hstack(problem.coded), axis=0, return_index=True, return_inverse=True)
    if len(first) < 2:
        first = of_row = np.arange(len(problem.target))
    chance = np.random.default_rng(problem.settings.seed)
    folds = np.empty(len(first), dtype=np.intp)
    folds[np.argsort(first)] = chance.permutation(len(first)) % min(problem.settings.folds, len(first))
    found: NDArray[np.intp] = folds[of_row.reshape(-1)]
    return found


def _usual(runs: Runs, name: str) -> float | str:
    """Return the usual value of a column: of numbers the value nearest to the median, of texts the most common."""
    column = runs.columns[name]
    if isinstance(column, tuple):
        return max(sorted(set(column)), key=column.count)
    return float(np.quantile(column, 0.5, method="nearest"))
