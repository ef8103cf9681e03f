"""Losses of a training whose workers were killed, held against those of the same steps taken undisturbed."""

from __future__ import annotations

from collections.abc import Sequence

from experiments.benches.bench import Facts

TOLERANCE = 1e-5  # relative, of a loss


def judged(run: Facts, tolerance: float = TOLERANCE) -> Facts:
    """A run's kills: `losses` of it, against `undisturbed`.

    A kill is survived where the training went on, with all devices where it noticed the loss, and every loss up to the
    next kill, or to the run's end, is within `tolerance` (relative). A run that ended early proves none of its kills.
    unnoticed: kills of a device that no op ran on. same_bits: losses of the whole run that are the very same.
    """
    mine, losses, kills = run["losses"], run["undisturbed"], run["kills"]
    ends = [*(kill["at"] for kill in kills[1:]), len(mine)]
    survived = [not wrong(mine, losses, kill["at"], end, tolerance) for kill, end in zip(kills, ends, strict=True)]
    first = wrong(mine, losses, 0, len(mine), tolerance)
    return {
        "kills": len(kills), "survived": sum(survived), "steps": len(mine), "same_bits": _same(mine, losses),
        "worst": max((abs(a - b) / max(abs(b), 1e-30) for a, b in zip(mine, losses, strict=False)), default=0.0),
        "first_wrong": first[0] if first else None, "ended": run["ended"],
        "unnoticed": sum(not kill["noticed"] for kill in kills),
        "back_s": [kill["back_s"] for kill in kills if kill["back_s"] is not None],
    }  # fmt: skip


def wrong(mine: Sequence[float], losses: Sequence[float], begin: int, end: int, tolerance: float) -> list[int]:
    """Steps in [begin, end) whose loss is another than the undisturbed run's, or which that run does not have."""
    return [
        i
        for i in range(begin, min(end, len(mine)))
        if i >= len(losses) or not abs(mine[i] - losses[i]) <= tolerance * abs(losses[i])
    ]


def _same(mine: Sequence[float], losses: Sequence[float]) -> int:
    return sum(a == b for a, b in zip(mine, losses, strict=False))
