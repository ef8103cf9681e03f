"""The part of the page of the bench `online` on what happens when a load lands on a training, and leaves."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from statistics import geometric_mean

from experiments.benches.bench import Facts, ms
from experiments.benches.intervals import geomean_in_words
from experiments.benches.online.judge import (
    BY_CLOCK,
    BY_MAPPING,
    has_nothing_to_recover,
    recovered,
    steps_to_recover,
)
from experiments.benches.online.neighbours import HORIZON, LOADS, SHARE
from experiments.report.text import markdown_table

WANTED = 30  # steps until recovery
COLUMNS = (
    "network", "load", "step in quiet", "not adapting, a step", "step at the end (share of the best known speed)",
    "steps until 95 %", "by the clock", "a step once searched again",
    f"time for {HORIZON} steps, as a share of that: not adapting", "of that: searching again",
    "left: steps until 95 %", "by the clock", "left: step at the end (share)",
)  # fmt: skip


def recovery_rows(facts: Facts) -> Iterator[list[str]]:
    """The median steps until recovery over all networks: for each load, for all loads, and for all loads that left."""
    loads = facts["loads"]
    for name, load in LOADS.items():
        if rows := [row for row in loads if row["load"] == name]:
            yield _recovery(load.name, rows, "landed")
    if loads:
        yield _recovery("all loads", loads, "landed")
        yield _recovery("the load left", loads, "left")


def _recovery(what: str, rows: Sequence[Facts], event: str) -> list[str]:
    models = list(dict.fromkeys(row["model"] for row in rows))
    name = f"`{models[0]}`" if len(models) == 1 else f"{len(models)} networks"
    details = reached(rows, event)
    return [f"steps until 95 % of the best known speed, {what}", str(WANTED), name, middle(rows, event), details]


def middle(rows: Sequence[Facts], event: str) -> str:
    """The median of the steps until recovery, in words, over the trainings that had something to recover."""
    if not steps_to_recover(rows, event):
        return "nothing to recover"
    found = recovered(rows, event)
    return "never" if found is None else f"{found:g}"


def is_by_mapping(loads: Sequence[Facts]) -> bool:
    """Whether the mappings that ran were timed side by side; older records tell recoveries by the clock alone."""
    return any(BY_MAPPING in row.get("landed", {}) for row in loads)


def reached(rows: Sequence[Facts], event: str) -> str:
    """How many of the trainings that had something to recover did so, and how many soon; the same by the clock."""
    count = len(steps_to_recover(rows, event))
    there, soon = recoveries(rows, event, BY_MAPPING)
    clocked, clocked_soon = recoveries(rows, event, BY_CLOCK)
    by_clock = f"; by the clock {clocked} and {clocked_soon}" if is_by_mapping(rows) else ", by the clock"
    watched = next((f" in the {row['steps_watched']} steps watched" for row in rows if "steps_watched" in row), "")
    said = f"reached 95 % of the best known speed{watched}: {there} of {count}, within {WANTED} steps {soon} of {count}"
    left_out = len(rows) - count
    return said + by_clock + (f"; nothing to recover (in brackets below): {left_out}" if left_out else "")


def recoveries(rows: Sequence[Facts], event: str, by: str) -> tuple[int, int]:
    """How many trainings recovered, and how many of these within WANTED steps."""
    there = [steps for steps in steps_to_recover(rows, event, by) if steps is not None]
    return len(there), sum(steps <= WANTED for steps in there)


def _steps(row: Facts, event: str, by: str) -> str:
    if event not in row:
        return "failed"
    steps = row[event].get(by)
    said = "-" if by not in row[event] else "never" if steps is None else str(steps)
    return f"({said})" if has_nothing_to_recover(row, event) else said


def load_lines(facts: Facts) -> list[str]:
    """Every landing: what it did to the step, what adapting was worth, and which ended far from the best known."""
    loads = facts["loads"]
    is_new = all("first_s" in row.get("landed", {"first_s": 0.0}) for row in loads)
    return [
        *markdown_table(COLUMNS, [_load(row) for row in loads], left=(0, 1)),
        "",
        f"{HORIZON} steps under the load, as a share of the time of not adapting, in the geometric mean over "
        f"all landings: {_total(facts, 'vs_never')}{_worst(loads)}; of the time of searching again: "
        f"{_total(facts, 'vs_anew')}. Intervals over networks.",
        *_missed(loads, "landed", "loads landed"),
        *_missed(loads, "left", "loads left"),
        *([] if is_new else ["", BEFORE]),
    ]


def _load(row: Facts) -> list[str]:
    if "landed" not in row:
        return [f"`{row['model']}`", LOADS[row["load"]].name, f"failed: {row['failed']}"]
    landed, left = row["landed"], row["left"]
    return [
        f"`{row['model']}`",
        _named(row),
        ms(row["calm_s"]),
        ms(landed["before_s"]),
        f"{ms(landed['ended_s'])} ({landed['ended_share']:.2f})",
        _steps(row, "landed", BY_MAPPING),
        _steps(row, "landed", BY_CLOCK),
        f"{ms(landed['anew_s'])} after {landed['search_s']:.0f} s",
        f"{landed['vs_never']:.2f}",
        f"{landed['vs_anew']:.2f}",
        _steps(row, "left", BY_MAPPING),
        _steps(row, "left", BY_CLOCK),
        f"{ms(left['ended_s'])} ({left['ended_share']:.2f})",
    ]


def _named(row: Facts) -> str:
    return LOADS[row["load"]].name + ("" if row["device"] is None else f" on worker:{row['device']}")


def _total(facts: Facts, what: str) -> str:
    """The mean over networks of the mean over a network's landings; every network has the same number of landings."""
    if facts[what] is None:
        return "unknown"
    by_model: dict[str, list[float]] = {}
    for row in facts["loads"]:
        by_model.setdefault(row["model"], []).append(row["landed"][what])
    return geomean_in_words([geometric_mean(ratios) for ratios in by_model.values()])


