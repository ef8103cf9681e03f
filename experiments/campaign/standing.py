"""The standing of a campaign: facts about each cell, read from its store alone."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from math import inf
from statistics import median
from typing import Any

from experiments.campaign.cells import Limits
from experiments.campaign.store import CampaignStore, Held, StoredTrial
from experiments.campaign.warm_start import WARM, warm_facts
from placer.result import fastest_s

Facts = dict[str, Any]


def standing(store: CampaignStore, held: Sequence[Held] | None = None) -> Facts:
    """The facts that `placer campaign status --json` prints. Times are seconds. held: the cells, if they were read
    before; a run may add others meanwhile.
    """
    held, failures = store.held() if held is None else held, store.failures()
    opened = {key: store.opened(key) for key in dict.fromkeys(cell.case_key for cell in held)}
    failed = Counter(failure["cell"] for failure in failures if failure["n"] is not None)
    cells = [_cell(cell, opened[cell.case_key], failed[cell.key]) for cell in held]
    wanted = [cell for cell in cells if cell["total"] is not None]
    return {
        "store": str(store.path),
        "cells": cells,
        "done": sum(cell["done"] for cell in wanted),
        "total": sum(cell["done"] if cell["state"] == "done" else cell["total"] for cell in wanted),
        "failures": failed.total(),
        "last_failure": None if not failures else failures[-1],
        "warm_starts": [
            warm_facts(case, facts, [cell for cell in held if cell.case_key == case])
            for case, facts in opened.items()
            if facts is not None and WARM in facts
        ],
        "complete": bool(wanted) and all(cell["state"] == "done" for cell in wanted),
    }


def _cell(held: Held, opened: Facts | None, failures: int) -> Facts:
    single_s = best_single_s(opened)
    raced_s = best_s(held.trials, single_s)
    final = None if held.lacks_final else held.final
    found_s, against_s = (final["best_s"], final["best_single_s"]) if final else (raced_s, single_s)
    return {
        "cell": held.key,
        "case": held.case_key,
        "kind": held.kind,
        "searcher": held.searcher,
        "seed": held.seed,
        "state": _state(held),
        "done": len(held.measured),
        "total": held.wanted,
        "best_s": _finite(found_s),
        "best_single_s": _finite(against_s),
        "ratio_to_best_single": against_s / found_s if _finite(found_s) and _finite(against_s) else None,
        "side_by_side": final is not None,
        "untouched_s": (final or {}).get("untouched_s") or (opened or {}).get("untouched_s"),
        "untouched_beside": (final or {}).get("untouched_s") is not None,
        "bound_s": (opened or {}).get("bound_s"),
        "seconds": held.spent_s,
        "failures": failures,
        "refused": len(held.trials) - len(held.measured),
        "ended": held.ended,
        "notes": list(held.notes),
    }


def _state(held: Held) -> str:
    """`done`, `begun`, `waiting`, or `not in the spec`."""
    if held.wanted is None:
        return "not in the spec"
    if held.is_searched(Limits(held.wanted, held.minutes)) and not held.lacks_final:
        return "done"
    return "begun" if held.trials else "waiting"


def best_single_s(opened: Facts | None) -> float:
    """Seconds on the fastest single device; infinity if none ran."""
    return min((step_s for _, step_s in (opened or {}).get("singles", []) if step_s is not None), default=inf)


def best_s(trials: tuple[StoredTrial, ...], single_s: float) -> float:
    """Seconds of the fastest trial or of the single device; infinity if nothing ran."""
    return min(single_s, fastest_s(trial.result for trial in trials))


def after(store: CampaignStore, budgets: tuple[int, ...]) -> list[Facts]:
    """For each case and searcher, the ratio to the best single device after each budget of measurements.

    The ratio is the median over the seeds that reached the budget or ended earlier; None if there are none.
    side_by_side: whether all of these ratios come from the final measurement beside the device; other ratios of
    measured cases come from races.
    """
    rows: dict[tuple[str, str], list[Held]] = {}
    for held in store.held():
        rows.setdefault((held.case_key, held.searcher), []).append(held)
    facts = []
    for (case, searcher), cells in rows.items():
        single_s = best_single_s(store.opened(case))
        reached = {str(budget): _reached(cells, budget, single_s) for budget in budgets}
        facts.append({
            "case": case,
            "searcher": searcher,
            "kind": cells[0].kind,
            "seeds": len(cells),
            "after": {budget: median(ratio for ratio, _ in of) if of else None for budget, of in reached.items()},
            "side_by_side": {budget: bool(of) and all(beside for _, beside in of) for budget, of in reached.items()},
        })  # fmt: skip
    return facts


def _reached(cells: list[Held], budget: int, single_s: float) -> list[tuple[float, bool]]:
    """For each cell that reached `budget` or ended: its ratio to the best single device, and whether that was
    measured side by side.
    """
    far = [held for held in cells if len(held.measured) >= budget or _is_over(held)]
    return [found for held in far if (found := _ratio_after(held, budget, single_s)) is not None]


def _is_over(held: Held) -> bool:
    """Whether a search has ended, also because its minutes are up."""
    if held.wanted is None:
        return held.ended is not None
    return held.is_searched(Limits(held.wanted, held.minutes))


def _ratio_after(held: Held, budget: int, single_s: float) -> tuple[float, bool] | None:
    """The ratio after `budget` measurements, and whether it was measured side by side; None if the times are missing.

    A race result is capped at the final side-by-side ratio, because the luckiest of many races looks too good.
    """
    final = held.final if held.final and not held.lacks_final else {}
    end = final["best_single_s"] / final["best_s"] if final.get("best_single_s") else None
    if end is not None and budget >= len(held.measured):
        return end, True
    raced_s = best_s(held.measured[:budget], single_s)
    if single_s == inf or raced_s <= 0:
        return None
    return min(single_s / raced_s, inf if end is None else end), False


def _finite(seconds: float | None) -> float | None:
    return None if seconds is None or seconds == inf else seconds
