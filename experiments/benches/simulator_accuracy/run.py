"""How well step times are predicted before they are run: mappings of every kind, measured, against the simulator."""

from __future__ import annotations

import random
import sys
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass, replace
from functools import partial
from math import inf
from statistics import geometric_mean, mean

import numpy as np
from numpy.typing import NDArray

from experiments import zoo
from experiments.benches.bench import BenchOptions, Facts
from experiments.benches.sampling import TIRED, measured_networks, not_seen
from experiments.benches.taken_options import Takes
from experiments.jobs.search.finding import Progress
from experiments.jobs.search.job import Job
from experiments.jobs.search.settings import SearchSettings
from placer.graph.op_graph import OpGraph
from placer.graph.topology import CONTENTIONS, Topology
from placer.measure.settings import RunnerSettings
from placer.profile.operators.dataset import Operator, OperatorRow
from placer.result import Failed, Measured, standard_error
from search.initial.baselines import random_placement
from search.local.hill_climb import kicked
from search.problem.problem import Placement
from search.session.prediction import Prediction
from search.session.registry import make_searcher
from surrogate.calibrate.calibration import Calibration, Predictor, launches
from surrogate.learn.selection import judged
from surrogate.operators.predicted_costs import OperatorTimes, predicted_costs
from surrogate.simulate.simulator import Simulator

Floats = NDArray[np.float64]
MAPPINGS = 18  # measured per network
REPEATS = 8
CALIBRATED_ON = 8  # of these: about as many as a search has measured when it predicts the others


@dataclass(frozen=True)
class MeasuredNetwork:
    """One network and its measured mappings, the single devices first.

    profiled: with profiled costs and links. placements: [mappings, ops] device indices; step_s, spread_s: [mappings]
    seconds. tried: mappings that were asked for, with those that failed; fewer than wanted if there are no more.
    operators: what each op computes, in the order of the graph; None if that is not known.
    """

    model: str
    profiled: Predictor
    placements: NDArray[np.int32]
    step_s: Floats
    spread_s: Floats
    singles: int
    tried: int
    operators: tuple[Operator, ...] | None = None

    @property
    def graph(self) -> OpGraph:
        """The graph with its profiled costs."""
        return self.profiled.profiled.graph

    @property
    def topology(self) -> Topology:
        return self.profiled.profiled.topology

    def rows(self) -> list[OperatorRow]:
        """The profiled cost of each operator on the first device, as rows for models of operators; empty if the
        operators are not known.
        """
        if self.operators is None:
            return []
        device = self.topology.devices[0]
        pairs = zip(self.graph.ops, self.operators, strict=True)
        costs = [(operator, op.cost_on(device)) for op, operator in pairs if op.runs_on(device)]
        return [
            OperatorRow(operator, device.name, device.kind, "", None, self.model, None, "step", cost_s, cost_s, 0.0, 1)
            for operator, cost_s in costs
        ]

    def never_profiled(self, others: Sequence[MeasuredNetwork]) -> Predictor | None:
        """The predictor by costs that models of the others' operators predict; for this network, only the links were
        measured. None if the operators of this network, or those of all others, are not known.
        """
        rows = [row for other in others for row in other.rows()]
        if not rows or self.operators is None:
            return None
        times = OperatorTimes.of(rows, self.topology.devices[0].kind)
        operators = {op.name: operator for op, operator in zip(self.graph.ops, self.operators, strict=True)}
        by_device = dict.fromkeys(self.topology.names, times)
        graph = predicted_costs(self.graph, operators, self.topology, by_device).graph
        return Predictor(Simulator(graph, self.topology, self.profiled.profiled.schedule), launches(graph))

    def calibrated(self, count: int, given: Calibration | None = None) -> Predictor:
        """The predictor calibrated on the first `count` mappings, starting from `given`."""
        measured = zip(self.step_s[:count], self.spread_s[:count], strict=True)
        errors = [standard_error(Measured(step_s, spread_s, REPEATS)) for step_s, spread_s in measured]
        return replace(self.profiled, given=given).calibrated(self.placements[:count], self.step_s[:count], errors)


TAKES = Takes(workers=True)


def bench_facts(options: BenchOptions) -> Facts:
    """Measure each network in its own process, then make predictions from what was kept."""
    wanted = options.measurements or MAPPINGS
    measuring = partial(measure, workers=options.workers, mappings=wanted)
    samples: list[MeasuredNetwork]
    samples, missing = measured_networks(options.models or zoo.names(), measuring)
    by_model = {sample.model: _judged(sample, [s for s in samples if s is not sample]) for sample in samples}
    keys = ("unseen_mape", "kendall_tau", "replay_mape", "held_out_mape", "held_out_tau", "singles_only_mape",
            "predicted_costs_mape", "noise")  # fmt: skip
    return {
        **{key: _mean(row[key] for row in by_model.values()) for key in keys},
        "n_mappings": sum(row["n_mappings"] for row in by_model.values()),
        "wanted": wanted,
        "calibrated_on": CALIBRATED_ON,
        "workers": options.workers,
        "same_mappings": True,  # all errors are of mappings after the first ones; older records judge others, too
        "seeds": [0],
        "repeats": REPEATS,
        "by_model": by_model,
        "missing": missing,
    }


def _mean(values: Iterable[float | None]) -> float | None:
    """The mean of the known values; None if there are none."""
    known = [value for value in values if value is not None]
    return mean(known) if known else None


