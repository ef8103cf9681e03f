"""A fitted scaling formula: its predictions, their intervals, and where a run is outside the measured range."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np

from placer.errors import BadInputError, listed, plain, short
from surrogate.scaling.form import Coding
from surrogate.scaling.runs import Floats

LEVEL = 0.9  # the share of new runs that lie in the predicted interval
NOTHING = 1e-12

Value = float | str
Columns = Mapping[str, Floats | Sequence[str]]


class Predicted(NamedTuple):
    """Predictions. value: [rows] in the target's unit. low, high: the interval of a new run."""

    value: Floats
    low: Floats
    high: Floats


@dataclass(frozen=True)
class ScalingModel:
    """t = scale * ((sum_i a_i prod_k x_k^p_ik) * prod_j y_j^q_j + C), every column divided by its typical value."""

    coding: Coding
    target: str
    scale: float
    constants: Floats = field(repr=False)  # as `Coding` orders them
    samples: Floats = field(repr=False)  # [bootstrap, constants]
    errors: Floats = field(repr=False)  # quantiles of measured / predicted - 1 on rows left out
    bounds: tuple[float, float]  # of the intrinsic exponents
    ranges: Mapping[str, tuple[float, float]]  # the measured range of each column of numbers
    usual: Mapping[str, Value]  # the usual value of each column
    rows: int
    penalty: str
    weight: float
    seed: int
    mape: float  # mean absolute relative error on the fitted rows
    mape_cv: float  # mean absolute relative error on rows left out
    extrinsic_bounds: tuple[float, float] | None = None  # of the extrinsic exponents; None in older files

    def values(self, columns: Columns, constants: Floats | None = None) -> Floats:
        """Return the predicted values, [rows] in the target's unit; [sets, rows] for other `constants`, [sets,
        constants]. Raises BadInputError for a level that no run had.
        """
        coded = self.coding.coded(columns)
        if constants is not None:
            sets: Floats = self.scale * self.coding.values(constants, coded)
            return sets
        rows: Floats = self.scale * self.coding.values(self.constants[None, :], coded)[0]
        return rows

    def predict(self, columns: Columns, level: float = LEVEL) -> Predicted:
        """Return predictions, each with the interval in which a new run lies in a share `level` of all cases.

        The interval has two causes: the constants vary as in the bootstrap, and a run differs from its prediction as
        the rows left out did from theirs.
        """
        value = self.values(columns)
        sets = self.values(columns, self.samples) if len(self.samples) else value[None, :]
        spread = sets[:, None, :] * (1 + self.errors[None, :, None])
        ends = [(1 - level) / 2, (1 + level) / 2]
        low, high = np.quantile(spread.reshape(-1, len(value)), ends, axis=0, method="hazen")
        return Predicted(value, np.minimum(low, value), np.maximum(high, value))

    def row(self, given: Mapping[str, Value]) -> dict[str, Value]:
        """Return a run with the values `given`, and the usual values in the other columns.

        Raises BadInputError for an unknown column, for text in a column of numbers or the reverse, and for a number
        that powers cannot take.
        """
        for name, value in given.items():
            if name not in self.usual:
                raise BadInputError(f"the model has no column {short(name)}; it has {listed(list(self.usual))}.")
            if name in self.coding.levels:
                if value not in self.coding.levels[name]:
                    known = listed(self.coding.levels[name])
                    raise BadInputError(f"{plain(name)} is {short(str(value))}, which no run had; they had {known}.")
            elif isinstance(value, str) or not 0 <= value < np.inf or (value == 0 and self.ranges[name][0] > 0):
                raise BadInputError(f"{plain(name)} is {short(str(value))}; the model needs a number above 0 there.")
        return {**self.usual, **given}

    def table(self, row: Mapping[str, Value], vary: str | None = None, values: Sequence[Value] = ()) -> Columns:
        """Return the columns of one run, `row`; or of several runs, with each of `values` in the column `vary`."""
        rows = [{**row, vary: value} for value in values] if vary is not None else [dict(row)]
        return {name: _column([r[name] for r in rows], name in self.coding.levels) for name in self.coding.form.columns}

    def outside(self, row: Mapping[str, Value]) -> list[str]:
        """Return a phrase for each number of a run outside the measured range: `batch 512 (8 to 64 were measured)`."""
        found = []
        for name, (low, high) in self.ranges.items():
            value = row[name]
            if not isinstance(value, str) and not low <= value <= high:
                found.append(f"{plain(name)} {value:g} ({low:g} to {high:g} were measured)")
        return found

    def shares(self, columns: Columns) -> dict[str, float]:
        """Return the mean share of the time that each term, and C, takes in the runs of `columns`."""
        coded = self.coding.coded(columns)
        basis = self.coding.basis(self.constants[None, self.coding.exponents], coded)[0]
        weights = np.append(self.constants[: len(self.coding.coefficients)], self.constants[-1])
        parts = basis * weights
        parts /= np.maximum(parts.sum(axis=1, keepdims=True), NOTHING)
        names = ["*".join(self.coding.form.terms[i]) for i, _ in self.coding.coefficients] + ["C"]
        found = dict.fromkeys(names, 0.0)
        for name, share in zip(names, parts.mean(axis=0), strict=True):
            found[name] += float(share)
        return found


def _column(values: Sequence[Value], is_text: bool) -> Floats | tuple[str, ...]:
    return tuple(str(value) for value in values) if is_text else np.array(values, dtype=np.float64)
