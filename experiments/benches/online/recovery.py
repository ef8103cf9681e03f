"""A CPU hog lands on a worker's core and leaves again: how many steps until autoplace runs near the new optimum."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from statistics import median

from experiments.benches.bench import Facts
from experiments.benches.online.neighbours import HOG, neighbour
from experiments.benches.online.training import Held, Training, fastest, raced, say
from placer.devices.workers.workers import share_cores

SHARE = 0.95  # of the optimum's speed
WINDOW = 5  # steps of a running median
CALM = 40  # steps before the hog lands
EACH = 5  # steps of a mapping's turn in a race


def recovery_facts(
    model: str, workers: int, budget: int = 16, repeats: int = 3, steps: int = 150, limit_s: float = 900.0
) -> Facts:
    """A hog lands and leaves, `repeats` times or until `limit_s` seconds are over; a round that began is finished.

    steps: watched after it landed, and after it left.
    """
    core = share_cores(workers, sorted(os.sched_getaffinity(0)))[1][0]
    rounds: list[Facts] = []
    with Training(model, f"workers:{workers}", budget) as training:
        training.until_steady()
        before = training.hold_placed()
        begin = training.clock()
        while len(rounds) < repeats and training.clock() - begin < limit_s:
            calm_s = median(training.step() for _ in range(CALM))
            with neighbour(HOG, (core,)):
                landed = _recovered(training, steps, lambda: [before, *training.searched(len(rounds) + 1)[:2]])
            left = _recovered(training, steps, lambda: [before])
            rounds.append({"calm_s": calm_s, "landed": landed, "left": left})
            say(f"hog {len(rounds)}: landed {landed['steps']}, left {left['steps']} steps")
        journal = [e.sentence for e in training.auto.journal.entries if e.kind in ("alarm", "moved", "stayed")]
    return {"model": model, "steps_watched": steps, "rounds": rounds, "journal": journal}


def _recovered(training: Training, steps: int, others: Callable[[], Sequence[Held]]) -> Facts:
    """The next steps, held against the optimum: the best of the mapping that the run ended on and of `others`."""
    at = training.auto.steps
    took = [training.step() for _ in range(steps)]
    ended = training.hold_placed()
    race = raced([ended, *others()], rounds=4, each=EACH)
    best, optimum_s = fastest(race)
    ended_s = median(race[ended])
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
    """The number of steps until the running median came within `share` of the optimum's speed; None if it never did.

    The next `window` steps must confirm it, because a fast mapping that is only tried is no recovery.

        took/optimum   1.6 1.6 1.6 1.0 1.6 1.6 1.0 1.0 1.0 1.0 1.0 1.0 1.0 1.0
        running median                 1.6 1.6 1.6 1.0 ...       -> 8
    """
    bound_s = optimum_s / share
    for n in range(window, len(took) - window + 1):
        if median(took[n - window : n]) <= bound_s and median(took[n : n + window]) <= bound_s:
            return n
    return None
