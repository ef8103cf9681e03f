"""Thousands of steady steps, in quiet and beside a neighbour that bursts: nothing changed, so nothing should move."""

from __future__ import annotations

import os
from dataclasses import dataclass
from statistics import median

import numpy as np

from experiments.benches.bench import Facts
from experiments.benches.online.neighbours import JITTER, JITTER_SAID, neighbour
from experiments.benches.online.training import Training, say


@dataclass(frozen=True)
class SteadySettings:
    """steps: of each stretch, or as many as `limit_s` seconds hold."""

    model: str = "towers@2"
    workers: int = 2
    budget: int = 6
    steps: int = 10_000
    limit_s: float = 300.0


def steady_facts(settings: SteadySettings) -> Facts:
    """Both stretches, one after the other, in one training."""
    with Training(settings.model, f"workers:{settings.workers}", settings.budget) as training:
        training.until_steady()
        plain = _stretch(training, settings)
        with neighbour(JITTER, sorted(os.sched_getaffinity(0))):
            jitter = _stretch(training, settings)
    return {"model": settings.model, "plain": plain, "jitter": jitter, "jitter_said": JITTER_SAID}


def _stretch(training: Training, settings: SteadySettings) -> Facts:
    begin, at = training.clock(), training.auto.steps
    took: list[float] = []
    while len(took) < settings.steps and training.clock() - begin < settings.limit_s:
        took.append(training.step())
    low, high = np.percentile(took, [25, 75])
    facts = {
        "steps": len(took),
        "moves": len(training.said("moved", at + 1)),
        "alarms": len(training.said("alarm", at + 1)),
        "said": [*training.said("alarm", at + 1), *training.said("stayed", at + 1), *training.said("moved", at + 1)],
        "step_s": median(took),
        "spread_s": float(high - low),
        "slowest_s": max(took),
    }
    say(f"{facts['steps']} steady steps: {facts['moves']} moves, {facts['alarms']} alarms")
    return facts
