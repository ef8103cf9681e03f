"""The figures of the bench `online`, from what its parts found. A part that failed gives None, never a good figure."""

from __future__ import annotations

from collections.abc import Sequence
from math import inf
from statistics import geometric_mean, median
from typing import Any

from experiments.benches.bench import Facts
from experiments.benches.online.neighbours import SHARE

TOLERANCE = 1e-5  # relative, of a loss
EVENTS = ("landed", "left")  # of a load
# Keys of the steps until recovery. By mapping: until the training ran a mapping near the optimum, both timed side by
# side afterwards. By the clock: until its steps were as fast as the optimum was assumed to be at that time. Older
# records have only the steps by the clock.
BY_MAPPING, BY_CLOCK = "mapping_steps", "steps"


def judged(found: Facts, kills: int, workers: int, budget: int) -> Facts:
    """The figures of all parts; headlines are the worst of their kind.

    found: the facts of each part. kills: how many there should have been.
    """
    runs = [judged_kills(row) for row in found["kills"]]
    loads, steady = found["loads"], found["steady"]
    stretches = [steady[name] for name in ("plain", "jitter") if name in steady]
    return {
        "overhead": _worst(row.get("overhead_total") for row in found["overhead"].values()),
        "overhead_medians": _worst(row.get("overhead") for row in found["overhead"].values()),
        "vs_oracle": _worst(row.get("vs_oracle") for row in found["oracle"].values()),
        "vs_single": _worst(row.get("vs_single") for row in found["oracle"].values()),
        "recovery_steps": _worst(recovered(loads, event) for event in EVENTS),
        "recovery_steps_landed": recovered(loads, "landed"),
        "recovery_steps_left": recovered(loads, "left"),
        "recovery_steps_by_clock": _worst(recovered(loads, event, BY_CLOCK) for event in EVENTS),
        "nothing_to_recover": {event: sum(has_nothing_to_recover(row, event) for row in loads) for event in EVENTS},
        "vs_never": gained(loads, "vs_never"),
        "vs_anew": gained(loads, "vs_anew"),
        "false_alarms": sum(s["moves"] for s in stretches) if len(stretches) == 2 else None,
        "alarms": sum(s["alarms"] for s in stretches) if len(stretches) == 2 else None,
        "steady_steps": [s["steps"] for s in stretches],
        "kills_survived": sum(row["survived"] for row in runs),
        "kills": kills,
        "by_model": {
            name: {"overhead": found["overhead"].get(name), "oracle": found["oracle"].get(name)}
            for name in dict.fromkeys([*found["overhead"], *found["oracle"]])
        },
        "loads": loads,
        "steady": steady,
        "kill_runs": runs,
        "workers": workers,
        "budget": budget,
    }


def judged_kills(run: Facts) -> Facts:
    """The figures of a run's kills, from its `losses` and the `undisturbed` ones.

    A kill is survived if the training went on, with all devices if it noticed the kill, and every loss up to the next
    kill, or to the run's end, is within TOLERANCE (relative). If a run ended early, none of its kills counts as
    survived. unnoticed: kills of a device that no op ran on. same_bits: losses of the whole run that are exactly equal.
    """
    if failed := run.get("failed"):
        return {"kills": 0, "survived": 0, "steps": 0, "same_bits": 0, "worst": 0.0, "ended": failed, "back_s": []}
    mine, losses, kills = run["losses"], run["undisturbed"], run["kills"]
    ends = [*(kill["at"] for kill in kills[1:]), len(mine)][: len(kills)]  # empty if the first kill never ended
    survived = [not wrong(mine, losses, kill["at"], end, TOLERANCE) for kill, end in zip(kills, ends, strict=True)]
    first = wrong(mine, losses, 0, len(mine), TOLERANCE)
    return {
        "kills": len(kills), "survived": sum(survived), "steps": len(mine),
        "same_bits": sum(a == b for a, b in zip(mine, losses, strict=False)),
        "worst": max((abs(a - b) / max(abs(b), 1e-30) for a, b in zip(mine, losses, strict=False)), default=0.0),
        "first_wrong": first[0] if first else None, "ended": run["ended"],
        "unnoticed": sum(not kill["noticed"] for kill in kills),
        "back_s": [kill["back_s"] for kill in kills if kill["back_s"] is not None],
    }  # fmt: skip


def wrong(mine: Sequence[float], losses: Sequence[float], begin: int, end: int, tolerance: float) -> list[int]:
    """Steps in [begin, end) whose loss differs from the undisturbed run's, or is missing there."""
    return [
        i
        for i in range(begin, min(end, len(mine)))
        if i >= len(losses) or not abs(mine[i] - losses[i]) <= tolerance * abs(losses[i])
    ]


def recovered(loads: Sequence[Facts], event: str, by: str = BY_MAPPING) -> float | None:
    """The median of the steps until recovery, over all loads after which there was something to recover. None without
    such loads, or if the median is never. A part that failed counts as never recovered.
    """
    steps = [inf if s is None else float(s) for s in steps_to_recover(loads, event, by)]
    middle = median(steps) if steps else inf
    return None if middle == inf else middle


def steps_to_recover(loads: Sequence[Facts], event: str, by: str = BY_MAPPING) -> list[int | None]:
    """The steps until recovery, None for never, of each load after which there was something to recover."""
    return [
        row[event].get(by, row[event][BY_CLOCK]) if event in row else None
        for row in loads
        if not has_nothing_to_recover(row, event)
    ]


def has_nothing_to_recover(row: Facts, event: str) -> bool:
    """Whether the mapping from before the load landed, or left, is within 5 % of the optimum after that. For a load
    that left, this is known only if nothing had been moved under it.
    """
    if event not in row or (event == "left" and not _moved_nothing(row["landed"])):
        return False
    return bool(row[event]["optimum_s"] >= SHARE * row[event]["before_s"])


def _moved_nothing(landed: Facts) -> bool:
    """Whether the training ended on the mapping from before. Older records tell this by moves and times."""
    if "ended_on_before" in landed:
        return bool(landed["ended_on_before"])
    return not landed["moved_after"] and landed["ended_s"] >= SHARE * landed["before_s"]


def gained(loads: Sequence[Facts], what: str) -> float | None:
    """The geometric mean over all landings of a ratio of seconds; None if a part failed."""
    if not loads or any("landed" not in row for row in loads):
        return None
    return geometric_mean(row["landed"][what] for row in loads)


def _worst(figures: Any) -> float | None:
    """The largest figure; None if one is missing."""
    known = list(figures)
    return None if not known or None in known else float(max(known))
