"""Costs of a graph that was never profiled: measured times for ops that were measured elsewhere, else models.

Fitting takes seconds, because nothing is chosen by cross-validation: the mean of the same regressors times every family
(docs/decisions/027-predicted-costs.md).
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Mapping as MappingABC
from collections.abc import Sequence
from dataclasses import dataclass, replace
from statistics import median

from placer.graph.op_graph import OpGraph
from placer.graph.topology import Topology
from placer.profile.operators.dataset import YARDSTICKS, Operator, OperatorRow
from placer.trace.op_counts.flops import CALLS, LOOPS
from surrogate.operators.hardware import Hardware, hardware_of
from surrogate.operators.models import LEAST_S, OVERALL, OperatorModels, OpTime, fit_models

REGRESSORS = ("boosting on roofline", "neighbours on roofline")
IDLE = frozenset({"VarHandleOp", "NoOp"})  # types that do no work
TAKES_IN, ABSORBED = "fused_ops", "absorbed"  # the attribute of an op that does others' work, and of those others
MARKS = {TAKES_IN, ABSORBED}
MEASURED = "measured"
SCALED = "measured on other hardware"
SPREADS = {MEASURED: 0.1, SCALED: 0.3}  # relative, of an op that was measured in another step


@dataclass(frozen=True)
class OperatorTimes:
    """The times of ops on one device. measured_s: signature -> seconds inside a step, the median over rows.

    fuses: whether kernels were seen to do the work of other ops (`placer.profile.operators.fusion`). Those other ops
    then take no time.
    """

    models: OperatorModels
    measured_s: MappingABC[str, float]
    fuses: bool = False
    source: str = MEASURED  # where `measured_s` comes from

    @classmethod
    def of(cls, rows: Sequence[OperatorRow], device_kind: str, elsewhere: Hardware | None = None) -> OperatorTimes:
        """Learn from the rows of a kind of device. Raises BadInputError if there are none.

        elsewhere: the device to predict, if no row is from it. Yardsticks must have been measured on all devices that
        the rows are from.
        """
        models = fit_models(rows, device_kind, fixed=REGRESSORS)
        steps = [
            row for row in rows
            if row.device_kind == device_kind and row.source == "step" and row.median_s > LEAST_S
            and row.network != YARDSTICKS
        ]  # fmt: skip
        fuses = {mark for row in steps for mark in MARKS & row.operator.attributes.keys()} == {TAKES_IN}
        if elsewhere is None:
            return cls(models, _medians(steps, [row.median_s for row in steps]), fuses)
        here = models.on(elsewhere)
        return cls(here, _medians(steps, _carried_over(models, here, steps, hardware_of(rows))), fuses, SCALED)

    def predict(self, operators: Sequence[Operator]) -> list[OpTime]:
        """Return the seconds of each operator inside a training step. Its `source` says whether they were measured."""
        known = [self._known_s(operator) for operator in operators]
        others = [operator for operator, seconds in zip(operators, known, strict=True) if seconds is None]
        modelled = iter(map(_doubted, others, self.models.predict(others)))
        return [next(modelled) if s is None else OpTime(s, SPREADS[self.source], self.source) for s in known]

    def _known_s(self, operator: Operator) -> float | None:
        if self.fuses and ABSORBED in operator.attributes:
            return 0.0
        return self.measured_s.get(operator.signature)


def _medians(rows: Sequence[OperatorRow], seconds: Sequence[float]) -> dict[str, float]:
    by_signature: dict[str, list[float]] = defaultdict(list)
    for row, one_s in zip(rows, seconds, strict=True):
        by_signature[row.operator.signature].append(one_s)
    return {signature: median(times) for signature, times in by_signature.items()}


def _carried_over(
    models: OperatorModels,
    here: OperatorModels,
    rows: Sequence[OperatorRow],
    hardware: MappingABC[tuple[str, str], Hardware],
) -> list[float]:
    """Seconds that each row's op takes on the device of `here`: its measured time, scaled by the ratio of the times
    predicted for the two devices.
    """
    seconds = [0.0] * len(rows)
    for machine in dict.fromkeys(row.machine for row in rows):
        some = [i for i, row in enumerate(rows) if row.machine == machine]
        ops = [rows[i].operator for i in some]
        there = models.on(hardware[models.device_kind, machine])
        for i, now, then in zip(some, here.predict(ops), there.predict(ops), strict=True):
            seconds[i] = rows[i].median_s * now.seconds / then.seconds
    return seconds


def _doubted(operator: Operator, predicted: OpTime) -> OpTime:
    """Mark the time of a loop, branch or call as a guess, because models do not see the work of the called function."""
    return replace(predicted, source=OVERALL) if operator.type in LOOPS | CALLS else predicted


@dataclass(frozen=True)
class PredictedCosts:
    """A graph with predicted costs, and which of these are guesses. Guessed are loops, branches and calls, and ops of
    types that were never measured, which get the roofline over all types.

    guessed: op type -> number of ops, the most frequent first. guessed_share: their share of all predicted seconds, on
    the device where the share is largest.
    """

    graph: OpGraph
    guessed: MappingABC[str, int]
    guessed_share: float


def predicted_costs(
    graph: OpGraph, operators: MappingABC[str, Operator], topology: Topology, times: MappingABC[str, OperatorTimes]
) -> PredictedCosts:
    """Return the graph with predicted `cost_s` of every op on every device that may run it. The fingerprint stays.

    operators: op name -> operator, as placer.profile.operators.describe reads them off a captured step. times: device
    name -> times, before they are divided by the device's speed.
    """
    asked = [operators[op.name] for op in graph.ops]
    found = {id(known): known.predict(asked) for known in times.values()}
    costs: list[dict[str, float]] = [{} for _ in graph.ops]
    guessed: set[int] = set()
    share = 0.0
    for device in topology.devices:
        here, sums_s = found[id(times[device.name])], [0.0, 0.0]
        for i, (op, predicted) in enumerate(zip(graph.ops, here, strict=True)):
            if op.devices is None or device.name in op.devices or device.kind in op.devices:
                is_guess = predicted.source == OVERALL and op.type not in IDLE
                costs[i][device.name] = 0.0 if op.type in IDLE else predicted.seconds
                sums_s[is_guess] += costs[i][device.name]
                guessed |= {i} if is_guess else set()
        share = max(share, sums_s[True] / (sum(sums_s) or 1.0))
    ops = [replace(op, cost_s=c, devices=None if c else op.devices) for op, c in zip(graph.ops, costs, strict=True)]
    types = Counter(graph.ops[i].type for i in sorted(guessed))
    return PredictedCosts(replace(graph, ops=tuple(ops)), dict(types.most_common()), share)
