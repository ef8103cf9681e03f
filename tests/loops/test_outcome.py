"""What two runs of a loop differ in is found, whatever it is."""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from experiments.loops.outcome import Outcome, differences, repeated


def outcome() -> Outcome:
    return Outcome(
        steps=2,
        metrics=[{"loss": np.float32(0.5 + i)} for i in range(2)],
        variables={"w": np.array([1.0, 2.0], np.float32), "count": np.array(2)},
        draws={"random": np.array(0.25)},
        effects=["0.5", "1.5"],
    )


def set_to(part: dict[str, Any], name: str, value: Any) -> None:
    part[name] = np.asarray(value, dtype=part[name].dtype)


CHANGES: dict[str, Callable[[Outcome], Any]] = {
    "a bit of a weight": lambda o: set_to(o.variables, "w", [1.0, np.nextafter(np.float32(2), np.float32(3))]),
    "a counter": lambda o: set_to(o.variables, "count", 3),
    "no number": lambda o: set_to(o.variables, "w", [1.0, np.nan]),
    "a metric": lambda o: set_to(o.metrics[1], "loss", 1.25),
    "a metric that was not noted": lambda o: o.metrics.pop(),
    "a draw": lambda o: set_to(o.draws, "random", 0.5),
    "a variable that is missing": lambda o: o.variables.pop("count"),
    "a variable of another type": lambda o: o.variables.update(count=np.array(2.0)),
    "an effect that happened twice": lambda o: o.effects.append("1.5"),
    "a step too many": lambda o: setattr(o, "steps", 3),
}


@pytest.mark.parametrize("change", CHANGES)
def test_each_difference_is_found(change: str) -> None:
    wrapped, alone = outcome(), outcome()
    assert differences(wrapped, alone) == []
    CHANGES[change](wrapped)
    assert len(differences(wrapped, copy.deepcopy(alone))) == 1


def test_a_bound_forgives_rounding_only() -> None:
    wrapped, alone = outcome(), outcome()
    set_to(wrapped.variables, "w", [1.0, 2.000002])
    assert differences(wrapped, alone, 1e-5) == []
    set_to(wrapped.variables, "w", [1.0, 2.0002])
    assert len(differences(wrapped, alone, 1e-5)) == 1


def test_numbers_that_are_drawn_again_are_counted() -> None:
    drawn = [{"noise": np.array([float(i % 3)])} for i in range(5)]
    assert repeated(drawn) == 2 and repeated(drawn[:3]) == 0 and repeated([{"loss": np.array(0.0)}] * 2) == 0
