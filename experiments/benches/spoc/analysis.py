"""What SPOC explains of measured times: correlations, and errors on families of networks that a fit did not see.

Pure: from rows of the bench `spoc` to facts.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from experiments.benches.bench import Facts
from placer.errors import PlacerError
from surrogate.learn.regressors import Learned, Regressor, boosting, gaussian_process, ridge

Floats = NDArray[np.float64]

TARGETS = ("step", "inference")
METRICS = {
    "ops": "Size", "traffic_bytes": "Size", "parameters": "Parameters", "operations": "Operations",
    "multiply_adds": "Operations", "dense_multiply_adds": "Operations", "hops": "Critical datapath length",
    "span": "Critical datapath length",
}  # fmt: skip
"""The numbers that are compared, and the letter of SPOC that each belongs to."""
FLOPS, SPOC, GROUPED = "FLOPs alone", "SPOC", "SPOC with groups as written"
WHOLE = tuple(name for name in METRICS if name != "multiply_adds")
SETS: dict[str, tuple[str, ...]] = {
    FLOPS: ("operations",),
    "Size": ("ops", "traffic_bytes"),
    "Parameters": ("parameters",),
    "Critical datapath length": ("hops", "span"),
    "one number a letter": ("ops", "parameters", "operations", "span"),
    "SPOC without bytes": tuple(name for name in WHOLE if name != "traffic_bytes"),
    "SPOC without critical datapath length": tuple(name for name in WHOLE if name not in ("hops", "span")),
    GROUPED: tuple(name for name in METRICS if name != "dense_multiply_adds"),
    SPOC: WHOLE,
}
"""The sets of metrics that a regressor is given. GROUPED shows what it costs to count a grouped convolution by its
definition, not as XLA computes it.
"""
NO_TIME_S = 1e-8  # of an op: no op is launched faster, so a fit below this gives the time to other metrics
FEWEST_FAMILIES = 2  # with fewer, none can be left out


class Additive(Regressor):
    """t = c + sum_i a_i x_i of the metrics x themselves, c and a_i >= 0: seconds per launch, per FLOP, per byte, ...

    The constants minimise the sum of the squares of log(predicted / measured time), large ones dampened. c is 0 if ops
    are among the metrics, because networks that take much longer than a call cannot show what a call takes, and a step
    without ops takes no time. A free c made tiny networks appear two to four times as slow as they are.
    """

    def __init__(self, metrics: Sequence[str] = ()) -> None:
        super().__init__()
        self.constant = "ops" not in metrics

    def per_unit(self) -> Floats:
        """[metrics] seconds for one more of each."""
        found: Floats = self.constants[int(self.constant) :] / self.scale
        return found

    def _fit(self, x: Floats, log_s: Floats) -> None:
        from scipy.optimize import least_squares, nnls

        self.scale = np.exp(x.mean(axis=0))
        columns = self._columns(x)
        start, _ = nnls(columns / np.exp(log_s)[:, None], np.ones(len(log_s)))
        begin = np.log(np.maximum(start, 1e-3 * np.exp(log_s.mean())))
        found = least_squares(
            lambda logs: np.log(columns @ np.exp(logs)) - log_s, begin, loss="soft_l1", bounds=(begin - 30, begin + 30)
        )
        self.constants: Floats = np.exp(found.x)

    def _predict(self, x: Floats) -> Floats:
        found: Floats = np.log(self._columns(x) @ self.constants)
        return found

    def _columns(self, x: Floats) -> Floats:
        """A constant, if there is one, and the metrics divided by typical values. x: [networks, metrics] logarithms."""
        return np.column_stack([np.ones((len(x), int(self.constant))), np.exp(x) / self.scale])


Make = Callable[[Sequence[str]], Regressor]
KINDS: dict[str, Make] = {
    "additive": Additive,
    "power law": lambda _: Learned(ridge, far=math.inf),
    "gaussian process": lambda _: Learned(gaussian_process, far=math.inf),
    "boosting": lambda _: Learned(boosting, far=math.inf),
}
"""A family that is left out may take far longer than the others, so no predictions are held to their range."""
DEFAULT = "additive"


@dataclass(frozen=True)
class TimedNetworks:
    """Networks that were measured. metrics: name -> [networks]; seconds: [networks], at one pace of the reference."""

    names: tuple[str, ...]
    families: tuple[str, ...]
    metrics: Mapping[str, Floats]
    seconds: Floats

    def x(self, metrics: Sequence[str]) -> Floats:
        """[networks, metrics] logarithms."""
        found: Floats = np.log(np.column_stack([np.maximum(self.metrics[name], 1.0) for name in metrics]))
        return found


def timed_of(rows: Sequence[Facts], target: str) -> TimedNetworks:
    """The measured rows, {name, family, ...}, for one target. Seconds are scaled to the reference's median pace."""
    reference_s = np.array([row["reference_s"] for row in rows])
    seconds = np.array([row[f"{target}_s"] for row in rows]) * np.median(reference_s) / reference_s
    return TimedNetworks(
        tuple(row["name"] for row in rows),
        tuple(row["family"] for row in rows),
        {name: np.array([float(row[target][name] or 0) for row in rows]) for name in METRICS},
        seconds,
    )


