"""The meaning of a fitted scaling formula: which factor matters, by which power, and where scaling stops paying."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from placer.errors import listed
from surrogate.scaling.form import CONSTANT
from surrogate.scaling.model import LEVEL, Columns, ScalingModel, Value
from surrogate.scaling.runs import Floats

STEP = 1e-4  # the relative change of a column from which its power is computed
MOST = 4096  # the largest number up to which a scaling is followed
IDLE = 0.01  # a factor whose share is smaller hardly matters
NEAR_BOUND = 1e-3
PAYS = 0.05  # scaling by one more pays if runs get shorter by this share


@dataclass(frozen=True)
class Factor:
    """The effect of one column.

    matters: its share of the effects of all columns, by |log ratio|. ratio: how many times longer runs take at its
    highest value than at its lowest (of text, at its slowest level than at its fastest), other columns unchanged; the
    geometric mean over the runs. power: of numbers, by how many percent runs get longer if the column grows by 1 %; the
    mean over the runs. low, high: the interval of power.
    """

    name: str
    matters: float
    ratio: float
    power: float | None = None
    low: float | None = None
    high: float | None = None


def factors(model: ScalingModel, columns: Columns) -> list[Factor]:
    """Return the factor of every column, the one that matters most first. columns: the runs of the fit."""
    found = [_factor(model, columns, name) for name in model.coding.form.columns]
    total = sum(abs(np.log(factor.ratio)) for factor in found) or 1.0
    weighed = [Factor(f.name, float(abs(np.log(f.ratio)) / total), f.ratio, f.power, f.low, f.high) for f in found]
    return sorted(weighed, key=lambda factor: -factor.matters)


def intervals(model: ScalingModel) -> dict[str, tuple[float, float, float]]:
    """Return each constant by name: its value, and the bounds of its interval over the bootstrap. The constants are for
    columns divided by their typical values and times divided by the typical time.
    """
    samples = model.samples if len(model.samples) else model.constants[None, :]
    low, high = np.quantile(samples, [(1 - LEVEL) / 2, (1 + LEVEL) / 2], axis=0)
    rows = zip(model.constants, low, high, strict=True)
    return {name: (float(v), float(a), float(b)) for name, (v, a, b) in zip(model.coding.names, rows, strict=True)}


def at_bounds(model: ScalingModel) -> tuple[list[str], list[str]]:
    """Return the names of exponents that ended at a bound of their range: the intrinsic ones of summands that matter,
    and the extrinsic ones. The bound of 0 that a column has because it is 0 in a run does not count.
    """
    coding, inside, outside = model.coding, list[str](), list[str]()
    first = len(coding.coefficients)
    names, values = coding.names[first:], model.constants[first:]
    for k, (term, _) in enumerate(coding.powers):
        weight = sum(a for a, (i, _) in zip(model.constants, coding.coefficients, strict=False) if i == term)
        if weight > IDLE and _is_at(values[k], model.bounds):
            inside.append(names[k].removeprefix("p "))
    for k in range(len(coding.powers), len(names) - 1):
        if model.extrinsic_bounds is not None and _is_at(values[k], model.extrinsic_bounds):
            outside.append(names[k].removeprefix("q "))
    return inside, outside


def _is_at(value: float, bounds: tuple[float, float]) -> bool:
    return min(abs(value - bound) for bound in bounds) < NEAR_BOUND


def stops_paying(model: ScalingModel, row: Mapping[str, Value], name: str, pays: float = PAYS) -> int | None:
    """Return the first whole number of `name` from which one more makes a run like `row` shorter by less than `pays`.
    1 if a run never gets that much shorter, None if it still does at MOST.
    """
    values = np.arange(1, MOST + 1, dtype=np.float64)
    seconds = model.values(model.table(row, name, values.tolist()))
    gains = 1 - seconds[1:] / seconds[:-1]
    short = np.flatnonzero(gains < pays)
    return int(values[short[0]]) if len(short) else None


def sentences(model: ScalingModel, columns: Columns, pays: float = PAYS) -> list[str]:
    found = factors(model, columns)
    lines = [
        f"{found[0].name} matters most ({found[0].matters:.0%} of what the columns do): "
        f"{found[0].ratio:.3g}x from its lowest to its highest."
    ]
    scaled = [f for f in found if f.name in model.coding.form.extrinsic and f.power is not None]
    lines += [_scaling(model, factor, pays) for factor in scaled]
    idle = [f.name for f in found if f.matters < IDLE]
    if idle:
        lines.append(f"{', '.join(idle)} hardly matter{'s' if len(idle) == 1 else ''}.")
    inside, outside = at_bounds(model)
    if inside:
        lines.append(
            f"{listed(inside)}: at the bound of its exponents, so the form does not suit. Columns whose effects "
            "multiply belong into one summand: --intrinsic a*b."
        )
    if outside:
        lines.append(
            f"{listed(outside)}: at the bound of its exponents, beyond which its effect may go on: widen --exponents."
        )
    lines += _of_zeros(model)
    fixed = model.shares(columns)[CONSTANT]
    if fixed > IDLE:
        lines.append(f"{fixed:.0%} of the time is fixed, whatever is scaled.")
    return lines


def _of_zeros(model: ScalingModel) -> list[str]:
    """Say of which columns zeros have raised the lowest exponent."""
    coding, names = model.coding, []
    for name in sorted(coding.zeros):
        bounds = model.extrinsic_bounds if name in coding.form.extrinsic else model.bounds
        names += [name] if bounds is not None and bounds[0] < 0 else []
    if not names:
        return []
    return [f"{listed(names)}: 0 in some runs, which a negative exponent cannot take, so none below 0 was tried there."]


def _scaling(model: ScalingModel, factor: Factor, pays: float) -> str:
    assert factor.power is not None
    doubling = 2**factor.power
    if factor.power >= 0:
        return (
            f"{factor.name}: doubling it takes {doubling:.2f}x the time, so {doubling / 2:.2f}x per unit of it "
            f"(power {factor.power:.2f})."
        )
    where = stops_paying(model, model.usual, factor.name, pays)
    until = f"still more than {pays:.0%} at {MOST}" if where is None else f"less than {pays:.0%} from {where} on"
    return f"{factor.name}: doubling it takes {doubling:.2f}x the time; one more brings {until} (usual run)."


def _factor(model: ScalingModel, columns: Columns, name: str) -> Factor:
    if name in model.coding.levels:
        levels = model.coding.levels[name]
        of_level = [_mean_log(model, {**columns, name: (level,) * _rows(columns)}) for level in levels]
        return Factor(name, 0.0, float(np.exp(max(of_level) - min(of_level))))
    low, high = model.ranges[name]
    ends = [_mean_log(model, {**columns, name: np.full(_rows(columns), end)}) for end in (low, high)]
    power = float(_powers(model, columns, name, model.constants[None, :])[0])
    samples = _powers(model, columns, name, model.samples) if len(model.samples) else np.array([power])
    bounds = np.quantile(samples, [(1 - LEVEL) / 2, (1 + LEVEL) / 2])
    return Factor(name, 0.0, float(np.exp(ends[1] - ends[0])), power, float(bounds[0]), float(bounds[1]))


def _powers(model: ScalingModel, columns: Columns, name: str, constants: Floats) -> Floats:
    """Return d log t / d log column for each set of constants, [sets], as the mean over the runs."""
    more = {**columns, name: np.asarray(columns[name], dtype=np.float64) * (1 + STEP)}
    before, after = model.values(columns, constants), model.values(more, constants)
    found: Floats = (np.log(after / before) / np.log1p(STEP)).mean(axis=1)
    return found


def _mean_log(model: ScalingModel, columns: Columns) -> float:
    return float(np.log(model.values(columns)).mean())


def _rows(columns: Columns) -> int:
    return len(next(iter(columns.values())))
