"""What a call of autoplace costs beyond the bare placed function, once the search is over."""

from __future__ import annotations

from statistics import median

from experiments.benches.bench import Facts
from experiments.benches.online.training import Training
from placer.result import median_error, quartiles


def overhead_facts(model: str, workers: int, budget: int = 6, blocks: int = 12, each: int = 25) -> Facts:
    """Time calls and bare steps of the same placed function on the same variables, in `blocks` pairs of blocks in turn.

    each: steps of a block.
    """
    with Training(model, f"workers:{workers}", budget) as training:
        training.until_steady()
        begin = training.auto.steps
        found = in_blocks(training, blocks, each)
        return {**found, "model": model, "moved": training.said("moved", begin + 1)}


def in_blocks(training: Training, blocks: int, each: int) -> Facts:
    """Time `blocks` pairs of blocks of `each` steps, calls and bare steps, of a training whose search is over."""
    calls: list[list[float]] = []
    bare: list[list[float]] = []
    for block in range(blocks):
        kinds = [(calls, training.step), (bare, training.bare_step)]
        for took, step in reversed(kinds) if block % 2 == 0 else kinds:
            step()
            took.append([step() for _ in range(each)])
    return compared(calls, bare)


def compared(calls: list[list[float]], bare: list[list[float]]) -> Facts:
    """The overhead from the seconds of blocks of calls, each paired with a block of bare steps.

    overhead: the median over pairs of blocks of the ratio of their medians, minus 1. overhead_error: its standard
    error, from the interquartile range. overhead_total: by all seconds, including snapshots and stragglers.
    """
    ratios = [median(c) / median(b) - 1 for c, b in zip(calls, bare, strict=True)]
    low, _, high = quartiles(ratios)
    return {
        "overhead": median(ratios),
        "overhead_error": median_error(high - low, len(ratios)),
        "overhead_total": sum(map(sum, calls)) / sum(map(sum, bare)) - 1,
        "call_s": median(s for block in calls for s in block),
        "bare_s": median(s for block in bare for s in block),
        "steps": sum(map(len, calls)),
    }
