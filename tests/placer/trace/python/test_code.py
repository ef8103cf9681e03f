"""What is found in bytecode does not depend on which instructions a release of Python compiles a line to."""

from __future__ import annotations

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from placer.trace.python.code import Path, Reads, _Simulation, reads_of

LOG: list[Any] = []


def two_names(self: Any) -> Any:
    log, rate = self.log, self.rate
    log.append(1)
    return rate.get()


def a_slice(self: Any) -> None:
    LOG[:] = [1]
    self.log[1:2] = []


def test_two_names_that_are_assigned_at_once_keep_where_they_come_from() -> None:
    found = reads_of(two_names.__code__)
    assert {Path("argument", "self", ("log", "append")), Path("argument", "self", ("rate", "get"))} <= found.paths


def test_an_assignment_to_a_slice_is_a_write() -> None:
    assert set(map(str, reads_of(a_slice.__code__).writes)) == {"LOG[]", "self.log[]"}


SELF, LOADED = frozenset({Path("argument", "self")}), frozenset({Path("global", "LOG")})


@pytest.mark.parametrize(
    ("opname", "stack", "argval", "local", "left"),
    [
        ("STORE_FAST_STORE_FAST", [LOADED, SELF], ("a", "b"), {"a": SELF, "b": LOADED}, []),
        ("STORE_FAST_LOAD_FAST", [SELF], ("a", "self"), {"a": SELF}, [SELF]),
        ("STORE_FAST_LOAD_FAST", [LOADED], ("a", "a"), {"a": LOADED}, [LOADED]),
    ],
)
def test_instructions_of_later_releases_that_do_two_things(
    opname: str, stack: list[Any], argval: Any, local: dict[str, Any], left: list[Any]
) -> None:
    simulation = _Simulation(two_names.__code__, {}, Reads())
    simulation.stack = stack
    simulation._step(SimpleNamespace(opname=opname, argval=argval))  # type: ignore[arg-type]
    assert simulation.local.items() >= local.items() and simulation.stack == left


def test_a_slice_is_stored_by_one_instruction_in_later_releases() -> None:
    found = Reads()
    simulation = _Simulation(a_slice.__code__, {}, found)
    fresh = frozenset({Path("fresh")})
    simulation.stack = [fresh, LOADED, fresh, fresh]
    simulation._step(SimpleNamespace(opname="STORE_SLICE", argval=None))  # type: ignore[arg-type]
    assert (list(map(str, found.writes)), simulation.stack) == (["LOG[]"], [])


@pytest.mark.parametrize(
    ("step", "compares"),
    [
        (lambda x, y: x is y, True), (lambda batch: batch["x"] is not batch["y"], True),
        (lambda *xs: xs[0] is xs[1], True), (lambda x, y: [x is one for one in y], True),
        (lambda x, y=None: x if y is None else y, False), (lambda x: 1 if x is True else 2, False),
        (lambda x, kind: x if kind is np.ndarray else None, False), (lambda x: type(x) is int, False),
        (lambda x, y: x == y, False),
    ],
)  # fmt: skip
def test_a_question_whether_two_arguments_are_one_is_found(step: Callable[..., object], compares: bool) -> None:
    assert reads_of(step.__code__).compares == compares
