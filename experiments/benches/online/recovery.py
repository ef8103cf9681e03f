"""A CPU hog lands on a worker's core and leaves again: how many steps until autoplace runs near the new optimum."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass
from statistics import median

from experiments.benches.bench import Facts
from experiments.benches.online.neighbours import HOG, neighbour
from experiments.benches.online.training import Held, Training, fastest, raced, say
from placer.devices.workers import share_cores

SHARE = 0.95  # of the optimum's speed
WINDOW = 5  # steps of a running median


@dataclass(frozen=True)
class RecoverySettings:
    """steps: watched after the hog lands, and after it leaves. calm: between two landings. each: steps of a race."""

    model: str = "towers"
    workers: int = 2
    budget: int = 16
    repeats: int = 3
    steps: int = 150
    calm: int = 40
    each: int = 5
    limit_s: float = 900.0


def recovery_facts(settings: RecoverySettings) -> Facts:
    """Landings and leavings, until `repeats` or out of time; a round that began is finished."""
    core = share_cores(settings.workers, sorted(os.sched_getaffinity(0)))[1][0]
    rounds: list[Facts] = []
    with Training(settings.model, f"workers:{settings.workers}", settings.budget) as training:
        training.until_steady()
        before = training.hold_placed()
        begin = training.clock()
        for repeat in range(settings.repeats):
            if training.clock() - begin > settings.limit_s:
                break
            calm_s = median(training.step() for _ in range(settings.calm))
            with neighbour(HOG, (core,)):
                landed = _landed(training, before, 1 + repeat, settings)
            left = _watched(training, [before], settings)
            rounds.append({"calm_s": calm_s, "landed": landed, "left": left})
            say(f"hog {repeat + 1}: landed {landed['steps']}, left {left['steps']} steps")
        journal = [e.sentence for e in training.auto.journal.entries if e.kind in ("alarm", "moved", "stayed")]
    return {"model": settings.model, "steps_watched": settings.steps, "rounds": rounds, "journal": journal}


def _landed(training: Training, before: Held, seed: int, settings: RecoverySettings) -> Facts:
    """Under the hog; the optimum is the best of where the run ended up and of a fresh search."""
    took, at = _stepped(training, settings.steps)
    mappings = [training.hold_placed(), before, *training.searched(seed)[:2]]
    return _recovered(training, took, at, mappings, settings)


def _watched(training: Training, others: Sequence[Held], settings: RecoverySettings) -> Facts:
    took, at = _stepped(training, settings.steps)
    return _recovered(training, took, at, [training.hold_placed(), *others], settings)


def _stepped(training: Training, count: int) -> tuple[list[float], int]:
    at = training.auto.steps
    return [training.step() for _ in range(count)], at


def _recovered(
    training: Training, took: Sequence[float], at: int, mappings: Sequence[Held], settings: RecoverySettings
) -> Facts:
    """mappings[0]: where the run ended up; `at`: the step before the first of `took`."""
    race = raced(mappings, rounds=4, each=settings.each)
    best, optimum_s = fastest(race)
    ended_s = median(race[mappings[0]])
    return {
        "steps": steps_until(took, optimum_s),
        "optimum_s": optimum_s,
        "optimum_by": best.name,
        "ended_s": ended_s,
        "ended_share": optimum_s / ended_s,
        "first_s": median(took[:WINDOW]),
        "last_s": median(took[-10 * WINDOW :]),
        "alarms": len(training.said("alarm", at)),
        "moved_after": [e.step - at for e in training.auto.journal.entries if e.kind == "moved" and e.step > at],
        "took_ms": [round(1e3 * s, 1) for s in took],
    }


def steps_until(took: Sequence[float], optimum_s: float, share: float = SHARE, window: int = WINDOW) -> int | None:
    """After how many steps the running median came within `share` of the optimum's speed; None: it never did.

    The next `window` steps must confirm it: a step tried in a race before it is no recovery.

        took/optimum   1.6 1.6 1.6 1.0 1.6 1.6 1.0 1.0 1.0 1.0 1.0 1.0 1.0 1.0
        running median                 1.6 1.6 1.6 1.0 ...       -> 8
    """
    bound_s = optimum_s / share
    for n in range(window, len(took) - window + 1):
        if median(took[n - window : n]) <= bound_s and median(took[n : n + window]) <= bound_s:
            return n
    return None
