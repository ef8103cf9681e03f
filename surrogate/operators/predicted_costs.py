"""Costs of a graph that was never profiled: ops that were measured elsewhere as they were, the others by models.

Fitting takes seconds, because nothing is chosen by cross-validation: every family is timed by the mean of the same
regressors (docs/decisions/027-predicted-costs.md).
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
IDLE = frozenset({"VarHandleOp", "NoOp"})  # they do no work
TAKES_IN, ABSORBED = "fused_ops", "absorbed"  # attributes of ops that do the work of others, and of those
MARKS = {TAKES_IN, ABSORBED}
MEASURED = "measured"
SCALED = "measured on other hardware"
SPREADS = {MEASURED: 0.1, SCALED: 0.3}  # relative, of an op that was measured in another step


@dataclass(frozen=True)
class OperatorTimes:
    """What is known of ops on one device. measured_s: signature -> seconds inside a step, median over rows.

    fuses: whether kernels were seen to do the work of other ops (`placer.profile.operators.fusion`), which then take no
    time.
    """

    models: OperatorModels
    measured_s: MappingABC[str, float]
    fuses: bool = False
    source: str = MEASURED  # what stands behind `measured_s`

    @classmethod
    def of(cls, rows: Sequence[OperatorRow], device_kind: str, elsewhere: Hardware | None = None) -> OperatorTimes:
        """Learn from the rows of a kind of device. Raises BadInputError without any.

        elsewhere: the device that is asked for, where none of the rows are from it, and yardsticks were measured on all
        that they are from.
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
        """Seconds of each operator inside a training step; `source` says whether the very same one was measured."""
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
    """Seconds that each row's op takes here: as many times what it took as it is predicted to take longer."""
    seconds = [0.0] * len(rows)
    for machine in dict.fromkeys(row.machine for row in rows):
        some = [i for i, row in enumerate(rows) if row.machine == machine]
        ops = [rows[i].operator for i in some]
        there = models.on(hardware[models.device_kind, machine])
        for i, now, then in zip(some, here.predict(ops), there.predict(ops), strict=True):
            seconds[i] = rows[i].median_s * now.seconds / then.seconds
    return seconds


def _doubted(operator: Operator, predicted: OpTime) -> OpTime:
    """The time of an op whose work is in a function, which no model sees, counts as a guess."""
    return replace(predicted, source=OVERALL) if operator.type in LOOPS | CALLS else predicted


@dataclass(frozen=True)
class PredictedCosts:
    """A graph with predicted costs, and which of its ops no model times: those of types that were never measured, for
    which the roofline over all types stands in, and loops, branches and calls.

    guessed: op type -> how many ops, the most frequent first. guessed_share: their share of all predicted seconds, on
    the device where it is the largest.
    """

    graph: OpGraph
    guessed: MappingABC[str, int]
    guessed_share: float


def predicted_costs(
    graph: OpGraph, operators: MappingABC[str, Operator], topology: Topology, times: MappingABC[str, OperatorTimes]
) -> PredictedCosts:
    """The graph with predicted `cost_s` of every op on every device that may run it; the fingerprint stays.

    operators: op name -> operator, as placer.profile.operators.describe reads them off a captured step. times: by name
    of device, before dividing by its speed.
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
