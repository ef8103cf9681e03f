"""How near a search comes to the optimum, in spaces that are small enough to enumerate."""

from __future__ import annotations

import random
import sys
from collections.abc import Iterator, Sequence
from dataclasses import replace
from functools import partial
from itertools import product
from typing import Any

from experiments.benches.bench import BenchOptions, Facts
from experiments.benches.comparisons import MEASUREMENTS
from experiments.benches.kept_runs import kept
from experiments.benches.process import facts_alone
from experiments.jobs.search.compare import RACE
from experiments.jobs.search.finding import Progress, Trial, by_merit, fastest, step_s
from experiments.jobs.search.job import Job
from experiments.jobs.search.settings import SearchSettings
from experiments.jobs.search.side_by_side import side_by_side
from placer.errors import PlacerError
from placer.graph.mapping import Mapping
from placer.graph.topology import Topology
from placer.result import Measured
from search.defaults import DEFAULT_SEARCHER
from search.problem.problem import Placement, Problem

SMALL = 2048  # spaces of up to this many placements are measured whole
LARGEST = 1 << 18  # spaces of up to this many are predicted whole
BEST, DRAWN = 24, 8  # placements measured of a space that is predicted: the best, and others drawn at random
REPEATS = 6
LIMIT_S = 3600.0  # for one space, which takes minutes
FINALISTS = 12  # mappings that the search did not measure; at the end they are stepped beside the search's own
FINAL_REPEATS = 20

# Networks, @ examples a step, and the number of groups to coarsen each to. With two devices they have 64, 1,024 and
# 262,144 placements. Steps of the second are short, so that all of its placements can be timed.
SPACES = {"mnist_softmax": 24, "towers@2": 22, "alexnet": 60}


def enumerated(options: BenchOptions) -> dict[str, Facts]:
    """{network: its gap and how it was found} for the SPACES whose network is asked for, each in its own process."""
    found = {}
    asked = [name for name in SPACES if options.models is None or name.partition("@")[0] in options.models]
    for model in asked:
        arguments = {
            "model": model, "groups": SPACES[model], "workers": options.workers,
            "measurements": options.measurements or MEASUREMENTS,
        }  # fmt: skip
        run = partial(facts_alone, enumerate_space, *arguments.values(), seconds=LIMIT_S)
        found[model] = kept(options, f"enumerated-{model}", {**arguments, "default": DEFAULT_SEARCHER}, run)
        said = found[model].get("failed") or f"gap {found[model]['gap']:.1%}"
        print(f"{model} enumerated: {said}", file=sys.stderr)
    return found


def enumerate_space(model: str, groups: int, workers: int, measurements: int, seed: int = 0) -> Facts:
    """Search as the main job does, then measure the rest of the space, or the part that is predicted best, and compare
    the fastest mapping with the one that the search would deliver. model: a network, @ examples a step.
    """
    name, _, batch = model.partition("@")
    asked = SearchSettings(
        name, f"workers:{workers}", groups=groups, seed=seed, searchers=(DEFAULT_SEARCHER,),
        measurements=measurements + workers, batch=int(batch) if batch else None,
    )  # fmt: skip
    with Job.opened(asked, Progress()) as job:
        return enumerate_job(job)


def enumerate_job(job: Job) -> Facts:
    """`enumerate_space` for a job whose devices are open and that has measured nothing yet."""
    job.measure_singles()
    job.measure_searchers()
    job.calibrate()
    searched = list(job.trials)
    space = list(placements(job.problem))
    ranked = _ranked(job.problem, space)
    chosen = space if len(space) <= SMALL else _sample(ranked, random.Random(job.settings.seed))
    extra = _measured(job, _new(job, chosen, searched))
    finals = _side_by_side(job, _finalists(searched, extra))
    delivered = min((row for row in finals if row.searcher != "enumerated"), key=step_s)
    best = min(finals, key=step_s)
    return {
        **_facts_of(delivered, "delivered"),
        **_facts_of(best, "best"),
        "gap": step_s(delivered) / step_s(best) - 1,
        "best_single_s": min(step_s(row) for row in finals if row.mapping.is_single),
        "best_rank_predicted": 1 + ranked.index(canonical(job.problem, job.problem.placement(best.mapping))),
        "units": len(job.problem.units),
        "groups": len(job.groups.graph),
        "space": len(space),
        "whole": len(space) <= SMALL,
        "searched": len(searched),
        "enumerated": len(chosen),
        "measured": len(job.trials),
        "finalists": FINALISTS,
        "repeats": FINAL_REPEATS,
        "seconds": job.clock() - job.begin_s,
    }


