"""The regressors that compete, on equal terms, to predict the step time of a mapping from its features.

All see the same features, standardised, and learn the logarithm of the step time, so that their errors are relative.
Each has few settings. Where that is cheap, they are chosen by cross-validation within the rows to learn from.
`surrogate/operators/regressors.py` does the same for the time of one op, from thousands of rows instead of tens.
"""

from __future__ import annotations

import warnings
from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import Any, Self

import numpy as np
from numpy.typing import ArrayLike, NDArray

from placer.errors import BadInputError
from surrogate.features.mapping_features import MAKESPAN, OF_STEP

Floats = NDArray[np.float64]

THREADS = 1  # with tens of rows a second thread would wait longer than it works
FAR = float(np.log(1.5))  # a predicted log step time is at most this far outside the range of those learned from
FOLDS = 4  # of the cross-validation that chooses settings
FEW = 2 * FOLDS  # with fewer rows no settings are chosen
OUTLYING = 5.0  # features are clipped at this many standard deviations
ROWS_A_CONSTANT = 4  # rows per constant of the generic performance model, which limit how many features it uses


class Regressor(ABC):
    """A regressor of step times. It is deterministic for a given seed and uses at most THREADS threads."""

    def __init__(self, seed: int = 0) -> None:
        self.seed = seed

    def fit(self, x: ArrayLike, step_s: ArrayLike) -> Self:
        """Learn from measured mappings. x: [mappings, features]; step_s: [mappings] seconds. Rows that are not finite,
        or without a positive step time, are left out.

        Raises BadInputError for a wrong shape, and if no row is left.
        """
        rows, seconds = _table(x), np.asarray(step_s, dtype=np.float64)
        if seconds.shape != (len(rows),):
            raise BadInputError(
                f"{len(rows)} mappings have step times of the shape {seconds.shape}; give one for each."
            )
        good = np.isfinite(rows).all(axis=1) & np.isfinite(seconds) & (seconds > 0)
        if not good.any():
            raise BadInputError("no mapping has finite features and a step time; measure some before fitting.")
        with _at_most_threads():
            self._fit(rows[good], np.log(seconds[good]))
        return self

    def predict(self, x: ArrayLike) -> Floats:
        """Predict seconds, [mappings]. Infinity if a feature is not finite, as for mappings that cannot run."""
        rows = _table(x)
        step_s, good = np.full(len(rows), np.inf), np.isfinite(rows).all(axis=1)
        if good.any():
            with _at_most_threads():
                step_s[good] = np.exp(self._predict(rows[good]))
        return step_s

    @abstractmethod
    def _fit(self, x: Floats, log_s: Floats) -> None:
        """Learn from finite rows, at least one."""

    @abstractmethod
    def _predict(self, x: Floats) -> Floats:
        """Predict log seconds of finite rows, at least one."""


class Scaled(Regressor):
    """The simulated step multiplied by one factor: the baseline without learning."""

    def _fit(self, x: Floats, log_s: Floats) -> None:
        self.log_factor = float(np.median(log_s - _log_makespan(x)))

    def _predict(self, x: Floats) -> Floats:
        return _log_makespan(x) + self.log_factor


class OnSimulator(Regressor):
    """Another regressor on step time / simulated step, so that it need not learn what the simulator knows."""

    def __init__(self, inner: Regressor) -> None:
        super().__init__(inner.seed)
        self.inner = inner

    def _fit(self, x: Floats, log_s: Floats) -> None:
        self.inner._fit(x, log_s - _log_makespan(x))

    def _predict(self, x: Floats) -> Floats:
        return self.inner._predict(x) + _log_makespan(x)


