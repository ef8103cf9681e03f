"""Measured mappings of one network, of the kinds that a genetic search meets: by rule, mutated, crossed, random."""

from __future__ import annotations

import random
import sys
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import islice
from statistics import mean
from typing import Any

import numpy as np
from numpy.typing import NDArray

from experiments.benches.bench import Facts, ms
from experiments.benches.process import alone, failed
from experiments.jobs.search.finding import Progress
from experiments.jobs.search.job import Job
from experiments.jobs.search.settings import SearchSettings
from experiments.jobs.search.side_by_side import side_by_side
from experiments.report.progress import progress_bar
from placer.errors import PlacerError, one_line
from placer.graph.mapping import Mapping
from placer.measure.settings import RunnerSettings
from placer.result import Measured
from search.initial.baselines import random_placement
from search.initial.expert import expert_placements
from search.local.hill_climb import kicked
from search.problem.problem import Placement, Problem
from search.session.prediction import Prediction
from search.session.registry import make_searcher
from surrogate.features.mapping_features import MappingFeatures

Floats = NDArray[np.float64]

REPEATS = 5  # steps of each mapping that count
WARM_UP = 1  # steps dropped after the two steps that check what a mapping returns
BATCH = 8  # mappings that are stepped in turn, beside the first one measured
AGAIN = 5  # mappings that are measured twice, to know the error of the measurement itself
TIRED = 100  # rounds of drawing without a new mapping, after which a small network is taken to have no more
LIMIT_S = 3600.0  # for one network, which takes minutes
RULES = ("heft", "donf", "local")


@dataclass(frozen=True)
class MeasuredMappings:
    """One network and its measured mappings, the single devices first.

    prediction: from the profiled costs. placements: [mappings, groups] device indices; step_s, spread_s: [mappings]
    seconds; disagreement: mean |one / other - 1| of step times of the same mapping, measured minutes apart.
    """

    model: str
    prediction: Prediction
    placements: NDArray[np.int32]
    step_s: Floats
    spread_s: Floats
    singles: int
    disagreement: float
    seconds: float

    def __len__(self) -> int:
        return len(self.step_s)

    def features(self, known: NDArray[np.intp]) -> MappingFeatures:
        """The features that a search has after measuring the mappings `known`, whose times calibrate the simulator."""
        placements = self.placements[known][:, list(self.prediction.groups.group_of)]
        predictor = self.prediction.predictor.calibrated(placements, self.step_s[known])
        calibrated = replace(self.prediction, predictor=predictor)
        return MappingFeatures(calibrated.problem.simulator, calibrated.problem.base_s)


def measured_networks(
    models: Sequence[str], measure: Callable[[str], Any], fewest: int = 1
) -> tuple[list[Any], dict[str, Facts]]:
    """Call `measure(model)` for each model, in a process of its own. Returns the results that have `fewest` mappings or
    more, and {model: {"failed": line}} for the other models.

    `step_s` of a result holds the seconds of its mappings. Raises PlacerError if no result is left.
    """
    found, missing = [], dict[str, Facts]()
    for model in models:
        try:
            steps = alone(measure, model, seconds=LIMIT_S)
        except Exception as error:
            missing[model] = failed(error)
            print(f"{model}: {missing[model]['failed']}", file=sys.stderr)
            continue
        if len(steps.step_s) < fewest:
            missing[model] = {"failed": f"{len(steps.step_s)} mappings are too few to be judged by"}
            continue
        fastest_s, slowest_s = steps.step_s.min(), steps.step_s.max()
        print(f"{model}: {len(steps.step_s)} mappings, {ms(fastest_s)} to {ms(slowest_s)}", file=sys.stderr)
        found.append(steps)
    if not found:
        why = "; ".join(f"{model}: {facts['failed'].rstrip('.')}" for model, facts in missing.items())
        raise PlacerError(f"no network could be measured: {why}.")
    return found, missing


