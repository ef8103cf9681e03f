"""Scaling models as JSON files (placer.scaling/1). Reading refuses unknown fields and sizes that do not match."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import msgspec
import numpy as np

from placer.errors import BadInputError, short
from placer.files import Document, Name, read_document, write_document
from surrogate.scaling.fit import PENALTIES
from surrogate.scaling.form import CONSTANT, OF_PREDICTIONS, Coding, Form
from surrogate.scaling.model import ScalingModel

SCALING_FORMAT = "placer.scaling/1"
Positive = Annotated[float, msgspec.Meta(gt=0)]


class ScalingFile(Document):
    """The format placer.scaling/1. constants: by name, see `formula`. samples: constants of each bootstrap sample."""

    format: str
    target: Name
    formula: str
    terms: list[list[Name]]
    extrinsic: list[Name]
    levels: dict[Name, list[Name]]
    typical: dict[Name, Positive]
    scale: Positive
    constants: dict[str, float]
    samples: list[list[float]]
    errors: list[float]
    bounds: tuple[float, float]
    ranges: dict[Name, tuple[float, float]]
    usual: dict[Name, float | str]
    rows: int
    penalty: str
    weight: float
    seed: int
    mape: float
    mape_cv: float
    extrinsic_bounds: tuple[float, float] | None = None


def write_scaling(path: str | Path, model: ScalingModel) -> None:
    """Write `model` as placer.scaling/1. Raises PlacerError if the file cannot be written."""
    coding = model.coding
    file = ScalingFile(
        format=SCALING_FORMAT,
        target=model.target,
        formula=formula(model),
        terms=[list(term) for term in coding.form.terms],
        extrinsic=list(coding.form.extrinsic),
        levels={name: list(levels) for name, levels in coding.levels.items()},
        typical=dict(coding.typical),
        scale=model.scale,
        constants=dict(zip(coding.names, model.constants.tolist(), strict=True)),
        samples=[[float(f"{value:.6g}") for value in row] for row in model.samples.tolist()],
        errors=model.errors.tolist(),
        bounds=model.bounds,
        ranges=dict(model.ranges),
        usual=dict(model.usual),
        rows=model.rows,
        penalty=model.penalty,
        weight=model.weight,
        seed=model.seed,
        mape=model.mape,
        mape_cv=model.mape_cv,
        extrinsic_bounds=model.extrinsic_bounds,
    )
    write_document(path, file)


def read_scaling(path: str | Path) -> ScalingModel:
    """Read the model in a placer.scaling/1 file. Raises BadInputError."""
    file = read_document(path, ScalingFile, SCALING_FORMAT)
    try:
        form = Form(tuple(tuple(term) for term in file.terms), tuple(file.extrinsic))
    except BadInputError as error:
        raise BadInputError(f"{path}: {error}") from None
    zeros = frozenset(name for name, (low, _) in file.ranges.items() if low == 0)
    coding = Coding(form, {name: tuple(levels) for name, levels in file.levels.items()}, file.typical, zeros)
    _check(path, file, coding)
    return ScalingModel(
        coding=coding,
        target=file.target,
        scale=file.scale,
        constants=np.array([file.constants[name] for name in coding.names]),
        samples=np.array(file.samples, dtype=np.float64).reshape(len(file.samples), len(coding.names)),
        errors=np.array(file.errors, dtype=np.float64),
        bounds=file.bounds,
        ranges=file.ranges,
        usual=file.usual,
        rows=file.rows,
        penalty=file.penalty,
        weight=file.weight,
        seed=file.seed,
        mape=file.mape,
        mape_cv=file.mape_cv,
        extrinsic_bounds=file.extrinsic_bounds,
    )


def formula(model: ScalingModel) -> str:
    """Return the formula as readable text, with names for constants. Columns are divided by their typical values."""
    coding = model.coding
    terms = []
    for i, term in enumerate(coding.form.terms):
        numbers = [f"{name}^p{k}" for k, (of, name) in enumerate(coding.powers, 1) if of == i]
        texts = [f"[{name}]" for name in term if name in coding.levels]
        terms.append(" ".join([f"a{i + 1}{''.join(texts)}", *numbers]))
    names = [f"[{n}]" if n in coding.levels else f"{n}^q{j}" for j, n in enumerate(coding.form.extrinsic, 1)]
    scaled = f"({' + '.join(terms)})" + "".join(f" {name}" for name in names)
    return f"{model.target} = scale ({scaled} + C)"


def _check(path: str | Path, file: ScalingFile, coding: Coding) -> None:
    """Check what types cannot express. Raises BadInputError."""
    columns = set(coding.form.columns)
    if file.target in OF_PREDICTIONS:
        raise BadInputError(f"{path}: $.target is {file.target}, which predictions hold beside it; fit it anew.")
    known = {*file.levels, *file.typical}
    if known != columns or set(file.levels) & set(file.typical):
        raise BadInputError(f"{path}: $.levels and $.typical must together name each column once; fit it again.")
    if set(file.constants) != set(coding.names):
        raise BadInputError(f"{path}: $.constants are not those of its terms and extrinsic columns; fit it again.")
    if not any(file.constants[name] for name in (*coding.names[: len(coding.coefficients)], CONSTANT)):
        raise BadInputError(f"{path}: $.constants of its terms are all 0, and so is every prediction; fit it again.")
    if any(len(row) != len(coding.names) for row in file.samples):
        raise BadInputError(f"{path}: $.samples need {len(coding.names)} numbers a row; fit it again.")
    if set(file.ranges) != set(file.typical) or set(file.usual) != columns or not file.errors:
        raise BadInputError(f"{path}: $.ranges, $.usual or $.errors do not fit its columns; fit it again.")
    for name, value in file.usual.items():
        if isinstance(value, str) != (name in file.levels) or (name in file.levels and value not in file.levels[name]):
            raise BadInputError(f"{path}: $.usual.{name} is {short(str(value))}, which no run had; fit it again.")
    if file.penalty not in PENALTIES:
        raise BadInputError(f"{path}: $.penalty is none of {', '.join(PENALTIES)}; correct it.")
