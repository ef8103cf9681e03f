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

from placer.graph.op_flops import CALLS, LOOPS
from placer.graph.op_graph import OpGraph
from placer.graph.topology import Topology
from placer.profile.operators.dataset import YARDSTICKS, Operator, OperatorRow
from surrogate.operators.hardware import Hardware
from surrogate.operators.models import LEAST_S, OVERALL, OperatorModels, OpTime, fit_models

REGRESSORS = ("boosting on roofline", "neighbours on roofline")
IDLE = frozenset({"VarHandleOp", "NoOp"})  # they do no work
TAKES_IN, ABSORBED = "fused_ops", "absorbed"  # attributes of ops that do the work of others, and of those
MARKS = {TAKES_IN, ABSORBED}
MEASURED = "measured"
MEASURED_SPREAD = 0.1  # relative, of an op that was measured in another step


@dataclass(frozen=True)
class OperatorTimes:
    """What is known of ops on one kind of device. measured_s: signature -> seconds inside a step, median over rows.
    fuses: whether kernels were seen to do the work of other ops (`placer.profile.operators.fusion`), which then take no
    time.
    """

    models: OperatorModels
    measured_s: MappingABC[str, float]
    fuses: bool = False

    @classmethod
    def of(cls, rows: Sequence[OperatorRow], device_kind: str, elsewhere: Hardware | None = None) -> OperatorTimes:
        """Learn from the rows of a kind of device. Raises BadInputError without any.

        elsewhere: the device that is asked for, where none of the rows are from it, and all are from machines with
        yardsticks: then nothing counts as measured.
        """
        models = fit_models(rows, device_kind, fixed=REGRESSORS)
        if elsewhere is not None:
            models = models.on(elsewhere)
        seconds: dict[str, list[float]] = defaultdict(list)
        marks: set[str] = set()
        for row in rows:
            timed = row.source == "step" and row.median_s > LEAST_S and row.network != YARDSTICKS
            if row.device_kind == device_kind and timed:
                seconds[row.operator.signature].append(row.median_s)
                marks |= MARKS & row.operator.attributes.keys()
        measured_s = {signature: median(times) for signature, times in seconds.items()}
        return cls(models, {} if elsewhere is not None else measured_s, marks == {TAKES_IN})

    def predict(self, operators: Sequence[Operator]) -> list[OpTime]:
        """Seconds of each operator inside a training step; `source` says whether the very same one was measured."""
        known = [self._known_s(operator) for operator in operators]
        others = [operator for operator, seconds in zip(operators, known, strict=True) if seconds is None]
        modelled = iter(map(_doubted, others, self.models.predict(others)))
        return [next(modelled) if s is None else OpTime(s, MEASURED_SPREAD, MEASURED) for s in known]

    def _known_s(self, operator: Operator) -> float | None:
        if self.fuses and ABSORBED in operator.attributes:
            return 0.0
        return self.measured_s.get(operator.signature)


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
