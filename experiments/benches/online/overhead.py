"""What a call of autoplace costs beyond the bare placed function, once the search is over."""

from __future__ import annotations

import math
from dataclasses import dataclass
from statistics import median

import numpy as np

from experiments.benches.bench import Facts
from experiments.benches.online.training import Training


@dataclass(frozen=True)
class OverheadSettings:
    """blocks: pairs of blocks, one of calls and one of bare steps, `each` of both."""

    model: str
    workers: int = 2
    budget: int = 6
    blocks: int = 12
    each: int = 25


def overhead_facts(settings: OverheadSettings) -> Facts:
    """Calls and bare steps of the very same placed function on the very same variables, in blocks in turn."""
    with Training(settings.model, f"workers:{settings.workers}", settings.budget) as training:
        training.until_steady()
        begin = training.auto.steps
        found = in_blocks(training, settings.blocks, settings.each)
        return {**found, "model": settings.model, "moved": training.said("moved", begin + 1)}


def in_blocks(training: Training, blocks: int, each: int) -> Facts:
    """A training whose search is over: `blocks` pairs of blocks of `each` steps, one of calls and one of bare steps."""
    calls: list[list[float]] = []
    bare: list[list[float]] = []
    for block in range(blocks):
        if block % 2:
            calls.append(_calls(training, each))
        bare.append(_bare(training, each))
        if not block % 2:
            calls.append(_calls(training, each))
    return compared(calls, bare)


def compared(calls: list[list[float]], bare: list[list[float]]) -> Facts:
    """Seconds of blocks, a block of calls for a block of bare steps.

    overhead: the median over pairs of blocks of the ratio of their medians, less 1; overhead_error: its standard error,
    from the interquartile range. overhead_total: by all seconds, snapshots and stragglers included.
    """
    ratios = [median(c) / median(b) - 1 for c, b in zip(calls, bare, strict=True)]
    low, high = np.percentile(ratios, [25, 75])
    return {
        "overhead": median(ratios),
        "overhead_error": float(high - low) / 1.349 * 1.253 / math.sqrt(len(ratios)),  # of a median, were it normal
        "overhead_total": sum(map(sum, calls)) / sum(map(sum, bare)) - 1,
        "call_s": median(s for block in calls for s in block),
        "bare_s": median(s for block in bare for s in block),
        "steps": sum(map(len, calls)),
    }


def _calls(training: Training, count: int) -> list[float]:
    training.step()
    return [training.step() for _ in range(count)]


def _bare(training: Training, count: int) -> list[float]:
    step = training.bare
    took = []
    for i in range(count + 1):
        begin = training.clock()
        step()
        if i:
            took.append(training.clock() - begin)
    return took
