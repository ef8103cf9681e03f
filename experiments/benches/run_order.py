"""What the order of ops on a device is worth: the same mappings stepped in the orders of rank, Donf and TensorFlow."""

from __future__ import annotations

import random
from collections.abc import Iterator
from contextlib import ExitStack
from functools import partial
from statistics import geometric_mean, mean, median

from experiments import zoo
from experiments.benches.bench import BenchOptions, Facts, ms_spread
from experiments.benches.intervals import geomean_in_words
from experiments.benches.kept_runs import kept
from experiments.benches.process import facts_alone, some_failed, tried
from experiments.benches.taken_options import Takes
from experiments.jobs.search.finding import Progress
from experiments.jobs.search.job import Job
from experiments.jobs.search.settings import SearchSettings
from experiments.jobs.search.side_by_side import stepped
from experiments.report.text import markdown_table
from placer.errors import PlacerError
from placer.graph.schedules import DONF, FIFO, RANK, SCHEDULES
from placer.result import Measured
from search.local.hill_climb import kicked
from search.problem.problem import Placement
from search.session.prediction import Prediction
from search.session.registry import make_searcher

QUESTION = "Does the order in which a device runs its ops matter, and which order is the best?"
MODELS = (
    "towers",
    "inception_v3",
    "transformer",
    "moe",
    "two_tower",
    "nasnet_mobile",
)  # half of the zoo, because each takes minutes
REPEATS = 15
LIMIT_S = 3600.0  # for one network, which takes minutes
SETTLED = 100  # first steps, which do not count: the executor's order still changes with its estimates (decision 006)
RULES = ("local", "expert", "heft")
PLANNED = ("local", "heft", "some units moved")  # mappings made for an order by rank; the last is made from the first
TAKES = Takes(workers=True, runs=True)


def bench_facts(options: BenchOptions) -> Facts:
    """Measure each network in its own process. Raises PlacerError if none could be measured."""
    repeats, by_model = options.measurements or REPEATS, {}
    for model in options.models or MODELS:
        settings = {"model": model, "workers": options.workers, "repeats": repeats}
        run = partial(facts_alone, measure, model, options.workers, repeats, seconds=LIMIT_S)
        by_model[model] = kept(options, f"run-order/{model}", settings, run)
    rows = [row for found in by_model.values() for row in _stepped(found)]
    if not rows:
        raise PlacerError("; ".join(_missing(by_model)))
    return {
        "by_model": by_model,
        "ratio": {name: geometric_mean(_ratio(row, name) for row in rows) for name in (RANK, DONF)},
        "error": {name: mean(abs(_error(row[name])) for row in rows) for name in SCHEDULES},
        "mappings": len(rows),
        "repeats": repeats,
        "settled": SETTLED,
        "workers": options.workers,
        "seeds": [0],
    }


def measure(model: str, workers: int, repeats: int) -> Facts:
    """Step some mappings of one network in each order, all in turn; times in seconds. The facts have "failed" if a
    mapping did not run, so that the network is tried again.
    """
    with Job.opened(SearchSettings(model, f"workers:{workers}"), Progress()) as job:
        job.measure_singles()
        rows = [(row.mapping, row.result) for row in job.trials]
        profiled = [Prediction.profiled(job.groups, job.topology, job.settings.headroom, name) for name in SCHEDULES]
        predictions = dict(zip(SCHEDULES, (one.calibrated(rows) for one in profiled), strict=True))
        mappings = [
            {"mapping": name, **tried(partial(_in_each_order, job, predictions, placement, repeats))}
            for name, placement in _placements(job)
        ]
        return {
            "best_single_s": min(result.step_s for _, result in rows if isinstance(result, Measured)),
            "mappings": mappings,
            **some_failed(mappings),
        }


def _placements(job: Job) -> Iterator[tuple[str, Placement]]:
    """Yield (name, placement): by rule, and the first of these with some units moved. Leaves out repetitions and
    placements on a single device.
    """
    problem = job.problem
    found = {name: problem.placement(make_searcher(name, problem).ask()) for name in RULES}
    found["some units moved"] = kicked(problem, found[RULES[0]], random.Random(0))
    seen: set[Placement] = set()
    for name, placement in found.items():
        if len(set(placement)) > 1 and problem.canonical(placement) not in seen:
            seen.add(problem.canonical(placement))
            yield name, placement


def _in_each_order(job: Job, predictions: dict[str, Prediction], placement: Placement, repeats: int) -> Facts:
    mapping = job.problem.mapping(placement)
    with ExitStack() as stack:
        steps = []
        for prediction in predictions.values():
            job.runner.foresight = prediction
            steps.append(job.runner.prepare(job.op_mapping(mapping))[0])
            stack.callback(steps[-1].close)
            if prediction.schedule == FIFO:
                job.runner.in_turn.seconds_of(steps[-1], SETTLED)
        found = stepped(job, steps, repeats, untouched=False)[0]
    return {
        schedule: {"step_s": result.step_s, "spread_s": result.spread_s, "predicted_s": prediction.step_s(mapping)}
        for (schedule, prediction), result in zip(predictions.items(), found, strict=True)
    }


