"""The most memory that each device holds at any moment of a step."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from math import inf
from typing import NamedTuple


class Stay(NamedTuple):
    """A tensor of `tensor_bytes` lives on device `device` from start_s to end_s, both included.

    came, went: positions in the run order of the op that makes the tensor and of the last op that needs it. They decide
    between ops that end in the same instant, as ops do that take no time. By default the tensor comes first and goes
    last in its instants.
    """

    device: int
    tensor_bytes: float
    start_s: float
    end_s: float
    came: float = -inf
    went: float = inf


def peaks(resident_bytes: Sequence[float], stays: Iterable[Stay]) -> tuple[float, ...]:
    """Return the most bytes that each device holds at once: its resident bytes and the tensors alive at that moment."""
    changes: list[tuple[float, float, int, int, float]] = []
    for stay in stays:
        # An op's outputs come (0) before its inputs go (1), because both are alive while the op runs.
        changes.append((stay.start_s, stay.came, 0, stay.device, stay.tensor_bytes))
        changes.append((stay.end_s, stay.went, 1, stay.device, -stay.tensor_bytes))
    held = list(resident_bytes)
    highest = list(resident_bytes)
    for _, _, _, device, change_bytes in sorted(changes):
        held[device] += change_bytes
        highest[device] = max(highest[device], held[device])
    return tuple(highest)
