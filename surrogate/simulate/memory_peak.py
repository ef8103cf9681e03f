"""How much memory a device holds at its fullest moment."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from math import inf
from typing import NamedTuple


class Stay(NamedTuple):
    """A tensor of `tensor_bytes` lives on device `device` from start_s to end_s, both included.

    came, went: of ops that take no time, and so end in one instant, the numbers in the order of the run: of the op that
    makes the tensor, and of the last that needs it. By default it comes first and goes last in its instants.
    """

    device: int
    tensor_bytes: float
    start_s: float
    end_s: float
    came: float = -inf
    went: float = inf


def peaks(resident_bytes: Sequence[float], stays: Iterable[Stay]) -> tuple[float, ...]:
    """The most bytes held at once, per device: what is resident, and the tensors that stay a while."""
    changes: list[tuple[float, float, int, int, float]] = []
    for stay in stays:
        # What comes by an op (0) counts before what goes by it (1): an op's inputs and outputs are alive together.
        changes.append((stay.start_s, stay.came, 0, stay.device, stay.tensor_bytes))
        changes.append((stay.end_s, stay.went, 1, stay.device, -stay.tensor_bytes))
    held = list(resident_bytes)
    highest = list(resident_bytes)
    for _, _, _, device, change_bytes in sorted(changes):
        held[device] += change_bytes
        highest[device] = max(highest[device], held[device])
    return tuple(highest)
