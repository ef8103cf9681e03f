"""A load lands on a random device, or on the links, and leaves again: how soon autoplace runs near the new optimum, and
how long the same steps take without adapting, or with a new search.
"""

from __future__ import annotations

import os
import random
from collections.abc import Callable, Sequence
from math import sqrt
from statistics import median
from typing import NamedTuple

from experiments.benches.bench import Facts, say
from experiments.benches.online.neighbours import HORIZON, LOADS, SHARE, Place
from experiments.benches.online.training import Held, Training, raced
from placer.devices.host.cores import usable_cores
from placer.devices.workers.workers import share_cores
from placer.graph.topology import Link
from placer.train.steps.modes import MappedStep, Placed

WINDOW = 5  # steps of a running median
CALM = 40  # steps before the load lands
EACH = 5  # steps of a mapping's turn in a race
ROUNDS = 6  # of turns
FIRST_S = 1.0  # of bare steps after a load landed or left, until its effect is felt
FIRST = 12  # bare steps after these, which show how fast the machine is

Key = tuple[Sequence[int], Sequence[str]]
"""The device of each op, and the order in which they run."""


def load_facts(model: str, load: str, workers: int, budget: int = 16, steps: int = 150, seed: int = 0) -> Facts:
    """Let a load land on a training and leave, once.

    load: a key of LOADS; a load that slows the links needs a network of its own, see `own_network`. steps: watched once
    the load is fully grown, and after it left. seed: decides which device is hit.
    """
    its = LOADS[load]
    shares = share_cores(workers, usable_cores())
    device = random.Random(f"{model} {load} {seed}").randrange(workers)
    with Training(model, f"workers:{workers}", budget) as training:
        training.until_steady()
        before = training.hold_placed()
        calm_s = median(training.step() for _ in range(CALM))
        bandwidth = _bandwidth(training.topology().mean_link) if its.links else None
        place = Place(shares[device], _free(shares), bandwidth)
        at = training.auto.steps
        with its.land(place):
            grown = _growing(training, its.grows_s)
            first_s = _first_s(before, training.clock)
            landed = _compared(training, before, first_s, _watched(training, steps), anew=True)
        first_s = _first_s(before, training.clock)
        left = _compared(training, before, first_s, _watched(training, steps), anew=False)
        say(f"{load} on {model}: landed {landed['mapping_steps']}, left {left['mapping_steps']} steps")
        journal = [
            e.sentence for e in training.auto.journal.entries if e.step >= at and e.kind in ("alarm", "moved", "stayed")
        ]
    return {
        "model": model,
        "load": load,
        "device": None if its.links else device,
        "bandwidth": bandwidth,
        "calm_s": calm_s,
        "steps_growing": grown,
        "steps_watched": steps,
        "landed": landed,
        "left": left,
        "journal": journal,
    }


def _free(shares: Sequence[Sequence[int]]) -> list[int]:
    return sorted(os.sched_getaffinity(0) - {core for share in shares for core in share})


def _bandwidth(link: Link) -> float:
    """Bytes per second, including the work of both ends for each byte."""
    return 1.0 / (1.0 / link.bandwidth_bytes_per_s + link.send_s_per_byte + link.receive_s_per_byte)


def _growing(training: Training, seconds: float) -> int:
    """Train for `seconds`. Returns the number of steps taken."""
    begin, at = training.clock(), len(training.losses)
    while training.clock() - begin < seconds:
        training.step()
    return len(training.losses) - at


def _first_s(held: Held, clock: Callable[[], float]) -> float:
    """Seconds of a bare step, which show how fast the machine is now: the median of FIRST, after others for FIRST_S."""
    begin = clock()
    held.step()
    while clock() - begin < FIRST_S:
        held.step()
    return median(held.step() for _ in range(FIRST))


class Watched(NamedTuple):
    """A training's steps in a row, and what it decided meanwhile. ran: the incumbent of each step."""

    took_s: list[float]
    ran: list[Placed]
    alarms: int
    moved_after: list[int]


def _watched(training: Training, steps: int) -> Watched:
    at = training.auto.steps
    took_s, ran = [], []
    for _ in range(steps):
        ran.append(training.placed)
        took_s.append(training.step())
    moves = [e.step - at for e in training.auto.journal.entries if e.kind == "moved" and e.step > at]
    return Watched(took_s, ran, len(training.said("alarm", at)), moves)


