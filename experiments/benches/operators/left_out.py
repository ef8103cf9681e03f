"""One network left out of the operator dataset: its step predicted, and placed by predicted and by profiled costs."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import asdict, dataclass
from pathlib import Path

from experiments.benches.bench import Facts
from experiments.jobs.search.finding import Progress
from experiments.jobs.search.job import Job
from experiments.jobs.search.settings import SearchSettings
from experiments.jobs.search.side_by_side import stepped
from placer.errors import PlacerError
from placer.graph.coarsen import coarsen
from placer.graph.mapping import Mapping
from placer.measure.store import Store
from placer.profile.operators.dataset import OperatorRow
from placer.result import Failed
from search.defaults import DEFAULT_SEARCHER
from search.session.prediction import Prediction
from search.session.session import SearchSession
from surrogate.operators.predicted_costs import OperatorTimes, PredictedCosts, predicted_costs

DEVICES = "workers:2"  # equal one-core workers, of which the first is profiled for the dataset
REPEATS = 30
MEASURED_ON = 0  # the single device whose step is predicted


@dataclass(frozen=True)
class Planned:
    """The first mapping that a search asks, before anything is measured. mapping: of the ops. seconds: of asking."""

    prediction: Prediction
    mapping: Mapping
    seconds: float

    @property
    def predicted_s(self) -> float:
        """The predicted step time of the mapping, op by op."""
        return self.step_s(self.mapping.devices)

    @property
    def single_s(self) -> float:
        """The predicted step time with all ops on one device."""
        return self.step_s((MEASURED_ON,) * len(self.mapping.graph))

    def step_s(self, devices: Sequence[int]) -> float:
        return float(self.prediction.predictor.step_s([devices])[0])


def left_out(model: str, store: Path) -> Facts:
    """The figures of one network, from the rows of the others. Raises PlacerError if one of its mappings does not run.

    The machine may have been faster or slower when the rows were measured. `profiled_then_s` is the step by the
    network's own rows of that time. `levelled_error` is the error that is left when the ratio of the current profile to
    those rows is taken out.
    """
    with Store(store) as kept:
        rows = kept.operators()
    others, own = ([row for row in rows if (row.network == model) == mine] for mine in (False, True))
    with Job.opened(SearchSettings(model, DEVICES), Progress()) as job:
        begin_s = job.clock()
        costs = _costs(job, others)
        costs_s = job.clock() - begin_s
        then_s = _single_s(_costs(job, own))
        groups = coarsen(costs.graph, job.settings.groups, job.topology)
        predicted = Prediction.profiled(groups, job.topology, job.settings.headroom)
        profiled = Prediction.profiled(job.groups, job.topology, job.settings.headroom)
        plans = [_first_asked(job, prediction) for prediction in (predicted, profiled)]
        single, *both = _in_turn(job, plans)
        by_prediction, by_profile = plans
        return {
            "ops": len(job.captured.graph),
            "step_s": single["step_s"],
            "spread_s": single["spread_s"],
            "predicted_s": by_prediction.single_s,
            "profiled_s": by_profile.single_s,
            "profiled_then_s": then_s,
            "error": by_prediction.single_s / single["step_s"] - 1,
            "profiled_error": by_profile.single_s / single["step_s"] - 1,
            "levelled_error": by_prediction.single_s * by_profile.single_s / then_s / single["step_s"] - 1,
            "guessed": dict(costs.guessed),
            "guessed_share": costs.guessed_share,
            "costs_s": costs_s,
            "by_prediction": {**both[0], "predicted_s": by_prediction.predicted_s, "plan_s": by_prediction.seconds},
            "by_profile": {**both[1], "predicted_s": by_profile.predicted_s, "plan_s": by_profile.seconds},
        }


def _costs(job: Job, rows: Sequence[OperatorRow]) -> PredictedCosts:
    from placer.profile.operators.describe import operators_of

    times = OperatorTimes.of(rows, job.topology.devices[MEASURED_ON].kind)
    by_device = dict.fromkeys(job.topology.names, times)
    return predicted_costs(job.captured.graph, operators_of(job.captured), job.topology, by_device)


def _single_s(costs: PredictedCosts) -> float:
    """Seconds of all ops on the first device."""
    return sum(next(iter(op.cost_s.values())) for op in costs.graph.ops if op.cost_s)


def _first_asked(job: Job, prediction: Prediction) -> Planned:
    begin_s = job.clock()
    (found,) = SearchSession(DEFAULT_SEARCHER, prediction.problem, seed=job.settings.seed).ask()
    mapping = Mapping(job.captured.graph, job.topology, prediction.groups.expand(found))
    return Planned(prediction, mapping, job.clock() - begin_s)


def _in_turn(job: Job, plans: Sequence[Planned]) -> list[Facts]:
    """Step the single device and the mapping of each plan in turn; each plan runs in the order that it predicts."""
    single = Mapping.single(job.captured.graph, job.topology, MEASURED_ON)
    with ExitStack() as stack:
        steps = []
        for prediction, mapping in [(plans[0].prediction, single), *((p.prediction, p.mapping) for p in plans)]:
            job.prediction = prediction
            ready = job.runner.ready(mapping)
            if isinstance(ready, Failed):
                raise PlacerError(f"a mapping does not run: {ready.reason}, {ready.detail}")
            stack.callback(ready[0].close)
            steps.append(ready[0])
        results, _ = stepped(job, steps, REPEATS, untouched=False)
    return [{key: asdict(result)[key] for key in ("step_s", "spread_s", "repeats")} for result in results]
