"""What is found in bytecode does not depend on which instructions a release of Python compiles a line to."""

from __future__ import annotations

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from placer.trace.python.code.bytecode import _Reading, reads_of
from placer.trace.python.code.paths import Path
from placer.trace.python.code.reads import Reads

LOG: list[Any] = []
LAYERS: list[Any] = []


def two_names(self: Any) -> Any:
    log, rate = self.log, self.rate
    log.append(1)
    return rate.get()


def a_slice(self: Any) -> None:
    LOG[:] = [1]
    self.log[1:2] = []


def with_a_sentinel(x: Any) -> Any:
    sentinel = None
    return x is sentinel


def with_a_sentinel_of_a_string(x: Any) -> Any:
    missing = "missing"
    return [one is missing for one in x]


def with_one_before(xs: Any) -> Any:
    before = None
    for x in xs:
        if x is before:
            return x
        before = x
    return None


def unpacks(batch: Any) -> Any:
    *others, _ = batch
    first, target = others
    return first is target


def takes_apart(**batch: Any) -> Any:
    values = list(batch.values())
    return values[0] is values[1]


def asks_of_layers(self: Any, x: Any) -> Any:
    layers = self.layers
    for layer in layers:
        x = layer(x) if layer is layers[-1] else -layer(x)
    return x


def asks_of_layers_that_it_lists(x: Any) -> Any:
    layers = [LOG, LAYERS]
    for layer in layers:
        x = layer[0](x) if layer is layers[-1] else -layer[0](x)
    return x


def test_two_names_that_are_assigned_at_once_keep_where_they_come_from() -> None:
    found = reads_of(two_names.__code__)
    assert {Path("argument", "self", ("log", "append")), Path("argument", "self", ("rate", "get"))} <= found.paths


def unpacks_a_log(self: Any) -> None:
    first, second = self.logs
    first.append(second)


def test_what_is_unpacked_is_an_item() -> None:
    assert Path("argument", "self", ("logs", "[]", "append")) in reads_of(unpacks_a_log.__code__).paths


def test_a_long_argument_of_an_instruction_leaves_the_stack_as_it_is() -> None:
    lines = "".join(f"    x.a{i}\n" for i in range(300))
    made: dict[str, Any] = {}
    exec(f"def reads_much(self, x):\n{lines}    self.z.append(x.y)\n", made)
    assert Path("argument", "self", ("z", "append")) in reads_of(made["reads_much"].__code__).paths


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
    simulation = _Reading(two_names.__code__, {}, Reads())
    simulation.stack = stack
    simulation._step(SimpleNamespace(opname=opname, argval=argval))  # type: ignore[arg-type]
    assert simulation.local.items() >= local.items() and simulation.stack == left


def test_a_slice_is_stored_by_one_instruction_in_later_releases() -> None:
    found = Reads()
    simulation = _Reading(a_slice.__code__, {}, found)
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
        (lambda x, y: x == y, False), (lambda x: None is x, False), (lambda x: True is not x, False),
        (with_a_sentinel, False), (with_a_sentinel_of_a_string, False), (with_one_before, True), (unpacks, True),
        (takes_apart, True), (lambda xs, ys: [a is b for a, b in zip(xs, ys, strict=True)], True),
        (lambda batch: [one is batch["x"] for one in batch.values()], True), (lambda x, y: type(x) is type(y), False),
        (lambda: [layer is LAYERS[-1] for layer in LAYERS], False), (asks_of_layers_that_it_lists, False),
    ],
)  # fmt: skip
def test_a_question_whether_two_arguments_are_one_is_found(step: Callable[..., object], compares: bool) -> None:
    assert reads_of(step.__code__).compares() == compares


@pytest.mark.parametrize(
    ("method", "compares", "asks"),
    [
        (lambda self, x, y: x is y, True, True), (lambda self, x: x is self.anchor, False, True),
        (lambda self, x: self.kind is self.other, False, False), (asks_of_layers, False, False),
        (lambda self, x: x is LOG, False, True), (lambda self, x: x is None, False, False),
    ],
)  # fmt: skip
def test_what_a_method_has_of_itself_is_no_argument(method: Callable[..., object], compares: bool, asks: bool) -> None:
    reads = reads_of(method.__code__)
    assert (reads.compares("self"), reads.asks("self")) == (compares, asks)