def _worst(loads: Sequence[Facts]) -> str:
    """The landing after which adapting was worth least."""
    rows = [row for row in loads if "landed" in row and "vs_never" in row["landed"]]
    if not rows:
        return ""
    row = max(rows, key=lambda row: float(row["landed"]["vs_never"]))
    return f", at the worst {row['landed']['vs_never']:.2f} (`{row['model']}`, {_named(row)})"


def _missed(loads: Sequence[Facts], event: str, what: str) -> Iterator[str]:
    """The events after which the training ended far from the best known speed, without and with an alarm."""
    far = [row for row in loads if event in row and row[event]["ended_share"] < SHARE]
    for said, rows in (
        ("the change was not noticed in the steps watched", [r for r in far if not _alarms(r, event)]),
        ("the change was noticed", [r for r in far if _alarms(r, event)]),
    ):
        if rows:
            each = "; ".join(f"`{row['model']}`, {_named(row)} ({row[event]['ended_share']:.2f})" for row in rows)
            yield from ("", f"After {what}, steps ended below {SHARE:.0%} of the best known speed; {said}: {each}.")


def _alarms(row: Facts, event: str) -> int:
    return int(row[event].get("alarms", 0))


def load_notes(facts: Facts) -> str:
    """How the figures on loads were measured."""
    return (
        f"Loads: {'; '.join(f'{load.name}: {load.said}' for load in LOADS.values())}. The network is slowed in a "
        "network namespace, where the workers are alone. Steps until 95 % are counted from when the load is whole and "
        f"has been felt for a second.{OF_MAPPINGS if is_by_mapping(facts['loads']) else ''} The optimum is the best "
        "known mapping: the best of those that ran, of the mapping from before, and, under the load, of a fresh "
        f"profile and search of at most {-(-facts['budget'] // 2)} mappings. A better one may exist. *By the clock*: "
        "until the running median of five steps is within 5 % of what the optimum is taken to take at that time, "
        "confirmed by the next five and by the median of all later steps, so 5 is the minimum; builds and trials "
        "beside the steps count. How fast the machine was during the steps is taken from bare steps of the mapping "
        "from before, just before them "
        "and in that comparison, so that a machine that drifts meanwhile may hide a recovery, or feign one. There is "
        "nothing to recover where the mapping from before is within 5 % of the optimum (and, when the load left, "
        "nothing had been moved); this does not count in medians. *Not adapting* keeps the mapping from before for "
        f"{HORIZON} steps; *searching again* stands still while it profiles and searches from nothing, then takes the "
        "steps of what it found. Autoplace's are those that were watched, and then steps of where it ended, without "
        "the cost of watching, which is *overhead* above. Below 1, adapting is faster; where there is nothing to "
        "recover, 1.00 is the best there is."
    )


OF_MAPPINGS = (
    " They are those until the training ran a mapping that is within 5 % of the optimum, and no slower one afterwards "
    "(steps that try others between do not count); all mappings that it ran are timed side by side with the optimum "
    "afterwards, while the load is still there, or after it left."
)
BEFORE = (
    "In this record, how fast the machine was is taken from the training's own last steps, not from bare steps, and a "
    "recovery is not confirmed by all later steps. Its steps until 95 % may be too few."
)
