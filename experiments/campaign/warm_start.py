"""Warm starts: other campaigns' fastest placements of similar cases, carried over to a case before it is searched."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import zip_longest
from math import inf
from pathlib import Path
from statistics import median
from typing import Any

import msgspec

from experiments.campaign.rows import ERRORS
from experiments.campaign.store import SHAPE, CampaignStore, Held, StoredTrial, is_store
from placer.errors import BadInputError
from placer.result import Measured
from search.initial.carried import carried
from search.initial.likeness import Shape, likeness
from search.initial.starts import starts
from search.problem.problem import Placement, Problem
from search.problem.searcher import never

MOST = 3  # placements carried to a case, each of which every search of it measures
LEAST = 0.5  # likeness that a case needs so that placements are carried from it
FAR = 1.1  # a carried placement's prediction is at most this many times that of the best start without it
WARM = "warm_start"  # key of the warm start in an opened case's facts

Facts = dict[str, Any]


@dataclass(frozen=True)
class Source:
    """A case of another campaign: its shape, and (seconds, placement) of its mappings that beat the best single device,
    the fastest first.
    """

    store: str
    case: str
    objective: str
    shape: Shape | None  # None if an older Placer stored none
    fastest: tuple[tuple[float, Placement], ...]


def check_stores(paths: Sequence[Path], own: Path) -> None:
    """Raises BadInputError if a path is not a campaign's store, or is this campaign's own store."""
    for path in paths:
        if path.resolve() == own.resolve():
            raise BadInputError(f"the warm start {path} is this campaign's own store; name another campaign's.")
        if not is_store(path):
            raise BadInputError(f"the warm start {path} is no campaign's store; name the .sqlite file of one.")


def read_sources(paths: Sequence[tuple[str, Path]]) -> list[Source]:
    """The cases of stores given as (name, path). Raises PlacerError if a store cannot be read."""
    return [source for name, path in paths for source in _sources(name, path)]


def _sources(name: str, path: Path) -> Iterator[Source]:
    with CampaignStore(path, reads=True) as store:
        cells, terms = store.held(), store.terms()
        for case in dict.fromkeys(held.case_key for held in cells):
            opened = store.opened(case) or {}
            content = store.content(case, SHAPE)
            shape = None if content is None else _shape(path, content)
            singles = [step_s for _, step_s in opened.get("singles", []) if step_s is not None]
            fastest = _fastest([held for held in cells if held.case_key == case], min(singles, default=inf))
            yield Source(name, case, terms[case].get("objective", "makespan"), shape, fastest)


def _shape(path: Path, content: bytes) -> Shape:
    try:
        return msgspec.msgpack.decode(content, type=Shape)
    except ERRORS as error:
        raise BadInputError(f"the warm start {path} is damaged: {error}; leave it out.") from None


def _fastest(cells: Sequence[Held], single_s: float) -> tuple[tuple[float, Placement], ...]:
    """The fastest placements, at most MOST, that took all their steps and beat the best single device."""
    ran = sorted(
        (trial.result.step_s, trial.placement)
        for held in cells
        for trial in held.trials
        if isinstance(trial.result, Measured) and not trial.result.stopped_early and trial.result.step_s < single_s
    )
    first = {placement: step_s for step_s, placement in reversed(ran)}
    return tuple(sorted((step_s, placement) for placement, step_s in first.items())[:MOST])


def warm_start(problem: Problem, sources: Sequence[Source], told: Sequence[Placement]) -> Facts:
    """Return what is carried over to a problem, as plain data to be stored. told: placements whose results its searches
    already know.

    `carried`: each placement with its origin, its step time there and its prediction here; the fastest placement of
    the most similar case comes first. `cases`: all sources, with their likeness and number of mappings. `start_s`: the
    prediction for the best mapping with which a search begins without a warm start.
    """
    target = Shape.of(problem)
    shares = [_likeness(problem, target, source) for source in sources]
    alike = sorted((i for i, share in enumerate(shares) if share >= LEAST), key=lambda i: -shares[i])
    start_s = min(problem.predict_many(starts(problem, never)).tolist())
    seen = {problem.canonical(placement) for placement in told}
    found: list[Facts] = []
    for source, step_s, theirs in _in_turn([sources[i] for i in alike]):
        placement = None if source.shape is None else carried(problem, target, source.shape, theirs)
        if placement is None or problem.canonical(placement) in seen or len(found) == MOST:
            continue
        seen.add(problem.canonical(placement))
        if (predicted_s := problem.predict(placement)) <= FAR * start_s:
            found.append({
                "placement": list(placement), "store": source.store, "case": source.case, "step_s": step_s,
                "predicted_s": predicted_s,
            })  # fmt: skip
    cases = [
        {"store": source.store, "case": source.case, "likeness": share, "mappings": len(source.fastest)}
        for source, share in zip(sources, shares, strict=True)
    ]
    return {"carried": found, "cases": cases, "start_s": start_s if start_s < inf else None}


def _likeness(problem: Problem, target: Shape, source: Source) -> float:
    """The likeness of a source to the problem; 0 for another objective or a store without shapes."""
    if source.shape is None or source.objective != problem.objective:
        return 0.0
    return likeness(source.shape, target)


def _in_turn(sources: Sequence[Source]) -> Iterator[tuple[Source, float, Placement]]:
    """The fastest placement of each source, then the second of each, and so on."""
    for row in zip_longest(*([(source, *found) for found in source.fastest] for source in sources)):
        yield from (item for item in row if item is not None)


def carried_placements(opened: Facts) -> list[Placement]:
    """The placements that searches of a case ask for first, from the facts stored when it was opened."""
    return [tuple(row["placement"]) for row in opened.get(WARM, {}).get("carried", [])]


def carried_line(warm: Facts) -> str:
    """One line that says what is carried over to a case."""
    carried, cases = warm["carried"], warm["cases"]
    if not carried:
        most = max((row["likeness"] for row in cases), default=0.0)
        alike = sum(row["likeness"] >= LEAST for row in cases)
        near = "none of their mappings is new, fits, and is predicted to be near the best start"
        why = near if alike else f"none is alike (at most {most:.0%})"
        return f"nothing is carried over from {len(cases)} cases of other campaigns: {why}"
    origins = dict.fromkeys((row["case"], row["store"]) for row in carried)
    where = ", ".join(f"{case} in {store}" for case, store in origins)
    return f"{len(carried)} mappings are carried over from {where}"


def warm_facts(case: str, opened: Facts, cells: Sequence[Held]) -> Facts:
    """The facts about what was carried over to a case. `first_s` is the step time of the first carried placement, and
    `own_first_s` that of the first measured one that a search chose itself (medians over the searches; None if there is
    none).
    """
    warm = opened[WARM]
    count = len(warm["carried"])
    return {
        "case": case,
        "carried": [{name: row[name] for name in row if name != "placement"} for row in warm["carried"]],
        "cases": warm["cases"],
        "start_s": warm["start_s"],
        "first_s": _median_s([held.trials[:1] for held in cells]) if count else None,
        "own_first_s": _median_s([held.trials[count:] for held in cells]),
        "line": carried_line(warm),
    }


def _median_s(searches: Sequence[Sequence[StoredTrial]]) -> float | None:
    """The median step time of the first trial of each search that was not refused; None if none of these ran."""
    firsts = (next((trial.result for trial in trials if not trial.refused), None) for trials in searches)
    ran = [result.step_s for result in firsts if isinstance(result, Measured)]
    return median(ran) if ran else None


def stored_shape(problem: Problem) -> bytes:
    """A problem's shape as it is stored, with which other campaigns carry its placements over."""
    return msgspec.msgpack.encode(Shape.of(problem))
