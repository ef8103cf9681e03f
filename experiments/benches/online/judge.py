"""The figures of the bench `online`, from what its parts found; a part that failed gives None, never a good figure."""

from __future__ import annotations

from collections.abc import Sequence
from statistics import median
from typing import Any

from experiments.benches.bench import Facts
from experiments.benches.online.losses import judged as judged_kills


def judged(found: Facts, kills: int, workers: int, budget: int) -> Facts:
    """found: the facts of each part. kills: how many there should have been. Headlines are the worst of their kind."""
    runs = [_killed(row) for row in found["kills"]]
    recovery, steady = found["recovery"], found["steady"]
    stretches = [steady[name] for name in ("plain", "jitter") if name in steady]
    return {
        "overhead": _worst(row.get("overhead") for row in found["overhead"].values()),
        "vs_oracle": _worst(row.get("vs_oracle") for row in found["oracle"].values()),
        "vs_single": _worst(row.get("vs_single") for row in found["oracle"].values()),
        "recovery_steps": _worst(recovered(recovery, event) for event in ("landed", "left")),
        "recovery_steps_landed": recovered(recovery, "landed"),
        "recovery_steps_left": recovered(recovery, "left"),
        "false_alarms": sum(s["moves"] for s in stretches) if len(stretches) == 2 else None,
        "alarms": sum(s["alarms"] for s in stretches) if len(stretches) == 2 else None,
        "steady_steps": [s["steps"] for s in stretches],
        "kills_survived": sum(row["survived"] for row in runs),
        "kills": kills,
        "by_model": {
            name: {"overhead": found["overhead"].get(name), "oracle": found["oracle"].get(name)}
            for name in dict.fromkeys([*found["overhead"], *found["oracle"]])
        },
        "recovery": recovery,
        "steady": steady,
        "kill_runs": runs,
        "workers": workers,
        "budget": budget,
    }


def _killed(run: Facts) -> Facts:
    """A run whose process died has survived none of its kills."""
    if failed := run.get("failed"):
        return {"kills": 0, "survived": 0, "steps": 0, "same_bits": 0, "worst": 0.0, "ended": failed, "back_s": []}
    return judged_kills(run)


def recovered(recovery: Facts, event: str) -> float | None:
    """The median over rounds of the steps until recovery, one that never came counting as more than any; None then."""
    found = [row[event]["steps"] for row in recovery.get("rounds", ())]
    steps = median(float("inf") if s is None else float(s) for s in found) if found else float("inf")
    return None if steps == float("inf") else steps


def spread(values: Sequence[int | None]) -> str:
    """The values themselves: three are no distribution."""
    return ", ".join("never" if v is None else str(v) for v in values)


def _worst(figures: Any) -> float | None:
    """The largest; None where one is missing."""
    known = list(figures)
    return None if not known or None in known else float(max(known))