def measure(model: str, workers: int, mappings: int, seed: int = 0) -> MeasuredNetwork:
    """Measure single devices, then mappings of every kind, as heuristics and searches ask for them, and random ones."""
    from placer.profile.operators.describe import operators_of

    settings = SearchSettings(model, f"workers:{workers}", seed=seed)
    runner = RunnerSettings(repeats=REPEATS, hopeless=inf, give_up_after=REPEATS)
    with Job.opened(settings, Progress(), runner=runner) as job:
        job.measure_singles()
        singles = len(job.trials)
        for placement in _kinds(job, random.Random(seed)):
            if len(job.trials) >= mappings:
                break
            job.measure("sample", job.problem.mapping(placement))
        for row in job.trials:
            if isinstance(row.result, Failed):
                print(f"{model}: a mapping failed: {row.result.reason}, {row.result.detail}", file=sys.stderr)
        operators = operators_of(job.captured)
        rows = [(job.groups.expand(row.mapping), row.result) for row in job.trials if isinstance(row.result, Measured)]
        return MeasuredNetwork(
            model=model,
            profiled=Prediction.profiled(job.groups, job.topology, job.settings.headroom).predictor,
            placements=np.array([devices for devices, _ in rows], dtype=np.int32),
            step_s=np.array([result.step_s for _, result in rows]),
            spread_s=np.array([result.spread_s for _, result in rows]),
            singles=singles,
            tried=len(job.trials),
            operators=tuple(operators[op.name] for op in job.groups.fine.ops),
        )


def _kinds(job: Job, rng: random.Random) -> Iterator[Placement]:
    """Yield placements of different kinds, none twice, until hardly any are new: by rule, searched, cut by depth, with
    units moved, random.
    """
    problem = job.problem
    best, heft, expert = (problem.placement(make_searcher(n, problem).ask()) for n in ("local", "heft", "expert"))
    seen: set[Placement] = set()
    yield from not_seen((best, heft, expert), problem, seen)
    tired = 0
    while tired < TIRED:
        shaken = kicked(problem, best, rng)
        drawn = random_placement(make_searcher("random", problem, seed=rng.randrange(10**6)))
        made = (shaken, _cut_by_depth(job, rng), kicked(problem, shaken, rng), drawn)
        found = list(not_seen(made, problem, seen))
        yield from found
        tired = 0 if found else tired + 1


def _cut_by_depth(job: Job, rng: random.Random) -> Placement:
    """The units cut by depth into a few slices, with devices in turn."""
    count, devices = len(job.problem.units), len(job.topology)
    cuts = sorted(rng.sample(range(1, count), min(rng.choice((1, 2, 4)), count - 1)))
    first = rng.randrange(devices)
    return tuple((first + sum(u >= cut for cut in cuts)) % devices for u in range(count))


def _judged(sample: MeasuredNetwork, others: Sequence[MeasuredNetwork]) -> Facts:
    """Errors of one network's predictions, by what the calibration saw. All are of the same mappings: those after the
    first CALIBRATED_ON, or if there are fewer the last one, but never a single device.
    """
    n = len(sample.step_s)
    shown = max(min(CALIBRATED_ON, n - 1), sample.singles)
    known, replayed, singles = (sample.calibrated(count) for count in (shown, n, sample.singles))
    held_out = sample.calibrated(sample.singles, _from_others(others)) if others else None
    unprofiled = sample.never_profiled(others)
    later = slice(shown, None)
    return {
        "unseen_mape": _mape(sample, known, later),
        "kendall_tau": _tau(sample, known, later),
        "replay_mape": _mape(sample, replayed, later),
        "held_out_mape": _mape(sample, held_out, later) if held_out else None,
        "held_out_tau": _tau(sample, held_out, later) if held_out else None,
        "singles_only_mape": _mape(sample, singles, later),
        "predicted_costs_mape": _mape(sample, unprofiled, later) if unprofiled else None,
        "noise": float(np.median(sample.spread_s / sample.step_s)),
        "n_mappings": n,
        "n_judged": n - shown,
        "tried": sample.tried,
        "ops": len(sample.profiled.launches),
        "fastest_s": float(sample.step_s.min()),
        "slowest_s": float(sample.step_s.max()),
        "single_s": float(sample.step_s[: sample.singles].min()),
        "calibration": asdict(replayed.calibration),
    }


def _from_others(others: Sequence[MeasuredNetwork]) -> Calibration:
    """What other networks show about links, as a start for a network that was only measured on single devices."""
    fits = [sample.calibrated(len(sample.step_s)).calibration for sample in others]
    contentions = [fit.contention for fit in fits]
    return Calibration(
        device_factor=(1.0,) * len(others[0].profiled.profiled.topology),
        tensor_factor=geometric_mean(fit.tensor_factor for fit in fits),
        byte_factor=geometric_mean(fit.byte_factor for fit in fits),
        contention=max(CONTENTIONS, key=contentions.count),
    )


def _mape(sample: MeasuredNetwork, predictor: Predictor, which: slice) -> float | None:
    """Mean absolute relative error of the predicted steps; None if there is nothing to predict."""
    real_s = sample.step_s[which]
    return float(np.mean(np.abs(predictor.step_s(sample.placements[which]) / real_s - 1))) if len(real_s) else None


def _tau(sample: MeasuredNetwork, predictor: Predictor, which: slice) -> float | None:
    """Kendall's tau of predicted and measured steps; 0 if all predicted, or all measured, are equal. None if there are
    fewer than two.
    """
    real_s = sample.step_s[which]
    if len(real_s) < 2:
        return None
    return judged(predictor.step_s(sample.placements[which]), real_s)[2]
