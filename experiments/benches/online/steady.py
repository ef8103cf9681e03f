"""Thousands of steady steps, in quiet and beside a neighbour that runs in bursts: no op should be moved."""

from __future__ import annotations

import os

from experiments.benches.bench import Facts, say
from experiments.benches.online.neighbours import JITTER, JITTER_SAID, neighbour
from experiments.benches.online.training import Training
from placer.result import summary


def steady_facts(model: str, workers: int, budget: int = 6, steps: int = 10_000, limit_s: float = 300.0) -> Facts:
    """Take two stretches of steps, in quiet and beside the neighbour, in one training: `steps` each, for `limit_s` at
    most.
    """
    with Training(model, f"workers:{workers}", budget) as training:
        training.until_steady()
        plain = _stretch(training, steps, limit_s)
        with neighbour(JITTER, sorted(os.sched_getaffinity(0))):
            jitter = _stretch(training, steps, limit_s)
    return {"model": model, "plain": plain, "jitter": jitter, "jitter_said": JITTER_SAID}


def _stretch(training: Training, steps: int, limit_s: float) -> Facts:
    begin, at = training.clock(), training.auto.steps
    took: list[float] = []
    while len(took) < steps and training.clock() - begin < limit_s:
        took.append(training.step())
    measured, said = summary(took), {kind: training.said(kind, at + 1) for kind in ("alarm", "stayed", "moved")}
    facts = {
        "steps": len(took),
        "moves": len(said["moved"]),
        "alarms": len(said["alarm"]),
        "said": [sentence for sentences in said.values() for sentence in sentences],
        "step_s": measured.step_s,
        "spread_s": measured.spread_s,
        "slowest_s": max(took),
    }
    say(f"{facts['steps']} steady steps: {facts['moves']} moves, {facts['alarms']} alarms")
    return facts