def measure(model: str, workers: int, mappings: int, seed: int = 0) -> MeasuredMappings:
    """Measure the single devices, then mappings of every kind, batch by batch beside the first single device.

    All mappings take the same number of steps, even slow ones. Raises PlacerError if no single device can be measured,
    or if a device is lost.
    """
    from tensorflow.errors import OpError  # measuring loads TensorFlow anyway

    try:
        return _measured(model, workers, mappings, seed)
    except OpError as error:
        raise PlacerError(f"measuring ended early: {one_line(str(error.message))}") from None


def _measured(model: str, workers: int, mappings: int, seed: int) -> MeasuredMappings:
    settings = SearchSettings(model, f"workers:{workers}", seed=seed)
    runner = RunnerSettings(repeats=REPEATS, warm_up=WARM_UP)
    with (
        progress_bar(-(-mappings // BATCH), quiet=False) as advance,
        Job.opened(settings, Progress(), runner=runner) as job,
    ):
        job.measure_singles()
        measured = {row.mapping: row.result for row in job.trials if isinstance(row.result, Measured)}
        singles, left = len(measured), mappings - len(job.trials)
        asked = map(job.problem.mapping, kinds(job.problem, random.Random(seed)))
        while batch := list(islice(asked, min(BATCH, left))):
            advance(f"{model}: {mappings - left} of {mappings} mappings measured")
            measured |= side_by_side(job, batch, REPEATS).measured
            left -= len(batch)
        again = list(measured)[singles:][:AGAIN]
        return _sample(job, measured, singles, _disagreement(measured, side_by_side(job, again, REPEATS).measured))


def _sample(job: Job, measured: dict[Mapping, Measured], singles: int, disagreement: float) -> MeasuredMappings:
    return MeasuredMappings(
        model=job.settings.model,
        prediction=Prediction.profiled(job.groups, job.topology, job.settings.headroom),
        placements=np.array([mapping.devices for mapping in measured], dtype=np.int32),
        step_s=np.array([result.step_s for result in measured.values()]),
        spread_s=np.array([result.spread_s for result in measured.values()]),
        singles=singles,
        disagreement=disagreement,
        seconds=job.clock() - job.begin_s,
    )


def _disagreement(first: dict[Mapping, Measured], again: dict[Mapping, Measured]) -> float:
    """Mean |later / earlier - 1| of mappings measured twice; 0 if there are none."""
    apart = [abs(later.step_s / first[mapping].step_s - 1) for mapping, later in again.items()]
    return mean(apart) if apart else 0.0


def kinds(problem: Problem, rng: random.Random) -> Iterator[Placement]:
    """Yield placements that differ by more than the names of equal devices.

    Placements by rule and by expert come first. Then come in turn, until hardly any are new: one of these with a few
    units moved, two of these crossed, one of these with many units moved, and a random placement.
    """
    rules = [problem.placement(make_searcher(name, problem).ask()) for name in RULES]
    known = [p for p in dict.fromkeys([*rules, *expert_placements(problem)]) if problem.fits(p)]
    seen = {problem.canonical(single) for single in problem.singles()}
    yield from not_seen(known, problem, seen)
    tired = 0
    while tired < TIRED:
        one, other = rng.choice(known), rng.choice(known)
        hard = kicked(problem, kicked(problem, kicked(problem, one, rng), rng), rng)
        drawn = random_placement(make_searcher("random", problem, seed=rng.randrange(10**6)))
        found = list(not_seen((kicked(problem, one, rng), _crossed(one, other, rng), hard, drawn), problem, seen))
        yield from found
        tired = 0 if found else tired + 1


def _crossed(one: Placement, other: Placement, rng: random.Random) -> Placement:
    """A placement with the first units as in `one` and the rest as in `other`."""
    cut = rng.randrange(len(one) + 1)
    return one[:cut] + other[cut:]


def not_seen(placements: Sequence[Placement], problem: Problem, seen: set[Placement]) -> Iterator[Placement]:
    """Yield the placements that fit into memory and whose canonical forms are not in `seen`, and add these to it."""
    for placement in placements:
        form = problem.canonical(placement)
        if form not in seen and problem.fits(placement):
            seen.add(form)
            yield placement