class Generic(Regressor):
    """The generic performance model (surrogate/scaling/) of the features of the whole step:
    a m^p prod_j (1 + f_j)^q_j + C, with m the simulated step and f_j the other features, each divided by its mean.
    The 1 is added because many features are 0 if no tensor crosses.
    """

    def _fit(self, x: Floats, log_s: Floats) -> None:
        self.scaled = Scaled(self.seed)
        self.scaled._fit(x, log_s)
        self.least, self.most = float(log_s.min()) - FAR, float(log_s.max()) + FAR
        self.mean = x[:, : len(OF_STEP)].mean(axis=0)
        columns = self._columns(x)
        varying = [name for name, column in columns.items() if np.ptp(column) > 1e-9]
        factors = varying[1 : len(log_s) // ROWS_A_CONSTANT - 1]
        self.model = None
        if len(log_s) >= 2 * ROWS_A_CONSTANT and varying[:1] == [OF_STEP[MAKESPAN].name]:
            self.model = self._fitted({name: columns[name] for name in (varying[0], *factors)}, np.exp(log_s))

    def _fitted(self, columns: dict[str, Floats], step_s: Floats) -> Any:
        from surrogate.scaling.fit import FitSettings, fit
        from surrogate.scaling.form import Form
        from surrogate.scaling.runs import Runs

        first, *factors = columns
        settings = FitSettings((0.0, 2.0), (-1.0, 1.0), folds=FOLDS, samples=0, generations=40, seed=self.seed)
        runs = Runs("the measured mappings", {**columns, "measured_s": step_s})
        return fit(runs, Form(((first,),), tuple(factors)), "measured_s", settings)

    def _predict(self, x: Floats) -> Floats:
        if self.model is None:
            return self.scaled._predict(x)
        log_s: Floats = np.log(np.maximum(self.model.values(self._columns(x)), np.finfo(np.float64).tiny))
        return np.clip(log_s, self.least, self.most)

    def _columns(self, x: Floats) -> dict[str, Floats]:
        """Return the columns by name, the simulated step first; all are above 0."""
        over = x[:, : len(OF_STEP)] / np.where(self.mean > 0, self.mean, 1.0)
        over[:, MAKESPAN + 1 :] += 1
        return {feature.name: column for feature, column in zip(OF_STEP, over.T, strict=False)}


class Learned(Regressor):
    """A model on features and target of mean 0 and variance 1. learn: (x, y, seed) -> fitted model. far: how far a
    predicted log step time may be outside the range of those learned from.
    """

    def __init__(self, learn: Callable[[Floats, Floats, int], Any], seed: int = 0, far: float = FAR) -> None:
        super().__init__(seed)
        self.learn, self.far = learn, far

    def _fit(self, x: Floats, log_s: Floats) -> None:
        self.mean, self.scale = x.mean(axis=0), x.std(axis=0)
        # Ignore a feature that never changes: its deviations are rounding errors.
        self.scale[self.scale <= 1e-9 * np.abs(self.mean)] = np.inf
        self.middle, self.width = float(log_s.mean()), float(log_s.std()) or 1.0
        self.least, self.most = float(log_s.min()) - self.far, float(log_s.max()) + self.far
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # a fit that has not converged is judged by its error like any other
            self.model = self.learn(self._x(x), (log_s - self.middle) / self.width, self.seed)

    def _predict(self, x: Floats) -> Floats:
        y = np.asarray(self.model.predict(self._x(x)), dtype=np.float64)
        log_s: Floats = np.clip(y * self.width + self.middle, self.least, self.most)
        return log_s

    def _x(self, x: Floats) -> Floats:
        scaled: Floats = np.clip((x - self.mean) / self.scale, -OUTLYING, OUTLYING)
        return scaled


def linear(x: Floats, y: Floats, seed: int) -> Any:
    """Ordinary least squares. Among equally good fits, the one with the smallest coefficients."""
    from sklearn.linear_model import LinearRegression

    return LinearRegression().fit(x, y)


def ridge(x: Floats, y: Floats, seed: int) -> Any:
    """Least squares with a penalty on the squared coefficients. Leaving one row out chooses the penalty's weight."""
    from sklearn.linear_model import Ridge, RidgeCV

    if len(y) < FEW:
        return Ridge(alpha=x.shape[1]).fit(x, y)
    return RidgeCV(alphas=np.logspace(-2, 4, 19)).fit(x, y)


def neighbours(x: Floats, y: Floats, seed: int) -> Any:
    """The mean of the nearest mappings, weighted by nearness. Cross-validation chooses how many."""
    from sklearn.neighbors import KNeighborsRegressor

    most = len(y) - -(-len(y) // FOLDS)  # rows of the smallest training fold
    counts = [k for k in (1, 2, 3, 5, 8, 13) if k <= most]
    model = KNeighborsRegressor(min(3, len(y)), weights="distance")
    return _chosen(model, {"n_neighbors": counts}, x, y, seed)


def svr(x: Floats, y: Floats, seed: int) -> Any:
    """Support vectors with a Gaussian kernel. Cross-validation chooses its width and the price of errors."""
    from sklearn.svm import SVR

    widths = [factor / x.shape[1] for factor in (0.03, 0.1, 0.3, 1.0)]
    model = SVR(C=10.0, gamma=widths[1], epsilon=0.05)
    return _chosen(model, {"C": [1.0, 10.0, 100.0], "gamma": widths}, x, y, seed)


def forest(x: Floats, y: Floats, seed: int) -> Any:
    """The mean of deep trees, each grown on a sample of rows, with a sample of features at every fork."""
    from sklearn.ensemble import RandomForestRegressor

    return RandomForestRegressor(300, max_features=1 / 3, random_state=seed, n_jobs=1).fit(x, y)


def boosting(x: Floats, y: Floats, seed: int) -> Any:
    """Gradient-boosted trees (xgboost): shallow trees, learned in small steps."""
    from xgboost import XGBRegressor

    return XGBRegressor(
        n_estimators=300, learning_rate=0.05, max_depth=3, min_child_weight=2, subsample=0.8, colsample_bytree=0.5,
        reg_lambda=1.0, tree_method="hist", n_jobs=THREADS, random_state=seed,
    ).fit(x, y)  # fmt: skip


def mlp(x: Floats, y: Floats, seed: int) -> Any:
    """A multi-layer perceptron with two small hidden layers and weight decay."""
    from sklearn.neural_network import MLPRegressor

    return MLPRegressor(hidden_layer_sizes=(32, 16), alpha=1.0, solver="lbfgs", max_iter=300, random_state=seed).fit(
        x, y
    )


def gaussian_process(x: Floats, y: Floats, seed: int) -> Any:
    """A Gaussian process: a linear trend plus a smooth function plus noise, weighted by likelihood."""
    from sklearn.gaussian_process import GaussianProcessRegressor
    from sklearn.gaussian_process.kernels import ConstantKernel, DotProduct, Matern, WhiteKernel

    far = float(np.sqrt(x.shape[1]))  # about the distance of two mappings
    trend = ConstantKernel(0.01, (1e-6, 1e2)) * DotProduct(1.0, sigma_0_bounds="fixed")
    smooth = ConstantKernel(1.0, (1e-3, 1e3)) * Matern(far, (0.1 * far, 100 * far), nu=2.5)
    return GaussianProcessRegressor(trend + smooth + WhiteKernel(0.01, (1e-5, 1.0)), random_state=seed).fit(x, y)


def _chosen(model: Any, settings: dict[str, list[Any]], x: Floats, y: Floats, seed: int) -> Any:
    """Fit `model` with the settings that have the smallest error on rows left out; unchanged if rows are FEW."""
    from sklearn.model_selection import GridSearchCV, KFold

    if len(y) < FEW:
        return model.fit(x, y)
    folds = KFold(FOLDS, shuffle=True, random_state=seed)
    return GridSearchCV(model, settings, cv=folds, scoring="neg_mean_absolute_error").fit(x, y)


LEARNERS: dict[str, Callable[[Floats, Floats, int], Any]] = {
    "linear": linear,
    "ridge": ridge,
    "neighbours": neighbours,
    "svr": svr,
    "forest": forest,
    "boosting": boosting,
    "mlp": mlp,
    "gaussian-process": gaussian_process,
}
BASELINE = "simulator"
ON_SIMULATOR = ("ridge", "svr", "boosting", "mlp", "gaussian-process")  # which also exist as OnSimulator


def _maker(learn: Callable[[Floats, Floats, int], Any], *, on_simulator: bool = False) -> Callable[[int], Regressor]:
    if on_simulator:
        return lambda seed: OnSimulator(Learned(learn, seed))
    return lambda seed: Learned(learn, seed)


REGRESSORS: dict[str, Callable[[int], Regressor]] = {
    BASELINE: Scaled,
    "generic": Generic,
    **{name: _maker(learn) for name, learn in LEARNERS.items()},
    **{f"{name}-on-simulator": _maker(LEARNERS[name], on_simulator=True) for name in ON_SIMULATOR},
}
"""Every regressor by name, made from a seed."""


def make_regressor(name: str, seed: int = 0) -> Regressor:
    """Return a new regressor called `name`. Raises BadInputError for an unknown name."""
    if name not in REGRESSORS:
        raise BadInputError(f"there is no regressor {name!r}; choose one of {', '.join(sorted(REGRESSORS))}.")
    return REGRESSORS[name](seed)


def _table(x: ArrayLike) -> Floats:
    rows = np.asarray(x, dtype=np.float64)
    if rows.ndim != 2:
        raise BadInputError(f"the features have the shape {rows.shape}; give [mappings, features].")
    return rows


def _log_makespan(x: Floats) -> Floats:
    found: Floats = np.log(np.maximum(x[:, MAKESPAN], np.finfo(np.float64).tiny))
    return found


def _at_most_threads() -> Any:
    from threadpoolctl import threadpool_limits  # comes with scikit-learn

    return threadpool_limits(THREADS)
