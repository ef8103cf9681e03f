"""The regressors that compete to predict the times of a family of operators. All predict the logarithm of seconds."""

from __future__ import annotations

import warnings
from abc import ABC, abstractmethod
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from surrogate.operators.length_scales import learned

Floats = NDArray[np.float64]
FEW = 4  # the fewest rows for which an op type has its own roofline
THREADS = 1  # more threads wait for one another if other programs use the cores: fits of seconds then took minutes


@dataclass(frozen=True)
class OperatorTable:
    """Operators of one family as numbers. types: [n] op types. flops, traffic_bytes: [n]. x: features, [n, f]."""

    types: NDArray[np.str_]
    flops: Floats
    traffic_bytes: Floats
    x: Floats

    def __len__(self) -> int:
        return len(self.flops)

    def take(self, rows: NDArray[np.intp] | NDArray[np.bool_]) -> OperatorTable:
        return OperatorTable(self.types[rows], self.flops[rows], self.traffic_bytes[rows], self.x[rows])


class OperatorRegressor(ABC):
    """A regressor that learns log seconds from a table of operators."""

    name: str

    @abstractmethod
    def fit(self, table: OperatorTable, log_s: Floats, roofline: Roofline | None = None) -> None:
        """Learn from the table. log_s: natural logarithm of seconds, [n], n >= 1.

        roofline: fitted to the same rows, for those that build on one; None = they fit their own.
        """

    @abstractmethod
    def predict(self, table: OperatorTable) -> Floats:
        """Return the predicted log seconds, [n]."""


def fit_all(regressors: Iterable[OperatorRegressor], table: OperatorTable, log_s: Floats) -> None:
    """Fit each regressor to the table. The roofline, on which several of them build, is fitted once."""
    from threadpoolctl import threadpool_limits

    roofline = Roofline()
    with threadpool_limits(THREADS):
        roofline.fit(table, log_s)
        for regressor in regressors:
            regressor.fit(table, log_s, roofline)


class Roofline(OperatorRegressor):
    """t = overhead + max(flops / peak, bytes / bandwidth), per op type, after Williams et al. 2009 with an overhead.

    The three constants are found by least squares on the relative error. A type with few rows takes the constants of
    all types together.
    """

    name = "roofline"

    def __init__(self) -> None:
        self.constants: dict[str, Floats] = {}

    def fit(self, table: OperatorTable, log_s: Floats, roofline: Roofline | None = None) -> None:
        """Fit the constants of every type, and under the empty name those of all types together."""
        if roofline is not None:
            self.constants = roofline.constants
            return
        self.constants = {"": _roofline_constants(table, log_s)}
        for type_ in np.unique(table.types):
            rows = table.types == type_
            if rows.sum() >= FEW:
                self.constants[str(type_)] = _roofline_constants(table.take(rows), log_s[rows])

    def predict(self, table: OperatorTable) -> Floats:
        constants = np.array([self.constants.get(str(t), self.constants[""]) for t in table.types]).reshape(-1, 3)
        return _roofline(constants.T, table)


def _roofline(log_constants: Floats, table: OperatorTable) -> Floats:
    overhead_s, s_per_flop, s_per_byte = np.exp(log_constants)
    found: Floats = np.log(overhead_s + np.maximum(s_per_flop * table.flops, s_per_byte * table.traffic_bytes))
    return found


def _roofline_constants(table: OperatorTable, log_s: Floats) -> Floats:
    """Return the logarithms of overhead, 1/peak and 1/bandwidth. Fits start from low and median measured times."""
    from scipy.optimize import least_squares

    seconds = np.exp(log_s)
    low = np.log([1e-8, 1e-17, 1e-13])  # a device of 100 PFLOP/s
    high = np.log([1e-2, 1e-6, 1e-6])
    per_flop, per_byte = (np.median(seconds / np.maximum(w, 1.0)) for w in (table.flops, table.traffic_bytes))
    starts = [(np.quantile(seconds, 0.05), per_flop * a, per_byte * b) for a, b in ((1, 0.3), (0.3, 1), (0.7, 0.7))]
    fits = [
        least_squares(
            lambda c: _roofline(c, table) - log_s, np.clip(np.log(start), low + 1e-6, high - 1e-6),
            bounds=(low, high), loss="soft_l1", f_scale=0.1,
        )
        for start in starts
    ]  # fmt: skip
    best: Floats = min(fits, key=lambda fit: fit.cost).x
    return best