def _compared(training: Training, before: Held, first_s: float, watched: Watched, *, anew: bool) -> Facts:
    """Compare the steps that the training took with the optimum: the best of the mappings that it ran, of the mapping
    `before`, and, if `anew`, of a profile and search from nothing under the current load.

    first_s: of a bare step of `before` just before these steps. The machine may have drifted since: `pace` is `first_s`
    divided by the step time of `before` in the race. By the clock, the optimum during the steps is assumed to lie
    halfway between the two.
    """
    held = _all_held(training, before, watched.ran)
    ended = held[_key(training.placed)]
    begin = training.clock()
    found = training.searched(seed=1)[:2] if anew else []
    search_s = training.clock() - begin
    race = {h: median(s) for h, s in raced([*dict.fromkeys([*held.values(), before, *found])], ROUNDS, EACH).items()}
    best = min(race, key=lambda held: race[held])
    optimum_s, pace, took_s = race[best], first_s / race[before], watched.took_s
    facts: Facts = {
        "took_s": took_s,
        "alarms": watched.alarms,
        "moved_after": watched.moved_after,
        "mapping_steps": steps_until_mapping([race[held[_key(placed)]] for placed in watched.ran], optimum_s),
        "steps": steps_until(took_s, optimum_s * sqrt(pace)),
        "first_s": first_s,
        "pace": pace,
        "optimum_s": optimum_s,
        "optimum_by": best.name,
        "ended_s": race[ended],
        "ended_share": optimum_s / race[ended],
        "before_s": race[before],
        "ended_on_before": ended is before,
    }
    if found:
        facts |= {"anew_s": race[found[0]], "search_s": search_s}
        facts |= against(took_s, race[ended], race[before], race[found[0]], search_s)
    return facts


def _all_held(training: Training, before: Held, ran: Sequence[Placed]) -> dict[Key, Held]:
    """Every mapping that ran, and the incumbent, built beside the training."""
    held = {_key(before.built): before}
    for placed in [*ran, training.placed]:
        if _key(placed) not in held:
            held[_key(placed)] = training.hold_again(placed)
    return held


def _key(step: MappedStep) -> Key:
    return step.op_devices, step.order


def against(took: Sequence[float], ended_s: float, before_s: float, anew_s: float, search_s: float) -> Facts:
    """The seconds of HORIZON steps of the training, divided by those without adapting, and by those of a new search
    plus the steps of its mapping; the training stands still during the search. Below 1, adapting is faster.

    took: seconds of the first steps; later steps are assumed to take `ended_s` each.
    """
    adapts_s = sum(took) + (HORIZON - len(took)) * ended_s
    return {"vs_never": adapts_s / (HORIZON * before_s), "vs_anew": adapts_s / (search_s + HORIZON * anew_s)}


def steps_until_mapping(step_s: Sequence[float], optimum_s: float) -> int | None:
    """The number of steps until the mapping that runs came within SHARE of the optimum's speed for good: 0 if the
    first one is, None if it never did. step_s: for each step, the time of its mapping beside the optimum.

        step_s/optimum   1.6 1.6 1.0 1.6 1.6 1.0 1.0 1.0    -> 5
    """
    slow = [n for n, one_s in enumerate(step_s, 1) if one_s > optimum_s / SHARE]
    if slow and slow[-1] == len(step_s):
        return None
    return slow[-1] if slow else 0


def steps_until(took: Sequence[float], optimum_s: float) -> int | None:
    """The number of steps until the running median came within SHARE of the optimum's speed; None if it never did.

    The next WINDOW steps must confirm it, because a fast mapping that is only tried is no recovery. The median of all
    later steps must confirm it, too, because a fast mapping that is left again is no recovery either.

        took/optimum   1.6 1.6 1.6 1.0 1.6 1.6 1.0 1.0 1.0 1.0 1.0 1.0 1.0 1.0
        running median                 1.6 1.6 1.6 1.0 ...       -> 8
    """
    bound_s = optimum_s / SHARE
    for n in range(WINDOW, len(took) - WINDOW + 1):
        if all(median(steps) <= bound_s for steps in (took[n - WINDOW : n], took[n : n + WINDOW], took[n:])):
            return n
    return None