def _ratio(row: Facts, schedule: str) -> float:
    """The step time in TensorFlow's own order divided by the step time in the order of `schedule`."""
    return float(row[FIFO]["step_s"] / row[schedule]["step_s"])


def _error(found: Facts) -> float:
    return float(found["predicted_s"] / found["step_s"] - 1)


HEADS = ("network", "mapping", "rank", "donf", "TensorFlow's own", "gain of rank", "gain of donf")


def headline(facts: Facts) -> str:
    """What each order gains over TensorFlow's own, and how often it loses."""
    rank, donf = (f"{_over_networks(facts, name)}, slower on {_slower(facts, name)}" for name in (RANK, DONF))
    return f"gain over TensorFlow's own order: rank {rank} of {facts['mappings']} mappings; donf {donf}"


def page_lines(facts: Facts) -> list[str]:
    """Step times by order as a table."""
    by_model, error, count = facts["by_model"], facts["error"], facts["mappings"]
    rows = [_cells(model, row) for model, found in by_model.items() for row in _stepped(found)]
    missing = _missing(by_model)
    return [
        f"The same mapping on {facts['workers']} one-core worker processes, with each device's ops in the order of "
        "`--schedule rank` or `donf`, or as TensorFlow's executor takes them (`fifo`): the three stepped in turn, "
        f"{facts['repeats']} times, medians with the interquartile range{_settled(facts)}. The mappings are made by "
        "rule, not found by a measured search: the first that `local`, the expert's rule and HEFT propose, and the "
        f"first of these with some units moved.{_some(by_model)} *Gain*: TensorFlow's time divided by this one; "
        "above 1 is faster.",
        "",
        *markdown_table(HEADS, rows, left=(0, 1)),
        "",
        f"Gain, geometric mean over networks: rank {_over_networks(facts, RANK)}, donf {_over_networks(facts, DONF)}. "
        f"Of {count} mappings rank makes {_slower(facts, RANK)} slower, donf {_slower(facts, DONF)}; the median gain "
        f"of a mapping is {_middle(facts, RANK):.3f} by rank, {_middle(facts, DONF):.3f} by donf. `local` and HEFT "
        f"plan for an order by rank, which favours it; on the other mappings rank gains {_unplanned(facts)}. Mean "
        f"absolute error of the predicted step, calibrated by single devices alone: rank {error[RANK]:.1%}, donf "
        f"{error[DONF]:.1%}, fifo {error[FIFO]:.1%}.",
        *(["", *(f"- {line}" for line in missing)] if missing else []),
    ]


def _gains(facts: Facts, schedule: str) -> list[list[float]]:
    """The gains of all mappings of each network that ran."""
    gains = ([_ratio(row, schedule) for row in _stepped(found)] for found in facts["by_model"].values())
    return [some for some in gains if some]


def _over_networks(facts: Facts, schedule: str) -> str:
    return geomean_in_words([geometric_mean(gains) for gains in _gains(facts, schedule)])


def _slower(facts: Facts, schedule: str) -> int:
    return sum(gain < 1 for gains in _gains(facts, schedule) for gain in gains)


def _unplanned(facts: Facts) -> str:
    """The gain of rank on mappings for which no order was planned, over networks."""
    gains = (
        [_ratio(row, RANK) for row in _stepped(found) if row["mapping"] not in PLANNED]
        for found in facts["by_model"].values()
    )
    return geomean_in_words([geometric_mean(some) for some in gains if some])


def _middle(facts: Facts, schedule: str) -> float:
    return median(gain for gains in _gains(facts, schedule) for gain in gains)


def _some(by_model: dict[str, Facts]) -> str:
    """A sentence on why not all networks were measured; empty if they were."""
    every = len(zoo.names())
    return f" {len(by_model)} of the zoo's {every} networks, to save time." if len(by_model) < every else ""


def _settled(facts: Facts) -> str:
    """A clause on the first steps in TensorFlow's own order; empty for a record made without them."""
    return f"; TensorFlow's own order had {facts['settled']} steps before, to settle" if "settled" in facts else ""


def _stepped(found: Facts) -> list[Facts]:
    """The mappings of a network that ran."""
    return [row for row in found.get("mappings", ()) if "failed" not in row]


def _missing(by_model: dict[str, Facts]) -> list[str]:
    """A line for each network or mapping that is missing in the table."""
    lines = []
    for model, found in by_model.items():
        if "failed" in found and "mappings" not in found:
            lines.append(f"{model}: {found['failed']}")
        elif not found["mappings"]:
            lines.append(f"{model}: each of {', '.join(RULES)} puts all on one device, where no order is prescribed")
        lines += [f"{model}, {row['mapping']}: {row['failed']}" for row in found.get("mappings", ()) if "failed" in row]
    return lines


def _cells(model: str, row: Facts) -> list[str]:
    times = [ms_spread(row[name]["step_s"], row[name]["spread_s"]) for name in SCHEDULES]
    return [f"`{model}`", row["mapping"], *times, *(f"{_ratio(row, name):.2f}" for name in (RANK, DONF))]