class OnRoofline(OperatorRegressor):
    """Another regressor on log(time / roofline), so that predictions outside its data fall back to physics."""

    def __init__(self, inner: OperatorRegressor) -> None:
        self.inner, self.base = inner, Roofline()
        self.name = f"{inner.name} on roofline"

    def fit(self, table: OperatorTable, log_s: Floats, roofline: Roofline | None = None) -> None:
        self.base.fit(table, log_s, roofline)
        self.inner.fit(table, log_s - self.base.predict(table))

    def predict(self, table: OperatorTable) -> Floats:
        return self.base.predict(table) + self.inner.predict(table)


class Boosting(OperatorRegressor):
    """Gradient-boosted trees (xgboost) on the squared error of logarithms."""

    name = "boosting"

    def __init__(self, trees: int = 400) -> None:
        self.trees = trees
        self.model: Any = None

    def fit(self, table: OperatorTable, log_s: Floats, roofline: Roofline | None = None) -> None:
        from xgboost import XGBRegressor

        self.model = XGBRegressor(
            n_estimators=self.trees, learning_rate=0.05, max_depth=6, min_child_weight=2, subsample=0.8,
            colsample_bytree=0.6, reg_lambda=1.0, objective="reg:squarederror",
            n_jobs=THREADS, random_state=0,
        )  # fmt: skip
        self.middle = float(np.median(log_s))
        self.model.fit(table.x, log_s - self.middle)

    def predict(self, table: OperatorTable) -> Floats:
        return np.asarray(self.model.predict(table.x), dtype=np.float64) + self.middle


class _Scaled(OperatorRegressor):
    """A scikit-learn regressor on features of mean 0 and variance 1."""

    def __init__(self) -> None:
        self.model: Any = None

    def fit(self, table: OperatorTable, log_s: Floats, roofline: Roofline | None = None) -> None:
        self.mean, self.scale = table.x.mean(axis=0), table.x.std(axis=0)
        self.scale[self.scale < 1e-9] = np.inf  # ignores a feature that never changes
        self.middle, self.width = float(np.mean(log_s)), float(np.std(log_s)) or 1.0
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # a fit that has not converged is judged by its error like any other
            self.model = self._learned(self._x(table), (log_s - self.middle) / self.width)

    def predict(self, table: OperatorTable) -> Floats:
        return np.asarray(self.model.predict(self._x(table)), dtype=np.float64) * self.width + self.middle

    def _x(self, table: OperatorTable) -> Floats:
        scaled: Floats = np.clip((table.x - self.mean) / self.scale, -4.0, 4.0)
        return scaled

    @abstractmethod
    def _learned(self, x: Floats, y: Floats) -> Any:
        """Return a fitted model."""


class Mlp(_Scaled):
    """A multi-layer perceptron with two hidden layers."""

    name = "MLP"
    STEPS = 5000

    def _learned(self, x: Floats, y: Floats) -> Any:
        from sklearn.neural_network import MLPRegressor

        batch = min(64 if len(y) < 1000 else 256, len(y))
        rounds = min(400, max(20, self.STEPS * batch // len(y)))
        model = MLPRegressor(
            hidden_layer_sizes=(64, 32), alpha=1e-3, learning_rate_init=3e-3, max_iter=rounds, random_state=0,
            batch_size=batch, n_iter_no_change=20, tol=1e-5,
        )  # fmt: skip
        return model.fit(x, y)


class Neighbours(_Scaled):
    """The mean of the nearest operators in log features, where nearer ones weigh more."""

    name = "neighbours"

    def _learned(self, x: Floats, y: Floats) -> Any:
        from sklearn.neighbors import KNeighborsRegressor

        return KNeighborsRegressor(min(5, len(y)), weights="distance").fit(x, y)


class Gaussian(_Scaled):
    """A Gaussian process with a length scale per feature. The scales are learned on LEARN of the rows."""

    name = "gaussian process"
    LEARN, MOST, STEPS = 250, 2000, 40

    def _learned(self, x: Floats, y: Floats) -> Any:
        from sklearn.gaussian_process import GaussianProcessRegressor
        from sklearn.gaussian_process.kernels import ConstantKernel, Matern, WhiteKernel

        some = np.random.default_rng(0).permutation(len(y))
        rows = some[: self.LEARN]
        found = learned(x[rows], y[rows], self.STEPS)
        kernel = ConstantKernel(found.amplitude) * Matern(found.scales, nu=1.5) + WhiteKernel(found.noise)
        rows = some[: self.MOST]
        return GaussianProcessRegressor(kernel, optimizer=None).fit(x[rows], y[rows])


def candidates() -> dict[str, OperatorRegressor]:
    """Return one new regressor of each kind, by name."""
    kinds = (
        Roofline(), Boosting(), OnRoofline(Boosting()), OnRoofline(Mlp()), OnRoofline(Neighbours()), Gaussian(),
        OnRoofline(Gaussian()),
    )  # fmt: skip
    return {regressor.name: regressor for regressor in kinds}
