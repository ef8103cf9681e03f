"""What SPOC explains on each kind of device, and how far a fit on one kind, times one factor, holds on another.

Pure: from rows of the bench `spoc` to facts.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import permutations

import numpy as np

from experiments.benches.bench import Facts
from experiments.benches.spoc.analysis import (
    DEFAULT,
    FLOPS,
    KINDS,
    METRICS,
    SETS,
    SPOC,
    TARGETS,
    correlation,
    errors,
    left_out,
    timed_of,
)


def by_device(rows: Mapping[str, Sequence[Facts]]) -> Facts:
    """For every kind of device and target: errors, correlations and seconds. rows: kind -> the same networks."""
    return {
        kind: {target: _of_target(some, target) for target in TARGETS} | {"reference_s": reference_s(some)}
        for kind, some in rows.items()
    }


def _of_target(rows: Sequence[Facts], target: str) -> Facts:
    timed = timed_of(rows, target)
    by_set = {name: left_out(timed, SETS[name], KINDS[DEFAULT]) for name in (SPOC, FLOPS)}
    return {
        "spoc": errors(by_set[SPOC], timed.seconds),
        "flops": errors(by_set[FLOPS], timed.seconds),
        "spearman": {name: correlation(timed.metrics[name], timed.seconds)["spearman"] for name in METRICS},
        "points": {
            "family": list(timed.families),
            "measured_s": timed.seconds.tolist(),
            "predicted_s": by_set[SPOC].tolist(),
        },
    }


def transfers(rows: Mapping[str, Sequence[Facts]]) -> list[Facts]:
    """For every ordered pair of kinds and target, the error of a fit on one kind that predicts the other.

    The fit does not see the family that it predicts. Its predictions are multiplied by one factor: the reference's time
    on the other kind divided by its time on the first, so that only the reference has to be measured there.
    `best_factor` is the median over all networks instead, which is known only after all were measured there.
    """
    return [_transfer(rows, source, to, target) for source, to in permutations(rows, 2) for target in TARGETS]


def _transfer(rows: Mapping[str, Sequence[Facts]], source: str, to: str, target: str) -> Facts:
    known, asked = timed_of(rows[source], target), timed_of(rows[to], target)
    predicted = left_out(known, SETS[SPOC], KINDS[DEFAULT])
    factor = reference_s(rows[to]) / reference_s(rows[source])
    best = float(np.median(asked.seconds / predicted))
    return {
        "from": source,
        "to": to,
        "target": target,
        "factor": factor,
        "best_factor": best,
        "error": errors(factor * predicted, asked.seconds),
        "error_best_factor": errors(best * predicted, asked.seconds),
        "error_own": errors(left_out(asked, SETS[SPOC], KINDS[DEFAULT]), asked.seconds),
        "points": {
            "family": list(asked.families),
            "measured_s": asked.seconds.tolist(),
            "predicted_s": (factor * predicted).tolist(),
        },
    }


def reference_s(rows: Sequence[Facts]) -> float:
    """Median seconds of the reference."""
    return float(np.median([row["reference_s"] for row in rows]))
