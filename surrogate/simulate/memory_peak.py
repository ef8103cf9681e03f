"""How much memory a device holds at its fullest moment."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import NamedTuple


class Stay(NamedTuple):
    """A tensor of `tensor_bytes` lives on device `device` from start_s to end_s, both included."""

    device: int
    tensor_bytes: float
    start_s: float
    end_s: float


def peaks(resident_bytes: Sequence[float], stays: Iterable[Stay]) -> tuple[float, ...]:
    """The most bytes held at once, per device: what is resident, and the tensors that stay a while."""
    changes: list[tuple[float, int, int, float]] = []
    for stay in stays:
        # At one instant what comes (0) counts before what goes (1): an op's inputs and outputs are alive
        # together.
        changes.append((stay.start_s, 0, stay.device, stay.tensor_bytes))
        changes.append((stay.end_s, 1, stay.device, -stay.tensor_bytes))
    held = list(resident_bytes)
    highest = list(resident_bytes)
    for _, _, device, change_bytes in sorted(changes):
        held[device] += change_bytes
        highest[device] = max(highest[device], held[device])
    return tuple(highest)
