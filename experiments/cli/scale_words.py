"""Reads the arguments of `placer scale`; each function raises BadInputError for what it cannot read."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from placer.errors import BadInputError, first_twice, short
from surrogate.scaling.model import ScalingModel, Value
from surrogate.scaling.runs import number

MOST_VALUES = 64  # of a range of whole numbers; a longer one is sampled
POINTS = 33  # of any other range
MOST_DIGITS = 4  # of a number of devices


def bounds(text: str) -> tuple[float, float]:
    """The lowest and the highest exponent, written as -3..3."""
    low, _, high = text.partition("..")
    try:
        return float(low), float(high)
    except ValueError:
        raise BadInputError(f"--exponents is {short(text)}; write it as -3..3.") from None


def check_pays(pays: float) -> None:
    """Raises BadInputError for a gain that is not between 0 and 1."""
    if not 0 < pays < 1:
        raise BadInputError(f"--pays is {pays}; give a share between 0 and 1.")


def all_assigned(model: ScalingModel, texts: Sequence[str]) -> dict[str, Value]:
    """Columns and their values, each written as batch=64. Raises BadInputError, also for a column that comes twice."""
    pairs = [_assigned(model, text) for text in texts]
    twice = first_twice([name for name, _ in pairs])
    if twice is not None:
        raise BadInputError(f"{short(twice)} is given twice; leave one of them out.")
    return dict(pairs)


def _assigned(model: ScalingModel, text: str) -> tuple[str, Value]:
    name, equals, value = (part.strip() for part in text.partition("="))
    if not equals:
        raise BadInputError(f"{short(text)} sets nothing; write name=value.")
    return name, _value(model, name, value)


def _value(model: ScalingModel, name: str, text: str) -> Value:
    if name in model.coding.levels:
        return text
    try:
        return number(text)
    except ValueError:
        return text


def varied(model: ScalingModel, text: str) -> tuple[str, list[Value]]:
    """A column and values along it, written as devices=1..16 or devices=1,2,4."""
    name, equals, values = (part.strip() for part in text.partition("="))
    if not equals or not values:
        raise BadInputError(f"--vary is {short(text)}; write it as NAME=FROM..TO or NAME=a,b,c.")
    if name not in model.usual:
        model.row({name: values})
    if ".." in values and name not in model.coding.levels:
        return name, list(_range(values, f"--vary {name}"))
    return name, [_value(model, name, part.strip()) for part in values.split(",")]


def _range(text: str, where: str) -> list[float]:
    """The values of a range. 1..16 means each whole number, or POINTS of them if there are more than MOST_VALUES;
    0.1..0.9 means POINTS numbers.
    """
    low_text, _, high_text = text.partition("..")
    try:
        low, high = float(low_text), float(high_text)
    except ValueError:
        raise BadInputError(f"{where}: {short(text)} is not a range; write it as 1..16.") from None
    if not 0 <= low < high < np.inf:
        raise BadInputError(f"{where}: {short(text)} is not a range; give the smaller number first, and none below 0.")
    whole = low.is_integer() and high.is_integer()
    if whole and high - low < MOST_VALUES:
        return [float(value) for value in range(int(low), int(high) + 1)]
    values = np.geomspace(low, high, POINTS) if low > 0 else np.linspace(low, high, POINTS)
    return sorted({round(value) if whole else float(value) for value in values.tolist()})


def counts(text: str) -> list[int]:
    """Numbers of devices, written as 1..16 or 1,2,4."""
    values = _range(text, "--devices") if ".." in text else [_count(part) for part in text.split(",")]
    return sorted({_count(str(int(value))) for value in values})


def _count(text: str) -> int:
    if not (text.strip().isdecimal() and len(text.strip()) <= MOST_DIGITS and 1 <= int(text) <= 4096):
        raise BadInputError(f"--devices: {short(text)} is not a number of devices from 1 to 4096; write 1..16 or 1,2.")
    return int(text)
