"""Finds what the instructions of a code object show of its names, one by one and without a stack."""

from __future__ import annotations

import dis
from collections.abc import Iterator
from types import CodeType
from typing import Any

TAKES_LABELS = ("CALL_KW", "BUILD_CONST_KEY_MAP")  # take a tuple of names from the stack


def codes_within(code: CodeType) -> Iterator[CodeType]:
    """A function's code, and the code of the functions and classes defined in it."""
    yield code
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            yield from codes_within(constant)


def labels_of(code: CodeType) -> frozenset[tuple[str, ...]]:
    """The tuples of names that code uses only for keyword arguments and for keys of dicts."""
    labels: set[Any] = set()
    others: set[Any] = set()
    waiting: list[Any] = []  # a tuple that was loaded, until the instruction shows what takes it
    for instruction in dis.get_instructions(code):
        name = instruction.opname
        if name == "EXTENDED_ARG":
            continue
        (labels if name in TAKES_LABELS else others).update(waiting)
        loads = name in ("LOAD_CONST", "RETURN_CONST") and isinstance(instruction.argval, tuple)
        waiting = [instruction.argval] if loads else []
        if name == "KW_NAMES":
            labels.add(code.co_consts[instruction.arg or 0])
    return frozenset(labels - others)


def stored_by(code: CodeType, stores: tuple[str, ...] = ("STORE_FAST", "STORE_DEREF")) -> Iterator[str]:
    """The local names that code stores, once for each place where it or a function defined in it stores them."""
    for instruction in dis.get_instructions(code):
        if instruction.opname.startswith(stores):
            names = instruction.argval if isinstance(instruction.argval, tuple) else (instruction.argval,)
            yield from names[:1] if instruction.opname == "STORE_FAST_LOAD_FAST" else names
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            yield from stored_by(constant, ("STORE_DEREF",))