def left_out(timed: TimedNetworks, metrics: Sequence[str], make: Make) -> Floats:
    """[networks] seconds, each predicted by a fit that saw no network of its family.

    Raises PlacerError if there is only one family.
    """
    x, of = timed.x(metrics), np.array(timed.families)
    if len(set(timed.families)) < FEWEST_FAMILIES:
        raise PlacerError("only one family of networks could be measured, so none can be left out; measure more.")
    predicted = np.empty(len(x))
    for family in set(timed.families):
        out = of == family
        predicted[out] = make(metrics).fit(x[~out], timed.seconds[~out]).predict(x[out])
    return predicted


def errors(predicted_s: Floats, measured_s: Floats) -> Facts:
    """Mean and median of |predicted / measured - 1|."""
    off = np.abs(predicted_s / measured_s - 1)
    return {"mean": float(off.mean()), "median": float(np.median(off))}


def flops_at_best(errors: Facts) -> tuple[str, Facts]:
    """The regressor that errs least by FLOPs alone, and its errors. errors: regressor -> set of metrics -> errors."""
    kind = min(errors, key=lambda kind: float(errors[kind][FLOPS]["mean"]))
    return kind, errors[kind][FLOPS]


def correlation(values: Floats, seconds: Floats) -> Facts:
    """Pearson's correlation of the logarithms, and Spearman's; 0 for values that never change."""
    from scipy.stats import pearsonr, spearmanr

    if np.ptp(values) == 0:
        return {"pearson": 0.0, "spearman": 0.0}
    logs = np.log(np.maximum(values, 1e-12)), np.log(seconds)
    return {"pearson": float(pearsonr(*logs).statistic), "spearman": float(spearmanr(values, seconds).statistic)}


def analysed(timed: TimedNetworks, kind: str = DEFAULT) -> Facts:
    """Correlations of every metric and of the predictions, errors of every set by every regressor, and by family."""
    by_kind: Facts = {}
    for other, make in KINDS.items():
        named = tuple(SETS) if other == kind else (FLOPS, SPOC)  # the others are only for comparison
        by_kind[other] = {name: errors(left_out(timed, SETS[name], make), timed.seconds) for name in named}
    by_set = {name: left_out(timed, SETS[name], KINDS[kind]) for name in (FLOPS, SPOC, GROUPED)}
    found = {name: correlation(timed.metrics[name], timed.seconds) for name in METRICS}
    return {
        "correlations": found | {f"{SPOC}, fitted": correlation(by_set[SPOC], timed.seconds)},
        "errors": by_kind,
        "spoc_error": by_kind[kind][SPOC]["mean"],
        "flops_error": by_kind[kind][FLOPS]["mean"],
        "families": _by_family(timed, by_set),
        "seconds_each": seconds_each(timed),
        "points": {
            "family": list(timed.families),
            "measured_s": timed.seconds.tolist(),
            **{name: predicted.tolist() for name, predicted in by_set.items()},
        },
    }


def seconds_each(timed: TimedNetworks) -> Facts:
    """The seconds for one more of each metric of SPOC, by the additive fit to all networks."""
    fitted = Additive(WHOLE)
    fitted.fit(timed.x(WHOLE), timed.seconds)
    return dict(zip(WHOLE, fitted.per_unit().tolist(), strict=True))


def launch_operations(each: Facts) -> float | None:
    """The FLOPs that take as long as an op takes besides its work; None if the fit gives either hardly any time.

    each: from `seconds_each`.
    """
    flop_s = each["operations"] + each["dense_multiply_adds"] / 2
    return each["ops"] / flop_s if flop_s > 0 and each["ops"] > NO_TIME_S else None


def _by_family(timed: TimedNetworks, by_set: Mapping[str, Floats]) -> Facts:
    of, found = np.array(timed.families), {}
    for family in dict.fromkeys(timed.families):
        some = of == family
        found[family] = {
            "networks": int(some.sum()),
            "fastest_s": float(timed.seconds[some].min()),
            "slowest_s": float(timed.seconds[some].max()),
            **{name: errors(predicted[some], timed.seconds[some]) for name, predicted in by_set.items()},
        }
    return found