def placements(problem: Problem) -> Iterator[Placement]:
    """Yield every placement that fits, once up to renaming devices of one kind and memory. Raises PlacerError if there
    are more than LARGEST.
    """
    if problem.space > LARGEST * len(problem.topology):
        raise PlacerError(f"{problem.space} placements of {len(problem.units)} units cannot be enumerated.")
    for placement in product(*problem.feasible):
        if canonical(problem, placement) == placement and problem.fits(placement):
            yield placement


def canonical(problem: Problem, placement: Placement) -> Placement:
    """The placement with devices of one kind and memory renamed in the order in which the placement uses them.

    Problem.canonical renames only devices whose costs are equal to the last bit, which profiled costs never are.
    """
    free = _by_kind(problem.topology)
    kind_of = {d: kind for kind, devices in free.items() for d in devices}
    name: dict[int, int] = {}
    for d in placement:
        if d not in name:
            name[d] = free[kind_of[d]].pop(0)
    return tuple(name[d] for d in placement)


def _by_kind(topology: Topology) -> dict[tuple[Any, ...], list[int]]:
    kinds: dict[tuple[Any, ...], list[int]] = {}
    for d, device in enumerate(topology.devices):
        kinds.setdefault((device.kind, device.memory_bytes), []).append(d)
    return kinds


def _ranked(problem: Problem, space: Sequence[Placement]) -> list[Placement]:
    """The placements, the best predicted first."""
    value = dict(zip(space, problem.predict_many(space).tolist(), strict=True))
    return sorted(space, key=lambda placement: (value[placement], placement))


def _sample(ranked: Sequence[Placement], rng: random.Random) -> list[Placement]:
    return [*ranked[:BEST], *rng.sample(ranked[BEST:], min(DRAWN, len(ranked) - BEST))]


def _new(job: Job, chosen: Sequence[Placement], searched: Sequence[Trial]) -> list[Mapping]:
    """The chosen mappings that the search measured neither as they are nor with equal devices renamed."""
    known = {canonical(job.problem, job.problem.placement(row.mapping)) for row in searched}
    return [job.problem.mapping(placement) for placement in chosen if placement not in known]


def _measured(job: Job, mappings: Sequence[Mapping]) -> list[Trial]:
    job.runner.settings = replace(job.runner.settings, repeats=REPEATS)
    rows: list[Trial] = []
    for first in range(0, len(mappings), RACE):
        rows += job.measure_all([("enumerated", mapping) for mapping in mappings[first : first + RACE]])
    return rows


def _finalists(searched: Sequence[Trial], extra: Sequence[Trial]) -> list[Trial]:
    """The trials that a search compares at its end (the best single device, the best others), and the best enumerated.

    All are chosen by the rule of a search, because a mapping stopped after a step or two may only have been lucky.
    """
    single = fastest(row for row in searched if row.mapping.is_single)
    others = by_merit(row for row in searched if row is not single)[: SearchSettings.finalists]
    return [*([single] if single else []), *others, *by_merit(extra)[:FINALISTS]]


def _side_by_side(job: Job, rows: Sequence[Trial]) -> list[Trial]:
    measured = side_by_side(job, [row.mapping for row in rows], FINAL_REPEATS).measured
    return [replace(row, result=measured[row.mapping]) for row in rows if row.mapping in measured]


def _facts_of(row: Trial, name: str) -> Facts:
    assert isinstance(row.result, Measured)
    return {f"{name}_s": row.result.step_s, f"{name}_spread_s": row.result.spread_s, f"{name}_by": row.searcher}
