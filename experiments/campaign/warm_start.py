"""Warm starts: what other campaigns found fastest for alike cases, carried over to a case before its searches begin."""

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
from experiments.campaign.store import SHAPE, CampaignStore, Held, is_store
from placer.errors import BadInputError
from placer.result import Measured
from search.initial.carried import carried
from search.initial.likeness import Shape, likeness
from search.initial.starts import starts
from search.problem.problem import Placement, Problem
from search.problem.searcher import never

MOST = 3  # placements carried to a case, each of which every search of it measures
LEAST = 0.5  # likeness of a case from which anything is carried
FAR = 1.1  # nothing is carried that is predicted so many times slower than the best start that is known without it
WARM = "warm_start"  # key of what is stored with an opened case

Facts = dict[str, Any]


@dataclass(frozen=True)
class Source:
    """A case of another campaign: its shape, and (seconds, placement) of its mappings that beat the best single device,
    the fastest first.
    """

    store: str
    case: str
    objective: str
    shape: Shape | None  # None where an older Placer stored none
    fastest: tuple[tuple[float, Placement], ...]


def check_stores(paths: Sequence[Path], own: Path) -> None:
    """Raises BadInputError for a warm start from what is no store, or from the campaign's own."""
    for path in paths:
        if path.resolve() == own.resolve():
            raise BadInputError(f"the warm start {path} is this campaign's own store; name another campaign's.")
        if not is_store(path):
            raise BadInputError(f"the warm start {path} is no campaign's store; name the .sqlite file of one.")


def read_sources(paths: Sequence[tuple[str, Path]]) -> list[Source]:
    """The cases of stores, which are given as (name, path). Raises PlacerError for one that cannot be read."""
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
    """The MOST fastest placements, of those that were stepped to the end and beat the best single device."""
    ran = sorted(
        (trial.result.step_s, trial.placement)
        for held in cells
        for trial in held.trials
        if isinstance(trial.result, Measured) and not trial.result.stopped_early and trial.result.step_s < single_s
    )
    first = {placement: step_s for step_s, placement in reversed(ran)}
    return tuple(sorted((step_s, placement) for placement, step_s in first.items())[:MOST])


def warm_start(problem: Problem, sources: Sequence[Source], told: Sequence[Placement]) -> Facts:
    """What is carried over to a problem, as plain data to be stored. told: placements that its searches are told.

    `carried`: each placement, with where it is from, what it came to there and what is predicted here, the fastest of
    the most alike case first. `cases`: all of the sources, with their likeness or why nothing is carried. `start_s`:
    what is predicted for the best mapping with which a search begins without.
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
    """0 for a case of another objective or of a store without shapes."""
    if source.shape is None or source.objective != problem.objective:
        return 0.0
    return likeness(source.shape, target)


def _in_turn(sources: Sequence[Source]) -> Iterator[tuple[Source, float, Placement]]:
    """The fastest placement of each source, then the second of each, and so on."""
    for row in zip_longest(*([(source, *found) for found in source.fastest] for source in sources)):
        yield from (item for item in row if item is not None)


def carried_placements(opened: Facts) -> list[Placement]:
    """What is asked first in a case, by what was stored when it was opened."""
    return [tuple(row["placement"]) for row in opened.get(WARM, {}).get("carried", [])]


def carried_line(warm: Facts) -> str:
    """What is carried over to a case, in a line."""
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
    """What was carried over to a case, and what came of it: `first_s` is what the first of it came to, `own_first_s`
    what the first mapping that a search chose itself came to (medians over the searches; None where there is none).
    """
    warm = opened[WARM]
    count = len(warm["carried"])
    return {
        "case": case,
        "carried": [{name: row[name] for name in row if name != "placement"} for row in warm["carried"]],
        "cases": warm["cases"],
        "start_s": warm["start_s"],
        "first_s": _median_s(cells, 0) if count else None,
        "own_first_s": _median_s(cells, count),
        "line": carried_line(warm),
    }


def _median_s(cells: Sequence[Held], n: int) -> float | None:
    results = [held.trials[n].result for held in cells if len(held.trials) > n]
    ran = [result.step_s for result in results if isinstance(result, Measured)]
    return median(ran) if ran else None


def stored_shape(problem: Problem) -> bytes:
    """A problem's shape as it is stored, from which other campaigns carry."""
    return msgspec.msgpack.encode(Shape.of(problem))
